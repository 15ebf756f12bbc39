//! vSnoop's keys.

use serde::{Deserialize, Serialize};

use crate::common::value::{Bounded, Mode};

/// Segments at a port that may be acknowledged before the VM has them.
pub type BudgetSegments = Bounded<1, 1_000_000>;

/// What is enough to acknowledge data for a VM before it has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Proof {
    /// The word of the agent in the VM.
    #[default]
    Attested,
    /// Where no agent says anything, what the host sees of the VM.
    Observed,
}

/// vSnoop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vsnoop {
    /// Whether it acts.
    pub mode: Mode,
    /// What shows that a VM's own TCP takes whatever its windows have offered.
    pub endpoint: Proof,
    /// Segments at a port, of all its connections, that may be acknowledged before the VM has them; left out, half of
    /// the port's queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_segments: Option<BudgetSegments>,
}

/// Keys of [`Vsnoop`] that are otherwise on some ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VsnoopOverride {
    /// As [`Vsnoop::mode`].
    pub mode: Option<Mode>,
    /// As [`Vsnoop::endpoint`].
    pub endpoint: Option<Proof>,
    /// As [`Vsnoop::budget_segments`].
    pub budget_segments: Option<BudgetSegments>,
}

impl Default for Vsnoop {
    fn default() -> Self {
        Self { mode: Mode::Off, endpoint: Proof::Attested, budget_segments: None }
    }
}

impl Vsnoop {
    /// The budget on a port with a queue of this length.
    pub fn budget_segments(&self, queue_segments: u32) -> u32 {
        self.budget_segments.map_or(queue_segments / 2, Bounded::get)
    }
}

impl VsnoopOverride {
    pub(in crate::host) fn over(&self, base: Vsnoop) -> Vsnoop {
        Vsnoop {
            mode: self.mode.unwrap_or(base.mode),
            endpoint: self.endpoint.unwrap_or(base.endpoint),
            budget_segments: self.budget_segments.or(base.budget_segments),
        }
    }
}
