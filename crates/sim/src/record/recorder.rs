//! What is recorded while the simulation runs.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use evenkeel_scenario::format::Record;
use evenkeel_scenario::result::SeenAt;

use crate::footprint::of_vec;
use crate::packet::{ConnId, Flags, GuestId, Packet, Payload};
use crate::tcp::{ConnStats, Info, Note, UndoOf};
use crate::time::{Duration, Instant};
use crate::workload::{FlowId, Side};
use crate::world::{self, Point, Way};

/// Most samples of one series, and of all together, as in the lab.
const MAX_SAMPLES_PER_SERIES: usize = 20_000;
const MAX_SAMPLES: usize = 2_000_000;
/// Most packets of the plotted flow.
const MAX_PACKETS: usize = 10_000_000;
/// Most waiting times; a thousandth of them would do for a 99th percentile.
const MAX_WAITS: usize = 8_000_000;

/// What is to be recorded.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Periods and captures.
    pub record: Record,
    /// The workloads, by their places.
    pub workloads: Vec<Traits>,
    /// The first sender, whose packets are captured.
    pub first_sender: GuestId,
    /// The guests whose waits for a core are kept: the senders, if they share hosts' cores.
    pub waiting: Range<u32>,
    /// The VM on such a host whose wake-up is shown.
    pub shown: Option<GuestId>,
}

/// What the recorder must know of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Whether its senders' sockets are sampled; a Poisson process's and a ping's are not.
    pub sockets: bool,
    /// The side of its connections that sends its data.
    pub data_side: Side,
}

/// What is to be sampled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The senders' sockets: [`Recorder::socket`] for each.
    pub sockets: bool,
    /// The bottleneck's backlog: [`Recorder::queue`].
    pub queue: bool,
}

/// A packet of the plotted flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The simulated time.
    pub at: Instant,
    /// At the host's port, or in the guest.
    pub place: SeenAt,
    /// True for data, false for an ACK.
    pub data: bool,
    /// First byte, relative to the flow's first; for an ACK, the number acknowledged.
    pub seq: u64,
    /// Payload.
    pub len: u32,
}

/// A socket's samples.
#[derive(Clone, Debug, PartialEq)]
pub struct SocketSamples {
    /// The guest whose socket it is.
    pub guest: GuestId,
    /// Its flow.
    pub flow: FlowId,
    /// Instants and states.
    pub samples: Vec<(Instant, Info)>,
}

/// Series, notes and packets of the measured time. Before [`Recorder::mark`], only the state of what is under way is
/// kept.
#[derive(Debug)]
pub struct Recorder {
    plan: Plan,
    marked: bool,
    sockets_due: Option<Instant>,
    queue_due: Option<Instant>,
    samples: usize,
    /// In the order of flows.
    pub(super) sockets: Vec<SocketSamples>,
    pub(super) queue: Vec<(Instant, u32)>,
    /// By guest: the window that CERA gives it.
    pub(super) shares: Vec<Vec<(Instant, u32)>>,
    /// Waiting times of packets at the watched port, and of the first sender's packets among them.
    pub(super) waits: Vec<Duration>,
    pub(super) first_waits: Vec<Duration>,
    /// How long virtual CPUs waited for their cores.
    pub(super) vcpu_waits: Vec<Duration>,
    pub(crate) shown_off: Vec<(Instant, Instant)>,
    /// By number of the connection.
    ends: Vec<Ends>,
    /// The first sender's connections that carry data, the first of which is plotted.
    captured: Vec<Captured>,
    plotted: Plotted,
    pub(super) meas_rtt: Vec<(Instant, u32)>,
    pub(super) packets: Vec<Seen>,
    finished_runs: [u64; 4],
    overflow: bool,
    /// By guest: what its closed connections had counted and received.
    pub(crate) closed: Vec<Closed>,
    /// By workload: bytes that each side of its closed connections had received.
    closed_reads: Vec<[u64; 2]>,
}

/// The sum of a guest's connections that are closed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Closed {
    pub stats: ConnStats,
    pub delivered_bytes: u64,
}

/// A connection's guests, and the bytes that the workload expects at either.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    guests: [GuestId; 2],
    /// Its workload's place.
    place: usize,
    expected: [u64; 2],
}

#[derive(Debug)]
struct Captured {
    flow: FlowId,
    /// Timeouts since the last progress.
    run: u8,
}

/// The plotted connection's ends, as far as packets have revealed them.
#[derive(Debug, Default)]
struct Plotted {
    /// The end that sends the data.
    sender: Option<ConnId>,
    /// The end that receives it, and the number of its first byte on the wire.
    receiver: Option<(ConnId, u32)>,
    /// Highest number seen so far, to tell wraps.
    last: u64,
}

impl Recorder {
    /// Nothing recorded yet.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            marked: false,
            sockets_due: None,
            queue_due: None,
            samples: 0,
            sockets: Vec::new(),
            queue: Vec::new(),
            shares: Vec::new(),
            waits: Vec::new(),
            first_waits: Vec::new(),
            vcpu_waits: Vec::new(),
            shown_off: Vec::new(),
            ends: Vec::new(),
            captured: Vec::new(),
            plotted: Plotted::default(),
            meas_rtt: Vec::new(),
            packets: Vec::new(),
            finished_runs: [0; 4],
            overflow: false,
            closed: Vec::new(),
            closed_reads: Vec::new(),
        }
    }

    /// Bytes that it has allocated.
    pub fn bytes(&self) -> u64 {
        let samples: u64 = self.sockets.iter().map(|socket| of_vec(&socket.samples)).sum();
        let shares: u64 = self.shares.iter().map(of_vec).sum();
        let times = of_vec(&self.waits) + of_vec(&self.first_waits) + of_vec(&self.vcpu_waits);
        let series = of_vec(&self.sockets) + samples + of_vec(&self.queue) + of_vec(&self.shares) + shares;
        let of_connections = of_vec(&self.ends) + of_vec(&self.closed) + of_vec(&self.captured);
        series + times + of_connections + of_vec(&self.meas_rtt) + of_vec(&self.packets)
    }

    /// The measured time begins.
    pub fn mark(&mut self, now: Instant) {
        self.marked = true;
        self.finished_runs = [0; 4];
        let record = &self.plan.record;
        let sockets = self.plan.workloads.iter().any(|workload| workload.sockets);
        self.sockets_due = (sockets && record.tcp_info_period_ms > 0).then_some(now);
        self.queue_due = (record.queue_period_ms > 0).then_some(now);
    }

    /// When [`Recorder::due`] is to be called next.
    pub fn next_sample(&self) -> Option<Instant> {
        match (self.sockets_due, self.queue_due) {
            (Some(sockets), Some(queue)) => Some(sockets.min(queue)),
            (sockets, queue) => sockets.or(queue),
        }
    }

    /// What is to be sampled at this instant; sets the next time for it.
    pub fn due(&mut self, now: Instant) -> Due {
        fn take(due: &mut Option<Instant>, now: Instant, period_ms: u32) -> bool {
            let is_due = due.is_some_and(|due| due <= now);
            if is_due {
                *due = Some(now + Duration::from_ms(u64::from(period_ms)));
            }
            is_due
        }
        let (sockets, queue) = (self.plan.record.tcp_info_period_ms, self.plan.record.queue_period_ms);
        Due { sockets: take(&mut self.sockets_due, now, sockets), queue: take(&mut self.queue_due, now, queue) }
    }

    /// The state of the end of a connection that sends the workload's data.
    pub fn socket(&mut self, now: Instant, guest: GuestId, flow: FlowId, info: Info) {
        let place = self.sockets.binary_search_by_key(&flow, |s| s.flow).unwrap_or_else(|place| {
            self.sockets.insert(place, SocketSamples { guest, flow, samples: Vec::new() });
            place
        });
        let room = self.samples < MAX_SAMPLES && self.sockets[place].samples.len() < MAX_SAMPLES_PER_SERIES;
        self.overflow |= !room;
        if room {
            self.samples += 1;
            self.sockets[place].samples.push((now, info));
        }
    }

    /// The bottleneck's backlog.
    pub fn queue(&mut self, now: Instant, segments: u32) {
        self.queue.push((now, segments));
    }

    /// Records the window that CERA gives a guest.
    pub fn share(&mut self, now: Instant, guest: GuestId, segments: u32) {
        let index = guest.0 as usize;
        if self.shares.len() <= index {
            self.shares.resize_with(index + 1, Vec::new);
        }
        let room = self.samples < MAX_SAMPLES && self.shares[index].len() < MAX_SAMPLES_PER_SERIES;
        self.overflow |= !room;
        if room {
            self.samples += 1;
            self.shares[index].push((now, segments));
        }
    }

    fn waited(&mut self, from: Option<GuestId>, wait: Duration) {
        if !self.marked {
            return;
        }
        if self.waits.len() < MAX_WAITS {
            self.waits.push(wait);
            if from == Some(self.plan.first_sender) {
                self.first_waits.push(wait);
            }
        } else {
            self.overflow = true;
        }
    }

    fn vcpu_waited(&mut self, guest: GuestId, since: Instant, until: Instant) {
        if self.plan.shown == Some(guest) && self.plan.record.capture {
            self.shown_off.push((since, until));
        }
        if !self.marked || !self.plan.waiting.contains(&guest.0) {
            return;
        }
        if self.vcpu_waits.len() < MAX_WAITS {
            self.vcpu_waits.push(until.since(since));
        } else {
            self.overflow = true;
        }
    }

    /// What is known of the workload at a place.
    pub fn traits(&self, place: usize) -> Traits {
        self.plan.workloads.get(place).copied().unwrap_or(Traits { sockets: false, data_side: Side::Opener })
    }

    /// Bytes that workloads read from closed connections, by workload and side.
    pub(crate) fn closed_reads(&self) -> &[[u64; 2]] {
        &self.closed_reads
    }

    /// A connection was opened. `guests` has the opener's first, `place` is its workload's.
    pub fn opened(&mut self, flow: FlowId, place: usize, guests: [GuestId; 2]) {
        let data_side = self.traits(place).data_side;
        let slot = flow.0 as usize;
        if self.ends.len() <= slot {
            self.ends.resize(slot + 1, Ends::default());
        }
        self.ends[slot] = Ends { guests, place, expected: [0; 2] };
        // Captured connections are those of the first workload.
        if self.plan.record.capture && place == 0 && guests[data_side as usize] == self.plan.first_sender {
            self.captured.push(Captured { flow, run: 0 });
        }
    }

    /// The workload waits for `total` bytes in all. It closes connections only when they have come.
    pub fn expected(&mut self, flow: FlowId, side: Side, total: u64) {
        if let Some(ends) = self.ends.get_mut(flow.0 as usize) {
            ends.expected[side as usize] = total;
        }
    }

    fn closed(&mut self, flow: FlowId, side: Side, stats: &ConnStats) {
        let Some(ends) = self.ends.get(flow.0 as usize) else { return };
        let index = ends.guests[side as usize].0 as usize;
        if self.closed.len() <= index {
            self.closed.resize(index + 1, Closed::default());
        }
        add(&mut self.closed[index].stats, stats);
        self.closed[index].delivered_bytes += ends.expected[side as usize];
        if self.closed_reads.len() <= ends.place {
            self.closed_reads.resize(ends.place + 1, [0; 2]);
        }
        self.closed_reads[ends.place][side as usize] += ends.expected[side as usize];
    }

    /// A connection's note; only notes about the first sender's data count.
    fn note(&mut self, now: Instant, flow: FlowId, side: Side, note: &Note) {
        if side != self.traits(0).data_side {
            return;
        }
        let Some(place) = self.captured.iter().position(|c| c.flow == flow) else { return };
        match note {
            Note::Timeout { times } => {
                if *times <= 1 {
                    self.end_run(place);
                }
                self.captured[place].run = *times;
            }
            Note::RttSample { measured_us, .. } if place == 0 && self.marked => {
                self.meas_rtt.push((now, *measured_us));
                // The sample comes from an ACK that made progress.
                self.end_run(place);
            }
            Note::RttSample { .. } => self.end_run(place),
            _ => {}
        }
    }

    fn end_run(&mut self, place: usize) {
        let run = std::mem::take(&mut self.captured[place].run);
        if run > 0 {
            self.finished_runs[usize::from(run.min(4)) - 1] += 1;
        }
    }

    /// A packet passes a point. The first connection that the first sender sends data on is the plotted one.
    fn passes(&mut self, now: Instant, guest: GuestId, point: Point, packet: &Packet) {
        let Payload::Tcp(end, segment) = packet.payload else { return };
        let at_sender = guest == self.plan.first_sender;
        if segment.flags.has(Flags::SYN) && point == Point::Guest {
            // The data's sender and its peer each send a SYN, from which the other's end is known.
            if at_sender && packet.guest != guest {
                self.plotted.receiver.get_or_insert((end, segment.seq.wrapping_add(1)));
            } else if packet.guest == self.plan.first_sender {
                self.plotted.sender.get_or_insert(end);
            }
            return;
        }
        let place = match (at_sender, point) {
            (true, Point::Guest) => SeenAt::Sender,
            (true, Point::Port) => SeenAt::SenderPort,
            (false, Point::Port) => SeenAt::ReceiverPort,
            (false, Point::Guest) => return,
        };
        let Some((receiver, first)) = self.plotted.receiver.filter(|_| self.marked) else { return };
        let (data, wire) = if end == receiver && segment.payload_bytes > 0 {
            (true, segment.seq)
        } else if Some(end) == self.plotted.sender {
            (false, segment.ack)
        } else {
            // ACKs of the data's sender do not acknowledge the plotted data.
            return;
        };
        let seq = unwrap(self.plotted.last, wire.wrapping_sub(first));
        self.plotted.last = self.plotted.last.max(seq);
        if self.packets.len() < MAX_PACKETS {
            let len = if data { segment.payload_bytes } else { 0 };
            self.packets.push(Seen { at: now, place, data, seq, len });
        } else {
            self.overflow = true;
        }
    }

    /// Runs of one, two, three, four and more timeouts; `None` without a capture.
    pub(super) fn rto_runs(&mut self) -> Option<[u64; 4]> {
        (0..self.captured.len()).for_each(|place| self.end_run(place));
        self.plan.record.capture.then_some(self.finished_runs)
    }

    /// A warning for the reader of the results.
    pub(super) fn remark(&self) -> Option<String> {
        self.overflow.then(|| "series or packets were cut off, because there were too many".to_owned())
    }
}

/// A recorder that the world and the workloads share. Packets reach it only if they are captured.
#[derive(Clone, Debug)]
pub struct Shared {
    captures: bool,
    has_hosts: bool,
    recorder: Rc<RefCell<Recorder>>,
}

impl Shared {
    /// A recorder with nothing recorded yet.
    pub fn new(plan: Plan) -> Self {
        let has_hosts = !plan.waiting.is_empty() || plan.shown.is_some();
        Self { captures: plan.record.capture, has_hosts, recorder: Rc::new(RefCell::new(Recorder::new(plan))) }
    }

    /// Does something with the recorder.
    pub fn with<T>(&self, act: impl FnOnce(&mut Recorder) -> T) -> T {
        act(&mut self.recorder.borrow_mut())
    }

    /// Takes what was recorded.
    pub fn take(&self) -> Recorder {
        let mut recorder = self.recorder.borrow_mut();
        let fresh = Recorder::new(recorder.plan.clone());
        std::mem::replace(&mut recorder, fresh)
    }
}

impl world::Recorder for Shared {
    fn note(&mut self, now: Instant, flow: FlowId, side: Side, note: &Note) {
        if self.captures {
            self.recorder.borrow_mut().note(now, flow, side, note);
        }
    }

    fn packet(&mut self, now: Instant, guest: GuestId, point: Point, _way: Way, packet: &Packet) {
        if self.captures {
            self.recorder.borrow_mut().passes(now, guest, point, packet);
        }
    }

    fn waited(&mut self, _now: Instant, from: Option<GuestId>, wait: Duration) {
        self.recorder.borrow_mut().waited(from, wait);
    }

    fn vcpu_waited(&mut self, guest: GuestId, since: Instant, until: Instant) {
        if self.has_hosts {
            self.recorder.borrow_mut().vcpu_waited(guest, since, until);
        }
    }

    fn closed(&mut self, _now: Instant, flow: FlowId, side: Side, stats: &ConnStats) {
        self.recorder.borrow_mut().closed(flow, side, stats);
    }
}

/// Adds one connection's counters to a sum.
pub(crate) fn add(sum: &mut ConnStats, one: &ConnStats) {
    sum.segments_sent += one.segments_sent;
    sum.data_segments_sent += one.data_segments_sent;
    sum.acks_sent += one.acks_sent;
    sum.retransmitted += one.retransmitted;
    sum.timeouts += one.timeouts;
    sum.spurious_rtos += one.spurious_rtos;
    sum.loss_probes += one.loss_probes;
    sum.loss_probe_recoveries += one.loss_probe_recoveries;
    sum.window_probes += one.window_probes;
    sum.fast_recoveries += one.fast_recoveries;
    for of in UndoOf::ALL {
        sum.undone[of] += one.undone[of];
    }
    sum.dup_acks_received += one.dup_acks_received;
    sum.dsacks_received += one.dsacks_received;
    sum.dsacks_sent += one.dsacks_sent;
    sum.delayed_acks += one.delayed_acks;
    sum.segments_received += one.segments_received;
    sum.duplicates_received += one.duplicates_received;
    sum.out_of_order_received += one.out_of_order_received;
    sum.marks_received += one.marks_received;
    sum.ecn_reductions += one.ecn_reductions;
}

/// The number nearest to `last` that has these low 32 bits.
fn unwrap(last: u64, wire: u32) -> u64 {
    let ahead = wire.wrapping_sub(last as u32) as i32;
    last.saturating_add_signed(i64::from(ahead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Ecn, HostId, Segment};

    fn recorder(capture: bool) -> Recorder {
        let record = Record { capture, tcp_info_period_ms: 20, queue_period_ms: 30, ..Record::default() };
        let plan = Plan {
            record,
            workloads: vec![Traits { sockets: true, data_side: Side::Opener }],
            first_sender: GuestId(0),
            waiting: 0..0,
            shown: None,
        };
        Recorder::new(plan)
    }

    fn at(ms: u64) -> Instant {
        Instant::START + Duration::from_ms(ms)
    }

    #[test]
    fn samples_are_due_at_their_periods_from_the_mark_on() {
        let mut recorder = recorder(false);
        assert_eq!(recorder.next_sample(), None);
        recorder.mark(at(100));
        let mut seen = Vec::new();
        while let Some(next) = recorder.next_sample().filter(|next| *next <= at(160)) {
            let due = recorder.due(next);
            seen.push((next.us() / 1000, due.sockets, due.queue));
        }
        assert_eq!(
            seen,
            [(100, true, true), (120, true, false), (130, false, true), (140, true, false), (160, true, true)]
        );
    }

    #[test]
    fn runs_of_timeouts_end_with_progress() {
        let mut recorder = recorder(true);
        recorder.opened(FlowId(4), 0, [GuestId(0), GuestId(9)]);
        recorder.opened(FlowId(5), 0, [GuestId(1), GuestId(9)]);
        recorder.note(at(0), FlowId(5), Side::Opener, &Note::Timeout { times: 1 });
        let sample = Note::RttSample { measured_us: 7000, used_us: 1, spoilt: true, srtt_us: 1, rto: Duration::ZERO };
        recorder.note(at(0), FlowId(4), Side::Opener, &Note::Timeout { times: 1 });
        recorder.note(at(1), FlowId(4), Side::Opener, &sample);
        recorder.mark(at(2));
        for times in [1, 2, 3, 4, 5] {
            recorder.note(at(3), FlowId(4), Side::Opener, &Note::Timeout { times });
        }
        recorder.note(at(4), FlowId(4), Side::Opener, &sample);
        recorder.note(at(5), FlowId(4), Side::Opener, &Note::Timeout { times: 1 });
        recorder.note(at(6), FlowId(4), Side::Opener, &Note::Timeout { times: 1 });
        recorder.note(at(6), FlowId(4), Side::Opener, &Note::Timeout { times: 2 });
        assert_eq!(recorder.meas_rtt, [(at(4), 7000)]);
        assert_eq!(recorder.rto_runs(), Some([1, 1, 0, 1]));
        assert_eq!(super::tests::recorder(false).rto_runs(), None);
    }

    #[test]
    fn numbers_are_relative_to_the_first_byte_and_do_not_wrap() {
        let mut recorder = recorder(true);
        let packet = |to: u32, segment: Segment| Packet {
            dst: HostId(to),
            guest: GuestId(to),
            flow_hash: 0,
            wire_bytes: 100,
            class: 0,
            ecn: Ecn::NotEct,
            gso_bytes: 0,
            remaining_bytes: 0,
            enqueued: at(0),
            payload: Payload::Tcp(ConnId { index: to, generation: 0 }, segment),
        };
        let syn = Segment { seq: u32::MAX - 100, flags: Flags::SYN, ..Segment::default() };
        recorder.passes(at(0), GuestId(0), Point::Guest, &packet(9, syn));
        recorder.passes(at(0), GuestId(9), Point::Guest, &packet(0, Segment { seq: 77, flags: Flags::SYN, ..syn }));
        let data = packet(9, Segment { seq: 50, payload_bytes: 1000, ..Segment::default() });
        recorder.passes(at(1), GuestId(0), Point::Guest, &data);
        recorder.mark(at(1));
        recorder.passes(at(2), GuestId(0), Point::Guest, &data);
        recorder.passes(at(3), GuestId(9), Point::Port, &data);
        recorder.passes(at(3), GuestId(0), Point::Port, &packet(0, Segment { ack: 1050, ..Segment::default() }));
        // The data's sender acknowledges the handshake; another connection has data: nothing to show.
        recorder.passes(at(3), GuestId(0), Point::Port, &packet(9, Segment { ack: 7, ..Segment::default() }));
        recorder.passes(at(3), GuestId(0), Point::Port, &packet(8, Segment { payload_bytes: 7, ..Segment::default() }));
        let seen: Vec<_> = recorder.packets.iter().map(|p| (p.place, p.data, p.seq, p.len)).collect();
        assert_eq!(
            seen,
            [
                (SeenAt::Sender, true, 150, 1000),
                (SeenAt::ReceiverPort, true, 150, 1000),
                (SeenAt::SenderPort, false, 1150, 0)
            ]
        );
        assert_eq!(unwrap((1 << 33) - 5, 10), (1 << 33) + 10);
        assert_eq!(unwrap(1 << 33, u32::MAX), (1 << 33) - 1);
    }

    #[test]
    fn closed_connections_are_summed_up_by_guest() {
        let mut recorder = recorder(false);
        let stats = ConnStats { timeouts: 2, segments_sent: 5, ..ConnStats::default() };
        for total in [100, 50] {
            recorder.opened(FlowId(3), 0, [GuestId(1), GuestId(2)]);
            recorder.expected(FlowId(3), Side::Acceptor, total);
            recorder.closed(FlowId(3), Side::Opener, &stats);
            recorder.closed(FlowId(3), Side::Acceptor, &ConnStats::default());
        }
        assert_eq!((recorder.closed[1].stats.timeouts, recorder.closed[1].stats.segments_sent), (4, 10));
        assert_eq!((recorder.closed[1].delivered_bytes, recorder.closed[2].delivered_bytes), (0, 150));
    }
}
