//! What can be recorded of a run.

use crate::event::Event;
use crate::packet::{GuestId, Packet};
use crate::tcp::{ConnStats, Note};
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

/// Is told what happens. What it does not care for costs nothing.
pub trait Recorder {
    /// An event is about to happen.
    #[inline]
    fn event(&mut self, _now: Instant, _event: Event) {}

    /// A connection tells something.
    #[inline]
    fn note(&mut self, _now: Instant, _flow: FlowId, _side: Side, _note: &Note) {}

    /// A packet passes.
    #[inline]
    fn packet(&mut self, _now: Instant, _guest: GuestId, _point: Point, _way: Way, _packet: &Packet) {}

    /// A packet has waited at the watched port. `from` is who sent it, if its connection is still there.
    #[inline]
    fn waited(&mut self, _now: Instant, _from: Option<GuestId>, _wait: Duration) {}

    /// A virtual CPU has its core after it has waited for it.
    #[inline]
    fn vcpu_waited(&mut self, _guest: GuestId, _since: Instant, _until: Instant) {}

    /// A connection is closed; one call for each side.
    #[inline]
    fn closed(&mut self, _now: Instant, _flow: FlowId, _side: Side, _stats: &ConnStats) {}
}

/// Records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecorder;

impl Recorder for NoRecorder {}
