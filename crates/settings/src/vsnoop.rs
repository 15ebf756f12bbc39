//! vSnoop's settings.

use evenkeel_algo::vsnoop;

use crate::table::{Scope, settings};
use crate::value::{Bounded, Mode, words};

/// Segments at a port that may be acknowledged before the VM has them.
pub type BudgetSegments = Bounded<1, 1_000_000>;

words! {
    /// What shows that a VM's own TCP takes whatever its windows have offered.
    pub enum Proof {
        /// Those whose `evenkeel guest` vouches for their TCP.
        Attested = "attested",
        /// Where no such agent says anything, what the host sees of a VM is enough.
        Observed = "observed",
    }
}

settings! {
    /// vSnoop: acknowledges data for a VM while that waits at its port, so that the sender goes on. Only on taps.
    /// Enforced, data is promised to its sender before the VM has it: see docs/vsnoop.md.
    pub struct Vsnoop, override VsnoopOverride;
    /// Whether it acts:
    mode: Mode = Mode::Off;
    /// For which VMs it acts; a guest that says no is never acknowledged for.
    endpoint: Proof = Proof::Attested, scope Scope::Agent;
    /// Segments at a port, of all its connections: those that wait, and those that early ACKs may still let come.
    budget_segments: Option<BudgetSegments> = None, left_out "half of the port's queue", example 2000;
}

impl Vsnoop {
    /// The budget on a port with a queue of this length.
    pub fn budget_segments(&self, queue_segments: u32) -> u32 {
        self.budget_segments.map_or_else(|| vsnoop::budget(queue_segments), Bounded::get)
    }
}
