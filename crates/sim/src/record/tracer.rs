//! A run's events, in the terms that the lab and reports use as well.

use std::collections::HashMap;

use evenkeel_scenario::trace::{self, Carries, Core, End, Event, Fate, Machine, Sink, Stage, Timer, Windows};

use super::both::Tracing;
use crate::packet::{AheadOf, ConnId, Ecn, Flags, GuestId, Packet, Payload, Segment};
use crate::tcp::{ConnStats, Connection, Note, TimerKind, UndoKind};
use crate::time::Instant;
use crate::workload::{FlowId, Side};
use crate::world::{CoreState, Origin, Point, Recorder, Way};

/// The kinds of the retransmit timer; it is one of these at a time.
const RETRANSMIT_KINDS: [TimerKind; 4] = [TimerKind::Rto, TimerKind::Tlp, TimerKind::Reo, TimerKind::Persist];
/// A threshold that was never set.
const NO_SSTHRESH: u32 = i32::MAX as u32;

/// Tells a sink what happens.
pub struct Tracer<'a> {
    sink: &'a mut dyn Sink,
    /// By end: what the sink was last told of it.
    ends: HashMap<ConnId, Known>,
    /// By number of the flow: its connection's number and ends.
    flows: HashMap<FlowId, (u32, [ConnId; 2])>,
    opened: u32,
    /// Echo requests under way: the guest that was asked, by the asking guest and the request's number.
    asked: HashMap<(GuestId, u32), GuestId>,
    cores: Vec<Option<CoreState>>,
}

/// What is known of an end of a connection.
#[derive(Debug)]
struct Known {
    end: End,
    guests: [GuestId; 2],
    retransmit: Option<TimerKind>,
    delayed_ack: bool,
    held: Option<TimerKind>,
    windows: Option<Windows>,
}

impl<'a> Tracer<'a> {
    /// A tracer at the beginning of a run; tells the sink which machines take part.
    pub fn new(sink: &'a mut dyn Sink, machines: Vec<Machine>, mtu_bytes: u32) -> Self {
        let cores = vec![None; machines.len()];
        sink.begin(&Stage { machines, mtu_bytes });
        Self { sink, ends: HashMap::new(), flows: HashMap::new(), opened: 0, asked: HashMap::new(), cores }
    }

    fn tell(&mut self, now: Instant, event: Event) {
        self.sink.take(now.ps() / 1000, &event);
    }

    fn timer(&mut self, now: Instant, end: End, kind: TimerKind, fate: Fate) {
        let timer = match kind {
            TimerKind::Rto => Timer::Rto,
            TimerKind::Tlp => Timer::Tlp,
            TimerKind::Reo => Timer::Reo,
            TimerKind::Persist => Timer::Persist,
            TimerKind::DelayedAck => Timer::DelayedAck,
        };
        self.tell(now, Event::Timer { end, timer, fate });
    }

    /// Tells of a packet, if its connection was opened.
    fn packet(&mut self, now: Instant, packet: &Packet, seen: Seen) {
        let to = packet.guest;
        let sent_by = |known: &Known| known.end.peer();
        let (from, carries) = match packet.payload {
            Payload::Tcp(end, segment) => {
                let Some(known) = self.ends.get(&end) else { return };
                (known.guests[1], Carries::Tcp(traced_segment(&segment, sent_by(known))))
            }
            Payload::Probe { to: end, from, ahead_of, train, index, total } => {
                let Some(known) = self.ends.get(&end) else { return };
                let (by, is_answer) = (sent_by(known), ahead_of == AheadOf::SynAck);
                (from, Carries::Probe(trace::Probe { by, report: None, is_answer, train, index, total }))
            }
            Payload::Report { to: end, from, seen, marked } => {
                let Some(known) = self.ends.get(&end) else { return };
                let (by, report) = (sent_by(known), Some([seen, marked]));
                (from, Carries::Probe(trace::Probe { by, report, is_answer: false, train: 0, index: 0, total: 0 }))
            }
            Payload::Echo { from: asker, number, reply } => {
                if !reply {
                    self.asked.insert((asker, number), to);
                }
                let from = if reply { self.asked.get(&(asker, number)).copied().unwrap_or(asker) } else { asker };
                if reply && seen.point == trace::Point::Machine && seen.way == trace::Way::In {
                    self.asked.remove(&(asker, number));
                }
                (from, Carries::Echo { number, is_reply: reply })
            }
        };
        let ecn = match packet.ecn {
            Ecn::NotEct => trace::Ecn::NotEct,
            Ecn::Ect0 => trace::Ecn::Ect0,
            Ecn::Ce => trace::Ecn::Ce,
        };
        let Seen { guest, point, way, origin } = seen;
        let packet = trace::Packet { machine: guest.0, point, way, origin, from: from.0, to: to.0, ecn, carries };
        self.tell(now, Event::Packet(packet));
    }
}

/// Where a packet is seen, and why it is there.
struct Seen {
    guest: GuestId,
    point: trace::Point,
    way: trace::Way,
    origin: trace::Origin,
}

impl Recorder for Tracer<'_> {
    const TRACES: bool = true;

    fn note(&mut self, now: Instant, flow: FlowId, side: Side, note: &Note) {
        let Some(&(connection, _)) = self.flows.get(&flow) else { return };
        if let Some(what) = in_words(note) {
            let end = End { connection, is_opener: side == Side::Opener };
            self.tell(now, Event::Says { end, what });
        }
    }

    fn packet(&mut self, now: Instant, guest: GuestId, point: Point, way: Way, packet: &Packet) {
        let point = match (point, way) {
            (Point::Guest, _) => trace::Point::Machine,
            (Point::Port, Way::In) => trace::Point::NetworkSide,
            (Point::Port, Way::Out) => trace::Point::VmSide,
        };
        self.packet(now, packet, Seen { guest, point, way: traced_way(way), origin: trace::Origin::Passes });
    }

    fn closed(&mut self, now: Instant, flow: FlowId, side: Side, _stats: &ConnStats) {
        let end = self.flows.get(&flow).map(|(_, ends)| ends[side as usize]);
        let Some(known) = end.and_then(|end| self.ends.get_mut(&end)) else { return };
        // Timers end with the connection; packets may still be under way.
        let (of, held) = (known.end, known.held.take().map(|kind| (kind, Fate::Overtaken)));
        let delayed_ack = std::mem::take(&mut known.delayed_ack).then_some((TimerKind::DelayedAck, Fate::Stopped));
        let retransmit = known.retransmit.take().map(|kind| (kind, Fate::Stopped));
        for (kind, fate) in [held, retransmit, delayed_ack].into_iter().flatten() {
            self.timer(now, of, kind, fate);
        }
    }

    fn opened(&mut self, now: Instant, flow: FlowId, ends: [ConnId; 2], guests: [GuestId; 2]) {
        let connection = self.opened;
        self.opened += 1;
        self.flows.insert(flow, (connection, ends));
        let [opener, acceptor] = guests;
        for (end, is_opener, guests) in [(ends[0], true, guests), (ends[1], false, [acceptor, opener])] {
            let end_of = End { connection, is_opener };
            let (retransmit, delayed_ack, held, windows) = (None, false, None, None);
            self.ends.insert(end, Known { end: end_of, guests, retransmit, delayed_ack, held, windows });
        }
        self.tell(now, Event::Opened { connection, machines: [opener.0, acceptor.0] });
    }

    fn passed(&mut self, now: Instant, guest: GuestId, way: Way, packet: &Packet, origin: Origin) {
        let point = match way {
            Way::In => trace::Point::VmSide,
            Way::Out => trace::Point::NetworkSide,
        };
        let origin = match origin {
            Origin::Held(since) if since < now => trace::Origin::Held(now.since(since).ps() / 1000),
            Origin::Held(_) | Origin::Passes => trace::Origin::Passes,
            Origin::EarlyAck => trace::Origin::EarlyAck,
            Origin::Host => trace::Origin::Host,
        };
        self.packet(now, packet, Seen { guest, point, way: traced_way(way), origin });
    }

    fn acted(&mut self, now: Instant, end: ConnId, connection: &Connection, held: Option<Instant>) {
        let Some(known) = self.ends.get_mut(&end) else { return };
        let of = known.end;
        let retransmit = RETRANSMIT_KINDS.into_iter().find(|kind| connection.timer_at(*kind).is_some());
        let overtaken = if held.is_none() { known.held.take() } else { None };
        // TCP takes a held timer for one that is set.
        let retransmit = retransmit.filter(|_| held.is_none());
        let before = std::mem::replace(&mut known.retransmit, retransmit);
        let delayed_ack = connection.timer_at(TimerKind::DelayedAck).is_some();
        let delayed_before = std::mem::replace(&mut known.delayed_ack, delayed_ack);
        let windows = windows(connection);
        let has_changed = connection.is_established() && known.windows.replace(windows) != Some(windows);
        if let Some(kind) = overtaken {
            self.timer(now, of, kind, Fate::Overtaken);
        }
        if before != retransmit {
            for (kind, fate) in [(before, Fate::Stopped), (retransmit, Fate::Set)] {
                kind.into_iter().for_each(|kind| self.timer(now, of, kind, fate));
            }
        }
        if delayed_before != delayed_ack {
            self.timer(now, of, TimerKind::DelayedAck, if delayed_ack { Fate::Set } else { Fate::Stopped });
        }
        if has_changed {
            self.tell(now, Event::Windows { end: of, windows });
        }
    }

    fn fires(&mut self, now: Instant, end: ConnId, kind: TimerKind) {
        let Some(known) = self.ends.get_mut(&end) else { return };
        let of = known.end;
        let was_held = kind != TimerKind::DelayedAck && known.held.take().is_some();
        match kind {
            TimerKind::DelayedAck => known.delayed_ack = false,
            _ => known.retransmit = None,
        }
        self.timer(now, of, kind, if was_held { Fate::Ran } else { Fate::Fired });
    }

    fn held(&mut self, now: Instant, end: ConnId, kind: TimerKind) {
        let Some(known) = self.ends.get_mut(&end) else { return };
        known.held = Some(kind);
        known.retransmit = None;
        let of = known.end;
        self.timer(now, of, kind, Fate::Held);
    }

    fn core(&mut self, now: Instant, guest: GuestId, state: CoreState) {
        let known = &mut self.cores[guest.0 as usize];
        if known.replace(state) != Some(state) {
            let state = match state {
                CoreState::Has => Core::Has,
                CoreState::Waits => Core::Waits,
                CoreState::Halted => Core::Halted,
            };
            self.tell(now, Event::Core { machine: guest.0, state });
        }
    }

    fn woke_up(&mut self, now: Instant, guest: GuestId, off_us: u64) {
        self.tell(now, Event::WokeUp { machine: guest.0, off_us });
    }
}

impl Tracing for Tracer<'_> {
    fn measured(&mut self, now: Instant) {
        self.tell(now, Event::Measured);
    }
}

const fn traced_way(way: Way) -> trace::Way {
    match way {
        Way::In => trace::Way::In,
        Way::Out => trace::Way::Out,
    }
}

fn traced_segment(segment: &Segment, by: End) -> trace::Segment {
    let has = |flag| segment.flags.has(flag);
    trace::Segment {
        by,
        seq: segment.seq,
        ack: has(Flags::ACK).then_some(segment.ack),
        payload_bytes: segment.payload_bytes,
        window: segment.window,
        syn: has(Flags::SYN)
            .then(|| trace::Syn { window_scale: segment.window_scale, sack_permitted: has(Flags::SACK_PERMITTED) }),
        ece: has(Flags::ECE),
        cwr: has(Flags::CWR),
        psh: has(Flags::PSH),
        timestamps: (segment.ts_val != 0).then_some([segment.ts_val, segment.ts_ecr]),
        sack: segment.sack.blocks,
        sack_count: segment.sack.count,
    }
}

fn windows(connection: &Connection) -> Windows {
    let info = connection.info();
    Windows {
        cwnd_segments: info.cwnd,
        ssthresh_segments: (info.ssthresh < NO_SSTHRESH).then_some(info.ssthresh),
        rwnd_bytes: connection.peer_window_bytes(),
        in_flight_segments: info.in_flight,
    }
}

/// Notes in words, for what packets and timers do not show.
const fn in_words(note: &Note) -> Option<&'static str> {
    Some(match note {
        Note::Established => "established",
        Note::Timeout { .. } => "timeout",
        Note::LossProbe => "loss probe",
        Note::WindowProbe => "window probe",
        Note::FastRecovery => "fast recovery",
        Note::SpuriousTimeout => "timeout was spurious (F-RTO)",
        Note::Undone(UndoKind::FRto) => "reduction undone (F-RTO)",
        Note::Undone(UndoKind::Eifel) => "reduction undone (Eifel)",
        Note::Undone(UndoKind::Dsack) => "reduction undone (DSACK)",
        Note::Marked => "reduced for marks",
        Note::Room(_) | Note::IdleFiltered | Note::RttSample { .. } => return None,
    })
}
