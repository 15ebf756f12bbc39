//! vFlood on a simulated host: queues of held packets, which `algo/vflood/vflood.h` lets out.

use std::collections::{HashMap, VecDeque};

use evenkeel_algo::ack_filter;
use evenkeel_algo::rest::{Rest, Word};
use evenkeel_algo::vflood::{self, HostSettings, Settings, State, Verdict as Fate, Vm};
use evenkeel_algo::{seq, window};
use evenkeel_settings::Mode;

use super::shim::{Counters, Effects, FromVm, Shim, ToVm, Verdict};
use crate::packet::{ConnId, Flags, Packet, Payload, SackBlocks, Segment};
use crate::time::Instant;

/// A SYN-ACK permits SACK only if the SYN has.
const PERMITS_SACK: Flags = Flags::ACK.with(Flags::SACK_PERMITTED);

/// How vFlood is set up on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Off, observe or enforce.
    pub mode: Mode,
    /// Buffer and congestion control.
    pub settings: Settings,
    /// Payload of a full segment.
    pub mss_bytes: u32,
    /// Packets that may wait for the VM at its port.
    pub port_queue_segments: u32,
    /// It acts while the VM's core is missing for this share of the time or more, and rests otherwise; 0: it always
    /// acts.
    pub off_core_permille: u16,
}

#[derive(Debug, Default)]
struct Flow {
    /// Tells a connection from the one that had its slot before.
    generation: u32,
    flow: vflood::Flow,
    filter: ack_filter::Flow,
    /// The ACK at hand need not reach the VM.
    is_filtered: bool,
    /// What the VM sent last has bypassed the queue.
    is_direct: bool,
    /// Whether it was last counted among flows of low RTT, and with how many segments.
    counted: (bool, u32),
    /// Held packets, with the time at which each came. In observe mode they have already gone on, and only their
    /// numbers wait here.
    queue: VecDeque<(Instant, Packet)>,
    /// The VM's latest ACK: number, window, timestamps.
    last: Segment,
}

/// vFlood on a VM's port.
#[derive(Debug)]
pub struct Vflood {
    spec: Spec,
    host: HostSettings,
    rest: Rest,
    vm: Vm,
    filter: ack_filter::Vm,
    flows: HashMap<u32, Flow>,
    low_rtt: Occupancy,
    high_rtt: Occupancy,
    held: u64,
    held_us: u64,
    direct: u64,
    split: u64,
    passed_over: u64,
    native_ecn: u64,
    grants: u64,
    losses: u64,
    no_buffer: u64,
    refused: u64,
    needless: u64,
    undone: u64,
    bare_acks: u64,
    filtered_acks: u64,
}

/// Segments in a class of flows, and their sum over time.
#[derive(Debug, Default)]
struct Occupancy {
    segments: u64,
    since_us: u64,
    segment_us: u64,
}

impl Occupancy {
    fn change(&mut self, now: Instant, before: u32, after: u32) {
        self.segment_us += self.segments * (now.us() - self.since_us);
        self.since_us = now.us();
        self.segments = (self.segments + u64::from(after)).saturating_sub(u64::from(before));
    }
}

impl Vflood {
    /// On a port that has seen nothing.
    pub fn new(spec: Spec) -> Self {
        Self {
            spec,
            host: HostSettings::new(&spec.settings),
            rest: Rest::default(),
            vm: Vm::default(),
            filter: ack_filter::Vm::default(),
            flows: HashMap::new(),
            low_rtt: Occupancy::default(),
            high_rtt: Occupancy::default(),
            held: 0,
            held_us: 0,
            direct: 0,
            split: 0,
            passed_over: 0,
            native_ecn: 0,
            grants: 0,
            losses: 0,
            no_buffer: 0,
            refused: 0,
            needless: 0,
            undone: 0,
            bare_acks: 0,
            filtered_acks: 0,
        }
    }

    /// Takes in what the guest's agent says now; `None` if it is silent.
    pub fn hear(&mut self, now: Instant, word: Option<Word>) {
        self.rest = self.rest.heard(word, self.spec.off_core_permille, now.us());
    }

    /// Whether the host attests to its guest that it may flood.
    pub fn attests(&self) -> bool {
        self.enforces() && self.rest.attests()
    }

    /// Whether new connections are passed over.
    pub fn rests(&self) -> bool {
        self.rest.passes_over()
    }

    /// A SYN-ACK passes in either direction: the connection begins, or is left alone from here on.
    fn open(&mut self, now: Instant, end: ConnId, synack: &Segment) {
        let (passed_over, has_ecn) = (self.rests(), synack.flags.has(Flags::ECE));
        self.passed_over += u64::from(passed_over);
        self.native_ecn += u64::from(has_ecn && !passed_over);
        if passed_over || has_ecn {
            self.on_close(now, end);
        }
    }

    fn enforces(&self) -> bool {
        self.spec.mode == Mode::Enforce
    }

    /// The flow of a connection; one of an earlier connection in the same slot is closed.
    fn begin(&mut self, end: ConnId) -> &mut Flow {
        let flow = self.flows.entry(end.index).or_default();
        if flow.generation != end.generation {
            flow.flow.close(&mut self.vm);
            *flow = Flow { generation: end.generation, ..Flow::default() };
        }
        flow
    }

    /// Does something with a flow, and counts the changes of its state and its part of the buffer.
    fn with<T>(
        &mut self,
        now: Instant,
        end: ConnId,
        act: impl FnOnce(&mut Flow, &mut Vm, &HostSettings) -> T,
    ) -> Option<T> {
        let flow = self.flows.get_mut(&end.index).filter(|flow| flow.generation == end.generation)?;
        let state = flow.flow.state();
        let result = act(flow, &mut self.vm, &self.host);
        if flow.flow.state() != state {
            self.losses += u64::from(flow.flow.state() == State::PacketLoss);
            self.no_buffer += u64::from(flow.flow.state() == State::NoBuffer);
        }
        let low = flow.flow.min_rtt_us().is_some_and(|rtt_us| rtt_us < self.spec.settings.low_rtt_us);
        let counted = (low, flow.flow.held_segments());
        if counted != flow.counted {
            let (was_low, before) = std::mem::replace(&mut flow.counted, counted);
            let class = if was_low { &mut self.low_rtt } else { &mut self.high_rtt };
            class.change(now, before, 0);
            let class = if low { &mut self.low_rtt } else { &mut self.high_rtt };
            class.change(now, 0, counted.1);
        }
        Some(result)
    }

    /// An ACK clocks out what is held.
    fn ack_to_vm(&mut self, now: Instant, end: ConnId, segment: &Segment, effects: &mut Effects) {
        let enforces = self.enforces();
        let queue_segments = self.spec.port_queue_segments;
        let limit = ack_filter::limit(queue_segments);
        let mut filter = std::mem::take(&mut self.filter);
        if filter.is_crowded(limit) && effects.port_room >= queue_segments.saturating_sub(limit).max(1) as usize {
            filter.reads();
        }
        let done = self.with(now, end, |flow, vm, host| {
            if !flow.flow.is_managed() {
                return LetOut::default();
            }
            let una = flow.flow.snd_una();
            let blocks = &segment.sack.blocks[..usize::from(segment.sack.count)];
            let came_twice = blocks.first().copied().filter(|_| vflood::is_dsack(segment.ack, blocks));
            let is_pure = segment.payload_bytes == 0 && came_twice.is_none();
            let sacked = vflood::Sacked::of(segment.ack, blocks, flow.flow.mss());
            let (number, window, ts_ecr) = (segment.ack, segment.window, segment.ts_ecr);
            let ack = vflood::Ack { number, window, is_pure, sacked, ts_ecr, came_twice };
            if flow.queue.is_empty() && flow.flow.is_told(&ack) {
                return LetOut::default();
            }
            let is_undone = flow.flow.acked(host, &ack, now.us());
            let mut done = flow.release(now, vm, host, enforces, effects);
            done.is_undone = is_undone;
            let is_plain = segment.payload_bytes == 0 && segment.sack.count == 0 && segment.flags == Flags::ACK;
            let is_needless = ack_filter::is_needless(&flow.flow, una, is_plain);
            flow.is_filtered = enforces && is_needless && flow.filter.keeps(&filter, &flow.flow, limit, now.us());
            if !flow.is_filtered {
                flow.filter.passes(&mut filter, &flow.flow, limit, now.us());
            }
            flow.flow.grant(vm, host);
            done
        });
        self.filter = filter;
        let done = done.unwrap_or_default();
        self.held_us += done.held_us;
        self.split += done.split;
        self.undone += u64::from(done.is_undone);
    }

    /// Tells the VM what was granted, if that is more than the receiver's window. Returns the field of an ACK that says
    /// so with the receiver's scale.
    fn tell(&mut self, now: Instant, end: ConnId, scaled: bool, packet: &mut Packet) -> Option<u16> {
        let (enforces, mss) = (self.enforces(), self.spec.mss_bytes);
        let Payload::Tcp(_, segment) = &mut packet.payload else { return None };
        let (vflood_bytes, scale) = self
            .with(now, end, |flow, _, _| (flow.flow.granted(segment.ack), flow.flow.scale()))
            .filter(|_| enforces)?;
        let offers = window::Offers { vflood_bytes, ..window::Offers::default() };
        let (field, by) = window::arbitrate(offers, segment.window, if scaled { scale } else { 0 }, mss);
        if by != window::By::Vflood {
            return None;
        }
        self.grants += 1;
        segment.window = field;
        Some(window::arbitrate(offers, 0, scale, mss).0)
    }

    fn of_vm(&mut self, now: Instant, end: ConnId, packet: &mut Packet, effects: &mut Effects) -> Verdict {
        let (enforces, segment_bytes) = (self.enforces(), packet.segment_bytes());
        let Payload::Tcp(_, segment) = &mut packet.payload else { return Verdict::Pass };
        let done = self.with(now, end, |flow, _, host| {
            if !flow.last.flags.has(Flags::ACK) || !seq::before(segment.ack, flow.last.ack) {
                flow.last = Segment { sack: SackBlocks::default(), payload_bytes: 0, ..*segment };
            }
            if segment.payload_bytes == 0 || !flow.flow.is_managed() {
                if enforces {
                    segment.seq = flow.flow.bare_seq(segment.seq, false);
                }
                flow.flow.ack_out(segment.ack);
                return (true, false);
            }
            if flow.last.ts_val != 0 {
                flow.flow.stamp(flow.last.ts_val);
            }
            let may_pass = enforces && segment_bytes.is_none_or(|bytes| bytes >= flow.flow.mss());
            let is_direct = may_pass && flow.lets_out(now, host, segment);
            (is_direct, is_direct)
        });
        let Some((is_out, is_direct)) = done else { return Verdict::Pass };
        self.direct += u64::from(is_direct);
        if is_out {
            return Verdict::Pass;
        }
        if !enforces || !self.is_split(now, end, packet) {
            let fate = self.data(now, end, packet, effects);
            return if fate == Fate::Pass || !enforces { Verdict::Pass } else { Verdict::Drop };
        }
        self.split += 1;
        for piece in packet.cut() {
            if self.data(now, end, &piece, effects) == Fate::Pass {
                effects.from_vm.push((FromVm::Hold, piece));
            }
        }
        Verdict::Drop
    }

    /// Whether a packet is split before the flow counts it.
    fn is_split(&mut self, now: Instant, end: ConnId, packet: &Packet) -> bool {
        let (Some(segment_bytes), Payload::Tcp(_, segment)) = (packet.segment_bytes(), packet.payload) else {
            return false;
        };
        let (seq, bytes) = (segment.seq, segment.payload_bytes);
        let is_whole = self.with(now, end, |flow, vm, host| {
            flow.flow.comes_whole(seq, bytes, segment_bytes, !flow.queue.is_empty())
                && flow.flow.takes_whole(vm, host, seq, bytes)
        });
        is_whole == Some(false)
    }

    /// Data passes, or the flow's queue holds it, or it is dropped.
    fn data(&mut self, now: Instant, end: ConnId, packet: &Packet, effects: &mut Effects) -> Fate {
        let enforces = self.enforces();
        let Payload::Tcp(_, segment) = packet.payload else { return Fate::Pass };
        let done = self.with(now, end, |flow, vm, host| {
            flow.is_direct = false;
            let is_new = seq::after(segment.seq.wrapping_add(segment.payload_bytes), flow.flow.vm_end());
            let fate = flow.flow.data(vm, host, segment.seq, segment.payload_bytes, now.us());
            let is_refused = fate == Fate::Drop && is_new;
            let bare = fate == Fate::Hold && flow.flow.ack_is_due(segment.ack);
            match fate {
                Fate::Pass => flow.flow.ack_out(segment.ack),
                Fate::Hold => flow.queue.push_back((now, *packet)),
                Fate::Drop => {}
            }
            if bare && enforces {
                let ack = packet.bare_ack(flow.flow.snd_nxt());
                flow.flow.ack_out(flow.last.ack);
                effects.from_vm.push((FromVm::Hold, ack));
            }
            (fate, is_refused, bare, flow.flow.segments(segment.payload_bytes))
        });
        let Some((fate, is_refused, bare, segments)) = done else { return Fate::Pass };
        self.held += if fate == Fate::Hold { u64::from(segments) } else { 0 };
        self.refused += u64::from(is_refused);
        self.needless += u64::from(fate == Fate::Drop && !is_refused);
        self.bare_acks += u64::from(bare);
        fate
    }
}

impl Flow {
    /// Lets data bypass the queue that the windows allow, or that is sent again. What is promised to the VM is counted
    /// again with the next ACK.
    fn lets_out(&mut self, now: Instant, host: &HostSettings, segment: &Segment) -> bool {
        let is_out = self.queue.is_empty()
            && self.flow.is_ahead(self.is_direct)
            && self.flow.passes(host, segment.seq, segment.payload_bytes, now.us());
        if is_out {
            self.is_direct = true;
            self.flow.ack_out(segment.ack);
        }
        is_out
    }

    /// Lets out what the windows allow.
    fn release(
        &mut self,
        now: Instant,
        vm: &mut Vm,
        host: &HostSettings,
        enforces: bool,
        effects: &mut Effects,
    ) -> LetOut {
        let mut done = LetOut::default();
        while let Some(&(since, packet)) = self.queue.front() {
            let Payload::Tcp(_, held) = packet.payload else { break };
            let (seq, bytes) = (held.seq, held.payload_bytes);
            let is_whole = enforces && packet.segment_bytes().is_some();
            let fate = if is_whole {
                self.flow.release_whole(vm, host, seq, bytes, now.us())
            } else {
                self.flow.release(vm, host, seq, bytes, now.us())
            };
            if fate == Fate::Hold && !(is_whole && self.flow.splits(host, seq, bytes)) {
                break;
            }
            done.held_us += now.since(since).us() * u64::from(self.flow.segments(bytes));
            self.queue.pop_front();
            match fate {
                Fate::Hold => {
                    self.put_pieces(now, vm, &packet);
                    done.split += 1;
                }
                Fate::Pass if enforces => {
                    effects.from_vm.push((FromVm::Hold, up_to_date(packet, &self.last)));
                    self.flow.ack_out(self.last.ack);
                }
                Fate::Pass | Fate::Drop => {}
            }
        }
        done
    }

    /// Puts a packet's segments into its place in the queue.
    fn put_pieces(&mut self, now: Instant, vm: &mut Vm, packet: &Packet) {
        let Payload::Tcp(_, whole) = packet.payload else { return };
        for piece in packet.cut().rev() {
            if let Payload::Tcp(_, segment) = piece.payload {
                self.flow.piece_held(vm, segment.payload_bytes);
                self.queue.push_front((now, piece));
            }
        }
        self.flow.taken_out(vm, whole.payload_bytes);
    }
}

/// What an ACK has let out.
#[derive(Debug, Default)]
struct LetOut {
    /// Sum of the times for which segments were held.
    held_us: u64,
    /// Packets that were split.
    split: u64,
    /// The last loss proved to be none.
    is_undone: bool,
}

/// Gives a held packet the VM's latest ACK and timestamps: with older ones the receiver would take it for an old
/// duplicate (PAWS).
fn up_to_date(mut packet: Packet, last: &Segment) -> Packet {
    if let Payload::Tcp(_, segment) = &mut packet.payload {
        segment.ts_val = last.ts_val;
        segment.ts_ecr = last.ts_ecr;
        if seq::after(last.ack, segment.ack) {
            segment.ack = last.ack;
            segment.window = last.window;
            segment.sack = SackBlocks::default();
        }
    }
    packet
}

impl Shim for Vflood {
    fn steps_to_vm(&self) -> &'static [ToVm] {
        &[ToVm::AckClock, ToVm::Window]
    }

    fn steps_from_vm(&self) -> &'static [FromVm] {
        &[FromVm::Hold]
    }

    fn on_to_vm(
        &mut self,
        now: Instant,
        place: ToVm,
        end: Option<ConnId>,
        packet: &mut Packet,
        effects: &mut Effects,
    ) -> Verdict {
        let (Some(end), Payload::Tcp(conn, segment)) = (end, packet.payload) else { return Verdict::Pass };
        let (syn, ack) = (segment.flags.has(Flags::SYN), segment.flags.has(Flags::ACK));
        match place {
            ToVm::AckClock if syn => {
                let mss = self.spec.mss_bytes;
                let flow = &mut self.begin(end).flow;
                flow.peer_syn(segment.window, segment.window_scale, mss, now.us());
                if segment.flags.has(PERMITS_SACK) {
                    flow.permit_sack();
                }
                if ack {
                    self.open(now, end, &segment);
                    self.with(now, end, |flow, vm, host| flow.flow.grant(vm, host));
                }
            }
            ToVm::AckClock if ack => self.ack_to_vm(now, end, &segment, effects),
            ToVm::Window if syn && ack => {
                // The SYN-ACK's window is not scaled, so an ACK right behind it carries a grant beyond 64 KB.
                if let Some(window) = self.tell(now, end, false, packet) {
                    let update = Segment {
                        seq: segment.seq.wrapping_add(1),
                        window,
                        flags: Flags::ACK,
                        sack: SackBlocks::default(),
                        ..segment
                    };
                    effects.to_vm.push(Packet { payload: Payload::Tcp(conn, update), ..*packet });
                }
            }
            ToVm::Window if ack && !syn => {
                self.tell(now, end, true, packet);
                let is_filtered = self.with(now, end, |flow, _, _| std::mem::take(&mut flow.is_filtered));
                if is_filtered == Some(true) {
                    self.filtered_acks += 1;
                    return Verdict::Drop;
                }
            }
            _ => {}
        }
        Verdict::Pass
    }

    fn on_from_vm(
        &mut self,
        now: Instant,
        _: FromVm,
        end: Option<ConnId>,
        packet: &mut Packet,
        effects: &mut Effects,
    ) -> Verdict {
        let (Some(end), Payload::Tcp(_, segment)) = (end, packet.payload) else { return Verdict::Pass };
        if segment.flags.has(Flags::SYN) {
            self.begin(end);
            self.with(now, end, |flow, _, host| {
                flow.flow.vm_syn(host, segment.seq, now.us());
                if segment.flags.has(PERMITS_SACK) {
                    flow.flow.permit_sack();
                }
            });
            if segment.flags.has(Flags::ACK) {
                self.open(now, end, &segment);
            }
            return Verdict::Pass;
        }
        self.of_vm(now, end, packet, effects)
    }

    fn on_close(&mut self, now: Instant, end: ConnId) {
        self.with(now, end, |flow, vm, _| flow.flow.close(vm));
        if self.flows.get(&end.index).is_some_and(|flow| flow.generation == end.generation) {
            self.flows.remove(&end.index);
        }
    }

    fn counters(&self) -> Counters {
        vec![
            ("VfloodHeld", self.held),
            ("VfloodHeldUs", self.held_us),
            ("VfloodDirect", self.direct),
            ("VfloodSplit", self.split),
            ("VfloodPassedOver", self.passed_over),
            ("VfloodNativeEcn", self.native_ecn),
            ("VfloodLowRttSegmentUs", self.low_rtt.segment_us),
            ("VfloodHighRttSegmentUs", self.high_rtt.segment_us),
            ("VfloodGrants", self.grants),
            ("VfloodLosses", self.losses),
            ("VfloodNoBuffer", self.no_buffer),
            ("VfloodRefused", self.refused),
            ("VfloodNeedless", self.needless),
            ("VfloodUndone", self.undone),
            ("VfloodBareAcks", self.bare_acks),
            ("VfloodFilteredAcks", self.filtered_acks),
        ]
    }
}
