//! What goes out: new data, lost data, probes and acknowledgements.

use evenkeel_algo::reno::MAX_CWND;
use evenkeel_algo::vflood;

use super::config::{EcnMode, Generation};
use super::scoreboard::{LOST, RETRANSMITTED, SACKED, Sent};
use super::sender::State;
use super::{Absences, Connection, Env, Note, Outgoing, TimerKind};
use crate::packet::{Ecn, Flags, Segment};
use crate::time::Duration;

impl Connection {
    /// The clock of timestamps, never 0.
    pub(super) fn timestamp(&self, env: &Env) -> u32 {
        let unit = env.config.timestamp_unit.us().max(1);
        (((env.now.us() / unit + 1) * unit) as u32).max(1)
    }

    /// A header with all but the payload; every segment carries an ACK.
    fn header(&mut self, env: &Env, seq: u64, flags: Flags) -> Segment {
        let mut flags = flags.with(Flags::ACK);
        if self.ecn && self.rcv.echo {
            flags = flags.with(Flags::ECE);
        }
        let window = self.rcv.window(env.config, self.scale_in);
        let sack = if self.sack { self.rcv.blocks(env.config.dsack) } else { Default::default() };
        if env.config.dsack && self.sack && self.rcv.has_dsack() {
            self.stats.dsacks_sent += 1;
        }
        let (ts_val, ts_ecr) = if self.timestamps { (self.timestamp(env), self.rcv.ts_recent) } else { (0, 0) };
        self.rcv.ack_sent();
        self.stats.segments_sent += 1;
        Segment { seq: seq as u32, ack: self.rcv.nxt as u32, window, flags, ts_val, ts_ecr, sack, ..Segment::default() }
    }

    /// Sends a bare acknowledgement; a window probe has a sequence number from before `una`.
    pub(super) fn send_ack(&mut self, env: &mut Env, seq: u64) {
        let segment = self.header(env, seq, Flags::default());
        // DCTCP's control packets are ECN-capable as well, or they would be dropped where data is marked.
        let ecn = if self.ecn && env.config.ecn == EcnMode::Dctcp { Ecn::Ect0 } else { Ecn::NotEct };
        self.stats.acks_sent += 1;
        env.out.push(Outgoing { segment, ecn, retransmission: false, gso_bytes: 0 });
    }

    fn send_data(&mut self, env: &mut Env, seq: u64, len: u32, retransmission: bool) {
        let end = seq + u64::from(len);
        let mut flags = Flags::default();
        if end == self.snd.end {
            flags = flags.with(Flags::PSH);
        }
        if self.ecn && self.snd.send_cwr && !retransmission {
            flags = flags.with(Flags::CWR);
            self.snd.send_cwr = false;
        }
        let mut segment = self.header(env, seq, flags);
        segment.payload_bytes = len;
        let capable = self.ecn && (env.config.ecn == EcnMode::Dctcp || !retransmission);
        self.stats.data_segments_sent += 1;
        self.stats.retransmitted += u64::from(retransmission);
        self.snd.last_send = env.now;
        self.rcv.data_sent(env.now);
        env.out.push(Outgoing {
            segment,
            ecn: if capable { Ecn::Ect0 } else { Ecn::NotEct },
            retransmission,
            gso_bytes: 0,
        });
    }

    /// Length of the next new segment, if there is one and the receiver has room for it.
    fn next_len(&self) -> Option<u32> {
        let len = (self.snd.end - self.snd.nxt).min(u64::from(self.mss)) as u32;
        (len > 0 && self.snd.nxt + u64::from(len) <= self.snd.edge).then_some(len)
    }

    /// Whether there is new data that the receiver has room for.
    pub(super) fn can_send_new(&self) -> bool {
        self.next_len().is_some()
    }

    /// Sends a new segment regardless of the congestion window.
    pub(super) fn send_new(&mut self, env: &mut Env, len: u32) {
        let was_idle = self.snd.board.queue.is_empty();
        let seq = self.snd.nxt;
        self.send_data(env, seq, len, false);
        self.snd.board.queue.push_back(Sent { seq, at: env.now, len, flags: 0 });
        self.snd.nxt += u64::from(len);
        if was_idle || matches!(self.timer, Some((TimerKind::Tlp | TimerKind::Persist, _))) {
            self.rearm_rto(env);
        }
        if matches!(self.state, State::Recovery | State::Cwr) {
            self.snd.prr_out += 1;
        }
    }

    /// Sends the segments of one packet, as far as both windows allow.
    fn send_packet(&mut self, env: &mut Env, cwnd: u32) {
        for _ in 0..self.packet_segments(env.config) {
            let Some(len) = self.next_len().filter(|_| self.snd.board.in_flight() < cwnd) else { return };
            self.send_new(env, len);
        }
    }

    /// Segments that may be in flight. With vFlood the connection's own window is the shadow window, which is
    /// maintained in the background.
    fn cwnd(&self, env: &Env) -> u32 {
        let shadow = self.window.cwnd();
        if !self.floods {
            return shadow;
        }
        let granted = (self.snd.edge.saturating_sub(self.snd.una) / u64::from(self.mss)).min(u64::from(MAX_CWND));
        let board = &self.snd.board;
        let held = vflood::guest_held(board.out(), board.sacked, shadow);
        let current = env.config.generation == Generation::Current;
        let may_resend = current || self.state == State::Loss || board.lost > board.retransmitted;
        let guest = vflood::Guest {
            is_online: true,
            is_repairing: self.state != State::Open && may_resend,
            shadow,
            granted_segments: Some(granted as u32),
            held: if current || self.state == State::Loss { 0 } else { held },
            in_flight: board.in_flight(),
        };
        guest.cwnd()
    }

    /// Sends as much new data as both windows allow.
    pub(super) fn push(&mut self, env: &mut Env) {
        if !self.is_established() {
            return;
        }
        if self.snd.board.queue.is_empty() && self.snd.nxt < self.snd.end {
            self.restart_after_idle(env);
        }
        let (mut sent, mut limited) = (false, false);
        let cwnd = self.cwnd(env);
        while self.can_send_new() {
            if self.snd.board.in_flight() >= cwnd {
                limited = true;
                break;
            }
            if let Some(by_window) = self.defers(env, cwnd) {
                limited |= by_window;
                break;
            }
            self.send_packet(env, cwnd);
            sent = true;
        }
        if sent {
            self.validate_window(env, limited || self.snd.board.in_flight() >= self.window.cwnd());
            self.schedule_probe(env, false);
        }
        if self.snd.f_rto_new {
            self.snd.f_rto_new = false;
            if self.snd.nxt <= self.snd.high {
                self.snd.f_rto_in_loss = false;
                self.resend_lost(env);
            }
        }
        if self.snd.board.queue.is_empty() {
            let blocked = self.snd.nxt < self.snd.end;
            match self.timer {
                Some((TimerKind::Persist, _)) if blocked => {}
                _ if blocked => self.arm_persist(env),
                _ => self.timer = None,
            }
        }
    }

    fn arm_persist(&mut self, env: &Env) {
        let factor = 1 << self.snd.probes.min(16);
        self.timer = Some((TimerKind::Persist, env.now + (self.rtt.base(env.config) * factor).min(env.config.rto_max)));
    }

    /// Probes a receiver that has no room.
    pub(super) fn probe_window(&mut self, env: &mut Env) {
        self.snd.probes = self.snd.probes.saturating_add(1);
        self.stats.window_probes += 1;
        env.notes.push(Note::WindowProbe);
        let room = self.snd.edge.saturating_sub(self.snd.nxt).min(self.snd.end - self.snd.nxt);
        if room > 0 {
            self.send_new(env, room.min(u64::from(self.mss)) as u32);
        } else {
            self.send_ack(env, self.snd.una - 1);
            self.arm_persist(env);
        }
    }

    /// Shrinks the window after an idle time: it says nothing about a path that was not used for a while.
    fn restart_after_idle(&mut self, env: &mut Env) {
        let idle = env.now.since(self.snd.last_send);
        if self.snd.nxt == self.snd.start || idle <= self.rtt.rto {
            return;
        }
        self.control.idle(idle.us());
        if !env.config.slow_start_after_idle {
            return;
        }
        let ssthresh = self.current_ssthresh();
        let restart = self.window.cwnd().min(env.config.initial_window_segments);
        let idle = idle_at_work(env, idle);
        let steps = if idle > self.rtt.rto { (idle.ps() / self.rtt.rto.ps().max(1)).min(31) as u32 } else { 0 };
        self.window.set_ssthresh(ssthresh);
        self.window.set_cwnd((self.window.cwnd() >> steps).max(restart));
        self.snd.cwnd_stamp = env.now;
        self.snd.cwnd_used = 0;
    }

    /// Notes whether the window was used, and shrinks it if it was not used for an RTO.
    fn validate_window(&mut self, env: &Env, limited: bool) {
        let out = self.snd.board.out();
        let snd = &mut self.snd;
        if snd.una >= snd.usage_end || limited || (!snd.cwnd_limited && out > snd.most_out) {
            snd.cwnd_limited = limited;
            snd.most_out = out;
            snd.usage_end = snd.nxt;
        }
        if snd.cwnd_limited || (self.window.in_slow_start() && self.window.cwnd() < 2 * snd.most_out) {
            snd.cwnd_used = 0;
            snd.cwnd_stamp = env.now;
            return;
        }
        snd.cwnd_used = snd.cwnd_used.max(out);
        let unused = env.now.since(snd.cwnd_stamp) >= self.rtt.rto;
        // Only if the application had nothing to send, not if the receiver had no room.
        if unused && env.config.slow_start_after_idle && snd.nxt == snd.end && self.state == State::Open {
            let used = snd.cwnd_used.max(env.config.initial_window_segments);
            if used < self.window.cwnd() {
                let ssthresh = self.current_ssthresh();
                self.window.set_ssthresh(ssthresh);
                self.window.set_cwnd((self.window.cwnd() + used) / 2);
            }
            self.snd.cwnd_used = 0;
            self.snd.cwnd_stamp = env.now;
        }
    }

    /// Sends a segment again.
    pub(super) fn resend(&mut self, env: &mut Env, index: usize) {
        let Some(Sent { seq, len, .. }) = self.snd.board.resend(index, env.now) else { return };
        self.send_data(env, seq, len, true);
        let stamp = self.timestamp(env);
        self.snd.retransmit_stamp.get_or_insert(stamp);
        self.snd.undo_retransmitted = self.snd.undo_retransmitted.max(0).saturating_add(1);
        if matches!(self.state, State::Recovery | State::Cwr) {
            self.snd.prr_out += 1;
        }
    }

    /// Sends lost segments again, as far as the window allows.
    pub(super) fn resend_lost(&mut self, env: &mut Env) {
        if self.snd.board.lost == 0 {
            return;
        }
        let cwnd = self.cwnd(env);
        let mut index = self.snd.board.index_of(self.snd.board.hint);
        while let Some(sent) = self.snd.board.queue.get(index).copied() {
            if !sent.has(LOST) || sent.has(SACKED | RETRANSMITTED) {
                index += 1;
                continue;
            }
            let room = index == 0 || sent.end() <= self.snd.edge;
            if !room || self.snd.board.in_flight() >= cwnd {
                self.snd.board.hint = sent.seq;
                return;
            }
            self.resend(env, index);
            if index == 0 && !matches!(self.timer, Some((TimerKind::Reo, _))) {
                self.timer = Some((TimerKind::Rto, env.now + self.rtt.rto));
            }
            index += 1;
        }
        self.snd.board.hint = self.snd.nxt;
    }

    /// Starts the RTO's timer from now, or, if it replaces another timer, from when the head was sent.
    pub(super) fn rearm_rto(&mut self, env: &Env) {
        let Some(head) = self.snd.board.queue.front() else {
            self.timer = None;
            return;
        };
        let mut at = env.now + self.rtt.rto;
        if matches!(self.timer, Some((TimerKind::Tlp | TimerKind::Reo, _))) {
            let least = if env.config.jiffy == Duration::ZERO { Duration::from_us(1) } else { env.config.jiffy };
            at = (head.at + self.rtt.rto).max(env.now + least);
        }
        self.timer = Some((TimerKind::Rto, at));
    }
}

/// How long a connection was idle, without the absence of its virtual CPU if PVTCP takes that out.
fn idle_at_work(env: &mut Env, idle: Duration) -> Duration {
    let Some(Absences { vcpu, settings, acts }) = env.pvtcp else { return idle };
    let at_work_us = vcpu.idle_us(settings, env.now.us(), idle.us());
    if at_work_us == idle.us() {
        return idle;
    }
    env.notes.push(Note::IdleFiltered);
    if acts { Duration::from_us(at_work_us) } else { idle }
}
