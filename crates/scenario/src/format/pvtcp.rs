//! PVTCP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Mode;

/// PVTCP, the guest module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pvtcp {
    /// Off, observe or enforce.
    pub mode: Mode,
    /// Hold the RTO timer off after a wake-up.
    pub hold_rto: bool,
    /// Hold the tail-loss probe's timer off after a wake-up.
    pub hold_tlp: bool,
    /// Hold RACK's reordering timer off after a wake-up.
    pub hold_reo: bool,
    /// Replace RTT samples that span a wake-up by SRTT.
    pub rtt_filter: bool,
    /// Acknowledge the first three segments after a wake-up at once.
    pub quick_ack: bool,
    /// A tick later than this is a wake-up. Left out: the module's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 200, max = 1_000_000))]
    pub late_us: Option<u32>,
    /// Held timers wait at least this long after a wake-up. Left out: the module's 1 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 20_000))]
    pub hold_min_us: Option<u32>,
    /// Held timers wait at most this long for the backlog of packets. Left out: the module's 4 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub hold_max_us: Option<u32>,
    /// Unload the module and load it again so many times while the workload runs.
    #[schemars(range(min = 0, max = 10_000))]
    pub reloads: u32,
}

impl Pvtcp {
    /// Segments that are acknowledged at once after a wake-up where `quick_ack` is set (PVTCP-slides 26).
    const QUICK_ACK_SEGMENTS: u32 = 3;

    /// The same, or 0 where it is not set.
    pub fn jit_segments(&self) -> u32 {
        if self.quick_ack { Self::QUICK_ACK_SEGMENTS } else { 0 }
    }
}

impl Default for Pvtcp {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            hold_rto: true,
            hold_tlp: true,
            hold_reo: true,
            rtt_filter: true,
            quick_ack: true,
            late_us: None,
            hold_min_us: None,
            hold_max_us: None,
            reloads: 0,
        }
    }
}
