//! ProBoSCIS on a simulated host: what kernel/host does in eBPF and the agent by timers, at the same places and with
//! the decisions of `algo/proboscis/proboscis.h`.
//!
//! Two things of a real host are missing: probes carry no tag, because nobody forges them here, and a VM has no budget
//! of probes.

mod answers;
mod own;
mod peers;
mod waiting;

use std::collections::HashMap;

use evenkeel_algo::proboscis::{
    Answer, Echo, Pending, Sender, SenderSettings, Settings as TimerSettings, Train, Trains, Verdict as Probed,
    WindowSettings,
};
use evenkeel_algo::{seq, window};
use evenkeel_settings::Mode;

use super::shim::{Counters, Effects, FromVm, Shim, ToVm, Verdict};
use crate::packet::{AheadOf, ConnId, Ecn, Flags, GuestId, Packet, Payload, Segment};
use crate::time::{Duration, Instant};

use answers::Answers;
use own::{SentTrain, own};
pub use peers::Peers;
use waiting::{HELD_POLL, Held, Waiting};

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
    /// Flows that have sent more are left alone; 0: no flow is.
    pub elephant_bytes: u64,
    /// Whether the host does ECN for guests without it.
    pub ecn_for_guests: bool,
    /// Whether answers have probes and a first window, too.
    pub answers: bool,
    /// Payload of a full segment.
    pub mss_bytes: u32,
}

/// A flow of the VM.
#[derive(Debug)]
struct Flow {
    /// Tells a connection from the one that had its slot before.
    generation: u32,
    /// The VM at the other end, if this VM opens the connection.
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
    /// Trains of probes that went before its SYN-ACK.
    answer_trains: u8,
    /// Probes of the other end's SYN-ACK, and what follows from them.
    answer_train: Train,
    answer: Answer,
    /// The other host has ProBoSCIS.
    has_peer: bool,
    /// The VM offered ECN, and both agreed on it.
    offered_ecn: bool,
    native_ecn: bool,
    /// The scale of windows that come in, and of the VM's.
    scale: u8,
    own_scale: u8,
    sender: Option<Sender>,
    first_seq: u32,
    is_elephant: bool,
    echo: Option<Echo>,
}

/// ProBoSCIS on a VM's port.
#[derive(Debug)]
pub struct Proboscis {
    spec: Spec,
    guest: GuestId,
    peers: Peers,
    trains: Trains,
    flows: HashMap<u32, Flow>,
    /// Flows that wait for something, in the order in which they began to wait.
    timed: Vec<ConnId>,
    probes_sent: u64,
    probes_seen: u64,
    probes_marked: u64,
    syns_repeated: u64,
    synacks_scaled: u64,
    synacks_one_mss: u64,
    answers: Answers,
    marks_echoed: u64,
    windows_limited: u64,
}

impl Proboscis {
    /// ProBoSCIS on a port that has seen nothing. All VMs of the host share `peers`.
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
            answers: Answers::default(),
            marks_echoed: 0,
            windows_limited: 0,
        }
    }

    fn enforces(&self) -> bool {
        self.spec.mode == Mode::Enforce
    }

    /// The flow of a connection's end. A flow of an earlier connection in the same slot is forgotten.
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
            answer_trains: 0,
            answer_train: Train::default(),
            answer: Answer::default(),
            has_peer: false,
            offered_ecn: false,
            native_ecn: false,
            scale: 0,
            own_scale: 0,
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
        flow.own_scale = segment.window_scale;
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
                // Like the first SYN after handshake_from_vm().
                syn.ecn = Ecn::Ect0;
            }
            flow.waiting = Some(Waiting { syn, pending });
            self.time(end, due, effects);
        }
        self.probes_sent += u64::from(probes);
        if self.enforces() {
            let train = SentTrain { from, ahead_of: self.ahead_of_syn(), number: train, total: probes };
            effects.to_network.extend(train.ahead_of(packet));
        }
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
        self.probe_back(now, end, packet, effects);
        self.first_window(end, packet);
        Verdict::Pass
    }

    /// Limits the window of a SYN-ACK by how many probes came, and how many of them were marked.
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

    /// Makes handshakes ECN-capable. Where a port marks ECN-capable packets it drops others, so a SYN would be lost at
    /// a queue length at which data gets through.
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
            // Sequence numbers wrap; an elephant stays one.
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
        let is_first = !std::mem::replace(&mut flow.is_answered, true);
        flow.waiting = None;
        flow.native_ecn = flow.offered_ecn && segment.flags.has(Flags::ECE);
        let is_silent = flow.trains > 0 && !flow.has_peer;
        if let Some(remote) = flow.remote.filter(|_| is_silent) {
            self.peers.silent(remote);
        }
        if is_first {
            self.answer_begins(end, segment.seq.wrapping_add(1));
        }
    }
}

impl Shim for Proboscis {
    fn steps_to_vm(&self) -> &'static [ToVm] {
        &[ToVm::Probes, ToVm::Marks, ToVm::Window]
    }

    fn steps_from_vm(&self) -> &'static [FromVm] {
        &[FromVm::Handshake, FromVm::Ecn, FromVm::Window, FromVm::Echo]
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
            // Late probes of a closed connection are not for the VM.
            let own = matches!(packet.payload, Payload::Probe { .. } | Payload::Report { .. });
            return if own { Verdict::Drop } else { Verdict::Pass };
        };
        match (place, packet.payload) {
            (ToVm::Probes, Payload::Probe { from, ahead_of, train, index, total, .. }) => {
                let marked = packet.ecn == Ecn::Ce;
                self.peers.answered(from);
                let flow = self.flow(now, end);
                flow.has_peer |= ahead_of != AheadOf::SynAck || !flow.is_answered;
                match ahead_of {
                    AheadOf::Syn => flow.train.count(train, index, total, marked),
                    AheadOf::SynToProbeBack => {
                        flow.train.ask_back();
                        flow.train.count(train, index, total, marked)
                    }
                    AheadOf::SynAck => flow.answer_train.count(train, index, total, marked),
                };
                self.probes_seen += 1;
                self.probes_marked += u64::from(marked);
                return Verdict::Drop;
            }
            (ToVm::Probes, Payload::Report { from, .. }) => {
                self.peers.answered(from);
                let flow = self.flow(now, end);
                // A report precedes its SYN-ACK, which settles the flow; later reports change nothing.
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
            FromVm::Window if !syn && ack => self.answer_window(end, packet),
            FromVm::Handshake if syn => self.syn_from_vm(now, end, packet, &segment, effects),
            FromVm::Ecn if syn => self.handshake_from_vm(end, packet, ack),
            FromVm::Ecn => self.data_from_vm(end, packet),
            _ => {}
        }
        Verdict::Pass
    }

    fn on_timer(&mut self, now: Instant, effects: &mut Effects) {
        self.look_at_timed(now, effects);
    }

    fn counters(&self) -> Counters {
        let mut counters = vec![
            ("ProboscisProbesSent", self.probes_sent),
            ("ProboscisProbesSeen", self.probes_seen),
            ("ProboscisProbesMarked", self.probes_marked),
            ("ProboscisSynsRepeated", self.syns_repeated),
            ("ProboscisSynAcksScaled", self.synacks_scaled),
            ("ProboscisSynAcksOneMss", self.synacks_one_mss),
            ("ProboscisMarksEchoed", self.marks_echoed),
            ("ProboscisWindowsLimited", self.windows_limited),
        ];
        counters.extend(self.answer_counters());
        counters
    }
}
