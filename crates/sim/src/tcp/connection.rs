//! One end of a connection: the functions that the world calls, and the handshake.

use evenkeel_algo::cera;
use evenkeel_algo::reno::Window;

use super::config::{EcnMode, TcpConfig};
use super::control::Control;
use super::note::{ConnStats, Info, Note};
use super::receiver::{Arrival, Receiver};
use super::rtt::Rtt;
use super::sender::{Sender, State};
use super::seq::{initial, unwrap};
use super::{Env, Outgoing, Phase, Role, TimerKind};
use crate::packet::{Ecn, Flags, Segment};
use crate::time::{Duration, Instant};

/// One end of a connection.
///
/// It takes less than a kilobyte, plus, while data is outstanding, 24 bytes for each segment in flight and 16 for each
/// gap in what was received; that memory is kept for the next burst. Nothing else is allocated.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) phase: Phase,
    pub(super) state: State,
    pub(super) sack: bool,
    pub(super) timestamps: bool,
    pub(super) ecn: bool,
    /// Window scale of the other end's windows, and of its own.
    pub(super) scale_out: u8,
    pub(super) scale_in: u8,
    pub(super) mss: u32,
    /// vFlood: the window that counts is what the host grants.
    pub(super) floods: bool,
    syn_at: Instant,
    /// The retransmit timer: one of its four kinds at a time.
    pub(super) timer: Option<(TimerKind, Instant)>,
    pub(super) snd: Sender,
    pub(super) rcv: Receiver,
    pub(super) rtt: Rtt,
    pub(super) window: Window,
    pub(super) control: Control,
    pub(super) stats: ConnStats,
}

impl Connection {
    /// An end that has sent nothing yet; a server waits for a SYN.
    pub fn new(config: &TcpConfig, role: Role) -> Self {
        let syn = initial(config.initial_sequence);
        let snd = Sender {
            una: syn,
            nxt: syn,
            start: syn + 1,
            end: syn + 1,
            edge: syn + 1,
            reordering: 3,
            ..Sender::default()
        };
        Self {
            phase: if role == Role::Client { Phase::Closed } else { Phase::Listen },
            state: State::Open,
            sack: config.sack,
            timestamps: config.timestamps,
            ecn: config.ecn != EcnMode::Off,
            scale_out: 0,
            scale_in: 0,
            mss: config.mss_bytes.max(1),
            floods: config.flood,
            syn_at: Instant::START,
            timer: None,
            snd,
            rcv: Receiver::default(),
            rtt: Rtt::new(config),
            window: Window::new(config.initial_window_segments.max(1)),
            control: Control::new(config, config.flood),
            stats: ConnStats::default(),
        }
    }

    /// The connection floods no more (vFlood): its own window counts from here on, and grows like a plain connection's.
    pub fn be_plain(&mut self, config: &TcpConfig) {
        if std::mem::take(&mut self.floods) {
            self.control.be_plain(config);
        }
    }

    /// Bytes that it has allocated beside itself.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.snd.board.heap_bytes() + self.rcv.heap_bytes()
    }

    /// Opens the connection: sends the SYN.
    pub fn connect(&mut self, env: &mut Env) {
        if self.phase == Phase::Closed {
            self.phase = Phase::SynSent;
            self.send_syn(env, false);
        }
    }

    /// Takes data from the application. Returns how much, which is less than all only with a bounded send buffer;
    /// [`Note::Room`] then tells when there is room again.
    pub fn write(&mut self, env: &mut Env, bytes: u64) -> u64 {
        let room = self.room(env.config).unwrap_or(u64::MAX >> 2);
        let taken = bytes.min(room);
        self.snd.short = taken < bytes;
        self.snd.end += taken;
        self.push(env);
        taken
    }

    /// Handles a segment; `ce`: it was marked on the path.
    #[inline]
    pub fn on_segment(&mut self, env: &mut Env, segment: &Segment, ce: bool) {
        self.stats.segments_received += 1;
        let flags = segment.flags;
        match self.phase {
            Phase::Closed => {}
            Phase::Listen if flags.has(Flags::SYN) && !flags.has(Flags::ACK) => self.on_syn(env, segment),
            Phase::Listen => {}
            Phase::SynSent => self.on_syn_ack(env, segment),
            Phase::SynReceived => {
                if flags.has(Flags::SYN) {
                    self.send_syn(env, true);
                } else if flags.has(Flags::ACK) && unwrap(self.snd.una, segment.ack) == self.snd.nxt {
                    self.establish(env, segment);
                    // This window replaces the SYN's (RFC 9293 §3.10.7.4).
                    self.snd.edge = self.snd.una + (u64::from(segment.window) << self.scale_out);
                    self.on_established(env, segment, ce);
                }
            }
            Phase::Established if flags.has(Flags::SYN) => self.send_ack(env, self.snd.nxt),
            Phase::Established => self.on_established(env, segment, ce),
        }
    }

    /// The application reads all that has come: after each segment, or after several that came together. Without it,
    /// ACKs are left to the delayed ACK's timer.
    #[inline]
    pub fn on_read(&mut self, env: &mut Env) {
        if self.rcv.must_ack_read() {
            self.send_ack(env, self.snd.nxt);
        }
    }

    /// Runs the timers that are due.
    pub fn on_timer(&mut self, env: &mut Env) {
        if self.rcv.delayed.is_some_and(|at| at <= env.now) {
            self.fire(env, TimerKind::DelayedAck);
        }
        if let Some((kind, at)) = self.timer {
            if at <= env.now {
                self.fire(env, kind);
            }
        }
    }

    /// Runs one timer, if it is due; for a guest that holds other timers back.
    pub fn fire(&mut self, env: &mut Env, kind: TimerKind) {
        if self.timer_at(kind).is_none_or(|at| at > env.now) {
            return;
        }
        if kind == TimerKind::DelayedAck {
            self.rcv.delayed = None;
            self.rcv.delay_over(env.config, self.rtt.rto);
            self.stats.delayed_acks += 1;
            self.send_ack(env, self.snd.nxt);
        } else {
            self.retransmit_timer(env);
            self.push(env);
        }
    }

    /// The timer that is due first.
    #[inline]
    pub fn next_timer(&self) -> Option<(TimerKind, Instant)> {
        let delayed = self.rcv.delayed.map(|at| (TimerKind::DelayedAck, at));
        match (self.timer, delayed) {
            (Some(timer), Some(delayed)) => Some(if delayed.1 < timer.1 { delayed } else { timer }),
            (timer, delayed) => timer.or(delayed),
        }
    }

    /// When a timer is due, if it is set.
    #[inline]
    pub fn timer_at(&self, kind: TimerKind) -> Option<Instant> {
        match kind {
            TimerKind::DelayedAck => self.rcv.delayed,
            _ => self.timer.filter(|timer| timer.0 == kind).map(|timer| timer.1),
        }
    }

    /// Acknowledges the next segments at once (PVTCP's just-in-time ACK).
    pub fn quick_ack(&mut self, segments: u32) {
        self.rcv.quick_ack(segments);
    }

    /// Whether it has data to send or in flight.
    pub fn is_sending(&self) -> bool {
        self.is_established() && self.remaining() > 0
    }

    /// The least RTT, in microseconds, if one is known.
    pub fn least_rtt_us(&self) -> Option<u32> {
        Some(self.rtt.min_us).filter(|us| *us < u32::MAX)
    }

    /// Sets the congestion window to this many segments from outside, as CERA's client does, if it is larger, or if it
    /// is smaller because it was set before and nothing was lost since. The algorithm continues as after a reduction of
    /// its own: in congestion avoidance, and with ACKs of what is sent from now on. Returns whether the window was set.
    pub fn adjust_window(&mut self, segments: u32) -> bool {
        let is_theirs = !matches!(self.state, State::Open | State::Disorder);
        let (cwnd, ssthresh) = (self.window.cwnd(), self.window.ssthresh());
        let is_unscathed = !is_theirs && self.snd.adjusted == Some(ssthresh);
        if !cera::client_sets(cwnd, segments, is_unscathed, self.snd.cwnd_limited) {
            return false;
        }
        // The threshold that recovery has chosen may be lower.
        let ssthresh = if is_theirs { ssthresh.min(segments) } else { segments };
        self.snd.adjusted = Some(ssthresh);
        self.window.set_ssthresh(ssthresh);
        self.window.set_cwnd(segments);
        self.window.set_credit(0);
        self.control.set_window();
        if segments < cwnd {
            self.snd.lowered_end = self.snd.nxt;
        }
        true
    }

    /// When data last came in, if any did.
    pub fn last_data_at(&self) -> Option<Instant> {
        self.rcv.last_data
    }

    /// Whether the handshake is done.
    pub fn is_established(&self) -> bool {
        self.phase == Phase::Established
    }

    /// Bytes received in order.
    #[inline]
    pub fn delivered(&self) -> u64 {
        self.rcv.nxt - self.rcv.start
    }

    /// Bytes sent and acknowledged.
    pub fn acked(&self) -> u64 {
        self.snd.una.saturating_sub(self.snd.start)
    }

    /// Bytes written and not yet sent.
    pub fn unsent(&self) -> u64 {
        self.snd.end - self.snd.nxt.max(self.snd.start)
    }

    /// Bytes written and not yet acknowledged.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.snd.end - self.snd.una.max(self.snd.start)
    }

    /// Counters.
    pub fn stats(&self) -> &ConnStats {
        &self.stats
    }

    /// The sender's state.
    pub fn info(&self) -> Info {
        Info {
            srtt_us: self.rtt.srtt_us(),
            rttvar_us: self.rtt.rttvar_us(),
            rto: self.rtt.rto,
            cwnd: self.window.cwnd(),
            ssthresh: self.window.ssthresh(),
            in_flight: self.snd.board.in_flight(),
        }
    }

    /// Room of the other end beyond what it has acknowledged, in bytes.
    pub fn peer_window_bytes(&self) -> u64 {
        self.snd.edge.saturating_sub(self.snd.una)
    }

    /// DCTCP's alpha, in units of 1/1024, if the congestion control has one.
    pub fn alpha(&self) -> Option<u32> {
        self.control.alpha()
    }

    fn room(&self, config: &TcpConfig) -> Option<u64> {
        config.send_buffer_bytes.map(|buffer| buffer.saturating_sub(self.remaining()))
    }

    /// Sends the SYN, or as a server the SYN-ACK, and sets its timer.
    pub(super) fn send_syn(&mut self, env: &mut Env, retransmission: bool) {
        let server = self.phase == Phase::SynReceived;
        let mut flags = Flags::SYN;
        let mut segment = Segment {
            seq: (self.snd.start - 1) as u32,
            window: env.config.receive_window_bytes().min(u32::from(u16::MAX)) as u16,
            window_scale: env.config.window_scale.min(14),
            ..Segment::default()
        };
        if self.timestamps {
            segment.ts_val = self.timestamp(env);
        }
        if self.sack {
            flags = flags.with(Flags::SACK_PERMITTED);
        }
        if server {
            flags = flags.with(Flags::ACK);
            segment.ack = self.rcv.nxt as u32;
            segment.ts_ecr = if self.timestamps { self.rcv.ts_recent } else { 0 };
            self.rcv.edge = self.rcv.nxt + u64::from(segment.window);
        }
        if self.ecn {
            flags = flags.with(if server { Flags::ECE } else { Flags::ECE.with(Flags::CWR) });
        }
        segment.flags = flags;
        self.snd.nxt = self.snd.start;
        if !retransmission {
            self.syn_at = env.now;
        }
        self.stats.segments_sent += 1;
        self.stats.retransmitted += u64::from(retransmission);
        let ecn = if self.ecn && env.config.ecn == EcnMode::Dctcp { Ecn::Ect0 } else { Ecn::NotEct };
        env.out.push(Outgoing { segment, ecn, retransmission, gso_bytes: 0 });
        self.timer = Some((TimerKind::Rto, env.now + self.rtt.rto));
    }

    /// Takes over what the other end's SYN offers.
    fn negotiate(&mut self, env: &Env, segment: &Segment, ecn: bool) {
        self.sack &= segment.flags.has(Flags::SACK_PERMITTED);
        self.timestamps &= segment.ts_val != 0;
        self.ecn &= ecn;
        // vFlood's host leaves such connections alone.
        if self.ecn {
            self.be_plain(env.config);
        }
        self.scale_out = segment.window_scale.min(14);
        self.scale_in = env.config.window_scale.min(14);
        self.rcv.begin(initial(segment.seq) + 1);
        self.rcv.ts_recent = segment.ts_val;
        self.snd.edge = self.snd.start + u64::from(segment.window);
    }

    fn on_syn(&mut self, env: &mut Env, segment: &Segment) {
        let offered = segment.flags.has(Flags::ECE.with(Flags::CWR));
        self.negotiate(env, segment, offered);
        self.phase = Phase::SynReceived;
        self.send_syn(env, false);
    }

    fn on_syn_ack(&mut self, env: &mut Env, segment: &Segment) {
        let answers = unwrap(self.snd.una, segment.ack) == self.snd.nxt;
        if !segment.flags.has(Flags::SYN.with(Flags::ACK)) || !answers {
            return;
        }
        let accepted = segment.flags.has(Flags::ECE) && !segment.flags.has(Flags::CWR);
        self.negotiate(env, segment, accepted);
        let nxt = self.snd.nxt;
        self.establish(env, segment);
        self.send_ack(env, nxt);
        self.push(env);
    }

    fn establish(&mut self, env: &mut Env, segment: &Segment) {
        let backed_off = self.rtt.backoff > 0;
        let measured = self.timestamps && segment.ts_ecr != 0;
        self.phase = Phase::Established;
        self.timer = None;
        self.snd.una = self.snd.nxt;
        self.snd.high = self.snd.nxt;
        self.snd.last_send = env.now;
        self.snd.cwnd_stamp = env.now;
        self.snd.edge_seq = unwrap(self.rcv.nxt, segment.seq);
        self.rcv.edge = self.rcv.nxt + u64::from(env.config.receive_window_bytes().min(u32::from(u16::MAX)));
        self.rcv.acked = self.rcv.nxt;
        self.control.begin(self.snd.nxt);
        if self.stats.retransmitted > 1 {
            self.window.set_cwnd(1);
        }
        if backed_off && !measured {
            // It is unknown which SYN was answered (RFC 6298 §5.7).
            self.rtt.backoff = 0;
            self.rtt.rto = env.config.in_jiffies(Duration::from_s(3));
        } else {
            let us = if backed_off {
                self.timestamp(env).wrapping_sub(segment.ts_ecr).min(1 << 28)
            } else {
                env.now.since(self.syn_at).us().min(1 << 28) as u32
            };
            self.rtt.sample(env.config, us, self.snd.una, self.snd.nxt);
            self.rtt.min_us = us.max(1);
        }
        env.notes.push(Note::Established);
    }

    fn on_established(&mut self, env: &mut Env, segment: &Segment, ce: bool) {
        let seq = unwrap(self.rcv.nxt, segment.seq);
        if self.timestamps && seq <= self.rcv.acked && segment.ts_val.wrapping_sub(self.rcv.ts_recent) < 1 << 31 {
            self.rcv.ts_recent = segment.ts_val;
        }
        if segment.flags.has(Flags::ACK) {
            self.on_ack(env, segment);
        }
        if segment.payload_bytes > 0 {
            self.on_data(env, segment, seq, ce);
        } else if seq < self.rcv.nxt {
            // A window probe, or an ACK from long ago.
            self.send_ack(env, self.snd.nxt);
        }
        self.push(env);
        if self.rcv.must_ack_unread(env.config, env.now, self.srtt()) {
            self.send_ack(env, self.snd.nxt);
        }
        if self.snd.short {
            if let Some(room) = self.room(env.config).filter(|&room| room > 0) {
                self.snd.short = false;
                env.notes.push(Note::Room(room));
            }
        }
    }

    fn on_data(&mut self, env: &mut Env, segment: &Segment, seq: u64, ce: bool) {
        self.stats.marks_received += u64::from(ce);
        let cwr = segment.flags.has(Flags::CWR);
        if self.ecn && self.rcv.note_mark(env.config, ce, cwr) {
            self.send_ack(env, self.snd.nxt);
            self.rcv.note_mark(env.config, ce, cwr);
        }
        let end = seq + u64::from(segment.payload_bytes);
        match self.rcv.data(env.config, env.now, seq, end, self.rtt.rto) {
            Arrival::InOrder => {}
            Arrival::OutOfOrder => self.stats.out_of_order_received += 1,
            Arrival::Duplicate | Arrival::OutOfWindow => self.stats.duplicates_received += 1,
        }
    }
}
