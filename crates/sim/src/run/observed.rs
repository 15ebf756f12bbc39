//! The workloads, with a recorder that observes what they ask for.

use crate::packet::GuestId;
use crate::record::Shared;
use crate::time::{Duration, Instant};
use crate::workload::{FlowId, Side, System, Workloads};
use crate::world::Application;

/// Workloads whose connections are reported to a recorder.
#[derive(Debug)]
pub struct Observed {
    /// The workloads.
    pub workloads: Workloads,
    /// The recorder.
    pub recorder: Shared,
}

/// The system that the workloads see.
struct Overheard<'a, S> {
    system: &'a mut S,
    recorder: &'a Shared,
}

impl<S: System> System for Overheard<'_, S> {
    fn now(&self) -> Instant {
        self.system.now()
    }

    fn open(&mut self, from: GuestId, to: GuestId) -> FlowId {
        self.system.open(from, to)
    }

    fn belongs(&mut self, flow: FlowId, index: usize, guests: [GuestId; 2]) {
        self.recorder.with(|recorder| recorder.opened(flow, index, guests));
    }

    fn write(&mut self, flow: FlowId, side: Side, bytes: u64) {
        self.system.write(flow, side, bytes);
    }

    fn expect(&mut self, flow: FlowId, side: Side, total: u64) {
        self.recorder.with(|recorder| recorder.expected(flow, side, total));
        self.system.expect(flow, side, total);
    }

    fn close(&mut self, flow: FlowId) {
        self.system.close(flow);
    }

    fn call_at(&mut self, at: Instant, tag: u32) {
        self.system.call_at(at, tag);
    }

    fn call_in(&mut self, guest: GuestId, at: Instant, tag: u32) {
        self.system.call_in(guest, at, tag);
    }

    fn work(&mut self, guest: GuestId, time: Duration) {
        self.system.work(guest, time);
    }

    fn ping(&mut self, from: GuestId, to: GuestId, number: u32) {
        self.system.ping(from, to, number);
    }

    fn stop(&mut self) {
        self.system.stop();
    }
}

impl Observed {
    /// Begins the measured time.
    pub fn mark(&mut self, system: &mut impl System) {
        self.recorder.with(|recorder| recorder.mark(system.now()));
        self.workloads.mark(&mut Overheard { system, recorder: &self.recorder });
    }
}

impl Application for Observed {
    fn start(&mut self, system: &mut impl System) {
        self.workloads.start(&mut Overheard { system, recorder: &self.recorder });
    }

    fn on_established(&mut self, system: &mut impl System, flow: FlowId) {
        self.workloads.on_established(&mut Overheard { system, recorder: &self.recorder }, flow);
    }

    fn on_delivered(&mut self, system: &mut impl System, flow: FlowId, side: Side) {
        self.workloads.on_delivered(&mut Overheard { system, recorder: &self.recorder }, flow, side);
    }

    fn on_call(&mut self, system: &mut impl System, tag: u32) {
        self.workloads.on_call(&mut Overheard { system, recorder: &self.recorder }, tag);
    }

    fn on_echo(&mut self, system: &mut impl System, guest: GuestId, number: u32) {
        self.workloads.on_echo(&mut Overheard { system, recorder: &self.recorder }, guest, number);
    }
}
