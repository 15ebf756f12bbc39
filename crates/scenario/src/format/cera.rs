//! CERA on the hosts of a group.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Mode;

/// CERA on the hosts of these VMs: one window for a host, divided among its VMs and the flows of each, whenever too
/// much waits at its network card. What is left out is as the agent has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cera {
    /// Off, observe or enforce.
    pub mode: Mode,
    /// T_u: windows are cut when more than this waits at the network card. Left out: 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub high_segments: Option<u32>,
    /// T_l: what is to wait then. Left out: half of `high_segments`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub low_segments: Option<u32>,
    /// Delta: how often the network card's queue is looked at. Left out: 1000, and at less than 1 Gbit/s as much longer
    /// as the rate is lower.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 1_000_000))]
    pub epoch_us: Option<u32>,
    /// M: a VM's traffic is what it has sent in so many epochs. Left out: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub epochs: Option<u32>,
    /// d: round-trip time without the time in the queue. Left out: the least that handshakes of the last seconds have
    /// shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub rtt_us: Option<u32>,
    /// mu: weights of the VMs by their number; with fewer weights than VMs they begin anew. Left out: all have the
    /// same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(range(min = 1, max = 10_000)))]
    pub weights: Vec<u32>,
    /// How many VMs have CERA's client, which sets their windows; the first ones. Those of the others are limited in
    /// the ACKs that pass the host. Left out: all have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4096))]
    pub clients: Option<u32>,
    /// How long the host's word takes to a client. Left out: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub client_delay_us: Option<u32>,
    /// How the window is divided among VMs.
    pub shares: Shares,
}

/// How CERA divides a host's window among its VMs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shares {
    /// By weight, but none more than about twice what it sends.
    #[default]
    Need,
    /// By weight times what was sent: CERA eq. 2 as it is printed.
    Printed,
}
