//! Models of hosts' schedulers, without I/O: who runs on a host's CPUs, and when.
//!
//! A host has cores. Entities (virtual CPUs of VMs, threads of neighbours) become runnable ([`Scheduler::wake`]), wait,
//! run, and halt ([`Scheduler::block`]). A model decides who runs; its driver keeps the time and does the work:
//!
//! ```text
//!             wake                     Runs
//!   Blocked ---------> Waiting ------------------> Running
//!      ^                  ^   <------------------    |
//!      |                  |    Stops: Preempted,     |
//!      |                  |    SliceOver, Throttled  |
//!      +------------------+--------------------------+
//!                         block (Stops: Blocked)
//! ```
//!
//! The driver asks for the next instant at which the model has something to decide ([`Scheduler::next_event`]) and
//! calls [`Scheduler::advance`] then, unless an entity wakes up or halts before. Every call appends the changes, in
//! order, to a buffer of the driver's, so that no event allocates memory. Calls come in the order of time; a call first
//! does everything that was due before it or at its own instant.
//!
//! | model | what it is |
//! |---|---|
//! | [`slices`] | timelines that are drawn, one for each virtual CPU, whatever the others do |
//! | [`credit`] | Xen's credit scheduler |
//! | [`linux`] | Linux's EEVDF, with groups ([`quota`]: their bandwidth) |
//!
//! Nothing here uses floating-point numbers, and random numbers come from a seed: the same calls have the same effects
//! on every machine.

pub mod credit;
pub mod linux;
pub mod quota;
pub mod slices;
pub mod timeline;
pub(super) mod timers;

use crate::time::Instant;

/// One of the host's CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u32);

/// What a scheduler runs: a virtual CPU or a neighbour's thread, numbered in the order of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId(pub u32);

/// Why an entity stops running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It has nothing to do.
    Blocked,
    /// An entity that woke up goes before it.
    Preempted,
    /// It has had its slice, and another entity waits.
    SliceOver,
    /// Its VM has used up its quota or exceeded its cap.
    Throttled,
}

/// What happens to an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// It starts running.
    Runs,
    /// It stops.
    Stops(Why),
}

/// An entity starts or stops running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The simulated time.
    pub at: Instant,
    /// On which core.
    pub core: CoreId,
    /// The entity's number.
    pub entity: EntityId,
    /// Starts or stops.
    pub what: What,
}

/// A host's scheduler.
pub trait Scheduler {
    /// An entity has something to do. Nothing happens if it is awake already.
    fn wake(&mut self, entity: EntityId, now: Instant, changes: &mut Vec<Change>);

    /// An entity has nothing more to do, whether it runs or waits. Nothing happens if it is blocked already.
    fn block(&mut self, entity: EntityId, now: Instant, changes: &mut Vec<Change>);

    /// When the scheduler has something to decide next, if nobody wakes up or halts before.
    fn next_event(&self) -> Option<Instant>;

    /// Decides what is due by now.
    fn advance(&mut self, now: Instant, changes: &mut Vec<Change>);

    /// The entity that runs on a core.
    fn running(&self, core: CoreId) -> Option<EntityId>;

    /// How many cores there are.
    fn cores(&self) -> u32;
}
