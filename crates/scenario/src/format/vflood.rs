//! vFlood on the hosts of a group and in its guests.

use evenkeel_settings::Mode;
use evenkeel_settings::vflood::VfloodOverride;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// vFlood: the guests flood their hosts, which hold what they are given and send it under a congestion window of their
/// own. The guests' own congestion control (`tcp.congestion_control`) goes on in the background, for when they are
/// offline; the host's is the same unless something else is said, and `cubic` where it has none of that name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Vflood {
    /// What the hosts' agents have, too.
    #[serde(flatten)]
    pub set: VfloodOverride,
    /// So many VMs of the group, the first ones, have it, and the others are plain. Left out: all. Only the lab can.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub clients: Option<u32>,
}

impl Vflood {
    /// The mode, off by default.
    pub fn mode(&self) -> Mode {
        self.set.mode()
    }

    /// The mode in the group's VM with this number, counted from 0.
    pub fn mode_of(&self, number: u32) -> Mode {
        if self.clients.is_none_or(|clients| number < clients) { self.mode() } else { Mode::Off }
    }
}
