//! ProBoSCIS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Mode;

/// ProBoSCIS on the hosts of these VMs: probes before a SYN, the first window by what came of them, DCTCP by receive
/// window afterwards. What is left out is as the agent has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Proboscis {
    /// Off, observe or enforce.
    pub mode: Mode,
    /// g: probes before a SYN. 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub g_probes: Option<u32>,
    /// k1: share of marked bytes from which windows are limited, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub k1_permille: Option<u32>,
    /// k2: share of marked probes above which a connection begins with one segment, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub k2_permille: Option<u32>,
    /// K: share of probes that must have come, or a connection begins with one segment.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub k_percent: Option<u32>,
    /// b1: probes of an unanswered SYN are sent again after this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1000, max = 10_000_000))]
    pub b1_us: Option<u32>,
    /// b2: an unanswered SYN is sent again after this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1000, max = 10_000_000))]
    pub b2_us: Option<u32>,
    /// b3: a SYN-ACK waits no longer than this for late probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub b3_us: Option<u32>,
    /// MAX_TIME: nothing is sent again later than this after the SYN.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub max_time_us: Option<u32>,
    /// ICWND: the first window where no probe is marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub icwnd_segments: Option<u32>,
    /// Flows that have sent more than this are left alone. 0: none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4_294_967_295_u64))]
    pub elephant_bytes: Option<u64>,
    /// Whether guests without ECN have the host's. Left out: they have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn_for_guests: Option<bool>,
}
