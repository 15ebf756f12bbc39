//! vSnoop's settings.

use evenkeel_algo::vsnoop;

use crate::table::{Scope, settings};
use crate::value::{Bounded, Mode, words};

/// Segments at a port that may be acknowledged before the VM has them.
pub type BudgetSegments = Bounded<1, 1_000_000>;

words! {
    /// Proof that a VM's own TCP takes all data that its windows have offered.
    pub enum Proof {
        /// Those whose guest agent vouches for their TCP.
        Attested = "attested",
        /// Also those without a guest agent, if what the host sees of them is enough.
        Observed = "observed",
    }
}

settings! {
    /// vSnoop: acknowledges data for a VM while it waits at the VM's port, so that the sender goes on. Only on taps.
    /// With enforce, data is promised to its sender before the VM has it: see docs/vsnoop.md.
    pub struct Vsnoop, override VsnoopOverride;
    /// Whether it acts:
    mode: Mode = Mode::Off;
    /// The VMs that it acts for (never for a guest whose agent refuses):
    endpoint: Proof = Proof::Attested, scope Scope::Agent;
    /// Segments of all connections of a port: those that wait there, and those that early ACKs still invite.
    budget_segments: Option<BudgetSegments> = None, left_out "half of the port's queue", example 2000;
}

impl Vsnoop {
    /// The budget on a port with a queue of this length.
    pub fn budget_segments(&self, queue_segments: u32) -> u32 {
        self.budget_segments.map_or_else(|| vsnoop::budget(queue_segments), Bounded::get)
    }
}
