//! All workloads of a scenario, which run at once on the same machines.

use super::{FlowId, Recording, Side, System, Workload};
use crate::footprint::of_vec;
use crate::packet::GuestId;
use crate::time::{Duration, Instant};

/// Workloads in the order of their names. Each knows its own connections, calls and pings alone.
#[derive(Debug)]
pub struct Workloads {
    all: Vec<Workload>,
    /// By number of the connection: the workload that owns it, or owned it last.
    owners: Vec<u8>,
}

/// The machines as one of several workloads sees them. Numbers tell the workloads' calls and pings apart: the workload
/// at `place` has `place` and every `count`th number from there on.
struct Own<'a, S> {
    system: &'a mut S,
    owners: &'a mut Vec<u8>,
    place: u32,
    count: u32,
}

impl<S> Own<'_, S> {
    fn number(&self, own: u32) -> u32 {
        own * self.count + self.place
    }
}

impl<S: System> System for Own<'_, S> {
    fn now(&self) -> Instant {
        self.system.now()
    }

    fn open(&mut self, from: GuestId, to: GuestId) -> FlowId {
        let flow = self.system.open(from, to);
        let slot = flow.0 as usize;
        if self.owners.len() <= slot {
            self.owners.resize(slot + 1, 0);
        }
        self.owners[slot] = self.place as u8;
        self.system.belongs(flow, self.place as usize, [from, to]);
        flow
    }

    fn write(&mut self, flow: FlowId, side: Side, bytes: u64) {
        self.system.write(flow, side, bytes);
    }

    fn expect(&mut self, flow: FlowId, side: Side, total: u64) {
        self.system.expect(flow, side, total);
    }

    fn close(&mut self, flow: FlowId) {
        self.system.close(flow);
    }

    fn call_at(&mut self, at: Instant, tag: u32) {
        let tag = self.number(tag);
        self.system.call_at(at, tag);
    }

    fn call_in(&mut self, guest: GuestId, at: Instant, tag: u32) {
        let tag = self.number(tag);
        self.system.call_in(guest, at, tag);
    }

    fn work(&mut self, guest: GuestId, time: Duration) {
        self.system.work(guest, time);
    }

    fn ping(&mut self, from: GuestId, to: GuestId, number: u32) {
        let number = self.number(number);
        self.system.ping(from, to, number);
    }

    fn stop(&mut self) {
        self.system.stop();
    }
}

impl Workloads {
    /// Workloads that have not started.
    pub fn new(all: Vec<Workload>) -> Self {
        Self { all, owners: Vec::new() }
    }

    /// The place of the workload that a connection belongs to.
    pub fn owner(&self, flow: FlowId) -> usize {
        self.owners.get(flow.0 as usize).copied().unwrap_or(0).into()
    }

    /// Does something with the workload at a place, and with the machines as it sees them.
    fn with<S: System>(&mut self, place: usize, system: &mut S, act: impl FnOnce(&mut Workload, &mut Own<'_, S>)) {
        let count = self.all.len() as u32;
        let Some(workload) = self.all.get_mut(place) else { return };
        act(workload, &mut Own { system, owners: &mut self.owners, place: place as u32, count });
    }

    fn split(&self, number: u32) -> (usize, u32) {
        let count = self.all.len().max(1) as u32;
        ((number % count) as usize, number / count)
    }

    /// [`Workload::start`] of all.
    pub fn start(&mut self, system: &mut impl System) {
        for place in 0..self.all.len() {
            self.with(place, system, |workload, own| workload.start(own));
        }
    }

    /// [`Workload::mark`] of all.
    pub fn mark(&mut self, system: &mut impl System) {
        for place in 0..self.all.len() {
            self.with(place, system, |workload, own| workload.mark(own));
        }
    }

    /// [`Workload::is_background`] of the connection's owner.
    pub fn is_background(&self, flow: FlowId) -> bool {
        self.all.get(self.owner(flow)).is_some_and(|workload| workload.is_background(flow))
    }

    /// [`Workload::kept`] of all together.
    pub fn kept(&self) -> usize {
        self.all.iter().map(Workload::kept).sum()
    }

    /// [`Workload::bytes`] of all together.
    pub fn bytes(&self) -> u64 {
        of_vec(&self.owners) + self.all.iter().map(Workload::bytes).sum::<u64>()
    }

    /// [`Workload::collect`] of each.
    pub fn collect(&mut self, now: Instant) -> Vec<Recording> {
        self.all.iter_mut().map(|workload| workload.collect(now)).collect()
    }

    /// [`Workload::on_established`] of the connection's owner.
    pub fn on_established(&mut self, system: &mut impl System, flow: FlowId) {
        self.with(self.owner(flow), system, |workload, own| workload.on_established(own, flow));
    }

    /// [`Workload::on_delivered`] of the connection's owner.
    pub fn on_delivered(&mut self, system: &mut impl System, flow: FlowId, side: Side) {
        self.with(self.owner(flow), system, |workload, own| workload.on_delivered(own, flow, side));
    }

    /// [`Workload::on_call`] of the workload that asked.
    pub fn on_call(&mut self, system: &mut impl System, tag: u32) {
        let (place, tag) = self.split(tag);
        self.with(place, system, |workload, own| workload.on_call(own, tag));
    }

    /// [`Workload::on_echo`] of the workload that asked.
    pub fn on_echo(&mut self, system: &mut impl System, guest: GuestId, number: u32) {
        let (place, number) = self.split(number);
        self.with(place, system, |workload, own| workload.on_echo(own, guest, number));
    }
}
