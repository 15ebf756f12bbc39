//! The guest agent's configuration.

use std::path::Path;

use crate::HeartbeatMs;
use crate::address::{Address, GuestAddress, PORT_NAME};
use crate::cera::CeraGuest;
use crate::error::{ConfigError, parse};
use crate::table::{comment, example as table, settings};
use crate::value::{Bounded, Mode};
use crate::vflood::VfloodGuest;

/// Default path of the configuration.
pub const DEFAULT_FILE: &str = "/etc/evenkeel/guest.toml";
/// Where the agent keeps its lock and its state.
pub const DEFAULT_RUN_DIR: &str = "/run/evenkeel";
/// Where maps are pinned.
pub const DEFAULT_PIN_DIR: &str = "/sys/fs/bpf/evenkeel-guest";

settings! {
    /// The channel to the host's agent.
    pub struct Channel;
    /// Address of the channel: virtio-serial:NAME (the port's name), vsock:PORT (the host connects to it) or
    /// tcp:ADDRESS:PORT,from=ADDRESS (where this guest listens, and the host's address: nobody else may connect).
    address: Address = Address(GuestAddress::VirtioSerial(PORT_NAME.to_owned()));
    /// Time between two heartbeats; after three missed ones the host takes this guest for one without an agent.
    heartbeat_ms: HeartbeatMs = Bounded::new(200);
}

settings! {
    /// The whole configuration.
    pub struct Config;
    table channel: Channel;
    table vflood: VfloodGuest;
    table cera: CeraGuest;
}

/// A commented configuration with all keys at their defaults.
pub fn example() -> String {
    const HEAD: &str =
        "Configuration of `evenkeel guest`: every key, at its default. Leave out what you do not change.";
    const RELOAD: &str = "The agent reads it again on SIGHUP (systemctl reload evenkeel-guest); a file with an error \
                          is refused and the old settings stay.";
    let head = comment(HEAD) + &comment(RELOAD) + "\n";
    let tables = [table::<Channel>("channel"), table::<VfloodGuest>("vflood"), table::<CeraGuest>("cera")];
    (head + &tables.concat()).trim_end().to_owned() + "\n"
}

impl Config {
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
        assert_eq!(Config::parse(&example(), Path::new("example")).unwrap(), Config::default());
        assert_eq!(Config::parse("", Path::new("empty")).unwrap(), Config::default());
        let text = toml::to_string(&Config::default()).unwrap();
        for line in text.lines().filter(|line| line.contains(" = ")) {
            assert!(example().lines().any(|other| other == line), "the example lacks `{line}`");
        }
    }

    #[test]
    fn bounds_are_in_the_comment_above() {
        for (table, key) in [("channel", "heartbeat_ms"), ("cera", "max_core_percent")] {
            let error = refused(&format!("[{table}]\n{key} = 0\n"));
            let (_, bounds) = error.split_once("expected a whole number from ").unwrap();
            let example = example();
            let place = example.find(&format!("\n{key} = ")).unwrap();
            let comment = example[..place].lines().last().unwrap();
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
