//! Runs a cell of a scenario.

pub mod hosts;
mod observed;
pub mod setup;
mod traced;

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::{Scenario, Topology, VmGroup, Workload as Spec};
use evenkeel_scenario::sweep::run_seed;
use evenkeel_scenario::{Refused, RunRecord};
use evenkeel_settings::Mode;

use crate::event::PortId;
use crate::footprint::Footprint;
use crate::guest::GuestSpec;
use crate::guest::cera::Client;
use crate::guest::pvtcp::PvtcpSpec;
use crate::guest::vcpu::VirtualCpu;
use crate::guest::vflood::Agent;
use crate::host::PortSpec;
use crate::host::cera::{HostController, Tap};
use crate::host::proboscis::{Peers, Proboscis};
use crate::host::vflood::Vflood;
use crate::host::vsnoop::Vsnoop;
use crate::net::PortRole;
use crate::packet::{GuestId, HostId};
use crate::record::{
    self, Both, GuestCounters, Measured, Plan, PvtcpCounters, Shared, Tracing, Traffic, Traits, VmMeasured,
};
use crate::refuse::{self, Extent};
use crate::tcp::TcpConfig;
use crate::time::{Duration, Instant};
use crate::workload::{FlowId, Random, Side, System, Workload, Workloads};
use crate::world::{NoRecorder, Paused, World};
use observed::Observed;
use setup::PlacedVm;

pub use traced::trace;

/// Events between two calls of the progress callback: a few times a second.
const EVENTS_PER_REPORT: u64 = 1 << 20;
/// Separates the draws of clocks' phases from others of the same seed.
const PHASES: u64 = 2;
/// Separates the turns of virtual CPUs before the run from those in it.
const BEFORE: u64 = 1 << 63;

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Simulated time, warm-up included.
    pub now: Instant,
    /// When it ends at the latest.
    pub end: Instant,
    /// Events so far.
    pub events: u64,
}

/// What a progress callback wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// Go on.
    On,
    /// Give up.
    Stop,
}

/// Why there is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A setting that the simulator cannot honour.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The progress callback wanted it.
    #[error("interrupted")]
    Interrupted,
}

/// A finished run.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Its record: the same for the same cell and repetition on every machine.
    pub record: RunRecord,
    /// Events that happened.
    pub events: u64,
    /// Packets that the network's ports took in.
    pub port_packets: u64,
    /// Most packets in flight at once.
    pub peak_packets: usize,
    /// How its memory was used at the end.
    pub footprint: Footprint,
}

type Simulation<T> = World<Observed, Both<T>>;

/// Runs a repetition of a cell. The seed is the scenario's, so all cells of a repetition see the same draws. `report`
/// is called at intervals.
///
/// # Errors
/// A setting that the simulator cannot honour, a run that outgrows any memory, or `report` wants to stop.
pub fn run(cell: &Cell, repetition: u32, report: &mut dyn FnMut(Progress) -> Go) -> Result<Finished, RunError> {
    simulate(cell, repetition, NoRecorder, report)
}

fn simulate<T: Tracing>(
    cell: &Cell,
    repetition: u32,
    tracing: T,
    report: &mut dyn FnMut(Progress) -> Go,
) -> Result<Finished, RunError> {
    let scenario = &cell.scenario;
    refuse::check(scenario)?;
    let seed = run_seed(scenario.seed, repetition);
    let placed = setup::placed_vms(scenario);
    let Some(mut world) = build(scenario, &placed, seed, tracing) else {
        return Err(Refused { key: "workloads".to_owned(), why: "the simulator cannot run it".to_owned() }.into());
    };
    let mark = Instant::START + Duration::from_ms(scenario.warmup_ms);
    let end = mark + Duration::from_ms(scenario.duration_ms);
    let bottleneck = bottleneck(&world, scenario, &placed);
    let mut next_report = EVENTS_PER_REPORT;
    // Returns when the run ended: at the limit, or when the workload stopped it.
    let mut until = |world: &mut Simulation<T>, limit: Instant| loop {
        // Samples interrupt the run, so the rest of the events up to the next report is computed.
        match world.run(limit, next_report.saturating_sub(world.core.events.handled()).max(1)) {
            Paused::Events => {
                let events = world.core.events.handled();
                next_report = events + EVENTS_PER_REPORT;
                extent(world).check()?;
                if report(Progress { now: world.core.now(), end, events }) == Go::Stop {
                    return Err(RunError::Interrupted);
                }
            }
            Paused::Sample => sample(world, bottleneck),
            Paused::Stopped => return Ok(world.core.now()),
            Paused::Limit | Paused::Idle => return Ok(limit),
        }
    };
    until(&mut world, mark)?;
    let before = Reading::of(&world);
    world.with(Observed::mark);
    world.core.recorder.tracing.measured(mark);
    if let Some(first) = world.application.recorder.with(|recorder| recorder.next_sample()) {
        world.core.sample_at(first);
    }
    let ended = until(&mut world, end)?;
    Ok(finish(cell, repetition, seed, &placed, (mark, before), (ended, world)))
}

fn traits(workload: &Spec) -> Traits {
    Traits {
        sockets: !matches!(workload, Spec::Poisson { .. } | Spec::Ping { .. }),
        data_side: setup::data_side(workload),
    }
}

fn extent<T: Tracing>(world: &Simulation<T>) -> Extent {
    Extent {
        connections: world.core.open_connections(),
        packets: world.core.packets.len(),
        kept: world.application.workloads.kept(),
    }
}

fn build<T: Tracing>(scenario: &Scenario, placed: &[PlacedVm], seed: u64, tracing: T) -> Option<Simulation<T>> {
    let members = |index, workload| setup::members(scenario, workload, placed, index, seed);
    let specs = scenario.workloads.values().enumerate();
    let all: Option<Vec<_>> = specs.map(|(index, spec)| Workload::new(spec, members(index, spec))).collect();
    let workloads = Workloads::new(all?);
    let (from, to) = scenario.workload().roles();
    let senders = placed.iter().filter(|p| p.group == from).map(|p| p.guest.0);
    let is_on = |group: &str| scenario.vms.get(group).is_some_and(|group| group.on.is_some());
    let waiting = senders.clone().min().zip(senders.max()).filter(|_| is_on(from));
    let shown = placed.iter().find(|p| p.group == from && is_on(from));
    let plan = Plan {
        waiting: waiting.map_or(0..0, |(first, last)| first..last + 1),
        shown: shown.or_else(|| placed.iter().find(|p| p.group == to && is_on(to))).map(|p| p.guest),
        record: scenario.record.clone(),
        workloads: scenario.workloads.values().map(traits).collect(),
        first_sender: placed.iter().find(|p| p.group == from)?.guest,
    };
    let guests = guests(scenario, placed, seed);
    let shared = Shared::new(plan);
    let application = Observed { workloads, recorder: shared.clone() };
    let recorder = Both { shared, tracing };
    let hosts = hosts::cores(scenario, seed);
    let mut world = World::with_hosts(&setup::topology(scenario), &guests, &hosts, seed, application, recorder);
    let mut peers: BTreeMap<HostId, Peers> = BTreeMap::new();
    for vm in placed {
        if let Some(nic) = scenario.vms.get(&vm.group).and_then(|group| setup::nic(scenario, group)) {
            let port = world.core.net.nic_of(vm.host);
            world.core.net.configure(port, &nic);
        }
        if let Some(far) = setup::far(scenario, vm) {
            let port = world.core.net.nic_of(vm.host);
            world.core.net.configure(port, &far);
        }
        let port = world.core.guest_mut(vm.guest).and_then(|guest| guest.port.as_mut());
        let (Some(group), Some(port)) = (scenario.vms.get(&vm.group), port) else { continue };
        let mtu_bytes = scenario.network.mtu_bytes;
        // vFlood comes first, so that its grant is in place before the others' limits.
        let vflood = setup::vflood(group, mtu_bytes);
        if let Some(spec) = vflood {
            port.shims.add(Box::new(Vflood::new(spec)));
        }
        if let Some(spec) = setup::proboscis(group, mtu_bytes) {
            port.shims.add(Box::new(Proboscis::new(spec, vm.guest, peers.entry(vm.host).or_default().clone())));
        }
        if let Some(spec) = setup::vsnoop(scenario, group) {
            port.shims.add(Box::new(Vsnoop::new(spec)));
        }
        if vflood.is_some_and(|spec| spec.off_core_permille > 0) {
            let agent = match hosts.iter().find(|host| host.host == vm.host) {
                Some(host) => Agent::among(host, vm.guest, seed ^ BEFORE),
                None => Agent::new(hosts::turns(scenario, group, vm.guest, seed ^ BEFORE)),
            };
            world.core.add_vflood_agent(vm.guest, agent);
        }
    }
    add_cera(&mut world, scenario, placed);
    if scenario.record.sender_nic {
        let port = bottleneck(&world, scenario, placed);
        world.core.watch(port);
    }
    Some(world)
}

/// Adds CERA: a controller to each host, its part to ports, and its client to guests.
fn add_cera<T: Tracing>(world: &mut Simulation<T>, scenario: &Scenario, placed: &[PlacedVm]) {
    // A group's VMs are placed on its hosts in turn, or host by host.
    let mut members: BTreeMap<(usize, HostId), Vec<&PlacedVm>> = BTreeMap::new();
    let mut firsts: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, vm) in placed.iter().enumerate() {
        let first = *firsts.entry(&vm.group).or_insert(index);
        members.entry((first, vm.host)).or_default().push(vm);
    }
    for ((offset, _), members) in members {
        let Some(first) = members.first() else { continue };
        let Some(group) = scenario.vms.get(&first.group) else { continue };
        let Some(spec) = setup::cera(scenario, group) else { continue };
        let mut host = HostController::new(first.host, spec);
        for vm in members {
            let number = vm.guest.0 - offset as u32;
            let weight = group.cera.weight_of(number).get();
            let has_client = group.cera.clients.is_none_or(|clients| number < clients);
            host.guests.push((vm.guest, weight));
            let Some(guest) = world.core.guest_mut(vm.guest) else { continue };
            guest.cera = has_client.then(Client::default);
            if let Some(port) = &mut guest.port {
                port.shims.add(Box::new(Tap::new(&host.spec, has_client)));
            }
        }
        world.core.add_controller(host);
    }
}

fn guests(scenario: &Scenario, placed: &[PlacedVm], seed: u64) -> Vec<GuestSpec> {
    let mut phases = Random::new(seed, PHASES);
    let of_switches: Arc<[u64]> = scenario.network.queue.thresholds_bytes.clone().into();
    let mut guest = |group: &VmGroup, tcp: &Arc<TcpConfig>, classes: &Arc<[u64]>, vm: &PlacedVm| GuestSpec {
        host: vm.host,
        tcp: Arc::clone(tcp),
        hz: group.hz(),
        tick_phase: phases.span(tcp.jiffy),
        turns: hosts::turns(scenario, group, vm.guest, seed),
        own_load: hosts::own_load(group, vm.guest, seed),
        port: group.hypervisor.then(|| PortSpec {
            delay: Duration::from_us(u64::from(group.host_delay_us())),
            queue_segments: group.port_queue_segments,
            ring_slots: group.ring_slots,
        }),
        packet_cost: Duration::from_ns(u64::from(group.packet_cost_ns)),
        read_cost: Duration::from_ns(u64::from(group.read_cost_ns)),
        pvtcp: (group.pvtcp.mode() != Mode::Off).then(|| PvtcpSpec {
            mode: group.pvtcp.mode(),
            settings: group.pvtcp.set.in_scenario().settings(),
            steal_clock: false,
        }),
        class_thresholds_bytes: Arc::clone(classes),
    };
    let mut specs = Vec::with_capacity(placed.len());
    // Guests of a group are neighbours in the list and share their settings.
    for members in placed.chunk_by(|a, b| a.group == b.group) {
        let Some(group) = members.first().and_then(|first| scenario.vms.get(&first.group)) else { continue };
        let tcp = Arc::new(setup::guest_tcp(scenario, group));
        let of_nic = &group.nic_queue.thresholds_bytes;
        let classes = if of_nic.is_empty() { Arc::clone(&of_switches) } else { Arc::from(of_nic.as_slice()) };
        specs.extend(members.iter().map(|vm| guest(group, &tcp, &classes, vm)));
    }
    specs
}

/// The port whose backlog is recorded: the one towards the receiver, or a dumbbell's middle; or the first sender's
/// network card.
fn bottleneck<T: Tracing>(world: &Simulation<T>, scenario: &Scenario, placed: &[PlacedVm]) -> PortId {
    let (_, to) = scenario.workload().roles();
    let net = &world.core.net;
    if scenario.record.sender_nic {
        return net.nic_of(HostId(0));
    }
    let receiver = placed.iter().find(|p| p.group == to).map_or(HostId(0), |p| p.host);
    let middle = || (0..net.ports()).map(PortId).find(|port| net.role(*port) == PortRole::Middle(0));
    match scenario.network.topology {
        Topology::Dumbbell => middle().unwrap_or_else(|| net.port_to(receiver)),
        Topology::Star | Topology::LeafSpine | Topology::FatTree => net.port_to(receiver),
    }
}

fn sample<T: Tracing>(world: &mut Simulation<T>, bottleneck: PortId) {
    let (now, recorder) = (world.core.now(), world.application.recorder.clone());
    let due = recorder.with(|recorder| recorder.due(now));
    if due.queue {
        let (segments, _) = world.core.net.backlog(bottleneck, now);
        recorder.with(|recorder| recorder.queue(now, segments));
        for guest in (0..world.core.guests().len() as u32).map(GuestId) {
            if let Some(share) = world.core.share_of(guest) {
                recorder.with(|recorder| recorder.share(now, guest, share));
            }
        }
    }
    if due.sockets {
        for (flow, guests) in world.core.flows() {
            let index = world.application.workloads.owner(flow);
            let Traits { sockets, data_side: side } = recorder.with(|recorder| recorder.traits(index));
            if !sockets {
                continue;
            }
            if let Some(info) = world.core.connection(flow, side).filter(|c| c.is_established()).map(|c| c.info()) {
                recorder.with(|recorder| recorder.socket(now, guests[side as usize], flow, info));
            }
        }
    }
    if let Some(next) = recorder.with(|recorder| recorder.next_sample()) {
        world.core.sample_at(next);
    }
}

/// What the receiving end of a connection has received.
struct Delivered {
    flow: FlowId,
    /// Its workload's place.
    index: usize,
    /// The opener, and the other.
    ends: [GuestId; 2],
    bytes: u64,
}

/// Everything that counts, at one instant.
struct Reading {
    guests: Vec<GuestCounters>,
    /// Open connections, with what their receiving ends have received.
    delivered: Vec<Delivered>,
    /// By workload: what each side of its connections has received.
    reads: Vec<[u64; 2]>,
    dropped: u64,
    marked: u64,
    cuts: u64,
    /// Bytes sent by the first sender's network card.
    uplink_bytes: u64,
}

impl Reading {
    fn of<T: Tracing>(world: &Simulation<T>) -> Self {
        let core = &world.core;
        let now = world.core.now();
        let mut guests: Vec<GuestCounters> = core
            .guests()
            .iter()
            .enumerate()
            .map(|(index, guest)| {
                let closed = core.recorder.shared.with(|r| r.closed.get(index).copied().unwrap_or_default());
                let (stolen, busy) = (guest.vcpu.stolen(now), guest.vcpu.busy_total(now));
                GuestCounters {
                    tcp: closed.stats,
                    delivered_bytes: closed.delivered_bytes,
                    packets_received: guest.received(),
                    packets_sent: guest.sent(),
                    port_drops: guest.port.as_ref().map_or(0, |port| port.stats().dropped),
                    busy,
                    idle: now.since(Instant::START) - stolen - busy,
                    stolen,
                    throttled: guest.entity.and_then(|vcpu| core.cores_of(guest.host)?.throttled(vcpu)),
                    pvtcp: guest.pvtcp.as_ref().map(|pvtcp| {
                        let counters = pvtcp.counters();
                        PvtcpCounters {
                            wakeups: counters.wakeups,
                            longest_us: counters.wakeup_max_us,
                            held_rto: counters.held_rto,
                            held_tlp: counters.held_tlp,
                            held_reo: counters.held_reo,
                            held_overtaken: counters.held_overtaken,
                            held_ran: counters.held_ran,
                            rtt_filtered: counters.rtt_filtered,
                            idle_filtered: counters.idle_filtered,
                            jit_acks: counters.jit_acks,
                        }
                    }),
                    windows_set: guest.cera.as_ref().map(|client| client.set),
                    host: guest.port.iter().flat_map(|port| port.shims.counters()).collect(),
                }
            })
            .collect();
        let mut delivered = Vec::new();
        let mut reads = core.recorder.shared.with(|r| r.closed_reads().to_vec());
        for (flow, ends) in core.flows() {
            let index = world.application.workloads.owner(flow);
            if reads.len() <= index {
                reads.resize(index + 1, [0; 2]);
            }
            let receiving = core.recorder.shared.with(|r| r.traits(index)).data_side.other();
            for side in [Side::Opener, Side::Acceptor] {
                let Some(conn) = core.connection(flow, side) else { continue };
                let Some(guest) = guests.get_mut(ends[side as usize].0 as usize) else { continue };
                record::add(&mut guest.tcp, conn.stats());
                guest.delivered_bytes += conn.delivered();
                reads[index][side as usize] += conn.delivered();
                if side == receiving {
                    delivered.push(Delivered { flow, index, ends, bytes: conn.delivered() });
                }
            }
        }
        let totals = core.net.totals();
        let dropped = totals.drops + guests.iter().map(|g| g.port_drops).sum::<u64>();
        let cuts = core.controllers().iter().map(HostController::cuts).sum();
        let uplink_bytes = core.net.sent_bytes(core.net.nic_of(HostId(0)), core.now());
        Self { guests, delivered, reads, dropped, marked: totals.marks, cuts, uplink_bytes }
    }
}

fn finish<T: Tracing>(
    cell: &Cell,
    repetition: u32,
    seed: u64,
    placed: &[PlacedVm],
    (mark, before): (Instant, Reading),
    (now, mut world): (Instant, Simulation<T>),
) -> Finished {
    let scenario = &cell.scenario;
    let after = Reading::of(&world);
    let footprint = Footprint {
        workloads: world.application.workloads.bytes(),
        records: world.core.recorder.shared.with(|recorder| recorder.bytes()),
        ..world.footprint()
    };
    let mut recorder = world.core.recorder.shared.take();
    let recorded_off = (!scenario.hosts.is_empty()).then(|| std::mem::take(&mut recorder.shown_off));
    let vms = placed
        .iter()
        .zip(after.guests.iter().zip(&before.guests))
        .map(|(vm, (after, before))| VmMeasured {
            name: vm.name.clone(),
            group: vm.group.clone(),
            counters: after.since(before),
        })
        .collect();
    let recordings = world.application.workloads.collect(now);
    let of_each = scenario.workloads.values().zip(recordings).enumerate();
    let traffic = of_each.map(|(index, (spec, recording))| Traffic {
        recording,
        ..traffic(&world.application.workloads, (index, spec), placed, (&before, &after))
    });
    let traffic = traffic.collect();
    let measured = Measured {
        mark,
        duration: now.since(mark),
        vms,
        dropped: after.dropped - before.dropped,
        marked: after.marked - before.marked,
        cuts: after.cuts - before.cuts,
        uplink_bytes: after.uplink_bytes - before.uplink_bytes,
        traffic,
        recorder,
        off: recorded_off.unwrap_or_else(|| off_the_core(scenario, placed, seed, now)),
    };
    Finished {
        events: world.core.events.handled(),
        port_packets: world.core.net.totals().packets,
        peak_packets: world.core.packets.peak(),
        footprint,
        record: record::record(&cell.labels, scenario, repetition, seed, measured),
    }
}

/// What the connections of the workload with this index transferred in the measured time.
fn traffic(
    workloads: &Workloads,
    (index, spec): (usize, &Spec),
    placed: &[PlacedVm],
    (before, after): (&Reading, &Reading),
) -> Traffic {
    let side = setup::data_side(spec);
    let is_lasting = matches!(spec, Spec::Bulk { .. } | Spec::Strobe { .. } | Spec::Memcached { .. });
    // The connections of a store's asker are no long-lived flows.
    let asker = placed.iter().find(|p| p.group == spec.roles().0 && matches!(spec, Spec::Memcached { .. }));
    // The number may have belonged to another workload's connection that is closed now.
    let earlier = |now: &Delivered| {
        let found = before.delivered.binary_search_by_key(&now.flow, |earlier| earlier.flow);
        found.ok().map(|index| &before.delivered[index]).filter(|earlier| earlier.index == index).map_or(0, |d| d.bytes)
    };
    let read = |side: Side| {
        let of = |reading: &Reading| reading.reads.get(index).map_or(0, |reads| reads[side as usize]);
        of(after) - of(before)
    };
    let mut own = Traffic { read_bytes: read(side.other()), ..Traffic::default() };
    if spec.is_both_ways() {
        own.read_bytes += read(side);
    }
    for flow in after.delivered.iter().filter(|flow| flow.index == index) {
        if workloads.is_background(flow.flow) {
            own.background_bytes += flow.bytes - earlier(flow);
        }
        if is_lasting && asker.is_none_or(|asker| asker.guest != flow.ends[0]) {
            let [from, to] = [side, side.other()].map(|side| flow.ends[side as usize]);
            own.long_lived.push((from, to, flow.bytes - earlier(flow)));
        }
    }
    own
}

/// When the first VM of the sending group was off its core, or of the receiving group if the senders share none. Empty
/// without a capture, which alone needs it.
fn off_the_core(scenario: &Scenario, placed: &[PlacedVm], seed: u64, end: Instant) -> Vec<(Instant, Instant)> {
    let (from, to) = scenario.workload().roles();
    let of = |group: &str| {
        let vm = placed.iter().find(|p| p.group == group)?;
        hosts::turns(scenario, scenario.vms.get(group)?, vm.guest, seed)
    };
    let mut intervals = Vec::new();
    let Some(turns) = of(from).or_else(|| of(to)).filter(|_| scenario.record.capture) else { return intervals };
    // The same turns as the guest's, from the same seed.
    let mut vcpu = VirtualCpu::new(Some(turns));
    let mut next = vcpu.start();
    while let Some(at) = next.filter(|at| *at <= end) {
        let was_on = vcpu.is_on();
        next = vcpu.switch(at);
        if !was_on {
            intervals.push((vcpu.went_off(), at));
        }
    }
    intervals
}
