//! Flows that begin at random times between random VMs.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_scenario::format::FlowSizes;

use super::{
    FlowDone, FlowId, LAST_TAG, Member, Members, Random, Recording, START_SPREAD, Side, SizeDistribution, System,
};
use crate::footprint::of_vec;
use crate::packet::{GuestId, HostId};
use crate::time::{Duration, Instant};

/// The tag of the next arrival; other tags belong to flows that wait for their opener to run.
const ARRIVAL: u32 = LAST_TAG;
/// The tag of a long-lived flow's beginning.
const BACKGROUND: u32 = LAST_TAG - 1;

/// More than a run can send.
const ENDLESS_BYTES: u64 = 1 << 50;

/// Load, and sizes and numbers of flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub load: f64,
    pub sizes: FlowSizes,
    /// Flows to measure; 0: no limit.
    pub flows: u32,
    pub persistent: bool,
    /// Each flow is requested with this many bytes; 0: it is sent without a request.
    pub request_bytes: u64,
    /// Flows that begin at once, towards one receiver.
    pub burst: u32,
    /// Long-lived flows from each VM, and from every sender to every receiver.
    pub background: u32,
    pub background_pairs: u32,
}

#[derive(Debug)]
pub(super) struct Poisson {
    members: Members,
    /// The receivers by host.
    by_host: ByHost,
    random: Random,
    sizes: SizeDistribution,
    mean_gap_ps: f64,
    burst: u32,
    limit: u32,
    persistent: bool,
    request_bytes: u64,
    /// Long-lived flows that are still to begin, and those that have.
    background_due: Vec<(GuestId, GuestId)>,
    background: BTreeSet<FlowId>,
    /// Flows that wait for their opener to run, in slots.
    arrived: Vec<Option<Arrived>>,
    free: Vec<u32>,
    /// By number of the connection.
    transfers: Vec<Option<Transfer>>,
    /// Connections without a flow, by sender and receiver.
    idle: BTreeMap<(GuestId, GuestId), Vec<Idle>>,
    marked: bool,
    /// Flows that arrived after the mark and count, and how many of these have ended.
    measured: u32,
    ended: u32,
}

/// A flow that is to begin.
#[derive(Clone, Copy, Debug)]
struct Planned {
    from: GuestId,
    to: GuestId,
    bytes: u64,
}

/// One whose time has come. It counts from here, whether its opener has its core or not, as in the lab.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    planned: Planned,
    at: Instant,
    measured: bool,
}

/// A connection whose flow is over.
#[derive(Clone, Copy, Debug)]
struct Idle {
    flow: FlowId,
    delivered: u64,
    asked: u64,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    from: GuestId,
    to: GuestId,
    bytes: u64,
    start: Instant,
    /// What the connection will have delivered when the flow is done.
    total: u64,
    /// Bytes of requests that it will have delivered then.
    asked: u64,
    measured: bool,
}

impl Poisson {
    pub(super) fn new(members: Members, settings: &Settings) -> Self {
        let sizes = SizeDistribution::new(settings.sizes);
        let by_host = ByHost::of(&members.to);
        let flows_per_s = settings.load * members.capacity_bps as f64 / 8.0 / sizes.mean_bytes();
        let burst = settings.burst.max(1);
        let mut background_due = background(&members, settings.background);
        background_due.extend(pairs(&members, settings.background_pairs));
        Self {
            random: Random::new(members.seed, 1),
            members,
            by_host,
            sizes,
            mean_gap_ps: 1e12 / flows_per_s * f64::from(burst),
            burst,
            limit: settings.flows,
            persistent: settings.persistent,
            request_bytes: settings.request_bytes,
            background_due,
            background: BTreeSet::new(),
            arrived: Vec::new(),
            free: Vec::new(),
            transfers: Vec::new(),
            idle: BTreeMap::new(),
            marked: false,
            measured: 0,
            ended: 0,
        }
    }

    /// Bytes allocated for its flows and for idle connections.
    pub(super) fn bytes(&self) -> u64 {
        let idle: u64 = self.idle.values().map(of_vec).sum();
        of_vec(&self.transfers) + of_vec(&self.arrived) + of_vec(&self.free) + of_vec(&self.background_due) + idle
    }

    pub(super) fn start(&mut self, system: &mut impl System) {
        if !self.background_due.is_empty() {
            let gap = Duration::from_ps(START_SPREAD.ps() / self.background_due.len() as u64);
            for number in 0..self.background_due.len() as u64 {
                system.call_at(Instant::START + gap * number, BACKGROUND);
            }
            self.background_due.reverse();
        }
        self.next_arrival(system);
    }

    fn next_arrival(&mut self, system: &mut impl System) {
        let at = system.now() + self.random.gap(self.mean_gap_ps);
        system.call_at(at, ARRIVAL);
    }

    /// Long-lived flows that have begun.
    pub(super) fn background(&self) -> &BTreeSet<FlowId> {
        &self.background
    }

    pub(super) fn mark(&mut self) {
        self.marked = true;
    }

    pub(super) fn on_call(&mut self, system: &mut impl System, tag: u32) {
        if tag == ARRIVAL {
            let before = self.measured;
            let first = self.draw();
            self.arrive(system, first);
            let mut from = first.from;
            for _ in 1..self.burst {
                from = self.next_sender(from, first.to);
                let bytes = self.sizes.quantile_bytes(self.random.unit());
                self.arrive(system, Planned { from, bytes, ..first });
            }
            // As usual in simulations of these workloads, arrivals end with the first after the last measured flow, and
            // the network empties.
            if self.limit == 0 || before < self.limit {
                self.next_arrival(system);
            }
        } else if tag == BACKGROUND {
            if let Some((from, to)) = self.background_due.pop() {
                self.background.insert(system.open(from, to));
            }
        } else if let Some(arrived) = self.arrived.get_mut(tag as usize).and_then(Option::take) {
            self.free.push(tag);
            self.begin(system, arrived);
        }
    }

    fn arrive(&mut self, system: &mut impl System, planned: Planned) {
        let measured = self.marked && (self.limit == 0 || self.measured < self.limit);
        self.measured += u32::from(measured);
        let tag = self.free.pop().unwrap_or_else(|| {
            self.arrived.push(None);
            self.arrived.len() as u32 - 1
        });
        let at = system.now();
        self.arrived[tag as usize] = Some(Arrived { planned, at, measured });
        system.call_in(self.opener(&planned), at, tag);
    }

    /// The VM that sends after another in a burst: the next one that is not on the receiver's host.
    fn next_sender(&self, from: GuestId, to: GuestId) -> GuestId {
        let receiver = place_of(&self.members.to, to).map(|place| self.members.to[place].host);
        let place = place_of(&self.members.from, from).unwrap_or(0);
        let mut others = self.members.from.iter().cycle().skip(place + 1).take(self.members.from.len());
        others.find(|member| Some(member.host) != receiver).map_or(from, |member| member.guest)
    }

    /// A flow between two VMs on different hosts.
    fn draw(&mut self) -> Planned {
        let Member { guest: from, host } = self.members.from[self.random.below(self.members.from.len())];
        let to = self.by_host.elsewhere(&mut self.random, &self.members.to, host);
        Planned { from, to, bytes: self.sizes.quantile_bytes(self.random.unit()) }
    }

    fn opener(&self, planned: &Planned) -> GuestId {
        if self.request_bytes > 0 { planned.to } else { planned.from }
    }

    /// The side that receives what is measured.
    fn receiver(&self) -> Side {
        if self.request_bytes > 0 { Side::Opener } else { Side::Acceptor }
    }

    /// Sends a flow, or its request, on an established connection.
    fn send(&self, system: &mut impl System, flow: FlowId, transfer: &Transfer) {
        system.expect(flow, self.receiver(), transfer.total);
        if self.request_bytes > 0 {
            system.expect(flow, Side::Acceptor, transfer.asked);
            system.write(flow, Side::Opener, self.request_bytes);
        } else {
            system.write(flow, Side::Opener, transfer.bytes);
        }
    }

    fn begin(&mut self, system: &mut impl System, arrived: Arrived) {
        let Arrived { planned, at, measured } = arrived;
        let Planned { from, to, bytes } = planned;
        let asked = self.request_bytes;
        let mut transfer = Transfer { from, to, bytes, start: at, total: bytes, asked, measured };
        let flow = match self.idle.get_mut(&(from, to)).and_then(Vec::pop) {
            Some(idle) => {
                transfer.total += idle.delivered;
                transfer.asked += idle.asked;
                self.send(system, idle.flow, &transfer);
                idle.flow
            }
            None => {
                let opener = self.opener(&planned);
                system.open(opener, if opener == from { to } else { from })
            }
        };
        let slot = flow.0 as usize;
        if self.transfers.len() <= slot {
            self.transfers.resize(slot + 1, None);
        }
        self.transfers[slot] = Some(transfer);
    }

    pub(super) fn on_established(&mut self, system: &mut impl System, flow: FlowId) {
        if self.background.contains(&flow) {
            system.write(flow, Side::Opener, ENDLESS_BYTES);
            return;
        }
        if let Some(transfer) = self.transfers.get(flow.0 as usize).copied().flatten() {
            self.send(system, flow, &transfer);
        }
    }

    pub(super) fn on_delivered(
        &mut self,
        system: &mut impl System,
        recording: &mut Recording,
        flow: FlowId,
        side: Side,
    ) {
        let Some(slot) = self.transfers.get_mut(flow.0 as usize) else { return };
        if self.request_bytes > 0 && side == Side::Acceptor {
            if let Some(transfer) = slot {
                system.write(flow, Side::Acceptor, transfer.bytes);
            }
            return;
        }
        let Some(transfer) = slot.take() else { return };
        let Transfer { from, to, bytes, start, total, asked, measured } = transfer;
        let took = system.now().since(start);
        if self.persistent {
            self.idle.entry((from, to)).or_default().push(Idle { flow, delivered: total, asked });
        } else {
            system.close(flow);
        }
        if measured {
            self.ended += 1;
            recording.flow(FlowDone { from, to, bytes, start, took, connected_took: None });
            if self.limit > 0 && self.ended == self.limit {
                system.stop();
            }
        }
    }

    /// Records what is under way at the end.
    pub(super) fn leave(&self, recording: &mut Recording, end: Instant) {
        for transfer in self.transfers.iter().flatten().filter(|t| t.measured) {
            recording.under_way(transfer.bytes, transfer.start, end);
        }
        for arrived in self.arrived.iter().flatten().filter(|a| a.measured) {
            recording.under_way(arrived.planned.bytes, arrived.at, end);
        }
    }
}

/// The place of a VM among the members, which are in the order of their numbers.
fn place_of(members: &[Member], guest: GuestId) -> Option<usize> {
    members.binary_search_by_key(&guest, |member| member.guest).ok()
}

/// The positions of each host's members, in order, so that a draw among the others looks only at the host's own.
#[derive(Debug)]
struct ByHost(BTreeMap<HostId, Vec<usize>>);

impl ByHost {
    fn of(members: &[Member]) -> Self {
        let mut positions = BTreeMap::<_, Vec<_>>::new();
        for (position, member) in members.iter().enumerate() {
            positions.entry(member.host).or_default().push(position);
        }
        Self(positions)
    }

    /// Draws one of these members that is not on this host; there must be one.
    fn elsewhere(&self, random: &mut Random, of: &[Member], host: HostId) -> GuestId {
        let own = self.0.get(&host).map_or(&[][..], Vec::as_slice);
        let drawn = random.below(of.len() - own.len());
        // Each of the host's own members before the position moves it on by one.
        let position = own.iter().fold(drawn, |position, own| position + usize::from(*own <= position));
        of[position].guest
    }
}

/// Both ends of each long-lived flow. They have their own stream of draws, so that the measured flows are the same with
/// and without them.
fn background(members: &Members, each: u32) -> Vec<(GuestId, GuestId)> {
    let mut all = members.from.clone();
    all.extend(members.to.iter().filter(|to| place_of(&members.from, to.guest).is_none()));
    let by_host = ByHost::of(&all);
    let mut random = Random::new(members.seed, 0);
    let mut flows = Vec::new();
    for _ in 0..each {
        let towards = |member: &Member| (member.guest, by_host.elsewhere(&mut random, &all, member.host));
        flows.extend(all.iter().map(towards));
    }
    flows
}

/// Both ends of each long-lived flow from every sender to every receiver of another host.
fn pairs(members: &Members, each: u32) -> Vec<(GuestId, GuestId)> {
    let mut flows = Vec::new();
    for from in &members.from {
        for to in members.to.iter().filter(|to| to.host != from.host) {
            flows.extend((0..each).map(|_| (from.guest, to.guest)));
        }
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VMs of a host stand together in a group's list, or, where a scenario spreads them, in turn with others'.
    #[test]
    fn a_draw_goes_to_every_vm_of_other_hosts_and_to_none_of_its_own() {
        for hosts in [[0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2], [2, 0, 0, 1, 0, 1]] {
            let member = |(number, host): (usize, &u32)| Member { guest: GuestId(number as u32), host: HostId(*host) };
            let members: Vec<Member> = hosts.iter().enumerate().map(member).collect();
            let (by_host, mut random) = (ByHost::of(&members), Random::new(1, 0));
            for host in 0..4 {
                let mut drawn: Vec<u32> =
                    (0..200).map(|_| by_host.elsewhere(&mut random, &members, HostId(host)).0).collect();
                drawn.sort_unstable();
                drawn.dedup();
                let others: Vec<u32> = (0..6).filter(|number| hosts[*number as usize] != host).collect();
                assert_eq!(drawn, others, "{hosts:?}, host {host}");
            }
        }
    }
}
