//! What can be recorded of a run.

use crate::event::Event;
use crate::packet::{ConnId, GuestId, Packet};
use crate::tcp::{ConnStats, Connection, Note, TimerKind};
use crate::time::{Duration, Instant};
use crate::workload::{FlowId, Side};

/// Where a packet is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// In the guest itself.
    Guest,
    /// On the host's side of its port. Machines without a hypervisor have none.
    Port,
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the guest.
    In,
    /// From the guest.
    Out,
}

/// Whether a virtual CPU has its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreState {
    /// It has its core.
    Has,
    /// It waits for its core.
    Waits,
    /// It has nothing to do.
    Halted,
}

/// Why a packet comes out of a port's mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It went in.
    Passes,
    /// It went in at that instant, and was held since.
    Held(Instant),
    /// The host acknowledges on the VM's behalf.
    EarlyAck,
    /// The host has made it, or sends it again.
    Host,
}

/// Observes a run. Calls that it does not override cost nothing.
pub trait Recorder {
    /// Whether it needs the calls that serve only traces: all from [`Recorder::opened`] on.
    const TRACES: bool = false;

    /// An event is about to happen.
    #[inline]
    fn event(&mut self, _now: Instant, _event: Event) {}

    /// A connection reports something.
    #[inline]
    fn note(&mut self, _now: Instant, _flow: FlowId, _side: Side, _note: &Note) {}

    /// A packet passes.
    #[inline]
    fn packet(&mut self, _now: Instant, _guest: GuestId, _point: Point, _way: Way, _packet: &Packet) {}

    /// A packet has waited at the watched port. `from` is its sender, if its connection is still open.
    #[inline]
    fn waited(&mut self, _now: Instant, _from: Option<GuestId>, _wait: Duration) {}

    /// A virtual CPU has its core after it has waited for it.
    #[inline]
    fn vcpu_waited(&mut self, _guest: GuestId, _since: Instant, _until: Instant) {}

    /// A connection is closed; one call for each side.
    #[inline]
    fn closed(&mut self, _now: Instant, _flow: FlowId, _side: Side, _stats: &ConnStats) {}

    /// A connection is opened: its ends and their guests, the opener's first.
    #[inline]
    fn opened(&mut self, _now: Instant, _flow: FlowId, _ends: [ConnId; 2], _guests: [GuestId; 2]) {}

    /// A packet comes out of the mechanisms at a guest's port. [`Recorder::packet`] reports what goes in.
    #[inline]
    fn passed(&mut self, _now: Instant, _guest: GuestId, _way: Way, _packet: &Packet, _origin: Origin) {}

    /// One end of a connection has done something. `held` is when its held timer runs at the latest.
    #[inline]
    fn acted(&mut self, _now: Instant, _end: ConnId, _connection: &Connection, _held: Option<Instant>) {}

    /// A timer is about to run.
    #[inline]
    fn fires(&mut self, _now: Instant, _end: ConnId, _kind: TimerKind) {}

    /// A timer that should run is held back.
    #[inline]
    fn held(&mut self, _now: Instant, _end: ConnId, _kind: TimerKind) {}

    /// A virtual CPU has its core, or has it no longer.
    #[inline]
    fn core(&mut self, _now: Instant, _guest: GuestId, _state: CoreState) {}

    /// PVTCP has noticed that its virtual CPU was off its core for this long.
    #[inline]
    fn woke_up(&mut self, _now: Instant, _guest: GuestId, _off_us: u64) {}
}

/// Records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecorder;

impl Recorder for NoRecorder {}
