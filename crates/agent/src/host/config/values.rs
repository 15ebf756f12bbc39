//! Values that a configuration may hold, with their bounds.

use evenkeel_quote::quoted;
use globset::{Glob, GlobMatcher};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Mode;
use crate::channel::{HostAddress, PORT_WORD};
use crate::datapath::intf;

impl Mode {
    /// As the datapath has it.
    pub(in crate::host) fn to_intf(self) -> u32 {
        match self {
            Self::Off => intf::EK_MODE_OFF,
            Self::Observe => intf::EK_MODE_OBSERVE,
            Self::Enforce => intf::EK_MODE_ENFORCE,
        }
    }
}

/// A pattern for names of ports, as in `vnet*`.
#[derive(Debug, Clone)]
pub struct Pattern(GlobMatcher);

impl Pattern {
    /// Reads a pattern: `*` any text, `?` one character, `[abc]` one of them, `{a,b}` either.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("an empty pattern matches no port".to_owned());
        }
        Glob::new(text).map(|glob| Self(glob.compile_matcher())).map_err(|error| error.kind().to_string())
    }

    /// A pattern of this program's own.
    pub(super) fn literal(text: &str) -> Self {
        Self::new(text).expect("patterns in the source are valid")
    }

    /// Whether a port of this name is meant.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }

    /// Whether only one name matches.
    pub fn is_one_name(&self) -> bool {
        !self.as_str().contains(['*', '?', '[', '{', '\\'])
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        self.0.glob().glob()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(|why| {
            D::Error::custom(format!(
                "{} is no pattern of port names ({why}); allowed are names with *, ?, [abc] and {{a,b}}",
                quoted(&text)
            ))
        })
    }
}

/// Where a port's channel to its guest's agent is, as it is written: `{port}` stands for the name of the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ChannelAddress(String);

impl ChannelAddress {
    /// That of the port of this name.
    #[must_use]
    pub fn of(&self, port: &str) -> Self {
        Self(self.0.replace(PORT_WORD, port))
    }

    /// Whether ports of different names have different ones.
    pub fn has_port_name(&self) -> bool {
        self.0.contains(PORT_WORD)
    }

    /// Where that is.
    ///
    /// # Errors
    /// What is wrong with it, and what is allowed.
    pub fn parse(&self) -> Result<HostAddress, String> {
        self.0.parse()
    }
}

impl<'de> Deserialize<'de> for ChannelAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // With any name of a device it must be one.
        text.replace(PORT_WORD, "0").parse::<HostAddress>().map_err(D::Error::custom)?;
        Ok(Self(text))
    }
}
