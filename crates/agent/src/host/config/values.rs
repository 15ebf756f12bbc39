//! Values that a configuration may hold, with their bounds.

use std::fmt;

use crate::datapath::intf;
use evenkeel_quote::quoted;
use globset::{Glob, GlobMatcher};
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::channel::{HostAddress, PORT_WORD};

/// A whole number that is refused outside `MIN..=MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bounded<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Bounded<MIN, MAX> {
    /// A value known to be within the bounds; anything else does not compile where it is used for a constant.
    pub const fn new(value: u32) -> Self {
        assert!(value >= MIN && value <= MAX, "out of bounds");
        Self(value)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const MIN: u32, const MAX: u32> fmt::Display for Bounded<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const MIN: u32, const MAX: u32> Serialize for Bounded<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<const MIN: u32, const MAX: u32>;
        impl<const MIN: u32, const MAX: u32> serde::de::Visitor<'_> for Visitor<MIN, MAX> {
            type Value = Bounded<MIN, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {MIN} to {MAX}")
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
                let fits = u32::try_from(value).ok().filter(|v| (MIN..=MAX).contains(v));
                fits.map(Bounded).ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
                let fits = u32::try_from(value).ok().filter(|v| (MIN..=MAX).contains(v));
                fits.map(Bounded).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
            }
        }
        deserializer.deserialize_u32(Visitor::<MIN, MAX>)
    }
}

/// What a mechanism may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing: its packets are not even looked at.
    #[default]
    Off,
    /// Count what it would do, change nothing.
    Observe,
    /// Act.
    Enforce,
}

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

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        })
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
