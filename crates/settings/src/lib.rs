//! The settings of every mechanism, once: type, unit, bounds, default and the sentence that explains each.
//!
//! One table per mechanism (`proboscis`, `vsnoop`, `vflood`, `cera`, `pvtcp`) makes what users and programs see of it:
//!
//! | from the table | where |
//! |---|---|
//! | host.toml and guest.toml, `--print-config` | [`host::example`], [`guest::example`] |
//! | what single ports have otherwise; a scenario's keys and their JSON schema | the structures `…Override` |
//! | the tables in the documentation | [`table::markdown`] |
//! | what the logic of `algo/` takes, on hosts and in the simulator | [`proboscis::Proboscis::timers`], … |
//! | the parameters of `evenkeel guest pvtcp load` | [`pvtcp::Pvtcp`]'s keys |

pub mod address;
pub mod cera;
mod error;
pub mod generated;
pub mod guest;
pub mod host;
mod pattern;
pub mod proboscis;
pub mod pvtcp;
pub mod table;
pub mod value;
pub mod vflood;
pub mod vsnoop;

pub use error::{ConfigError, parse};
pub use pattern::Pattern;
pub use table::{Key, Table};
pub use value::{Bounded, Mode};

/// Time between two heartbeats that a channel may have, in milliseconds.
pub const HEARTBEAT_MS: std::ops::RangeInclusive<u16> = 50..=5000;
/// The same as a setting.
pub type HeartbeatMs = Bounded<{ *HEARTBEAT_MS.start() as u32 }, { *HEARTBEAT_MS.end() as u32 }>;
