//! vSnoop's safety: an early ACK cannot be taken back.

use std::collections::VecDeque;

use evenkeel_algo::vsnoop::{
    self, Core, Doubt, EarlyAck, Flow, HOLE_US, LIFE_US, SEGMENT_MEMORY_BYTES, Settings, State, Vm, VmAck,
};
use proptest::prelude::*;

const MSS: u32 = 1000;
const SCALE: u8 = 3;
const FLOWS: usize = 2;
/// A receive buffer, of which the VM offers all that is free.
const BUFFER: u32 = 100_000;

#[derive(Debug, Clone)]
enum Step {
    /// The sender sends a segment: its next, or an earlier one again; of full size or shorter.
    Send { flow: usize, back: u32, bytes: u32 },
    /// The network loses, delivers, or brings a later one first.
    Network { flow: usize, lost: bool, overtaken: usize },
    /// Packets of others come into the port's queue.
    Others { packets: u32 },
    /// The sender wants to know whether somebody is there: a keepalive, or a window probe.
    Ask { flow: usize },
    /// Data of the VM's goes out, with the VM's own number on it.
    Ride { flow: usize },
    /// Early ACKs that wait to go out do so.
    Backlog,
    /// The network loses all ACKs from now on, or none any more.
    Acks { lost: bool },
    /// The VM runs: it takes so many packets out, and its applications read so much.
    Wake { packets: usize, read_bytes: u32 },
    /// The VM gets its core or loses it, or nobody knows.
    Core { is: Core },
    /// Nothing happens.
    Pause { us: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let flow = 0..FLOWS;
    let bytes = prop_oneof![3 => Just(MSS), 1 => 1..MSS, 1 => MSS..4 * MSS];
    prop_oneof![
        8 => (flow.clone(), prop_oneof![6 => Just(0u32), 1 => 1..5u32], bytes)
            .prop_map(|(flow, back, bytes)| Step::Send { flow, back, bytes }),
        10 => (flow.clone(), proptest::bool::weighted(0.05), prop_oneof![8 => Just(0usize), 1 => 1..4usize])
            .prop_map(|(flow, lost, overtaken)| Step::Network { flow, lost, overtaken }),
        1 => (1..8u32).prop_map(|packets| Step::Others { packets }),
        1 => flow.clone().prop_map(|flow| Step::Ask { flow }),
        2 => flow.prop_map(|flow| Step::Ride { flow }),
        6 => Just(Step::Backlog),
        1 => proptest::bool::weighted(0.3).prop_map(|lost| Step::Acks { lost }),
        2 => (0..40usize, 0..30_000u32).prop_map(|(packets, read_bytes)| Step::Wake { packets, read_bytes }),
        1 => prop_oneof![1 => Just(Core::Unknown), 2 => Just(Core::On), 6 => Just(Core::Off)]
            .prop_map(|is| Step::Core { is }),
        1 => (0..LIFE_US).prop_map(|us| Step::Pause { us }),
    ]
}

#[derive(Debug, Clone, Copy)]
struct Data {
    seq: u32,
    bytes: u32,
}

impl Data {
    fn whole(self) -> vsnoop::Data {
        vsnoop::Data {
            seq: self.seq,
            bytes: self.bytes,
            segments: self.bytes.div_ceil(MSS),
            last_bytes: (self.bytes - 1) % MSS + 1,
            is_fin: false,
            doubt: Doubt::CERTAIN,
            core: Core::Off,
        }
    }
}

/// One receiver in the VM, and its sender.
#[derive(Debug)]
struct Connection {
    flow: Flow,
    irs: u32,
    /// Segments as they were first sent.
    segments: Vec<Data>,
    wire: VecDeque<Data>,
    /// Offsets that are in the port's queue or beyond it.
    queued: Vec<(u32, u32)>,
    /// The VM's TCP: what it has, in order and out of it.
    vm_next: u32,
    vm_ranges: Vec<(u32, u32)>,
    /// Bytes and memory of each packet that no application has read.
    unread: VecDeque<(u32, u32)>,
    vm_edge: u32,
    /// Since when there is data that it has not reacted to.
    waits_since: Option<u64>,
    /// Highest end of data that came to the port.
    arrived: u32,
    /// Highest early ACK.
    promised: u32,
    clock: u32,
    /// The sender, as the ACKs that reached it say.
    acked: u32,
    edge: u32,
    /// No ACK went out since it asked.
    waits: bool,
    /// Early ACKs on their way out, with what was told before each, and the highest that data has taken along.
    backlog: VecDeque<(EarlyAck, u32)>,
    rode: Option<u32>,
}

/// What is in the port's queue.
#[derive(Debug, Clone, Copy)]
enum Queued {
    Data(usize, Data),
    Question(usize),
    Other,
}

impl Connection {
    fn new(vm: &mut Vm, irs: u32) -> Self {
        let mut flow = Flow::default();
        flow.peer_syn(irs, MSS);
        flow.vm_syn(SCALE);
        let mut new = Self {
            flow,
            irs,
            segments: Vec::new(),
            wire: VecDeque::new(),
            queued: Vec::new(),
            vm_next: 0,
            vm_ranges: Vec::new(),
            unread: VecDeque::new(),
            vm_edge: 0,
            waits_since: None,
            arrived: 0,
            promised: 0,
            clock: 5,
            acked: 0,
            edge: BUFFER,
            waits: false,
            backlog: VecDeque::new(),
            rode: None,
        };
        let first = new.vm_ack(false);
        assert!(new.flow.vm_ack(vm, &first, 1));
        new
    }

    fn offset(&self, seq: u32) -> u32 {
        seq.wrapping_sub(self.irs.wrapping_add(1))
    }

    /// End of what stands in order in the queue or beyond.
    fn delivered(&self) -> u32 {
        let mut end = 0;
        loop {
            let further = self.queued.iter().filter(|r| r.0 <= end).map(|r| r.1).max().unwrap_or(0);
            if further <= end {
                return end;
            }
            end = further;
        }
    }

    /// Memory of what the VM has not handed to an application.
    fn memory(&self) -> u32 {
        self.unread.iter().map(|packet| packet.1).sum()
    }

    /// What the VM sends now; its clock never stands still. As Linux does, it takes nothing back of its window, and
    /// rounds what it keeps up.
    fn vm_ack(&mut self, has_sack: bool) -> VmAck {
        let edge = self.vm_next + (BUFFER.saturating_sub(self.memory()) >> SCALE << SCALE);
        if edge > self.vm_edge {
            self.vm_edge = edge;
        }
        let window = (self.vm_edge - self.vm_next).div_ceil(1 << SCALE);
        self.vm_edge = self.vm_next + (window << SCALE);
        VmAck {
            seq: 900,
            bytes: 0,
            ack: self.irs.wrapping_add(1).wrapping_add(self.vm_next),
            window: window as u16,
            ts_val: self.clock,
            is_bare: !has_sack,
            has_later: has_sack,
        }
    }

    /// As Linux does, it drops what finds no memory, unless nothing waits to be read (tcp_data_queue()).
    fn take(&mut self, data: Data) {
        let (start, end) = (self.offset(data.seq), self.offset(data.seq) + data.bytes);
        if end <= self.vm_next {
            return;
        }
        if self.memory() > BUFFER {
            assert!(start >= self.promised, "what was acknowledged for the VM finds no memory there");
            return;
        }
        if start > self.vm_next {
            self.vm_ranges.push((start, end));
        } else {
            self.advance(end);
            while let Some(place) = self.vm_ranges.iter().position(|r| r.0 <= self.vm_next) {
                let (_, end) = self.vm_ranges.swap_remove(place);
                self.advance(end);
            }
        }
    }

    fn advance(&mut self, end: u32) {
        if end > self.vm_next {
            let bytes = end - self.vm_next;
            self.unread.push_back((bytes, bytes.div_ceil(MSS) * SEGMENT_MEMORY_BYTES));
            self.vm_next = end;
            assert!(end <= self.vm_edge, "more than the VM has room for was acknowledged");
        }
    }

    /// An application reads; whether there was something.
    fn read(&mut self, mut bytes: u32) -> bool {
        let had = !self.unread.is_empty() && bytes > 0;
        while let Some(packet) = self.unread.front_mut() {
            if packet.0 > bytes {
                packet.0 -= bytes;
                break;
            }
            bytes -= packet.0;
            self.unread.pop_front();
        }
        had
    }
}

struct World {
    settings: Settings,
    vm: Vm,
    limit: usize,
    connections: Vec<Connection>,
    queue: VecDeque<Queued>,
    early: usize,
    core: Core,
    now_us: u64,
    acks_are_lost: bool,
    /// A window that a lost ACK told is not said again unless it is asked for, by any TCP.
    acks_were_lost: bool,
}

impl World {
    fn new(limit: usize) -> Self {
        let mut vm = Vm::default();
        let connections = [3, u32::MAX - 20_000].map(|irs| Connection::new(&mut vm, irs)).into();
        let settings = Settings { budget_segments: limit as u32 / 2 };
        Self {
            settings,
            vm,
            limit,
            connections,
            queue: VecDeque::new(),
            early: 0,
            core: Core::Off,
            now_us: 1,
            acks_are_lost: false,
            acks_were_lost: false,
        }
    }

    fn send(&mut self, index: usize, back: u32, bytes: u32) {
        let c = &mut self.connections[index];
        let data = if back == 0 || c.segments.is_empty() {
            let seq = c.segments.last().map_or(c.irs.wrapping_add(1), |last| last.seq.wrapping_add(last.bytes));
            // The sender keeps to the window that it was told.
            if c.offset(seq) + bytes > c.edge {
                return;
            }
            c.segments.push(Data { seq, bytes });
            Data { seq, bytes }
        } else {
            c.segments[c.segments.len() - 1 - (back as usize - 1).min(c.segments.len() - 1)]
        };
        c.wire.push_back(data);
    }

    fn network(&mut self, index: usize, lost: bool, overtaken: usize) {
        let c = &mut self.connections[index];
        let place = overtaken.min(c.wire.len().saturating_sub(1));
        let Some(data) = c.wire.remove(place) else { return };
        if lost {
            return;
        }
        let has_place = self.queue.len() < self.limit;
        let doubt = if has_place { Doubt::CERTAIN } else { Doubt::QUEUE };
        let told = c.flow.acked();
        c.arrived = c.arrived.max(c.offset(data.seq) + data.bytes);
        let since = *c.waits_since.get_or_insert(self.now_us);
        let data_to_vm = vsnoop::Data { doubt, core: self.core, ..data.whole() };
        let early = c.flow.data(&mut self.vm, self.settings, data_to_vm, self.now_us);
        if has_place {
            let start = c.offset(data.seq);
            c.queued.push((start, start + data.bytes));
            self.queue.push_back(Queued::Data(index, data));
        }
        if let Some(ack) = early {
            assert!(has_place || ack.ack == told, "acknowledged, and then dropped by the queue");
            let share = self.settings.budget_segments;
            let may_be = self.vm.outstanding() + self.vm.coming();
            assert!(ack.ack == told || may_be <= share, "more than the queue's share");
            assert!(ack.ack == told || self.core == Core::Off, "acknowledged for a VM that does so itself");
            assert!(self.now_us - since < LIFE_US, "acknowledged for a VM that may be dead");
            self.early += 1;
            let (c, last) = (&mut self.connections[index], data.whole().last_bytes);
            c.promised = c.promised.max(c.offset(ack.ack));
            assert!(c.promised < c.arrived, "the last segment is the VM's");
            assert!(ack.ack == told || c.promised + last <= c.arrived, "the last segment is the VM's");
            self.connections[index].backlog.push_back((ack, told));
        }
    }

    /// Early ACKs go out, but for those that data has taken along; what was told already goes out again.
    fn backlog(&mut self) {
        for index in 0..FLOWS {
            while let Some((ack, told)) = self.connections[index].backlog.pop_front() {
                let c = &self.connections[index];
                if ack.ack != told && c.flow.has_ridden(ack.ack) {
                    assert!(c.rode >= Some(c.offset(ack.ack)), "nothing has taken it along");
                } else {
                    self.tell(index, &ack);
                }
            }
        }
    }

    fn ride(&mut self, index: usize) {
        let c = &mut self.connections[index];
        let number = c.irs.wrapping_add(1).wrapping_add(c.vm_next);
        if let Some(ack) = c.flow.ride(number) {
            assert!(c.offset(ack.ack) > c.vm_next, "it says less than the VM");
            c.rode = c.rode.max(Some(c.offset(ack.ack)));
            self.tell(index, &ack);
        }
    }

    fn tell(&mut self, index: usize, early: &EarlyAck) {
        let c = &mut self.connections[index];
        let ack = c.offset(early.ack);
        assert!(ack <= c.delivered(), "{ack} acknowledged, {} delivered to the port", c.delivered());
        let edge = ack + (u32::from(early.window) << SCALE);
        assert!(ack <= c.vm_edge && edge <= c.vm_edge, "a window to {edge}, the VM's is to {}", c.vm_edge);
        assert!(early.ts_val <= c.clock, "ahead of the VM's clock");
        if !self.acks_are_lost {
            c.acked = c.acked.max(ack);
            c.edge = c.edge.max(edge);
        }
    }

    /// The sender's question, with an old number, goes to the VM.
    fn ask(&mut self, index: usize) {
        let c = &mut self.connections[index];
        c.flow.peer_ack(c.irs.wrapping_add(c.acked), false);
        c.waits = true;
        if self.queue.len() < self.limit {
            self.queue.push_back(Queued::Question(index));
        }
    }

    fn wake(&mut self, packets: usize, read_bytes: u32) {
        self.backlog();
        for _ in 0..packets {
            let Some(packet) = self.queue.pop_front() else { break };
            match packet {
                Queued::Data(index, data) => {
                    let c = &mut self.connections[index];
                    c.clock += 1;
                    c.take(data);
                    self.vm_acks(index);
                }
                Queued::Question(index) => {
                    self.vm_acks(index);
                    assert!(!self.connections[index].waits, "who asks gets an answer");
                }
                Queued::Other => {}
            }
        }
        for index in 0..FLOWS {
            if self.connections[index].read(read_bytes) {
                self.vm_acks(index);
            }
        }
    }

    fn vm_acks(&mut self, index: usize) {
        let c = &mut self.connections[index];
        let has_sack = !c.vm_ranges.is_empty();
        let ack = c.vm_ack(has_sack);
        let told = c.offset(c.flow.acked());
        let passes = c.flow.vm_ack(&mut self.vm, &ack, self.now_us);
        c.waits_since = (c.vm_next < c.arrived).then_some(self.now_us);
        let number = c.offset(ack.ack);
        assert!(passes || number <= told, "an ACK with news was dropped");
        assert!(passes || !has_sack, "SACK blocks were dropped");
        if passes {
            c.waits = false;
        }
        if passes && !self.acks_are_lost {
            c.acked = c.acked.max(number);
            if number >= c.acked {
                c.edge = c.edge.max(c.vm_edge);
            }
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Core { is } => self.core = is,
            Step::Pause { us } => self.now_us += us,
            Step::Send { flow, back, bytes } => self.send(flow, back, bytes),
            Step::Network { flow, lost, overtaken } => self.network(flow, lost, overtaken),
            Step::Others { packets } => {
                for _ in 0..packets {
                    if self.queue.len() < self.limit {
                        self.queue.push_back(Queued::Other);
                    }
                }
            }
            Step::Ask { flow } => self.ask(flow),
            Step::Ride { flow } => self.ride(flow),
            Step::Backlog => self.backlog(),
            Step::Acks { lost } => {
                self.acks_are_lost = lost;
                self.acks_were_lost |= lost;
            }
            Step::Wake { packets, read_bytes } => self.wake(packets, read_bytes),
        }
    }

    /// The sender repairs everything, and in the end it knows what the VM has, and the VM's window.
    fn drain(&mut self) {
        self.acks_are_lost = false;
        for index in 0..FLOWS {
            self.wake(usize::MAX, u32::MAX);
            while !self.connections[index].wire.is_empty() {
                self.network(index, false, 0);
                self.wake(usize::MAX, u32::MAX);
            }
            for round in 0.. {
                let c = &mut self.connections[index];
                let missing = c.segments.iter().find(|data| c.offset(data.seq) + data.bytes > c.acked).copied();
                let Some(data) = missing else { break };
                assert!(round <= c.segments.len(), "the sender sends again and again");
                c.wire.push_back(data);
                self.network(index, false, 0);
                self.wake(usize::MAX, u32::MAX);
            }
            if self.acks_were_lost && self.connections[index].edge < self.connections[index].vm_edge {
                self.ask(index);
                self.wake(usize::MAX, u32::MAX);
            }
            let c = &self.connections[index];
            let end = c.segments.last().map_or(0, |last| c.offset(last.seq) + last.bytes);
            assert_eq!((c.vm_next, c.acked), (end, end), "all arrived, and the sender knows");
            assert_eq!(c.edge, c.vm_edge.max(c.edge), "the VM's window is known");
            assert!(c.edge > c.vm_next, "the sender may go on");
            assert_ne!(c.flow.state(), State::UnexpectedSequence, "the VM has caught up");
        }
        assert_eq!(self.vm.outstanding(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_is_acknowledged_early_is_in_the_queue_and_in_the_window(
        limit in 4..40usize,
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut world = World::new(limit);
        for step in &steps {
            world.apply(step);
        }
        world.drain();
    }
}

fn receive(world: &mut World, segments: u32) {
    for _ in 0..segments {
        world.send(0, 0, MSS);
        world.network(0, false, 0);
        world.backlog();
    }
}

fn bare(ack: u32, window: u16) -> VmAck {
    VmAck { seq: 900, bytes: 0, ack, window, ts_val: 5, is_bare: true, has_later: false }
}

#[test]
fn data_in_order_is_acknowledged_while_the_vm_is_away() {
    let mut world = World::new(100);
    receive(&mut world, 15);
    // The last segment is the VM's to acknowledge.
    assert_eq!((world.early, world.connections[0].acked), (14, 14 * MSS));
    // So much memory is certain.
    let certain = BUFFER / SEGMENT_MEMORY_BYTES;
    receive(&mut world, 15);
    assert_eq!((world.early as u32, world.connections[0].acked), (certain - 1, (certain - 1) * MSS));
    assert_eq!(world.connections[0].flow.doubt(), Doubt::ORDER, "behind what may find no memory");
    world.wake(20, u32::MAX);
    world.wake(30, u32::MAX);
    assert_eq!((world.connections[0].acked, world.connections[0].edge), (30 * MSS, BUFFER + 30 * MSS));
    receive(&mut world, 2);
    assert_eq!(world.connections[0].flow.state(), State::Active);
}

/// A VM that reads nothing offers less and less, and what it has offered it may not have memory for.
#[test]
fn what_may_find_no_memory_is_the_vms() {
    let mut world = World::new(100);
    receive(&mut world, 22);
    assert_eq!(world.connections[0].flow.doubt(), Doubt::CERTAIN);
    receive(&mut world, 1);
    assert_eq!(world.connections[0].flow.doubt(), Doubt::MEMORY);
    world.wake(23, 0);
    let early = world.early;
    receive(&mut world, 5);
    assert_eq!(world.early, early, "the VM's window has not grown since");
    world.wake(0, u32::MAX);
    world.wake(100, u32::MAX);
    receive(&mut world, 2);
    assert_eq!(world.early, early + 1);
}

#[test]
fn the_queues_share_is_all_that_is_promised() {
    let mut world = World::new(20);
    receive(&mut world, 8);
    assert_eq!((world.early, world.connections[0].flow.state()), (4, State::NoBuffer));
    assert_eq!(world.connections[0].flow.doubt(), Doubt::BUDGET);
    world.wake(8, 0);
    receive(&mut world, 2);
    assert_eq!((world.early, world.connections[0].flow.state()), (5, State::Active));
}

#[test]
fn a_vm_that_has_its_core_speaks_for_itself() {
    let mut world = World::new(100);
    receive(&mut world, 3);
    assert_eq!(world.early, 2);
    for (core, doubt) in [(Core::On, Doubt::RUNS), (Core::Unknown, Doubt::CORE)] {
        world.core = core;
        receive(&mut world, 2);
        assert_eq!((world.early, world.connections[0].flow.doubt()), (2, doubt));
    }
    world.core = Core::Off;
    receive(&mut world, 1);
    assert_eq!((world.early, world.connections[0].flow.state()), (3, State::Active));
    assert_eq!(world.connections[0].promised, 7 * MSS, "all that it had left to the VM");
}

/// Senders in slow start fill the queue with what early ACKs let them send, and with no more than its share; and of
/// these ACKs there are few.
#[test]
fn what_early_acks_let_come_finds_room() {
    const INITIAL_WINDOW: u32 = 10;
    for (flows, budget_segments) in [(1, 60), (1, 500), (3, 200), (8, 500)] {
        let settings = Settings { budget_segments };
        let (mut vm, mut queued, mut acks) = (Vm::default(), 0, 0);
        let wide =
            |ack| VmAck { seq: 900, bytes: 0, ack, window: u16::MAX, ts_val: 5, is_bare: true, has_later: false };
        let mut senders: Vec<_> = (0..flows)
            .map(|_| {
                let mut flow = Flow::default();
                flow.peer_syn(0, MSS);
                flow.vm_syn(14);
                flow.vm_ack(&mut vm, &wide(1), 1);
                // Next segment, what it knows to have arrived, and its window.
                (flow, 0u32, 0u32, INITIAL_WINDOW)
            })
            .collect();
        // Each sends in turn what its window allows.
        while let Some((flow, next, acked, window)) =
            senders.iter_mut().filter(|(_, next, acked, window)| next - acked < *window).min_by_key(|sender| sender.1)
        {
            let data = Data { seq: 1 + *next * MSS, bytes: MSS }.whole();
            *next += 1;
            queued += 1;
            if let Some(early) = flow.data(&mut vm, settings, data, 2) {
                let news = (early.ack - 1) / MSS - *acked;
                acks += 1;
                *acked += news;
                *window += news;
            }
        }
        assert!(queued <= budget_segments + flows * INITIAL_WINDOW, "{queued} of {budget_segments}, {flows} senders");
        assert!(queued > budget_segments / 2, "{queued} of {budget_segments}, {flows} senders");
        // Sixteen for each time that a window doubles; a segment each where it is small.
        let most = flows * 16 * (budget_segments / flows / INITIAL_WINDOW).ilog2().max(1);
        assert!(acks <= most, "{acks} early ACKs, {most} at most");
        for (flow, next, ..) in &mut senders {
            flow.vm_ack(&mut vm, &wide(1 + *next * MSS), 3);
        }
        assert_eq!((vm.outstanding(), vm.coming()), (0, 0));
    }
}

#[test]
fn a_gap_ends_early_acks_until_the_vm_has_caught_up() {
    let mut world = World::new(100);
    receive(&mut world, 2);
    world.send(0, 0, MSS);
    world.network(0, true, 0);
    receive(&mut world, 3);
    assert_eq!((world.early, world.connections[0].flow.state()), (1, State::UnexpectedSequence));
    assert_eq!(world.connections[0].flow.doubt(), Doubt::ORDER);
    world.send(0, 4, MSS);
    world.network(0, false, 0);
    receive(&mut world, 1);
    assert_eq!(world.early, 1, "not before the VM says so");
    world.wake(100, 0);
    receive(&mut world, 2);
    assert_eq!((world.early, world.connections[0].flow.state()), (2, State::Active));
}

/// What the VM has not taken although it was delivered, its SACK blocks tell of.
#[test]
fn a_hole_in_the_vm_ends_early_acks_until_it_is_filled() {
    let mut world = World::new(100);
    receive(&mut world, 1);
    let c = &mut world.connections[0];
    let end = c.flow.acked().wrapping_add(MSS);
    let hole = VmAck { is_bare: false, has_later: true, ..bare(c.flow.acked(), 12_500) };
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 2));
    assert_eq!((c.flow.state(), world.vm.doubt()), (State::UnexpectedSequence, Doubt::CERTAIN));
    receive(&mut world, 1);
    assert_eq!(world.early, 0, "the first segment was not taken");
    let c = &mut world.connections[0];
    assert!(c.flow.vm_ack(&mut world.vm, &bare(end.wrapping_add(MSS), 12_250), 3));
    receive(&mut world, 2);
    assert_eq!(world.early, 1);
}

#[test]
fn a_vm_that_has_lost_what_was_promised_is_promised_for_no_more() {
    let mut world = World::new(100);
    receive(&mut world, 4);
    let c = &mut world.connections[0];
    let hole = VmAck { is_bare: false, has_later: true, ..bare(c.flow.acked().wrapping_sub(MSS), 12_500) };
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 2));
    assert_eq!((c.flow.state(), world.vm.doubt()), (State::UnexpectedSequence, Doubt::CERTAIN));
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 1 + HOLE_US));
    assert_eq!(world.vm.doubt(), Doubt::CERTAIN, "two CPUs may have exchanged packets");
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 2 + HOLE_US));
    assert_eq!(world.vm.doubt(), Doubt::BROKEN);
    let early = world.early;
    receive(&mut world, 2);
    world.send(1, 0, MSS);
    world.network(1, false, 0);
    assert_eq!(world.early, early, "of no connection");
    let c = &mut world.connections[0];
    assert!(
        c.flow.vm_ack(&mut world.vm, &bare(c.flow.acked().wrapping_sub(MSS), 12_500), 3 + HOLE_US),
        "its own ACKs pass"
    );
}

/// CPUs act on times that they have read up to a tick apart: one comes after a later one.
#[test]
fn a_time_that_goes_back_is_neither_a_silence_nor_an_old_hole() {
    const TICK_US: u64 = 4000;
    let mut world = World::new(100);
    world.now_us = 10 * TICK_US;
    receive(&mut world, 4);
    let c = &mut world.connections[0];
    let part = c.irs.wrapping_add(1 + MSS);
    c.flow.vm_ack(&mut world.vm, &bare(part, 12_375), world.now_us + TICK_US);
    let early = world.early;
    receive(&mut world, 2);
    assert_eq!(world.early, early + 2, "{:?}", world.connections[0].flow.doubt());
    let c = &mut world.connections[0];
    let hole = VmAck { is_bare: false, has_later: true, ..bare(part, 12_375) };
    for now_us in [world.now_us + TICK_US, world.now_us] {
        assert!(c.flow.vm_ack(&mut world.vm, &hole, now_us));
        assert_eq!(world.vm.doubt(), Doubt::CERTAIN);
    }
}

/// CPUs of a machine behind the VM, or of the VM's, may exchange its ACKs.
#[test]
fn an_ack_that_was_overtaken_tells_of_no_loss() {
    let mut world = World::new(100);
    receive(&mut world, 4);
    let c = &mut world.connections[0];
    let first = c.flow.acked().wrapping_sub(MSS);
    let filled = bare(first.wrapping_add(2 * MSS), 12_250);
    assert!(c.flow.vm_ack(&mut world.vm, &filled, 2));
    let hole = VmAck { is_bare: false, has_later: true, ..bare(first, 12_500) };
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 2));
    assert_eq!((c.flow.state(), world.vm.doubt()), (State::Active, Doubt::CERTAIN));
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 2 + HOLE_US));
    assert_eq!(world.vm.doubt(), Doubt::CERTAIN);
}

#[test]
fn a_vm_that_takes_back_its_window_is_promised_for_no_more() {
    let mut world = World::new(100);
    receive(&mut world, 4);
    let c = &mut world.connections[0];
    let first = c.irs.wrapping_add(1);
    // Rounding may take back less than a step (RFC 7323 §2.4).
    c.flow.vm_ack(&mut world.vm, &bare(first.wrapping_add(2), 12_499), 2);
    assert_eq!(world.vm.doubt(), Doubt::CERTAIN);
    c.flow.vm_ack(&mut world.vm, &bare(first.wrapping_add(MSS), 10_000), 3);
    assert_eq!(world.vm.doubt(), Doubt::TOOK_BACK);
    let early = world.early;
    receive(&mut world, 2);
    assert_eq!(world.early, early);
}

/// Nothing tells the other end that a dead VM lives: neither data, nor a keepalive with an octet that the VM has, or
/// was promised.
#[test]
fn a_dead_vm_is_not_kept_alive() {
    for was_away in [false, true] {
        let mut world = World::new(100);
        receive(&mut world, 3);
        if !was_away {
            world.wake(100, u32::MAX);
        }
        world.now_us += LIFE_US;
        let early = world.early;
        let c = &mut world.connections[0];
        let keepalive = |seq: u32| vsnoop::Data {
            seq,
            bytes: 1,
            segments: 1,
            last_bytes: 1,
            is_fin: false,
            doubt: Doubt::CERTAIN,
            core: Core::Off,
        };
        for seq in [c.flow.acked().wrapping_sub(1), c.irs.wrapping_add(3 * MSS)] {
            assert!(c.flow.data(&mut world.vm, world.settings, keepalive(seq), world.now_us).is_none());
            world.now_us += 1_000;
        }
        if was_away {
            receive(&mut world, 3);
            assert_eq!(world.early, early);
            assert_eq!(world.connections[0].flow.doubt(), Doubt::SILENCE);
        }
    }
}

#[test]
fn acks_that_say_nothing_new_are_dropped_and_all_others_pass() {
    let mut world = World::new(100);
    receive(&mut world, 4);
    let c = &mut world.connections[0];
    let told = c.flow.acked();
    // The window's edge stays where it is.
    let old = bare(told.wrapping_sub(MSS), 12_500 - 250);
    let mut passes = |ack| c.flow.vm_ack(&mut world.vm, &ack, 2);
    assert!(!passes(old));
    assert!(passes(VmAck { is_bare: false, ..old }), "with SACK blocks, an echo or data");
    assert!(passes(VmAck { seq: 899, ..old }), "a window probe wants an answer");
    assert!(!passes(bare(told, 12_500 - 375)));
    assert!(passes(bare(told, 12_500)), "a larger window");
    assert!(passes(bare(told.wrapping_add(1), 12_500)), "a higher number");
}

#[test]
fn nothing_is_acknowledged_for_a_vm_that_has_said_nothing_or_is_closing() {
    let (mut vm, settings) = (Vm::default(), Settings { budget_segments: 50 });
    let mut flow = Flow::default();
    let data = |seq, is_fin| vsnoop::Data { is_fin, ..Data { seq, bytes: MSS }.whole() };
    assert!(flow.data(&mut vm, settings, data(1, false), 1).is_none(), "first seen in the middle");
    flow.peer_syn(0, MSS);
    flow.vm_syn(SCALE);
    assert!(flow.data(&mut vm, settings, data(1, false), 1).is_none());
    assert!(flow.data(&mut vm, settings, data(1 + MSS, false), 1).is_none());
    assert_eq!(flow.doubt(), Doubt::HANDSHAKE);
    assert!(flow.vm_ack(&mut vm, &bare(1 + MSS, 5000), 2));
    // A listener may have dropped what came before its connection was made.
    assert!(flow.data(&mut vm, settings, data(1 + 2 * MSS, false), 2).is_none());
    assert!(flow.vm_ack(&mut vm, &bare(1 + 2 * MSS, 5000), 3));
    assert!(flow.data(&mut vm, settings, data(1 + 3 * MSS, false), 3).is_some());
    assert!(flow.data(&mut vm, settings, data(1 + 4 * MSS, true), 3).is_none(), "the FIN is the VM's to acknowledge");
    assert_eq!(flow.doubt(), Doubt::CLOSING);
    flow.close(&mut vm);
    assert_eq!(vm.outstanding(), 0);
}

#[test]
fn what_was_promised_is_acknowledged_again_if_it_comes_again() {
    let mut world = World::new(100);
    receive(&mut world, 4);
    world.send(0, 2, MSS);
    world.network(0, false, 0);
    assert_eq!((world.early, world.connections[0].acked), (4, 3 * MSS));
    // Not the last segment, nor what the VM has acknowledged.
    world.send(0, 1, MSS);
    world.network(0, false, 0);
    world.wake(100, u32::MAX);
    world.send(0, 2, MSS);
    world.network(0, false, 0);
    assert_eq!(world.early, 4);
}

#[test]
fn a_question_is_answered_once_the_vm_has_caught_up() {
    let mut world = World::new(100);
    receive(&mut world, 3);
    world.wake(100, 0);
    let c = &mut world.connections[0];
    let answer = VmAck { ts_val: 50, ..c.vm_ack(false) };
    let vm = &mut world.vm;
    assert!(!c.flow.vm_ack(vm, &answer, 2), "it says nothing new");
    let next = c.flow.acked();
    c.flow.peer_ack(next, false);
    assert!(!c.flow.vm_ack(vm, &answer, 2), "an ordinary ACK asks nothing");
    c.flow.peer_ack(next.wrapping_sub(1), false);
    assert!(c.flow.vm_ack(vm, &VmAck { ack: next.wrapping_sub(MSS), ..answer }, 2), "from before the question");
    assert!(c.flow.vm_ack(vm, &answer, 2), "a keepalive's answer");
    assert!(!c.flow.vm_ack(vm, &answer, 2), "one is enough");
    c.flow.peer_ack(next, true);
    assert!(c.flow.vm_ack(vm, &answer, 2), "a challenge");
}

#[test]
fn a_joined_packet_counts_as_its_segments() {
    let mut world = World::new(50);
    let c = &mut world.connections[0];
    let joined = Data { seq: c.irs.wrapping_add(1), bytes: 8 * MSS - 100 }.whole();
    let early = c.flow.data(&mut world.vm, world.settings, joined, 1).unwrap();
    assert_eq!(c.offset(early.ack), 7 * MSS, "all but the last segment");
    assert_eq!(world.vm.outstanding(), 8);
    c.flow.vm_ack(&mut world.vm, &bare(c.irs.wrapping_add(1 + 4 * MSS), 12_500), 2);
    assert_eq!(world.vm.outstanding(), 4);
}

#[test]
fn what_rode_is_forgotten_before_numbers_wrap() {
    let mut world = World::new(400);
    receive(&mut world, 2);
    world.ride(0);
    let (c, vm) = (&mut world.connections[0], &mut world.vm);
    assert!(c.flow.has_ridden(c.flow.acked()));
    // Two gigabytes, none of which rides.
    let mut seq = c.irs.wrapping_add(1 + 2 * MSS);
    c.flow.vm_ack(vm, &bare(seq, 20_000), 1);
    for _ in 0..40_000 {
        let data = vsnoop::Data { segments: 2, last_bytes: MSS, ..Data { seq, bytes: 60_000 }.whole() };
        let early = c.flow.data(vm, world.settings, data, 1).expect("it fits");
        assert!(!c.flow.has_ridden(early.ack));
        seq = seq.wrapping_add(60_000);
        c.flow.vm_ack(vm, &bare(seq, 20_000), 1);
    }
}
