//! The guest agent's configuration: every key with its unit, its bounds and its default, in this one place.

use std::fmt;
use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::channel::{GuestAddress, PORT_NAME, wire};
use crate::common::config::{ConfigError, parse};
use crate::common::value::{Bounded, Mode};

/// Where the configuration is unless something else is said.
pub const DEFAULT_FILE: &str = "/etc/evenkeel/guest.toml";
/// Where the agent keeps its lock and its state.
pub const DEFAULT_RUN_DIR: &str = "/run/evenkeel";
/// Where maps are pinned.
pub const DEFAULT_PIN_DIR: &str = "/sys/fs/bpf/evenkeel-guest";
/// A commented configuration with all keys at their defaults.
pub const EXAMPLE: &str = include_str!("../../../../../packaging/guest.toml");

/// Time between two heartbeats on the channel.
pub type HeartbeatMs = Bounded<{ *wire::HEARTBEAT_MS.start() as u32 }, { *wire::HEARTBEAT_MS.end() as u32 }>;
/// A share of a core.
pub type Percent = Bounded<1, 100>;

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The channel to the host's agent.
    pub channel: Channel,
    /// vFlood.
    pub vflood: Vflood,
    /// CERA's client.
    pub cera: Cera,
}

/// The channel to the host's agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Channel {
    /// Where it is.
    pub address: Address,
    /// Time between two heartbeats; a host that misses three takes the guest for one without an agent.
    pub heartbeat_ms: HeartbeatMs,
}

/// A [`GuestAddress`] as configurations have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(pub GuestAddress);

/// vFlood in the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vflood {
    /// Whether the congestion control `vflood` is there, and whether it floods.
    pub mode: Mode,
    /// Whether connections that choose none get it.
    pub default: bool,
    /// How the window grows that holds where nothing is flooded.
    pub congestion_control: Shadow,
    /// Whether F-RTO is switched off in this guest meanwhile.
    pub disable_f_rto: bool,
}

/// An algorithm of the shadow window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shadow {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    Cubic,
}

/// CERA's client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cera {
    /// Whether it acts.
    pub mode: Mode,
    /// How much of a core its passes over all sockets may take; windows that come faster are left out.
    pub max_core_percent: Percent,
}

impl Default for Channel {
    fn default() -> Self {
        Self { address: Address(GuestAddress::VirtioSerial(PORT_NAME.to_owned())), heartbeat_ms: Bounded::new(200) }
    }
}

impl Default for Vflood {
    fn default() -> Self {
        Self { mode: Mode::Enforce, default: false, congestion_control: Shadow::Cubic, disable_f_rto: true }
    }
}

impl Default for Cera {
    fn default() -> Self {
        Self { mode: Mode::Enforce, max_core_percent: Bounded::new(20) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`] with all that is needed to mend the file.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let (text, _) =
            crate::file::read(file).map_err(|source| ConfigError::Read { file: file.to_owned(), source })?;
        Self::parse(&text, file)
    }

    /// Checks the text of a configuration. `file` is what errors call it.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`]
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let config: Self = parse(text, file)?;
        if config.vflood.mode == Mode::Off && config.vflood.default {
            return Err(ConfigError::Invalid {
                file: file.to_owned(),
                line: None,
                key: "vflood.default".to_owned(),
                message: "true has no effect with vflood.mode = \"off\"; allowed are false, or another mode".to_owned(),
            });
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Config::parse(text, Path::new("guest.toml")).unwrap_err().to_string()
    }

    #[test]
    fn the_example_is_the_default_and_names_every_key() {
        assert_eq!(Config::parse(EXAMPLE, Path::new("example")).unwrap(), Config::default());
        assert_eq!(Config::parse("", Path::new("empty")).unwrap(), Config::default());
        let text = toml::to_string(&Config::default()).unwrap();
        for line in text.lines().filter(|line| line.contains(" = ")) {
            assert!(EXAMPLE.lines().any(|other| other == line), "the example lacks `{line}`");
        }
    }

    #[test]
    fn bounds_are_in_the_comment_above() {
        for (table, key) in [("channel", "heartbeat_ms"), ("cera", "max_core_percent")] {
            let error = refused(&format!("[{table}]\n{key} = 0\n"));
            let (_, bounds) = error.split_once("expected a whole number from ").unwrap();
            let place = EXAMPLE.find(&format!("\n{key} = ")).unwrap();
            let comment = EXAMPLE[..place].lines().last().unwrap();
            assert!(comment.contains(&bounds.replace(" to ", "-")), "{key}: {bounds} is not in `{comment}`");
        }
    }

    #[test]
    fn an_error_names_file_line_key_and_what_is_allowed() {
        for (text, expected) in [
            (
                "[vflood]\nmode = \"on\"\n",
                "guest.toml:2: vflood.mode: unknown variant `on`, expected one of `off`, `observe`",
            ),
            (
                "[vflood]\ncongestion_control = \"vegas\"\n",
                "guest.toml:2: vflood.congestion_control: unknown variant `vegas`, expected `reno` or",
            ),
            (
                "[channel]\naddress = \"/dev/vport0p1\"\n",
                "guest.toml:2: channel.address: `/dev/vport0p1` is no channel (it begins with none of them); allowed \
                 are virtio-serial:NAME",
            ),
            ("[vflood]\nmode = \"off\"\ndefault = true\n", "guest.toml: vflood.default: true has no effect"),
            ("[pvtcp]\n", "guest.toml:1: pvtcp: unknown field `pvtcp`, expected one of `channel`, `vflood`, `cera`"),
        ] {
            let error = refused(text);
            assert!(error.starts_with(expected), "{error}\n{expected}");
        }
    }
}
