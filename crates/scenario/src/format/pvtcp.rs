//! PVTCP in a group's guests.

use evenkeel_settings::Mode;
use evenkeel_settings::pvtcp::PvtcpOverride;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// PVTCP, the guest module. What is left out is as the module has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Pvtcp {
    /// The module's parameters.
    #[serde(flatten)]
    pub set: PvtcpOverride,
    /// Unload the module and load it again so many times while the workload runs.
    #[schemars(range(min = 0, max = 10_000))]
    pub reloads: u32,
}

impl Pvtcp {
    /// The mode, off by default.
    pub fn mode(&self) -> Mode {
        self.set.mode()
    }
}
