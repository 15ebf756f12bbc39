//! What must hold for vFlood whatever the guest, the network and the receiver do.

use std::collections::VecDeque;

use evenkeel_algo::congestion::{Congestion, Kind};
use evenkeel_algo::reno::MIN_CWND;
use evenkeel_algo::vflood::{
    self, ALPHA_ONE, DEFAULTS, Flow, Guest, Host, Policy, Sacked, Settings, State, Verdict, Vm, guest_held,
};
use evenkeel_algo::window::{self, By};
use proptest::prelude::*;

const MSS: u32 = 1000;
const SCALE: u8 = 2;
const HANDSHAKE_RTT_US: u64 = 199;

#[derive(Debug, Clone)]
enum Step {
    /// The guest sends up to so many segments; obedient: as far as it was granted.
    Flood { flow: usize, segments: u32, obedient: bool },
    /// The guest sends one of its unacknowledged segments again: the first, or a later one.
    Again { flow: usize, later: u32 },
    /// The oldest packets reach the receiver; which of them are lost.
    Arrive { flow: usize, lost: Vec<bool> },
    /// ACKs reach the host.
    Acks { flow: usize, count: usize },
    /// The receiver's application changes its window, in segments.
    Window { flow: usize, segments: u32 },
    /// The host may hold nothing for a moment, and lets some of it go.
    Drain { flow: usize, packets: usize },
    /// Time passes.
    Wait { us: u64 },
}

const FLOWS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let flow = 0..FLOWS;
    prop_oneof![
        4 => (flow.clone(), 1..80u32, proptest::bool::weighted(0.8))
            .prop_map(|(flow, segments, obedient)| Step::Flood { flow, segments, obedient }),
        1 => (flow.clone(), 0..200u32).prop_map(|(flow, later)| Step::Again { flow, later }),
        6 => (flow.clone(), proptest::collection::vec(proptest::bool::weighted(0.05), 1..20))
            .prop_map(|(flow, lost)| Step::Arrive { flow, lost }),
        6 => (flow.clone(), 1..10usize).prop_map(|(flow, count)| Step::Acks { flow, count }),
        1 => (flow.clone(), 1..20usize).prop_map(|(flow, packets)| Step::Drain { flow, packets }),
        1 => (flow, 0..300u32).prop_map(|(flow, segments)| Step::Window { flow, segments }),
        1 => (1..300_000u64).prop_map(|us| Step::Wait { us }),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let policy = prop_oneof![Just(Policy::None), Just(Policy::Fair), Just(Policy::Priority)];
    let kind = prop_oneof![Just(Kind::Reno), Just(Kind::Cubic), Just(Kind::Vegas)];
    (10..300u32, 1..12u32, policy, kind).prop_map(|(buffer_segments, initial_window, policy, congestion)| Settings {
        buffer_segments,
        initial_window,
        policy,
        congestion,
        ..DEFAULTS
    })
}

/// Of the receiver.
struct Ack {
    number: u32,
    window: u16,
    /// SACK blocks, of data that came twice first.
    blocks: Vec<(u32, u32)>,
}

/// One end to end connection around a flow.
struct Connection {
    flow: Flow,
    isn: u32,
    /// Held packets, by sequence number.
    queue: VecDeque<u32>,
    /// On their way, and whether they were sent again.
    wire: VecDeque<(u32, bool)>,
    acks: VecDeque<Ack>,
    /// Segments, counted from the first.
    guest_end: u32,
    guest_acked: u32,
    guest_edge: u32,
    received: Vec<bool>,
    delivered: u32,
    window: u32,
    /// Right edge of the receiver's window as the host has been told.
    told_edge: u32,
    /// What has left since the last ACK that counted, and what may.
    burst: u32,
    burst_limit: u32,
    drops_wrongly: u32,
    /// When each segment was let out, as far as they were.
    left_us: Vec<u64>,
}

impl Connection {
    fn new(host: &Host, vm: &mut Vm, isn: u32, settings: &Settings) -> Self {
        let mut flow = Flow::default();
        flow.vm_syn(host, isn, 1);
        flow.peer_syn(64_000, SCALE, MSS, 1 + HANDSHAKE_RTT_US);
        let guest_edge = flow.grant(vm, host).unwrap() / MSS;
        Self {
            flow,
            isn,
            queue: VecDeque::new(),
            wire: VecDeque::new(),
            acks: VecDeque::new(),
            guest_end: 0,
            guest_acked: 0,
            guest_edge,
            received: Vec::new(),
            delivered: 0,
            window: 64,
            told_edge: 64,
            burst: 0,
            burst_limit: settings.initial_window,
            drops_wrongly: 0,
            left_us: Vec::new(),
        }
    }

    /// Segments that the receiver has, and the host takes for out.
    fn arrived(&self) -> u32 {
        let acked = self.flow.snd_una().wrapping_sub(self.seq(0)) / MSS;
        self.received.iter().skip(acked as usize).filter(|received| **received).count() as u32
    }

    /// A segment leaves for the first time.
    fn leaves(&mut self, segment: u32, now_us: u64) {
        self.left_us.resize(self.left_us.len().max(segment as usize + 1), now_us);
        self.wire.push_back((segment, false));
    }

    fn seq(&self, segment: u32) -> u32 {
        self.isn.wrapping_add(1).wrapping_add(segment * MSS)
    }

    fn out(&self) -> u32 {
        self.flow.snd_nxt().wrapping_sub(self.flow.snd_una()).div_ceil(MSS)
    }

    /// New data has just been let out.
    fn check_sent(&mut self, settings: &Settings, dup_acks: u32, segment: u32, before: u32, now_us: u64) {
        self.burst += 1;
        if before == self.flow.snd_una() {
            let first = settings.initial_window.max(self.flow.cwnd());
            self.burst_limit = self.burst_limit.max(self.burst - 1 + first);
        }
        assert!(self.burst <= self.burst_limit, "{} at once, {} may be", self.burst, self.burst_limit);
        // RFC 3042 allows two segments beyond the window on the first duplicate ACKs.
        let dup_acks = dup_acks.max(self.arrived());
        let credit = if self.flow.state() == State::PacketLoss { dup_acks } else { dup_acks.min(2) };
        // Beyond that only what was lost may be out, and only CUBIC's host knows it.
        let on_wire = 1 + self.wire.iter().filter(|(_, again)| !again).count() as u32;
        let is_repairing = settings.congestion == Kind::Cubic && self.flow.state() == State::PacketLoss;
        assert!(
            self.out() <= self.flow.cwnd() + credit || (is_repairing && on_wire <= self.flow.cwnd()),
            "{} out, {on_wire} on the wire, window {}",
            self.out(),
            self.flow.cwnd()
        );
        assert!(segment < self.told_edge, "segment {segment} beyond the receiver's {}", self.told_edge);
        self.leaves(segment, now_us);
    }
}

struct World {
    settings: Settings,
    host: Host,
    vm: Vm,
    now_us: u64,
    connections: Vec<Connection>,
    /// Duplicate ACKs since the last that was none, by flow: at least what the host counts.
    dups: Vec<u32>,
}

impl World {
    fn new(settings: Settings) -> Self {
        let host = Host::new(&settings);
        let isns = [0, u32::MAX - 40_000, 1 << 31];
        let mut vm = Vm::default();
        let connections = isns.map(|isn| Connection::new(&host, &mut vm, isn, &settings)).into();
        Self { settings, host, vm, now_us: 1000, connections, dups: vec![0; FLOWS] }
    }

    fn check(&self) {
        let held: u32 = self.connections.iter().map(|c| c.queue.len() as u32).sum();
        assert_eq!(self.vm.held_segments(), held);
        assert!(held <= self.settings.buffer_segments);
        for c in &self.connections {
            assert_eq!(c.flow.held_segments(), c.queue.len() as u32);
            assert!(c.flow.cwnd() >= 1);
        }
    }

    fn send(&mut self, index: usize, segment: u32) {
        let c = &mut self.connections[index];
        let (seq, before) = (c.seq(segment), c.flow.snd_nxt());
        match c.flow.data(&mut self.vm, &self.host, seq, MSS, self.now_us) {
            Verdict::Pass if c.flow.snd_nxt() == before => c.wire.push_back((segment, true)),
            Verdict::Pass => c.check_sent(&self.settings, self.dups[index], segment, before, self.now_us),
            Verdict::Hold => c.queue.push_back(seq),
            Verdict::Drop => {
                let is_fresh =
                    c.left_us.get(segment as usize).is_some_and(|left| self.now_us - left < HANDSHAKE_RTT_US);
                let needless = c.queue.contains(&seq) || segment < c.delivered || is_fresh;
                let full = self.vm.held_segments() + 1 > self.settings.buffer_segments;
                c.drops_wrongly += u32::from(!needless && !full);
            }
        }
        assert_eq!(c.drops_wrongly, 0, "dropped although it is not held and there is room");
    }

    fn release(&mut self, index: usize) {
        let c = &mut self.connections[index];
        while let Some(&seq) = c.queue.front() {
            let segment = seq.wrapping_sub(c.seq(0)) / MSS;
            let before = c.flow.snd_nxt();
            match c.flow.release(&mut self.vm, &self.host, seq, MSS, self.now_us) {
                Verdict::Hold => break,
                Verdict::Drop => assert!(segment < c.delivered, "dropped from the queue and not delivered"),
                Verdict::Pass => {
                    c.queue.pop_front();
                    c.check_sent(&self.settings, self.dups[index], segment, before, self.now_us);
                    continue;
                }
            }
            c.queue.pop_front();
        }
    }

    /// What goes now goes beyond the windows; what goes after it does not.
    fn let_go(&mut self, index: usize, packets: usize) {
        let c = &mut self.connections[index];
        for _ in 0..packets {
            let Some(seq) = c.queue.pop_front() else { break };
            let segment = seq.wrapping_sub(c.seq(0)) / MSS;
            c.flow.drained(&mut self.vm, seq, MSS, self.now_us);
            c.leaves(segment, self.now_us);
        }
    }

    fn arrive(&mut self, index: usize, lost: bool) {
        let c = &mut self.connections[index];
        let Some((segment, _)) = c.wire.pop_front() else { return };
        if lost {
            return;
        }
        if c.received.len() <= segment as usize {
            c.received.resize(segment as usize + 1, false);
        }
        let came_twice = std::mem::replace(&mut c.received[segment as usize], true);
        while c.received.get(c.delivered as usize) == Some(&true) {
            c.delivered += 1;
        }
        self.acknowledge(index, came_twice.then_some(segment));
    }

    fn acknowledge(&mut self, index: usize, twice: Option<u32>) {
        let c = &mut self.connections[index];
        let mut blocks: Vec<_> = twice.map(|segment| (c.seq(segment), c.seq(segment + 1))).into_iter().collect();
        // The highest range that has arrived.
        if let Some(gap) = c.received.iter().rposition(|received| !received) {
            blocks.push((c.seq(gap as u32 + 1), c.seq(c.received.len() as u32)));
        }
        let window = ((c.window * MSS) >> SCALE) as u16;
        c.acks.push_back(Ack { number: c.seq(c.delivered), window, blocks });
    }

    fn ack(&mut self, index: usize) {
        let c = &mut self.connections[index];
        let Some(Ack { number: ack, window, blocks }) = c.acks.pop_front() else { return };
        let sacked = Sacked::of(ack, &blocks, MSS);
        let is_dsack = vflood::is_dsack(ack, &blocks);
        let (cwnd, state, una, edge) = (c.flow.cwnd(), c.flow.state(), c.flow.snd_una(), c.flow.edge());
        self.now_us += 10;
        c.flow.acked(&self.host, &vflood::Ack { number: ack, window, is_pure: !is_dsack, sacked }, self.now_us);
        let acked = ack.wrapping_sub(una) / MSS;
        (c.burst, c.burst_limit) = (0, self.settings.initial_window.max(2 * acked));
        if acked > 0 {
            self.dups[index] = if c.flow.state() == State::PacketLoss { self.dups[index] } else { 0 };
        } else if edge == c.flow.edge() && !is_dsack {
            self.dups[index] += 1;
        }
        if state != State::PacketLoss && c.flow.state() == State::PacketLoss {
            let most = if self.settings.congestion == Kind::Cubic { cwnd * 7 / 10 + 1 } else { cwnd / 2 };
            assert!(c.flow.cwnd() <= most.max(MIN_CWND), "{} after a loss at {cwnd}", c.flow.cwnd());
        }
        c.told_edge = c.flow.edge().wrapping_sub(c.seq(0)) / MSS;
        c.guest_acked = c.guest_acked.max(ack.wrapping_sub(c.seq(0)) / MSS);
        self.release(index);
        let c = &mut self.connections[index];
        let granted = c.flow.grant(&mut self.vm, &self.host).unwrap();
        let edge = c.flow.snd_una().wrapping_add(granted).wrapping_sub(c.seq(0)) / MSS;
        let is_idle = c.out() == 0 && c.queue.is_empty();
        assert!(is_idle || edge >= c.guest_edge, "an edge was taken back");
        let is_stuck = c.guest_acked == c.guest_end && edge <= c.guest_end;
        assert!(!is_stuck || c.told_edge <= c.guest_end, "nothing is on its way, and the guest may not send");
        c.guest_edge = edge;
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Flood { flow, segments, obedient } => {
                for _ in 0..segments {
                    let c = &mut self.connections[flow];
                    if obedient && c.guest_end >= c.guest_edge {
                        break;
                    }
                    let segment = c.guest_end;
                    c.guest_end += 1;
                    self.send(flow, segment);
                    self.check();
                }
            }
            Step::Again { flow, later } => {
                let c = &self.connections[flow];
                let segment = c.guest_acked + later;
                if segment < c.guest_end {
                    self.send(flow, segment);
                }
            }
            Step::Arrive { flow, ref lost } => lost.iter().for_each(|&lost| self.arrive(flow, lost)),
            Step::Acks { flow, count } => (0..count).for_each(|_| self.ack(flow)),
            Step::Window { flow, segments } => {
                self.connections[flow].window = segments.min(65);
                self.acknowledge(flow, None);
            }
            Step::Drain { flow, packets } => self.let_go(flow, packets),
            Step::Wait { us } => self.now_us += us,
        }
        self.check();
    }

    /// Without further losses, and with the guest's timer, all that the guest has sent arrives.
    fn drain(&mut self) {
        for index in 0..FLOWS {
            self.connections[index].window = 65;
            self.acknowledge(index, None);
            let mut rounds = 0;
            while self.connections[index].guest_acked < self.connections[index].guest_end {
                rounds += 1;
                assert!(rounds < 20_000, "stuck: {:?}", self.connections[index].flow);
                if self.connections[index].wire.is_empty() && self.connections[index].acks.is_empty() {
                    self.now_us += 250_000;
                    let first = self.connections[index].guest_acked;
                    self.send(index, first);
                    if self.connections[index].wire.is_empty() {
                        // Nothing went out: the retransmitted data is held, and then something else must be on its way.
                        self.release(index);
                    }
                }
                self.arrive(index, false);
                self.ack(index);
                self.check();
            }
            let c = &self.connections[index];
            assert_eq!((c.queue.len(), c.delivered), (0, c.guest_end));
            self.connections[index].flow.close(&mut self.vm);
        }
        assert_eq!((self.vm.held_segments(), self.vm.promised_segments()), (0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn on_the_wire_it_is_a_standard_sender_and_nothing_that_is_held_is_lost(
        settings in settings(),
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(settings);
        for step in &steps {
            world.apply(step);
        }
        world.drain();
    }

    #[test]
    fn an_obedient_guest_is_never_refused(
        steps in proptest::collection::vec((0..FLOWS, 1..200u32, 1..30usize), 1..100),
        policy in prop_oneof![Just(Policy::Fair), Just(Policy::Priority)],
    ) {
        // Larger than the windows before any grant, and without losses, which take back what could be sent at once.
        let mut world = World::new(Settings { buffer_segments: 200, policy, ..DEFAULTS });
        for (flow, segments, acks) in steps {
            world.apply(&Step::Flood { flow, segments, obedient: true });
            let c = &world.connections[flow];
            prop_assert_eq!(c.wire.len() + c.queue.len() + c.delivered as usize, c.guest_end as usize);
            world.apply(&Step::Arrive { flow, lost: vec![false; acks] });
            world.apply(&Step::Acks { flow, count: acks });
        }
    }
}

/// A world and its first flow, which has flooded it as far as it may.
fn flooded(settings: Settings) -> World {
    let mut world = World::new(settings);
    world.apply(&Step::Flood { flow: 0, segments: 5000, obedient: true });
    world
}

#[test]
fn slow_start_goes_on_without_the_vm() {
    let mut world = flooded(DEFAULTS);
    let mut flights = Vec::new();
    for _ in 0..6 {
        let flight = world.connections[0].wire.len();
        flights.push(flight);
        // One ACK for each, and no word from the VM.
        world.apply(&Step::Arrive { flow: 0, lost: vec![false; flight] });
        world.apply(&Step::Acks { flow: 0, count: flight });
        world.connections[0].window = 65;
    }
    assert_eq!(flights, [10, 20, 40, 65, 65, 65], "doubled up to the receiver's window");
}

#[test]
fn one_flow_has_half_of_the_buffer_and_two_have_a_third_each() {
    let flood = |flows: usize| {
        let mut world = World::new(Settings { buffer_segments: 600, ..DEFAULTS });
        for index in flows..FLOWS {
            world.connections[index].flow.close(&mut world.vm);
        }
        for _ in 0..200 {
            for flow in 0..flows {
                world.apply(&Step::Flood { flow, segments: 1000, obedient: true });
                world.apply(&Step::Arrive { flow, lost: vec![false; 3] });
                world.apply(&Step::Acks { flow, count: 3 });
            }
        }
        let held = |c: &Connection| c.queue.len() as u32;
        world.connections[..flows].iter().map(held).collect::<Vec<_>>()
    };
    let near = |held: u32, share: u32| held.abs_diff(share) <= share / 10;
    let (one, two) = (flood(1), flood(2));
    assert!(near(one[0], 300), "{one:?}");
    assert!(near(two[0], 200) && near(two[1], 200), "{two:?}");
}

#[test]
fn flows_of_low_rtt_may_hold_more_where_they_have_priority() {
    // Before the first data, and when a segment is out.
    let granted = |settings: Settings, rtt_us: u64| {
        let host = Host::new(&settings);
        let (mut vm, mut flow) = (Vm::default(), Flow::default());
        flow.vm_syn(&host, 7, 1);
        flow.peer_syn(64_000, SCALE, MSS, 1 + rtt_us);
        let first = flow.grant(&mut vm, &host).unwrap();
        assert_eq!(flow.data(&mut vm, &host, 8, MSS, 2 + rtt_us), Verdict::Pass);
        [first, flow.grant(&mut vm, &host).unwrap()].map(|bytes| bytes / MSS - DEFAULTS.initial_window)
    };
    let priority = Settings { policy: Policy::Priority, alpha: ALPHA_ONE / 2, ..DEFAULTS };
    // Alpha of 1/2 leaves two thirds to others, alpha of 4 a fifth. Who has sent nothing gets half of what any flow gets, whatever its RTT.
    assert_eq!((granted(priority, 60_000), granted(priority, 300)), ([341, 682], [341, 1638]));
    assert_eq!((granted(DEFAULTS, 60_000), granted(DEFAULTS, 300)), ([512, 1024], [512, 1024]));
    // Nor more than a VM may flood where nothing is said.
    assert_eq!(granted(Settings { buffer_segments: 8192, ..DEFAULTS }, 300), [512, 4096]);
}

#[test]
fn a_packet_of_several_segments_waits_for_room_that_is_coming_and_is_split_otherwise() {
    const OUT: u32 = 40;
    let host = Host::new(&Settings { initial_window: OUT, ..DEFAULTS });
    let (mut vm, mut flow) = (Vm::default(), Flow::default());
    flow.vm_syn(&host, 7, 1);
    flow.peer_syn(64_000, SCALE, MSS, 200);
    for segment in 0..OUT {
        assert_eq!(flow.data(&mut vm, &host, 8 + segment * MSS, MSS, 300), Verdict::Pass);
    }
    let next = 8 + OUT * MSS;
    for segments in [1, 10, 40] {
        assert!(!flow.splits(&host, next, segments * MSS), "none of {segments} segments may leave");
    }
    // Two have arrived, which makes room for four.
    flow.acked(&host, &vflood::Ack { number: 8 + 2 * MSS, window: 64_000, is_pure: true, sacked: None }, 400);
    assert!(!flow.splits(&host, next, 9 * MSS), "38 that are on their way will make room for nine");
    assert!(flow.splits(&host, next, 10 * MSS), "ten are too many");
    flow.acked(&host, &vflood::Ack { number: 8 + 5 * MSS, window: 64_000, is_pure: true, sacked: None }, 500);
    assert_eq!(flow.data(&mut vm, &host, next, 9 * MSS, 500), Verdict::Pass);
    let duplicate = vflood::Ack {
        number: 8 + 5 * MSS,
        window: 64_000,
        is_pure: true,
        sacked: Sacked::of(8 + 5 * MSS, &[(next - MSS, next)], MSS),
    };
    // A loss is repaired: what leaves then leaves for each duplicate ACK.
    for _ in 0..3 {
        flow.acked(&host, &duplicate, 600);
    }
    assert_eq!((flow.state(), flow.cwnd()), (State::PacketLoss, 22));
    for _ in 0..30 {
        flow.acked(&host, &duplicate, 600);
    }
    assert!(flow.splits(&host, next + 9 * MSS, 11 * MSS));
}

#[test]
fn a_full_buffer_takes_the_flow_offline_and_free_room_brings_it_back() {
    let mut world = World::new(Settings { buffer_segments: 50, policy: Policy::None, ..DEFAULTS });
    world.apply(&Step::Flood { flow: 0, segments: 70, obedient: false });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.queue.len(), c.wire.len()), (State::NoBuffer, 50, 10));
    // What there was no room for is not taken for held when it is sent again, even beside what came later.
    world.apply(&Step::Arrive { flow: 0, lost: vec![false; 10] });
    world.apply(&Step::Acks { flow: 0, count: 10 });
    world.apply(&Step::Flood { flow: 0, segments: 1, obedient: false });
    world.apply(&Step::Arrive { flow: 0, lost: vec![false; 20] });
    world.apply(&Step::Acks { flow: 0, count: 20 });
    assert_eq!(world.connections[0].flow.state(), State::Active);
    world.drain();
}

#[test]
fn three_duplicates_halve_the_window_and_the_repair_brings_the_flow_back() {
    let mut world = flooded(DEFAULTS);
    world.apply(&Step::Arrive { flow: 0, lost: vec![true, false, false, false] });
    world.apply(&Step::Acks { flow: 0, count: 3 });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.flow.cwnd()), (State::PacketLoss, 5));
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!(world.connections[0].flow.cwnd(), 5, "it was counted already");
    world.apply(&Step::Arrive { flow: 0, lost: vec![false; 10] });
    world.apply(&Step::Acks { flow: 0, count: 10 });
    assert_eq!(world.connections[0].flow.state(), State::Active);
}

#[test]
fn lost_segments_are_not_in_cubics_network() {
    // Half of the window is lost, and half of the data is held: as the rest arrives, new data leaves in its place.
    let lost = [true, true, true, true, true, false, false, false, false, false];
    let half = |congestion| {
        let mut world = flooded(Settings { congestion, ..DEFAULTS });
        world.apply(&Step::Arrive { flow: 0, lost: lost.into() });
        world.apply(&Step::Acks { flow: 0, count: 5 });
        let c = &world.connections[0];
        assert_eq!(c.flow.state(), State::PacketLoss);
        (world.connections[0].flow.cwnd(), c.out(), world)
    };
    let (cwnd, out, mut world) = half(Kind::Cubic);
    assert_eq!((cwnd, out), (7, 17));
    // Each that is sent again takes a place.
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    world.apply(&Step::Again { flow: 0, later: 0 });
    world.apply(&Step::Arrive { flow: 0, lost: vec![false] });
    world.apply(&Step::Acks { flow: 0, count: 1 });
    let c = &world.connections[0];
    assert_eq!((c.out(), c.wire.len()), (17, 7));
    // Reno knows only of those that have left: two for the first duplicate ACKs (RFC 3042), and none since.
    let (cwnd, out, _) = half(Kind::Reno);
    assert_eq!((cwnd, out), (5, 12));
}

#[test]
fn fewer_duplicate_acks_than_segments_do_not_slow_the_flow_down() {
    // Linux's receivers send one for many (`tcp_comp_sack_nr`): their blocks tell of the others.
    let mut world = flooded(DEFAULTS);
    let lost: Vec<bool> = (0..10).map(|segment| segment == 0).collect();
    world.apply(&Step::Arrive { flow: 0, lost });
    let c = &mut world.connections[0];
    c.acks = c.acks.pop_back().into_iter().collect();
    world.apply(&Step::Acks { flow: 0, count: 1 });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.flow.cwnd(), c.out()), (State::PacketLoss, 5, 9 + 5));
}

#[test]
fn a_guess_of_the_guests_does_not_leave_before_anybody_can_know() {
    let mut world = flooded(DEFAULTS);
    let lost = (0..10).map(|segment| segment == 0).collect();
    world.apply(&Step::Arrive { flow: 0, lost });
    world.apply(&Step::Acks { flow: 0, count: 9 });
    assert_eq!(world.connections[0].flow.state(), State::PacketLoss);
    let sent = |world: &mut World, later| {
        let before = world.connections[0].wire.len();
        world.apply(&Step::Again { flow: 0, later });
        world.connections[0].wire.len() - before
    };
    let last = world.connections[0].out() - 1;
    assert_eq!((sent(&mut world, last), sent(&mut world, 0)), (0, 1), "the loss is known");
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    assert_eq!(sent(&mut world, last), 1);
}

#[test]
fn what_was_sent_again_and_lost_leaves_cubics_network_in_time() {
    let mut world = flooded(Settings { congestion: Kind::Cubic, ..DEFAULTS });
    let lost = (0..10).map(|segment| segment == 0).collect();
    world.apply(&Step::Arrive { flow: 0, lost });
    world.apply(&Step::Acks { flow: 0, count: 9 });
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    let on_wire = |world: &World| world.connections[0].wire.len() as u32;
    assert_eq!(on_wire(&world), world.connections[0].flow.cwnd());
    world.apply(&Step::Again { flow: 0, later: 0 });
    world.connections[0].wire.pop_back();
    let next = |world: &mut World| {
        world.apply(&Step::Arrive { flow: 0, lost: vec![false] });
        world.apply(&Step::Acks { flow: 0, count: 1 });
        on_wire(world)
    };
    let cwnd = world.connections[0].flow.cwnd();
    assert_eq!(next(&mut world), cwnd - 1, "it may be on its way");
    world.apply(&Step::Wait { us: 2 * HANDSHAKE_RTT_US });
    assert_eq!(next(&mut world), cwnd, "it cannot be");
}

#[test]
fn data_that_came_twice_is_told_from_a_gap() {
    let is_dsack = |blocks: &[(u32, u32)]| vflood::is_dsack(1000, blocks);
    assert!(!is_dsack(&[]) && !is_dsack(&[(1100, 1200)]) && !is_dsack(&[(1300, 1400), (1100, 1200)]));
    assert!(!is_dsack(&[(1100, 1400), (1100, 1200)]), "a block that has grown");
    assert!(is_dsack(&[(900, 1000)]) && is_dsack(&[(800, 900), (1100, 1200)]));
    assert!(is_dsack(&[(1100, 1200), (1100, 1200)]), "all that came out of order came twice");
    assert!(is_dsack(&[(1150, 1200), (1100, 1300)]) && is_dsack(&[(1100, 1200), (1100, 1300)]));
    assert!(vflood::is_dsack(5, &[(u32::MAX - 9, 2)]), "numbers wrap");
}

#[test]
fn the_guests_timeout_begins_slow_start_anew_and_a_needless_one_does_nothing() {
    let mut world = flooded(DEFAULTS);
    world.apply(&Step::Again { flow: 0, later: 0 });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.flow.cwnd()), (State::PacketLoss, 1));
    // Where SACK blocks told of the loss, it was no timeout; sent again once more, it is one.
    let mut world = flooded(DEFAULTS);
    world.apply(&Step::Arrive { flow: 0, lost: vec![true, false] });
    world.apply(&Step::Acks { flow: 0, count: 1 });
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!((world.connections[0].flow.state(), world.connections[0].flow.cwnd()), (State::PacketLoss, 5));
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!(world.connections[0].flow.cwnd(), 1);
    let mut world = flooded(DEFAULTS);
    world.apply(&Step::Arrive { flow: 0, lost: vec![false; 5] });
    world.apply(&Step::Acks { flow: 0, count: 5 });
    // The VM has not read these ACKs when its timer runs.
    world.connections[0].guest_acked = 0;
    let before = world.connections[0].wire.len();
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!(world.connections[0].flow.state(), State::Active);
    // One gets an ACK once more, in case that was lost; the others do not leave.
    world.apply(&Step::Again { flow: 0, later: 1 });
    assert_eq!(world.connections[0].wire.len(), before + 1);
}

#[test]
fn an_ack_for_what_was_never_sent_means_nothing() {
    let mut world = flooded(DEFAULTS);
    let before = world.connections[0].flow.clone();
    let c = &mut world.connections[0];
    let beyond = c.seq(c.guest_end + 1);
    c.flow.acked(&world.host, &vflood::Ack { number: beyond, window: 1000, is_pure: true, sacked: None }, 2000);
    assert_eq!((c.flow.snd_una(), c.flow.snd_nxt()), (before.snd_una(), before.snd_nxt()));
}

#[test]
fn bare_acks_stay_inside_the_receivers_window_and_held_ones_go_ahead() {
    let mut world = flooded(DEFAULTS);
    let c = &mut world.connections[0];
    assert_eq!(c.flow.bare_seq(c.seq(c.guest_end)), c.flow.snd_nxt());
    assert!(c.flow.ack_is_due(77));
    c.flow.ack_out(77);
    assert!(!c.flow.ack_is_due(77) && !c.flow.ack_is_due(76) && c.flow.ack_is_due(78));
}

#[test]
fn a_grant_takes_the_place_of_the_receivers_window_and_limits_still_hold() {
    let arbitrate = |vflood_bytes, proboscis_bytes| {
        window::arbitrate(window::Offers { proboscis_bytes, vflood_bytes, ..Default::default() }, 100, 4, MSS)
    };
    assert_eq!(arbitrate(Some(16_000), None), (1000, By::Vflood), "raised");
    assert_eq!(arbitrate(Some(320), None), (20, By::Vflood), "or lowered");
    assert_eq!(arbitrate(Some(u32::MAX), None), (65_535, By::Vflood));
    assert_eq!(arbitrate(Some(16_000), Some(8_000)), (500, By::Proboscis));
    assert_eq!(arbitrate(Some(16_000), Some(32_000)), (1000, By::Vflood));
    assert_eq!(arbitrate(None, None), (100, By::Receiver));
}

#[test]
fn the_guest_floods_only_online_and_unhurt() {
    let guest =
        Guest { is_online: true, is_repairing: false, shadow: 10, granted_segments: None, held: 0, in_flight: 9 };
    assert_eq!(guest.cwnd(), 512);
    assert_eq!(Guest { granted_segments: Some(2000), ..guest }.cwnd(), 2000);
    assert_eq!(Guest { shadow: 100, granted_segments: Some(20), ..guest }.cwnd(), 100, "the window keeps it anyway");
    assert_eq!(Guest { is_repairing: true, granted_segments: Some(2000), ..guest }.cwnd(), 10);
    assert_eq!(Guest { is_online: false, held: 5, ..guest }.cwnd(), 10);
    // 200 are out, 50 have arrived, about 20 are in the network: the lost ones among these may be sent again.
    let held = guest_held(200, 50, 20);
    let repairing = Guest { is_repairing: true, shadow: 20, held, ..guest };
    assert_eq!((held, Guest { in_flight: 190, ..repairing }.cwnd()), (130, 150));
    assert_eq!(Guest { in_flight: 100, ..repairing }.cwnd(), 101, "one for each ACK");
    assert_eq!(Guest { in_flight: 5, ..repairing }.cwnd(), 20);
    assert_eq!((guest_held(15, 0, 20), guest_held(5, 9, 0)), (0, 0));
}

#[test]
fn vegas_keeps_a_few_segments_in_the_queue() {
    // A path of 10 segments a millisecond and 1 ms: its window is 10, and what is more waits.
    let mut vegas = Congestion::new(Kind::Vegas, 2);
    for round in 0..200u64 {
        let rtt_us = 1000 + 100 * vegas.cwnd().saturating_sub(10);
        vegas.rtt(rtt_us);
        let acked = vegas.cwnd();
        vegas.acked(acked, round * 1000, 1000, true);
    }
    assert!((12..=14).contains(&vegas.cwnd()), "{}", vegas.cwnd());
    assert!(vegas.ssthresh() < u32::MAX, "it left slow start before any loss");
    vegas.lost();
    assert!((6..=7).contains(&vegas.cwnd()));
    vegas.timed_out();
    assert_eq!(vegas.cwnd(), 1);
}

#[test]
fn an_idle_window_begins_anew() {
    for kind in [Kind::Reno, Kind::Cubic, Kind::Vegas] {
        let mut window = Congestion::new(kind, 10);
        window.rtt(100);
        window.acked(90, 1000, 100, false);
        assert_eq!(window.cwnd(), 100, "{kind:?}");
        window.lost();
        let before = window.cwnd();
        window.idle(300_000, 200_000, 10);
        assert_eq!((window.cwnd(), window.ssthresh()), (before / 2, before), "{kind:?}");
        window.idle(1_000_000, 200_000, 10);
        assert_eq!((window.cwnd(), window.ssthresh()), (10, before), "{kind:?}");
    }
}
