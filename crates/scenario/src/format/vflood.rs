//! vFlood and vSnoop.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Mode;

/// vFlood: the guests flood their hosts, which hold what they are given and send it under a congestion window of their
/// own. The guests' own congestion control (`tcp.congestion_control`) goes on in the background, for when they are
/// offline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Vflood {
    /// Off, observe or enforce.
    pub mode: Mode,
    /// So many VMs of the group, the first ones, have it, and the others are plain. Left out: all. Only the lab can.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub clients: Option<u32>,
    /// It acts while a VM's core is missing for so much of the time, and rests otherwise; 0: always. Left out: 25. Only
    /// the lab can rest; the simulator's hosts always act.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub off_core_percent: Option<u32>,
    /// Who may hold how much of a VM's buffer.
    pub policy: BufferPolicy,
    /// B: what is held for a VM at most. Left out: 2048.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub buffer_segments: Option<u32>,
    /// The host's congestion control. Left out: `reno` where the guests have it (`tcp.congestion_control`), otherwise
    /// `cubic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<HostCongestion>,
    /// Flows with a shorter RTT are of low RTT. Left out: 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub low_rtt_us: Option<u32>,
    /// Alpha of vFlood eq. 1, in steps of 1/16. Left out: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0625, max = 64))]
    pub alpha: Option<f64>,
    /// Policy `priority`: alpha of flows of low RTT. Left out: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0625, max = 64))]
    pub alpha_low_rtt: Option<f64>,
}

impl Vflood {
    /// The mode in the group's VM with this number, counted from 0.
    pub fn mode_of(&self, number: u32) -> Mode {
        if self.clients.is_none_or(|clients| number < clients) { self.mode } else { Mode::Off }
    }
}

/// How a VM's buffer is shared by its flows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BufferPolicy {
    /// First come, first served.
    None,
    /// A flow may hold alpha times what is unused.
    #[default]
    Fair,
    /// With a larger alpha for flows of low RTT.
    Priority,
}

/// Congestion control on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostCongestion {
    /// Reno (RFC 5681), as the paper's prototype.
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// Vegas.
    Vegas,
}

/// vSnoop: the host acknowledges data for VMs that are off their core.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Vsnoop {
    /// Off, observe or enforce.
    pub mode: Mode,
    /// Packets at a VM's port that may be acknowledged before the VM has them. Left out: half of `port_queue_segments`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub budget_segments: Option<u32>,
}
