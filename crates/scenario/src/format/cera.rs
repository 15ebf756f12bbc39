//! CERA on the hosts of a group and in its guests.

use evenkeel_settings::Mode;
use evenkeel_settings::cera::{CeraOverride, Weight};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// CERA on the hosts of these VMs: one window for a host, divided among its VMs and the flows of each, whenever too
/// much waits at its network card. What is left out is as the agent has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cera {
    /// What the hosts' agents have, too.
    #[serde(flatten)]
    pub set: CeraOverride,
    /// mu: weights of the VMs by their number; with fewer weights than VMs they begin anew. Left out: all have the
    /// same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<Weight>,
    /// How many VMs have CERA's client, which sets their windows; the first ones. Those of the others are limited in
    /// the ACKs that pass the host. Left out: all have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16_384))]
    pub clients: Option<u32>,
    /// How long the host's word takes to a client. Left out: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub client_delay_us: Option<u32>,
}

impl Cera {
    /// The weight of the group's VM with this number, counted from 0.
    pub fn weight_of(&self, number: u32) -> Weight {
        let weights = self.weights.iter().copied();
        weights.cycle().nth(number as usize).unwrap_or_else(|| evenkeel_settings::cera::Cera::default().weight)
    }

    /// The mode, off by default.
    pub fn mode(&self) -> Mode {
        self.set.mode()
    }
}
