//! What every run records, together with an optional trace.

use super::Shared;
use crate::packet::{ConnId, GuestId, Packet};
use crate::tcp::{ConnStats, Connection, Note, TimerKind};
use crate::time::{Duration, Instant};
use crate::workload::{FlowId, Side};
use crate::world::{CoreState, NoRecorder, Origin, Point, Recorder, Way};

/// A recorder that may trace a run.
pub trait Tracing: Recorder {
    /// The measured time begins.
    fn measured(&mut self, _now: Instant) {}
}

impl Tracing for NoRecorder {}

/// The recorder of a run, and its tracer, which may be [`NoRecorder`] at no cost.
#[derive(Debug)]
pub struct Both<T> {
    /// What every run records.
    pub shared: Shared,
    /// The tracer.
    pub tracing: T,
}

impl<T: Tracing> Recorder for Both<T> {
    const TRACES: bool = T::TRACES;

    #[inline]
    fn note(&mut self, now: Instant, flow: FlowId, side: Side, note: &Note) {
        self.shared.note(now, flow, side, note);
        self.tracing.note(now, flow, side, note);
    }

    #[inline]
    fn packet(&mut self, now: Instant, guest: GuestId, point: Point, way: Way, packet: &Packet) {
        self.shared.packet(now, guest, point, way, packet);
        self.tracing.packet(now, guest, point, way, packet);
    }

    #[inline]
    fn waited(&mut self, now: Instant, from: Option<GuestId>, wait: Duration) {
        self.shared.waited(now, from, wait);
    }

    #[inline]
    fn vcpu_waited(&mut self, guest: GuestId, since: Instant, until: Instant) {
        self.shared.vcpu_waited(guest, since, until);
    }

    #[inline]
    fn closed(&mut self, now: Instant, flow: FlowId, side: Side, stats: &ConnStats) {
        self.shared.closed(now, flow, side, stats);
        self.tracing.closed(now, flow, side, stats);
    }

    #[inline]
    fn opened(&mut self, now: Instant, flow: FlowId, ends: [ConnId; 2], guests: [GuestId; 2]) {
        self.tracing.opened(now, flow, ends, guests);
    }

    #[inline]
    fn passed(&mut self, now: Instant, guest: GuestId, way: Way, packet: &Packet, origin: Origin) {
        self.tracing.passed(now, guest, way, packet, origin);
    }

    #[inline]
    fn acted(&mut self, now: Instant, end: ConnId, connection: &Connection, held: Option<Instant>) {
        self.tracing.acted(now, end, connection, held);
    }

    #[inline]
    fn fires(&mut self, now: Instant, end: ConnId, kind: TimerKind) {
        self.tracing.fires(now, end, kind);
    }

    #[inline]
    fn held(&mut self, now: Instant, end: ConnId, kind: TimerKind) {
        self.tracing.held(now, end, kind);
    }

    #[inline]
    fn core(&mut self, now: Instant, guest: GuestId, state: CoreState) {
        self.tracing.core(now, guest, state);
    }

    #[inline]
    fn woke_up(&mut self, now: Instant, guest: GuestId, off_us: u64) {
        self.tracing.woke_up(now, guest, off_us);
    }
}
