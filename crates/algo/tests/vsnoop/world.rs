//! vSnoop between a network, a queue and a VM that is away at times.

use std::collections::VecDeque;

use evenkeel_algo::vsnoop::{
    self, Core, Doubt, EarlyAck, Flow, LIFE_US, SEGMENT_MEMORY_BYTES, Settings, State, Vm, VmAck,
};
use proptest::prelude::*;

pub const MSS: u32 = 1000;
pub const SCALE: u8 = 3;
pub const FLOWS: usize = 2;
/// A receive buffer, of which the VM offers all that is free.
pub const BUFFER: u32 = 100_000;

#[derive(Debug, Clone)]
pub enum Step {
    /// The sender sends a segment: its next, or an earlier one again; of full size or shorter.
    Send { flow: usize, back: u32, bytes: u32 },
    /// The network loses or delivers a segment, or delivers a later one first.
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
    /// The VM runs: it takes `packets` packets out, and its applications read `read_bytes` bytes.
    Wake { packets: usize, read_bytes: u32 },
    /// The VM gets its core or loses it, or nobody knows.
    Core { is: Core },
    /// Nothing happens.
    Pause { us: u64 },
}

pub fn step() -> impl Strategy<Value = Step> {
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
pub struct Data {
    pub seq: u32,
    pub bytes: u32,
}

impl Data {
    pub fn whole(self) -> vsnoop::Data {
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
pub struct Connection {
    pub flow: Flow,
    pub irs: u32,
    /// Segments as they were first sent.
    pub segments: Vec<Data>,
    pub wire: VecDeque<Data>,
    /// Offsets that are in the port's queue or beyond it.
    pub queued: Vec<(u32, u32)>,
    /// The VM's TCP: what it has, in order and out of it.
    pub vm_next: u32,
    pub vm_ranges: Vec<(u32, u32)>,
    /// Bytes and memory of each packet that no application has read.
    pub unread: VecDeque<(u32, u32)>,
    pub vm_edge: u32,
    /// Since when there is data that it has not reacted to.
    pub waits_since: Option<u64>,
    /// Highest end of data that came to the port.
    pub arrived: u32,
    /// Highest early ACK.
    pub promised: u32,
    pub clock: u32,
    /// The sender, as the ACKs that reached it say.
    pub acked: u32,
    pub edge: u32,
    /// No ACK went out since it asked.
    pub waits: bool,
    /// Early ACKs on their way out, with what was told before each, and the highest that data has taken along.
    pub backlog: VecDeque<(EarlyAck, u32)>,
    pub rode: Option<u32>,
}

/// What is in the port's queue.
#[derive(Debug, Clone, Copy)]
pub enum Queued {
    Data(usize, Data),
    Question(usize),
    Other,
}

impl Connection {
    pub fn new(vm: &mut Vm, irs: u32) -> Self {
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

    pub fn offset(&self, seq: u32) -> u32 {
        seq.wrapping_sub(self.irs.wrapping_add(1))
    }

    /// End of what stands in order in the queue or beyond.
    pub fn delivered(&self) -> u32 {
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
    pub fn memory(&self) -> u32 {
        self.unread.iter().map(|packet| packet.1).sum()
    }

    /// What the VM sends now; its clock never stands still. Like Linux, the VM takes back nothing of its window, and
    /// rounds up what is left of it.
    pub fn vm_ack(&mut self, has_sack: bool) -> VmAck {
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

    /// Like Linux, the VM drops data that finds no memory, unless nothing waits to be read (tcp_data_queue()).
    pub fn take(&mut self, data: Data) {
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

    pub fn advance(&mut self, end: u32) {
        if end > self.vm_next {
            let bytes = end - self.vm_next;
            self.unread.push_back((bytes, bytes.div_ceil(MSS) * SEGMENT_MEMORY_BYTES));
            self.vm_next = end;
            assert!(end <= self.vm_edge, "more than the VM has room for was acknowledged");
        }
    }

    /// An application reads; returns whether there was something.
    pub fn read(&mut self, mut bytes: u32) -> bool {
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

pub struct World {
    pub settings: Settings,
    pub vm: Vm,
    pub limit: usize,
    pub connections: Vec<Connection>,
    pub queue: VecDeque<Queued>,
    pub early: usize,
    pub core: Core,
    pub now_us: u64,
    pub acks_are_lost: bool,
    /// No TCP tells a window again that a lost ACK told, unless it is asked.
    pub acks_were_lost: bool,
}

impl World {
    pub fn new(limit: usize) -> Self {
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

    pub fn send(&mut self, index: usize, back: u32, bytes: u32) {
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

    pub fn network(&mut self, index: usize, lost: bool, overtaken: usize) {
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

    /// Early ACKs go out, except those that data has taken along; one that tells nothing new goes out in any case.
    pub fn backlog(&mut self) {
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

    pub fn ride(&mut self, index: usize) {
        let c = &mut self.connections[index];
        let number = c.irs.wrapping_add(1).wrapping_add(c.vm_next);
        if let Some(ack) = c.flow.ride(number) {
            assert!(c.offset(ack.ack) > c.vm_next, "it says less than the VM");
            c.rode = c.rode.max(Some(c.offset(ack.ack)));
            self.tell(index, &ack);
        }
    }

    pub fn tell(&mut self, index: usize, early: &EarlyAck) {
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
    pub fn ask(&mut self, index: usize) {
        let c = &mut self.connections[index];
        c.flow.peer_ack(c.irs.wrapping_add(c.acked), false);
        c.waits = true;
        if self.queue.len() < self.limit {
            self.queue.push_back(Queued::Question(index));
        }
    }

    pub fn wake(&mut self, packets: usize, read_bytes: u32) {
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

    pub fn vm_acks(&mut self, index: usize) {
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

    pub fn apply(&mut self, step: &Step) {
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
    pub fn drain(&mut self) {
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
