//! ProBoSCIS on a simulated host: what kernel/host does with eBPF and the agent with timers, at the same places and by
//! the decisions of `algo/proboscis/proboscis.h`.
//!
//! Two things of a real host are missing. Probes bear no tag, because nobody forges them here. And a VM has no budget
//! of probes.

mod peers;

use std::collections::HashMap;

use evenkeel_algo::proboscis::{
    Echo, HELD_POLL_US, Pending, Resend, Sender, SenderSettings, Settings as TimerSettings, TCP_BYTES, Train, Trains,
    Verdict as Probed, WindowSettings,
};
use evenkeel_algo::{seq, window};
use evenkeel_settings::Mode;

use super::shim::{Counters, Effects, FromVm, Shim, ToVm, Verdict};
use crate::packet::{ConnId, Ecn, FRAME_OVERHEAD_BYTES, Flags, GuestId, Packet, Payload, Segment};
use crate::time::{Duration, Instant};

pub use peers::Peers;

/// IPv4, and TCP with the probe's option.
const PROBE_BYTES: u32 = 20 + TCP_BYTES;
/// How often a held SYN-ACK's probes are looked at.
const HELD_POLL: Duration = Duration::from_us(HELD_POLL_US);

/// How ProBoSCIS is set up on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Off, observe or enforce.
    pub mode: Mode,
    /// g, and when unanswered SYNs and their probes are sent again.
    pub timers: TimerSettings,
    /// The first window.
    pub window: WindowSettings,
    /// DCTCP.
    pub sender: SenderSettings,
    /// Flows that have sent more are left alone; 0: none are.
    pub elephant_bytes: u64,
    /// Whether guests without ECN have the host's.
    pub ecn_for_guests: bool,
    /// Payload of a full segment.
    pub mss_bytes: u32,
}

/// A flow of the VM.
#[derive(Debug)]
struct Flow {
    /// Tells the user of a connection's slot from the one before.
    generation: u32,
    /// The VM at the other end, where this one opens the connection.
    remote: Option<GuestId>,
    /// Trains of probes that went before its SYN.
    trains: u8,
    /// The latest SYN had probes before it.
    is_probed: bool,
    /// Its SYN is answered.
    is_answered: bool,
    /// A SYN without an answer, to be sent again.
    waiting: Option<Waiting>,
    /// Probes of the other end's SYN.
    train: Train,
    /// When that SYN came.
    syn_at: Instant,
    /// A SYN-ACK that waits for late probes.
    held: Option<Held>,
    was_held: bool,
    /// The other host has ProBoSCIS.
    has_peer: bool,
    /// The VM offered ECN, and both agreed on it.
    offered_ecn: bool,
    native_ecn: bool,
    /// The scale of windows that come in.
    scale: u8,
    sender: Option<Sender>,
    first_seq: u32,
    is_elephant: bool,
    echo: Option<Echo>,
}

#[derive(Debug)]
struct Waiting {
    syn: Packet,
    pending: Pending,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    synack: Packet,
    look_at: Instant,
    until: Instant,
}

/// ProBoSCIS on a VM's port.
#[derive(Debug)]
pub struct Proboscis {
    spec: Spec,
    guest: GuestId,
    peers: Peers,
    trains: Trains,
    flows: HashMap<u32, Flow>,
    /// Flows that wait for something, in the order in which they began to.
    timed: Vec<ConnId>,
    probes_sent: u64,
    probes_seen: u64,
    probes_marked: u64,
    syns_repeated: u64,
    synacks_scaled: u64,
    synacks_one_mss: u64,
    marks_echoed: u64,
    windows_limited: u64,
}

impl Proboscis {
    /// On the port of a VM that has seen nothing; what is known of other hosts is its host's.
    pub fn new(spec: Spec, guest: GuestId, peers: Peers) -> Self {
        Self {
            spec,
            guest,
            peers,
            trains: Trains::default(),
            flows: HashMap::new(),
            timed: Vec::new(),
            probes_sent: 0,
            probes_seen: 0,
            probes_marked: 0,
            syns_repeated: 0,
            synacks_scaled: 0,
            synacks_one_mss: 0,
            marks_echoed: 0,
            windows_limited: 0,
        }
    }

    fn enforces(&self) -> bool {
        self.spec.mode == Mode::Enforce
    }

    /// The flow of an end; another connection's that had its slot is forgotten.
    fn flow(&mut self, now: Instant, end: ConnId) -> &mut Flow {
        let fresh = || Flow {
            generation: end.generation,
            remote: None,
            trains: 0,
            is_probed: false,
            is_answered: false,
            waiting: None,
            train: Train::default(),
            syn_at: now,
            held: None,
            was_held: false,
            has_peer: false,
            offered_ecn: false,
            native_ecn: false,
            scale: 0,
            sender: None,
            first_seq: 0,
            is_elephant: false,
            echo: None,
        };
        let flow = self.flows.entry(end.index).or_insert_with(fresh);
        if flow.generation != end.generation {
            *flow = fresh();
        }
        flow
    }

    fn syn_from_vm(&mut self, now: Instant, end: ConnId, packet: &Packet, segment: &Segment, effects: &mut Effects) {
        let timers = self.spec.timers;
        let (remote, from) = (packet.guest, self.guest);
        let is_probed = timers.probes > 0 && self.peers.probe(remote);
        let probes = if is_probed { self.trains.length(&timers, now.us() * 1000, timers.probes) } else { 0 };
        let probes = probes.min(u32::from(u8::MAX)) as u8;
        let is_stranger = self.peers.is_stranger(remote);
        let sends_again = self.enforces() && (is_stranger || self.peers.is_known(remote));
        let ecn_for_guests = self.spec.ecn_for_guests;
        let flow = self.flow(now, end);
        flow.offered_ecn = segment.flags.has(Flags::ECE.with(Flags::CWR));
        flow.remote = Some(remote);
        flow.is_probed = is_probed;
        flow.waiting = None;
        if !is_probed {
            return;
        }
        let train = flow.trains;
        flow.trains = train.saturating_add(1);
        let pending = Pending::new(now.us(), is_stranger);
        let due = Instant::START + Duration::from_us(pending.due_us(&timers));
        if sends_again {
            let mut syn = *packet;
            if ecn_for_guests && !flow.offered_ecn {
                // As the first one is when it has passed handshake_from_vm().
                syn.ecn = Ecn::Ect0;
            }
            flow.waiting = Some(Waiting { syn, pending });
            self.time(end, due, effects);
        }
        self.probes_sent += u64::from(probes);
        if self.enforces() {
            effects.to_network.extend((0..probes).map(|index| probe(packet, from, train, index, probes)));
        }
    }

    fn time(&mut self, end: ConnId, at: Instant, effects: &mut Effects) {
        if !self.timed.contains(&end) {
            self.timed.push(end);
        }
        effects.wake(at);
    }

    /// What is due of an unanswered SYN; when to look again.
    fn expire(&mut self, now: Instant, end: ConnId, effects: &mut Effects) -> Option<Instant> {
        let (timers, from) = (self.spec.timers, self.guest);
        let flow = self.flows.get_mut(&end.index).filter(|flow| flow.generation == end.generation)?;
        let waiting = flow.waiting.as_mut()?;
        let due = |pending: &Pending| Some(Instant::START + Duration::from_us(pending.due_us(&timers)));
        if due(&waiting.pending).is_some_and(|at| at > now) {
            return due(&waiting.pending);
        }
        let (probes, syn) = match waiting.pending.expire(&timers, now.us()) {
            Resend::Wait => (0, false),
            Resend::Probes(probes) => (probes, false),
            Resend::Both(probes) => (probes, true),
            Resend::GiveUp => {
                flow.waiting = None;
                return None;
            }
        };
        let probes = self.trains.length(&timers, now.us() * 1000, probes).min(u32::from(u8::MAX)) as u8;
        let train = flow.trains;
        effects.to_network.extend((0..probes).map(|index| probe(&waiting.syn, from, train, index, probes)));
        flow.trains = train.saturating_add(u8::from(probes > 0));
        let next = due(&waiting.pending);
        if syn {
            effects.to_network.push(waiting.syn);
        }
        self.probes_sent += u64::from(probes);
        self.syns_repeated += u64::from(syn);
        next
    }

    fn synack_from_vm(&mut self, now: Instant, end: ConnId, packet: &mut Packet, effects: &mut Effects) -> Verdict {
        let (enforces, window, from) = (self.enforces(), self.spec.window, self.guest);
        let flow = self.flow(now, end);
        let Payload::Tcp(peer, segment) = &packet.payload else { return Verdict::Pass };
        flow.native_ecn = flow.offered_ecn && segment.flags.has(Flags::ECE);
        flow.echo = Some(Echo::new(segment.ack));
        if flow.train.seen() == 0 {
            return Verdict::Pass;
        }
        let peer = *peer;
        if enforces && !flow.was_held && flow.train.synack_waits(&window, now.since(flow.syn_at).us()) {
            let until = now + Duration::from_us(u64::from(window.b3_us));
            let look_at = (now + HELD_POLL).min(until);
            flow.was_held = true;
            flow.held = Some(Held { synack: *packet, look_at, until });
            self.time(end, look_at, effects);
            return Verdict::Drop;
        }
        let (seen, marked) = (flow.train.seen(), flow.train.marked());
        if enforces {
            let report = Payload::Report { to: peer, from, seen, marked };
            effects.to_network.push(own(packet, Ecn::Ect0, report));
        }
        self.first_window(end, packet);
        Verdict::Pass
    }

    /// Lets a held SYN-ACK go if its probes are in, or are waited for no longer; when to look again.
    fn look_at_held(&mut self, now: Instant, end: ConnId, effects: &mut Effects) -> Option<Instant> {
        let window = self.spec.window;
        let flow = self.flows.get_mut(&end.index).filter(|flow| flow.generation == end.generation)?;
        let held = flow.held.as_mut()?;
        if held.look_at > now {
            return Some(held.look_at);
        }
        if held.until > now && flow.train.synack_waits(&window, 0) {
            held.look_at = (now + HELD_POLL).min(held.until);
            return Some(held.look_at);
        }
        let mut synack = flow.held.take()?.synack;
        if self.synack_from_vm(now, end, &mut synack, effects) == Verdict::Pass {
            self.handshake_from_vm(end, &mut synack, true);
            effects.to_network.push(synack);
        }
        None
    }

    /// Limits the window of a SYN-ACK by what came of the probes.
    fn first_window(&mut self, end: ConnId, packet: &mut Packet) {
        let (enforces, spec) = (self.enforces(), self.spec);
        let Payload::Tcp(_, segment) = &mut packet.payload else { return };
        let Some(flow) = self.flows.get(&end.index) else { return };
        let (verdict, bytes) = flow.train.first_window(&spec.window, spec.mss_bytes);
        let limit = (verdict != Probed::NoProbes).then_some(bytes);
        let (field, by) = window::arbitrate(
            window::Offers { proboscis_bytes: limit, ..Default::default() },
            segment.window,
            0,
            spec.mss_bytes,
        );
        if by == window::By::Receiver {
            return;
        }
        *(if verdict == Probed::Scaled { &mut self.synacks_scaled } else { &mut self.synacks_one_mss }) += 1;
        if enforces {
            segment.window = field;
        }
    }

    /// A port that marks drops what is not ECN-capable at the same length of the queue: a SYN would be lost just where
    /// data gets through.
    fn handshake_from_vm(&mut self, end: ConnId, packet: &mut Packet, synack: bool) {
        let (enforces, spec) = (self.enforces(), self.spec);
        let Some(flow) = self.flows.get(&end.index) else { return };
        let ours = if synack { flow.has_peer && !flow.native_ecn } else { !flow.offered_ecn && flow.is_probed };
        if enforces && spec.ecn_for_guests && ours && packet.ecn == Ecn::NotEct {
            packet.ecn = Ecn::Ect0;
        }
    }

    fn data_from_vm(&mut self, end: ConnId, packet: &mut Packet) {
        let (enforces, spec) = (self.enforces(), self.spec);
        let Payload::Tcp(_, segment) = &packet.payload else { return };
        let Some(flow) = self.flows.get_mut(&end.index) else { return };
        let last = segment.seq.wrapping_add(segment.payload_bytes);
        if segment.payload_bytes > 0 {
            let sender = flow.sender.get_or_insert_with(|| {
                flow.first_seq = segment.seq;
                Sender::new(segment.seq)
            });
            sender.sent(last);
            let sent_bytes = u64::from(last.wrapping_sub(flow.first_seq));
            let limit = spec.elephant_bytes;
            // Sequence numbers wrap; who was an elephant stays one.
            flow.is_elephant |= limit > 0 && seq::after(last, flow.first_seq) && sent_bytes > limit;
        }
        let ours = spec.ecn_for_guests && flow.has_peer && !flow.native_ecn;
        if ours && enforces && packet.ecn == Ecn::NotEct && !flow.is_elephant {
            packet.ecn = Ecn::Ect0;
        }
    }

    fn ack_from_vm(&mut self, end: ConnId, packet: &mut Packet) {
        let (enforces, spec) = (self.enforces(), self.spec);
        let Payload::Tcp(_, segment) = &mut packet.payload else { return };
        let Some(flow) = self.flows.get_mut(&end.index) else { return };
        let ours = spec.ecn_for_guests && flow.has_peer && !flow.native_ecn;
        let echo = flow.echo.get_or_insert_with(|| Echo::new(segment.ack)).ack(segment.ack);
        if echo && ours {
            self.marks_echoed += 1;
            if enforces {
                segment.flags = segment.flags.with(Flags::ECE);
            }
        }
    }

    fn marks_to_vm(&mut self, now: Instant, end: ConnId, packet: &mut Packet) {
        let (enforces, spec) = (self.enforces(), self.spec);
        let Payload::Tcp(_, segment) = &packet.payload else { return };
        let (ack, bytes) = (segment.ack, segment.payload_bytes);
        let flow = self.flow(now, end);
        let ours = spec.ecn_for_guests && flow.has_peer && !flow.native_ecn;
        if packet.ecn != Ecn::Ce || !ours {
            return;
        }
        if bytes > 0 {
            flow.echo.get_or_insert_with(|| Echo::new(ack)).marked(bytes);
        }
        if enforces {
            packet.ecn = Ecn::Ect0;
        }
    }

    fn window_to_vm(&mut self, end: ConnId, packet: &mut Packet) {
        let (enforces, spec) = (self.enforces(), self.spec);
        let Payload::Tcp(_, segment) = &mut packet.payload else { return };
        let Some(flow) = self.flows.get_mut(&end.index).filter(|flow| flow.generation == end.generation) else {
            return;
        };
        let ours = spec.ecn_for_guests && flow.has_peer && !flow.native_ecn;
        let echo = segment.flags.has(Flags::ECE);
        let limit = flow
            .sender
            .as_mut()
            .filter(|_| ours)
            .and_then(|sender| sender.acked(&spec.sender, segment.ack, echo, spec.mss_bytes, flow.scale))
            .filter(|_| !flow.is_elephant);
        let (field, by) = window::arbitrate(
            window::Offers { proboscis_bytes: limit, ..Default::default() },
            segment.window,
            flow.scale,
            spec.mss_bytes,
        );
        self.windows_limited += u64::from(by == window::By::Proboscis);
        if enforces {
            segment.window = field;
            if echo && ours {
                segment.flags = segment.flags.without(Flags::ECE);
            }
        }
    }

    fn handshake_to_vm(&mut self, now: Instant, end: ConnId, segment: &Segment) {
        let flow = self.flow(now, end);
        flow.scale = segment.window_scale;
        if !segment.flags.has(Flags::ACK) {
            flow.syn_at = now;
            flow.offered_ecn = segment.flags.has(Flags::ECE.with(Flags::CWR));
            return;
        }
        flow.is_answered = true;
        flow.waiting = None;
        flow.native_ecn = flow.offered_ecn && segment.flags.has(Flags::ECE);
        let is_silent = flow.trains > 0 && !flow.has_peer;
        if let Some(remote) = flow.remote.filter(|_| is_silent) {
            self.peers.silent(remote);
        }
    }
}

/// A packet of the host's own, on the way of one of its VM's.
fn own(of: &Packet, ecn: Ecn, payload: Payload) -> Packet {
    Packet { wire_bytes: FRAME_OVERHEAD_BYTES + PROBE_BYTES, ecn, remaining_bytes: 0, payload, ..*of }
}

fn probe(syn: &Packet, from: GuestId, train: u8, index: u8, total: u8) -> Packet {
    let to = syn.payload.end().unwrap_or_default();
    own(syn, Ecn::Ect0, Payload::Probe { to, from, train, index, total })
}

impl Shim for Proboscis {
    fn steps_to_vm(&self) -> &'static [ToVm] {
        &[ToVm::Probes, ToVm::Marks, ToVm::Window]
    }

    fn steps_from_vm(&self) -> &'static [FromVm] {
        &[FromVm::Handshake, FromVm::Ecn, FromVm::Echo]
    }

    fn on_to_vm(
        &mut self,
        now: Instant,
        place: ToVm,
        end: Option<ConnId>,
        packet: &mut Packet,
        _: &mut Effects,
    ) -> Verdict {
        let Some(end) = end else {
            // Late probes of a connection that is gone are not the VM's.
            let own = matches!(packet.payload, Payload::Probe { .. } | Payload::Report { .. });
            return if own { Verdict::Drop } else { Verdict::Pass };
        };
        match (place, packet.payload) {
            (ToVm::Probes, Payload::Probe { from, train, index, total, .. }) => {
                let marked = packet.ecn == Ecn::Ce;
                self.peers.answered(from);
                let flow = self.flow(now, end);
                flow.has_peer = true;
                flow.train.count(train, index, total, marked);
                self.probes_seen += 1;
                self.probes_marked += u64::from(marked);
                return Verdict::Drop;
            }
            (ToVm::Probes, Payload::Report { from, .. }) => {
                self.peers.answered(from);
                let flow = self.flow(now, end);
                // A report goes ahead of its SYN-ACK; with that the flow is made, and later ones change nothing.
                flow.has_peer |= !flow.is_answered;
                return Verdict::Drop;
            }
            (ToVm::Marks, Payload::Tcp(_, segment)) if segment.flags.has(Flags::SYN) => {
                self.handshake_to_vm(now, end, &segment);
                if self.enforces() && self.spec.ecn_for_guests && !self.flow(now, end).offered_ecn {
                    packet.ecn = Ecn::NotEct;
                }
            }
            (ToVm::Marks, Payload::Tcp(..)) => self.marks_to_vm(now, end, packet),
            (ToVm::Window, Payload::Tcp(_, segment)) if !segment.flags.has(Flags::SYN) => {
                self.window_to_vm(end, packet);
            }
            _ => {}
        }
        Verdict::Pass
    }

    fn on_from_vm(
        &mut self,
        now: Instant,
        place: FromVm,
        end: Option<ConnId>,
        packet: &mut Packet,
        effects: &mut Effects,
    ) -> Verdict {
        let (Some(end), Payload::Tcp(_, segment)) = (end, packet.payload) else { return Verdict::Pass };
        let (syn, ack) = (segment.flags.has(Flags::SYN), segment.flags.has(Flags::ACK));
        match place {
            FromVm::Handshake if syn && ack => return self.synack_from_vm(now, end, packet, effects),
            FromVm::Echo if !syn && ack => self.ack_from_vm(end, packet),
            FromVm::Handshake if syn => self.syn_from_vm(now, end, packet, &segment, effects),
            FromVm::Ecn if syn => self.handshake_from_vm(end, packet, ack),
            FromVm::Ecn => self.data_from_vm(end, packet),
            _ => {}
        }
        Verdict::Pass
    }

    fn on_timer(&mut self, now: Instant, effects: &mut Effects) {
        let mut timed = std::mem::take(&mut self.timed);
        timed.retain(|&end| {
            let next = self.look_at_held(now, end, effects);
            let again = self.expire(now, end, effects);
            let next = [next, again].into_iter().flatten().min();
            if let Some(at) = next {
                effects.wake(at);
            }
            next.is_some()
        });
        // What began to wait meanwhile was put into the list anew.
        timed.append(&mut self.timed);
        self.timed = timed;
    }

    fn counters(&self) -> Counters {
        vec![
            ("ProboscisProbesSent", self.probes_sent),
            ("ProboscisProbesSeen", self.probes_seen),
            ("ProboscisProbesMarked", self.probes_marked),
            ("ProboscisSynsRepeated", self.syns_repeated),
            ("ProboscisSynAcksScaled", self.synacks_scaled),
            ("ProboscisSynAcksOneMss", self.synacks_one_mss),
            ("ProboscisMarksEchoed", self.marks_echoed),
            ("ProboscisWindowsLimited", self.windows_limited),
        ]
    }
}
