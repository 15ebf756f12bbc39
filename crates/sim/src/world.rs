//! Guests, hosts, network and workload together, and the event loop.

mod cera;
mod conns;
mod footprint;
mod hosts;
mod packets;
mod recorder;
mod system;
mod timers;
mod trace;
mod vflood;

use std::collections::VecDeque;

use evenkeel_scenario::sweep::splitmix64;

use crate::event::{Event, Events, Meets, PortId};
use crate::guest::vcpu::VirtualCpu;
use crate::guest::{Guest, GuestSpec, Task};
use crate::host::cera::HostController;
use crate::host::cores::{Cores, CoresSpec};
use crate::host::scheduler::EntityId;
use crate::host::shim::Effects;
use crate::memory;
use crate::net::{Network, TopologySpec};
use crate::packet::{ConnId, GuestId, Packets};
use crate::tcp::{Connection, Note, Outgoing};
use crate::time::Instant;
use crate::workload::{Side, System, Workload};
use conns::Conns;

pub use recorder::{CoreState, NoRecorder, Origin, Point, Recorder, Way};

/// How many events ahead memory is prefetched; each step needs what the one before it has prefetched.
const PORTS_AHEAD: usize = 8;
const FLIGHT_AHEAD: usize = 4;
const END_AHEAD: usize = 2;

/// Separates the draws of hosts' schedulers from others of the same seed.
const CORES: u64 = 1 << 62;

/// What the guests' applications do.
pub trait Application {
    /// Starts all processes.
    fn start(&mut self, system: &mut impl System);
    /// The handshake is done, at the opener.
    fn on_established(&mut self, system: &mut impl System, flow: crate::workload::FlowId);
    /// A side has received what was asked for with [`System::expect`].
    fn on_delivered(&mut self, system: &mut impl System, flow: crate::workload::FlowId, side: Side);
    /// A call that was asked for with [`System::call_at`] or [`System::call_in`].
    fn on_call(&mut self, system: &mut impl System, tag: u32);
    /// The reply to an echo request has come.
    fn on_echo(&mut self, system: &mut impl System, guest: GuestId, number: u32);
}

impl Application for Workload {
    fn start(&mut self, system: &mut impl System) {
        Self::start(self, system);
    }
    fn on_established(&mut self, system: &mut impl System, flow: crate::workload::FlowId) {
        Self::on_established(self, system, flow);
    }
    fn on_delivered(&mut self, system: &mut impl System, flow: crate::workload::FlowId, side: Side) {
        Self::on_delivered(self, system, flow, side);
    }
    fn on_call(&mut self, system: &mut impl System, tag: u32) {
        Self::on_call(self, system, tag);
    }
    fn on_echo(&mut self, system: &mut impl System, guest: GuestId, number: u32) {
        Self::on_echo(self, system, guest, number);
    }
}

/// Why [`World::run`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// The limit of simulated time.
    Limit,
    /// The given number of events has happened: a moment to report progress.
    Events,
    /// A sample that was asked for with [`Core::sample_at`] is due.
    Sample,
    /// The workload has ended the run.
    Stopped,
    /// Nothing will ever happen again.
    Idle,
}

/// A workload's call to come.
#[derive(Clone, Copy, Debug)]
enum Call {
    At(u32),
    In(GuestId, u32),
}

/// All but the workload.
#[derive(Debug)]
pub struct Core<R> {
    now: Instant,
    /// What is to come.
    pub events: Events,
    /// Packets in flight.
    pub packets: Packets,
    /// The network.
    pub net: Network,
    /// What is recorded.
    pub recorder: R,
    guests: Vec<Guest>,
    conns: Conns,
    calls: Vec<Call>,
    free_calls: Vec<u32>,
    ready: VecDeque<GuestId>,
    out: Vec<Outgoing>,
    notes: Vec<Note>,
    effects: Effects,
    controllers: Vec<HostController>,
    /// Hosts whose schedulers decide who runs, by number.
    shared: Vec<Option<hosts::Shared>>,
    /// The port at which waiting times are recorded.
    watched: Option<PortId>,
    seed: u64,
    stopped: bool,
}

/// A simulated world.
#[derive(Debug)]
pub struct World<A, R> {
    /// All but the workload.
    pub core: Core<R>,
    /// The workload.
    pub application: A,
}

impl<A: Application, R: Recorder> World<A, R> {
    /// A world at its beginning; guests are numbered in their order. The workload's processes have been started.
    pub fn new(topology: &TopologySpec, guests: &[GuestSpec], seed: u64, application: A, recorder: R) -> Self {
        Self::with_hosts(topology, guests, &[], seed, application, recorder)
    }

    /// The same, with hosts whose schedulers decide when their guests run.
    pub fn with_hosts(
        topology: &TopologySpec,
        guests: &[GuestSpec],
        hosts: &[CoresSpec],
        seed: u64,
        application: A,
        recorder: R,
    ) -> Self {
        let mut core = Core {
            now: Instant::START,
            events: Events::default(),
            packets: Packets::default(),
            net: Network::new(topology, seed),
            recorder,
            guests: memory::slab(guests.len()),
            conns: Conns::default(),
            calls: Vec::new(),
            free_calls: Vec::new(),
            ready: VecDeque::new(),
            out: Vec::new(),
            notes: Vec::new(),
            effects: Effects::default(),
            controllers: Vec::new(),
            shared: Vec::new(),
            watched: None,
            seed: splitmix64(seed),
            stopped: false,
        };
        core.guests.extend(guests.iter().map(Guest::new));
        for (index, guest) in core.guests.iter_mut().enumerate() {
            if let Some(at) = guest.vcpu.start() {
                core.events.push(at, Event::Slice(GuestId(index as u32)));
                if let Some(idle) = guest.vcpu.gives_up_after() {
                    core.events.push(Instant::START + idle, Event::Idle(GuestId(index as u32)));
                }
            }
        }
        for host in hosts {
            core.add_host(host, seed);
        }
        core.record_cores();
        let mut world = Self { core, application };
        world.application.start(&mut world.core);
        world.run_ready();
        world
    }

    /// Handles the events up to and at `limit`, but at most `events` of them.
    pub fn run(&mut self, limit: Instant, events: u64) -> Paused {
        for _ in 0..events {
            if self.core.stopped {
                return Paused::Stopped;
            }
            let Some((at, event)) = self.core.events.pop_before(limit) else {
                if self.core.events.is_empty() {
                    return Paused::Idle;
                }
                self.core.now = limit;
                return Paused::Limit;
            };
            self.core.now = at;
            self.core.recorder.event(at, event);
            if event == Event::Sample {
                return Paused::Sample;
            }
            self.look_ahead();
            self.dispatch(event);
            if !self.core.ready.is_empty() {
                self.run_ready();
            }
        }
        Paused::Events
    }

    /// Acts on the workload from outside, for example to mark the beginning of the measured time.
    pub fn with<T>(&mut self, act: impl FnOnce(&mut A, &mut Core<R>) -> T) -> T {
        let result = act(&mut self.application, &mut self.core);
        self.run_ready();
        result
    }

    /// Prefetches memory for the events to come. Otherwise a run would spend most of its time waiting for it: what an
    /// event needs was last touched by the flow's previous packet.
    #[inline]
    fn look_ahead(&self) {
        let Core { events, net, packets, conns, .. } = &self.core;
        if let Some(Event::Arrival(port, onward)) = events.soon(PORTS_AHEAD) {
            net.prefetch_link(port);
            match onward.meets() {
                Meets::Port(next) => net.prefetch_port(next),
                Meets::Host(packet) => packets.prefetch(packet),
            }
        }
        if let Some(Event::Arrival(port, _)) = events.soon(FLIGHT_AHEAD) {
            net.prefetch_landing(port);
        }
        if let Some(Event::Arrival(_, onward)) = events.soon(END_AHEAD) {
            if let Meets::Host(packet) = onward.meets() {
                if let Some(end) = packets[packet].payload.end() {
                    conns.prefetch(end);
                }
            }
        }
    }

    fn dispatch(&mut self, event: Event) {
        let core = &mut self.core;
        match event {
            Event::Arrival(port, onward) => {
                if core.watched == Some(port) {
                    core.observe_wait(port);
                }
                if let Some(packet) = core.net.on_arrival(core.now, port, onward, &mut core.packets, &mut core.events) {
                    core.arrive(packet);
                }
            }
            Event::PortFree(port) => core.net.on_port_free(core.now, port, &mut core.packets, &mut core.events),
            Event::ToGuest(guest) => core.crossed_to_vm(guest),
            Event::FromGuest(guest) => core.crossed_from_vm(guest),
            Event::Timer(conn) => core.on_timer_event(conn),
            Event::Slice(guest) => core.switch(guest),
            Event::Tick(guest) => core.cpu_done(guest),
            Event::Cores(host) => core.on_cores_event(host),
            Event::Domain(host) => core.on_domain_event(host),
            Event::Release(guest) => core.on_release_event(guest),
            Event::Epoch(host) => core.on_epoch(host),
            Event::Share(guest) => core.on_share_event(guest),
            Event::Shims(guest) => core.on_shims_event(guest),
            Event::Idle(guest) => core.on_idle_event(guest),
            Event::Look(guest) => core.on_look_event(guest),
            Event::Heartbeat(guest) => core.on_heartbeat_event(guest),
            Event::Workload(number) => self.call(number),
            Event::Sample => {}
        }
    }

    fn call(&mut self, number: u32) {
        let core = &mut self.core;
        core.free_calls.push(number);
        match core.calls[number as usize] {
            Call::At(tag) => self.application.on_call(core, tag),
            Call::In(guest, tag) => {
                core.want_core(guest, hosts::Cause::Clock);
                core.add_task(guest, Task::Call(tag));
            }
        }
    }

    /// Lets ready guests do their tasks, if they run.
    fn run_ready(&mut self) {
        while let Some(guest) = self.core.ready.pop_front() {
            let one = &mut self.core.guests[guest.0 as usize];
            one.is_ready = false;
            if one.is_back && one.vcpu.is_on() {
                one.is_back = false;
                self.core.wake_up(guest);
            }
            while let Some(task) = self.core.next_task(guest) {
                self.run_task(guest, task);
            }
            self.core.may_halt(guest);
        }
    }

    fn run_task(&mut self, guest: GuestId, task: Task) {
        let Self { core, application } = self;
        match task {
            Task::Call(tag) => application.on_call(core, tag),
            Task::Established(conn) => {
                if let Some((flow, _)) = core.conns.flow_of(conn) {
                    application.on_established(core, flow);
                }
            }
            Task::Delivered(conn) => {
                if let Some((flow, side)) = core.conns.flow_of(conn) {
                    application.on_delivered(core, flow, side);
                }
            }
            Task::Echo(number) => application.on_echo(core, guest, number),
            Task::Open(conn) => core.connect(conn),
            Task::Write(conn, bytes) => core.write_now(conn, bytes),
            Task::Ping(to, number) => core.ping_now(guest, to, number),
            Task::Share(window) => core.share_out(guest, window),
        }
    }
}

impl<R: Recorder> Core<R> {
    /// A host whose guests compete for its cores.
    fn add_host(&mut self, spec: &CoresSpec, seed: u64) {
        let number = spec.host.0 as usize;
        if self.shared.len() <= number {
            self.shared.resize_with(number + 1, || None);
        }
        for ((guest, _), entity) in spec.vcpus.iter().zip(0..) {
            let guest = &mut self.guests[guest.0 as usize];
            guest.entity = Some(EntityId(entity));
            guest.vcpu = VirtualCpu::competing();
        }
        let cores = Cores::new(spec, splitmix64(seed ^ splitmix64(CORES ^ u64::from(spec.host.0))));
        self.shared[number] = Some(hosts::Shared::new(cores, spec.has_domain));
        self.follow(spec.host);
    }

    /// The guests, by number.
    pub fn guests(&self) -> &[Guest] {
        &self.guests
    }

    /// A guest, to give its port a mechanism.
    pub fn guest_mut(&mut self, guest: GuestId) -> Option<&mut Guest> {
        self.guests.get_mut(guest.0 as usize)
    }

    /// One end of an open connection.
    pub fn connection(&self, flow: crate::workload::FlowId, side: Side) -> Option<&Connection> {
        self.conns.of_flow(flow, side).map(|conn| &self.conns.slots[conn.index as usize].conn)
    }

    /// Open connections, with the guest of either end: the opener's first.
    pub fn flows(&self) -> impl Iterator<Item = (crate::workload::FlowId, [GuestId; 2])> + '_ {
        self.conns.open_flows()
    }

    /// How many connections are open.
    pub fn open_connections(&self) -> usize {
        self.conns.count()
    }

    /// Makes [`World::run`] return at that instant.
    pub fn sample_at(&mut self, at: Instant) {
        self.events.push(at, Event::Sample);
    }

    fn add_task(&mut self, guest: GuestId, task: Task) {
        self.guests[guest.0 as usize].tasks.push_back(task);
        self.make_ready(guest);
    }

    fn make_ready(&mut self, id: GuestId) {
        let guest = &mut self.guests[id.0 as usize];
        if guest.is_ready {
            return;
        }
        if guest.vcpu.is_on() {
            guest.is_ready = true;
            self.ready.push_back(id);
        } else {
            self.want_core(id, hosts::Cause::Interrupt);
        }
    }

    /// What the guest has to do next, once it has dealt with its packets.
    fn next_task(&mut self, id: GuestId) -> Option<Task> {
        let guest = &mut self.guests[id.0 as usize];
        if guest.tasks.is_empty() || !guest.vcpu.is_on() {
            return None;
        }
        let has_packets = !guest.backlog.is_empty() || guest.in_hand.is_some() || !guest.unread.is_empty();
        if has_packets || !guest.vcpu.is_free(self.now) {
            self.await_cpu(id);
            return None;
        }
        guest.tasks.pop_front()
    }

    /// Plans a look at the guest for when its CPU is no longer busy.
    fn await_cpu(&mut self, id: GuestId) {
        let guest = &mut self.guests[id.0 as usize];
        if !guest.cpu_awaited {
            guest.cpu_awaited = true;
            self.events.push(guest.vcpu.busy_until().max(self.now), Event::Tick(id));
        }
    }

    fn cpu_done(&mut self, id: GuestId) {
        self.guests[id.0 as usize].cpu_awaited = false;
        self.take_backlog(id);
        if self.guests[id.0 as usize].vcpu.is_on() {
            self.after_work(id);
        }
    }

    /// A slice ends or begins.
    fn switch(&mut self, id: GuestId) {
        let now = self.now;
        let guest = &mut self.guests[id.0 as usize];
        if !guest.vcpu.is_due(now) {
            return;
        }
        let was_on = guest.vcpu.is_on();
        if let Some(pvtcp) = guest.pvtcp.as_mut().filter(|_| was_on) {
            pvtcp.catch_up(&guest.clock, now, guest.vcpu.off_total());
        }
        if let Some(at) = guest.vcpu.switch(now) {
            self.events.push(at, Event::Slice(id));
        }
        self.record_core(id);
        if !was_on {
            let since = self.guests[id.0 as usize].vcpu.went_off();
            self.recorder.vcpu_waited(id, since, now);
            self.wake_up(id);
        }
    }

    /// A guest has its core: plans the check whether it needs it.
    fn await_idle(&mut self, id: GuestId) {
        let guest = &mut self.guests[id.0 as usize];
        if let Some(idle) = guest.vcpu.gives_up_after().filter(|_| !guest.idle_awaited) {
            guest.idle_awaited = true;
            guest.active_at = guest.active_at.max(self.now);
            self.events.push(self.now + idle, Event::Idle(id));
        }
    }

    /// A guest that has been idle for long enough gives up the rest of its slice.
    fn on_idle_event(&mut self, id: GuestId) {
        let now = self.now;
        let guest = &mut self.guests[id.0 as usize];
        let Some(idle) = guest.vcpu.gives_up_after() else { return };
        let computes = guest.own_load.is_some_and(|duty| duty.at(now).0);
        let busy = computes || guest.has_work() || !guest.vcpu.is_free(now);
        let at = if busy { now + idle } else { guest.active_at + idle };
        if !guest.vcpu.is_on() {
            // It is checked again when it is back.
            guest.idle_awaited = false;
        } else if at > now || !guest.vcpu.has_neighbour() {
            self.events.push(at.max(now + idle), Event::Idle(id));
        } else {
            guest.idle_awaited = false;
            if let Some(pvtcp) = &mut guest.pvtcp {
                pvtcp.catch_up(&guest.clock, now, guest.vcpu.off_total());
            }
            let back = guest.vcpu.give_up(now);
            self.events.push(back, Event::Slice(id));
            self.record_core(id);
        }
    }

    /// Does what has waited for a virtual CPU.
    fn wake_up(&mut self, id: GuestId) {
        let guest = &mut self.guests[id.0 as usize];
        let off_total = guest.vcpu.off_total();
        let off_us = match &mut guest.pvtcp {
            Some(pvtcp) if std::mem::take(&mut guest.is_punctual) => {
                pvtcp.catch_up(&guest.clock, self.now, off_total);
                None
            }
            Some(pvtcp) => pvtcp.back(&guest.clock, self.now, off_total, guest.received).then(|| pvtcp.off_us()),
            None => None,
        };
        let mut due = std::mem::take(&mut guest.due);
        if let Some(off_us) = off_us {
            self.recorder.woke_up(self.now, id, off_us);
        }
        for conn in due.drain(..) {
            self.run_timers(conn);
        }
        self.guests[id.0 as usize].due = due;
        self.wake_vflood_agent(id);
        self.await_idle(id);
        self.fill_ring(id);
        self.take_backlog(id);
        let pvtcp = self.guests[id.0 as usize].pvtcp.as_mut();
        if pvtcp.is_some_and(|pvtcp| std::mem::take(&mut pvtcp.release_missed)) {
            self.release(id);
        }
    }
}

/// Whether a slot of this generation still belongs to the connection.
fn is_current(generation: u32, conn: ConnId) -> bool {
    generation == conn.generation
}

#[cfg(test)]
mod tests;
