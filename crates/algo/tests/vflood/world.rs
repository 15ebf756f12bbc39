//! A VM that floods, the network and the receiver around the host, for all tests of vFlood.

use std::collections::{HashSet, VecDeque};

use evenkeel_algo::congestion::Kind;
use evenkeel_algo::reno::MIN_CWND;
use evenkeel_algo::vflood::{self, DEFAULTS, Flow, HostSettings, Policy, Sacked, Settings, State, Verdict, Vm};
use proptest::prelude::*;

/// With the paper's congestion control, whose windows are simple sums.
pub const RENO: Settings = Settings { congestion: Kind::Reno, ..DEFAULTS };
pub const MSS: u32 = 1000;
pub const SCALE: u8 = 2;
pub const HANDSHAKE_RTT_US: u64 = 199;

#[derive(Debug, Clone)]
pub enum Step {
    /// The guest sends up to `segments` segments; if obedient, only as far as it was granted.
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

pub const FLOWS: usize = 3;

pub fn step() -> impl Strategy<Value = Step> {
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

pub fn settings() -> impl Strategy<Value = Settings> {
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

/// An ACK of the receiver.
pub struct Ack {
    pub number: u32,
    pub window: u16,
    /// SACK blocks; that of data that came twice is the first.
    pub blocks: Vec<(u32, u32)>,
    pub ts_ecr: u32,
}

/// A segment on its way.
pub struct Sent {
    pub segment: u32,
    pub again: bool,
    pub is_first: bool,
    pub ts_val: u32,
}

/// One end to end connection around a flow.
pub struct Connection {
    pub flow: Flow,
    pub isn: u32,
    /// Held packets, by sequence number.
    pub queue: VecDeque<u32>,
    pub wire: VecDeque<Sent>,
    pub acks: VecDeque<Ack>,
    /// Segments, counted from the first.
    pub guest_end: u32,
    pub guest_acked: u32,
    pub guest_edge: u32,
    pub received: Vec<bool>,
    pub delivered: u32,
    pub window: u32,
    /// Right edge of the receiver's window as the host has been told.
    pub sent_edge: u32,
    /// What has left since the last ACK that counted, and what may.
    pub burst: u32,
    pub burst_limit: u32,
    pub drops_wrongly: u32,
    /// When each segment was let out, for those that were.
    pub left_us: Vec<u64>,
    /// The VM's newest timestamp, and the one that the receiver echoes; 0 without timestamps.
    pub ts_val: u32,
    pub ts_recent: u32,
    /// Which segments have left at all, and of which the first copy has arrived.
    pub has_left: HashSet<u32>,
    pub first_arrived: HashSet<u32>,
    /// The first segment that was not acknowledged when the last loss was judged.
    pub lost_head: u32,
    /// The end of what the VM had handed over by then, and the window at that time.
    pub lost_end: u32,
    pub kept_cwnd: u32,
    pub undone: u32,
}

impl Connection {
    pub fn new(host: &HostSettings, vm: &mut Vm, isn: u32, settings: &Settings) -> Self {
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
            sent_edge: 64,
            burst: 0,
            burst_limit: settings.initial_window,
            drops_wrongly: 0,
            left_us: Vec::new(),
            ts_val: 0,
            ts_recent: 0,
            has_left: HashSet::new(),
            first_arrived: HashSet::new(),
            lost_head: 0,
            lost_end: 0,
            kept_cwnd: 0,
            undone: 0,
        }
    }

    /// Segments that the receiver has, and the host takes for out.
    pub fn arrived(&self) -> u32 {
        let acked = self.flow.snd_una().wrapping_sub(self.seq(0)) / MSS;
        self.received.iter().skip(acked as usize).filter(|received| **received).count() as u32
    }

    /// A segment leaves for the first time.
    pub fn leaves(&mut self, segment: u32, now_us: u64) {
        self.left_us.resize(self.left_us.len().max(segment as usize + 1), now_us);
        self.put_on_wire(segment, false);
    }

    pub fn note_loss(&mut self, una: u32, cwnd: u32) {
        self.lost_head = una.wrapping_sub(self.seq(0)) / MSS;
        self.lost_end = self.guest_end;
        self.kept_cwnd = cwnd;
    }

    pub fn put_on_wire(&mut self, segment: u32, again: bool) {
        let is_first = self.has_left.insert(segment);
        self.wire.push_back(Sent { segment, again, is_first, ts_val: self.ts_val });
    }

    pub fn seq(&self, segment: u32) -> u32 {
        self.isn.wrapping_add(1).wrapping_add(segment * MSS)
    }

    pub fn out(&self) -> u32 {
        self.flow.snd_nxt().wrapping_sub(self.flow.snd_una()).div_ceil(MSS)
    }

    /// New data has just been let out.
    pub fn check_sent(&mut self, settings: &Settings, dup_acks: u32, segment: u32, before: u32, now_us: u64) {
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
        let on_wire = 1 + self.wire.iter().filter(|sent| !sent.again).count() as u32;
        let is_repairing = settings.congestion == Kind::Cubic && self.flow.state() == State::PacketLoss;
        assert!(
            self.out() <= self.flow.cwnd() + credit || (is_repairing && on_wire <= self.flow.cwnd()),
            "{} out, {on_wire} on the wire, window {}",
            self.out(),
            self.flow.cwnd()
        );
        assert!(segment < self.sent_edge, "segment {segment} beyond the receiver's {}", self.sent_edge);
        self.leaves(segment, now_us);
    }
}

/// What both ends of all connections have.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    pub timestamps: bool,
    pub sack: bool,
}

pub fn ends() -> impl Strategy<Value = Ends> {
    (any::<bool>(), any::<bool>()).prop_map(|(timestamps, sack)| Ends { timestamps, sack })
}

pub struct World {
    pub ends: Ends,
    pub settings: Settings,
    pub host: HostSettings,
    pub vm: Vm,
    pub now_us: u64,
    pub connections: Vec<Connection>,
    /// Duplicate ACKs since the last other ACK, by flow: at least as many as the host counts.
    pub dups: Vec<u32>,
    /// What may leave at once does so without a look at the VM's buffer, as in the kernel.
    pub is_direct: bool,
}

impl World {
    pub fn new(settings: Settings) -> Self {
        Self::with(settings, Ends { timestamps: true, sack: true })
    }

    pub fn with(settings: Settings, ends: Ends) -> Self {
        let host = HostSettings::new(&settings);
        let isns = [0, u32::MAX - 40_000, 1 << 31];
        let mut vm = Vm::default();
        let mut connections: Vec<_> = isns.map(|isn| Connection::new(&host, &mut vm, isn, &settings)).into();
        if ends.sack {
            connections.iter_mut().for_each(|c| c.flow.permit_sack());
        }
        Self { ends, settings, host, vm, now_us: 1000, connections, dups: vec![0; FLOWS], is_direct: false }
    }

    pub fn check(&self) {
        let held: u32 = self.connections.iter().map(|c| c.queue.len() as u32).sum();
        assert_eq!(self.vm.held_segments(), held);
        assert!(held <= self.settings.buffer_segments);
        for c in &self.connections {
            assert_eq!(c.flow.held_segments(), c.queue.len() as u32);
            assert!(c.flow.cwnd() >= 1);
        }
    }

    pub fn send(&mut self, index: usize, segment: u32) {
        let c = &mut self.connections[index];
        let (seq, before, state, cwnd) = (c.seq(segment), c.flow.snd_nxt(), c.flow.state(), c.flow.cwnd());
        if self.ends.timestamps {
            // Timestamps count milliseconds.
            c.ts_val = 1 + (self.now_us / 1000) as u32;
            c.flow.stamp(c.ts_val);
        }
        let mut judged = c.flow.clone();
        let verdict = judged.data(&mut self.vm.clone(), &self.host, seq, MSS, self.now_us);
        if self.is_direct && c.flow.passes(&self.host, seq, MSS, self.now_us) {
            let does = (verdict, judged.snd_nxt());
            assert_eq!(does, (Verdict::Pass, c.flow.snd_nxt()), "it does what the other would");
            if c.flow.snd_nxt() == before {
                // Nothing is promised for what is sent again.
                assert_eq!(format!("{judged:?}"), format!("{:?}", c.flow), "segment {segment}");
            }
        } else {
            assert_eq!(
                c.flow.data(&mut self.vm, &self.host, seq, MSS, self.now_us),
                verdict,
                "a refusal changes nothing"
            );
        }
        match verdict {
            Verdict::Pass if c.flow.snd_nxt() == before => c.put_on_wire(segment, true),
            Verdict::Pass => c.check_sent(&self.settings, self.dups[index], segment, before, self.now_us),
            Verdict::Hold => c.queue.push_back(seq),
            Verdict::Drop => {
                let is_fresh =
                    c.left_us.get(segment as usize).is_some_and(|left| self.now_us - left < HANDSHAKE_RTT_US);
                // What the VM took for lost, and was not.
                let is_undone = c.undone > 0 && segment < c.lost_end;
                let needless = c.queue.contains(&seq) || segment < c.delivered || is_fresh || is_undone;
                let full = self.vm.held_segments() + 1 > self.settings.buffer_segments;
                c.drops_wrongly += u32::from(!needless && !full);
            }
        }
        if state != State::PacketLoss && c.flow.state() == State::PacketLoss {
            c.note_loss(c.flow.snd_una(), cwnd);
        }
        assert_eq!(c.drops_wrongly, 0, "dropped although it is not held and there is room");
    }

    pub fn release(&mut self, index: usize) {
        let c = &mut self.connections[index];
        while let Some(&seq) = c.queue.front() {
            let segment = seq.wrapping_sub(c.seq(0)) / MSS;
            let before = c.flow.snd_nxt();
            let leaves = c.flow.leaves(&self.host, seq, MSS, false);
            let verdict = c.flow.release(&mut self.vm, &self.host, seq, MSS, self.now_us);
            assert_eq!(leaves, verdict != Verdict::Hold, "who asks whether it leaves is told otherwise");
            match verdict {
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

    /// Packets that go here exceed the windows; later ones do not.
    pub fn let_go(&mut self, index: usize, packets: usize) {
        let c = &mut self.connections[index];
        for _ in 0..packets {
            let Some(seq) = c.queue.pop_front() else { break };
            let segment = seq.wrapping_sub(c.seq(0)) / MSS;
            c.flow.drained(&mut self.vm, seq, MSS, self.now_us);
            c.leaves(segment, self.now_us);
        }
    }

    pub fn arrive(&mut self, index: usize, lost: bool) {
        let c = &mut self.connections[index];
        let Some(Sent { segment, is_first, ts_val, .. }) = c.wire.pop_front() else { return };
        if lost {
            return;
        }
        if is_first {
            c.first_arrived.insert(segment);
        }
        // Each segment is acknowledged at once.
        if segment <= c.delivered && ts_val.wrapping_sub(c.ts_recent) < 1 << 31 {
            c.ts_recent = ts_val;
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

    pub fn acknowledge(&mut self, index: usize, twice: Option<u32>) {
        let c = &mut self.connections[index];
        let twice = twice.filter(|_| self.ends.sack);
        let mut blocks: Vec<_> = twice.map(|segment| (c.seq(segment), c.seq(segment + 1))).into_iter().collect();
        // The highest range that has arrived.
        if let Some(gap) = c.received.iter().rposition(|received| !received).filter(|_| self.ends.sack) {
            blocks.push((c.seq(gap as u32 + 1), c.seq(c.received.len() as u32)));
        }
        let window = ((c.window * MSS) >> SCALE) as u16;
        c.acks.push_back(Ack { number: c.seq(c.delivered), window, blocks, ts_ecr: c.ts_recent });
    }

    pub fn ack(&mut self, index: usize) {
        let c = &mut self.connections[index];
        let Some(Ack { number: ack, window, blocks, ts_ecr }) = c.acks.pop_front() else { return };
        let sacked = Sacked::of(ack, &blocks, MSS);
        let is_dsack = vflood::is_dsack(ack, &blocks);
        let (cwnd, state, una, edge) = (c.flow.cwnd(), c.flow.state(), c.flow.snd_una(), c.flow.edge());
        self.now_us += 10;
        let came_twice = blocks.first().copied().filter(|_| is_dsack);
        let ack_is = vflood::Ack { number: ack, window, is_pure: !is_dsack, sacked, ts_ecr, came_twice };
        let is_undone = c.flow.acked(&self.host, &ack_is, self.now_us);
        let acked = ack.wrapping_sub(una) / MSS;
        (c.burst, c.burst_limit) = (0, self.settings.initial_window.max(2 * acked));
        if acked > 0 {
            self.dups[index] = if c.flow.state() == State::PacketLoss { self.dups[index] } else { 0 };
        } else if edge == c.flow.edge() && !is_dsack {
            self.dups[index] += 1;
        }
        if is_undone {
            c.undone += 1;
            assert!(c.first_arrived.contains(&c.lost_head), "{} was lost, and its loss found to be none", c.lost_head);
            assert!(c.flow.cwnd() >= c.kept_cwnd, "the window was {}", c.kept_cwnd);
        }
        if state != State::PacketLoss && c.flow.state() == State::PacketLoss {
            c.note_loss(una, cwnd);
            let most = if self.settings.congestion == Kind::Cubic { cwnd * 7 / 10 + 1 } else { cwnd / 2 };
            assert!(c.flow.cwnd() <= most.max(MIN_CWND), "{} after a loss at {cwnd}", c.flow.cwnd());
        }
        c.sent_edge = c.flow.edge().wrapping_sub(c.seq(0)) / MSS;
        c.guest_acked = c.guest_acked.max(ack.wrapping_sub(c.seq(0)) / MSS);
        self.release(index);
        let c = &mut self.connections[index];
        let granted = c.flow.grant(&mut self.vm, &self.host).unwrap();
        let edge = c.flow.snd_una().wrapping_add(granted).wrapping_sub(c.seq(0)) / MSS;
        let is_idle = c.out() == 0 && c.queue.is_empty();
        assert!(is_idle || edge >= c.guest_edge, "an edge was taken back");
        let is_stuck = c.guest_acked == c.guest_end && edge <= c.guest_end;
        assert!(!is_stuck || c.sent_edge <= c.guest_end, "nothing is on its way, and the guest may not send");
        c.guest_edge = edge;
        // Data of the other end's that acknowledges the same.
        let again = vflood::Ack { is_pure: false, came_twice: None, ..ack_is };
        if c.flow.is_told(&again) {
            let state = |flow: &Flow| (flow.snd_una(), flow.snd_nxt(), flow.edge(), flow.cwnd(), flow.state());
            let mut other = c.flow.clone();
            assert!(!other.acked(&self.host, &again, self.now_us));
            assert_eq!(state(&other), state(&c.flow), "it was told something");
        }
    }

    pub fn apply(&mut self, step: &Step) {
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
    pub fn drain(&mut self) {
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

/// A world and its first flow, which has flooded it as far as it may.
pub fn flooded(settings: Settings) -> World {
    let mut world = World::new(settings);
    world.apply(&Step::Flood { flow: 0, segments: 5000, obedient: true });
    world
}
