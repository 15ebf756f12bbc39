//! What an acknowledgement does to the scoreboard and to the RTT estimate.

use super::config::Generation;
use super::rtt::measured_us;
use super::scoreboard::{EVER, LOST, RETRANSMITTED, SACKED};
use super::sender::{Acked, FRto, State};
use super::seq::unwrap;
use super::{Absences, Connection, Env, Note};
use crate::packet::{Flags, Segment};
use crate::time::{Duration, Instant};

impl Connection {
    pub(super) fn on_ack(&mut self, env: &mut Env, segment: &Segment) {
        let ack = unwrap(self.snd.una, segment.ack);
        if ack > self.snd.nxt {
            return;
        }
        let in_flight_before = self.snd.board.in_flight();
        let mut acked = Acked {
            una_before: self.snd.una,
            losses_before: self.snd.board.losses,
            has_data: segment.payload_bytes > 0,
            ece: self.ecn && segment.flags.has(Flags::ECE),
            ts_ecr: if self.timestamps { segment.ts_ecr } else { 0 },
            ..Acked::default()
        };
        self.update_window(segment, ack, &mut acked);
        let out_before = self.snd.board.out();
        if self.sack && segment.sack.count > 0 {
            self.tag_sacked(env, segment, ack, &mut acked);
        }
        if ack > self.snd.una {
            self.snd.timeouts = 0;
            acked.advanced = true;
            self.clean(ack, env.now, &mut acked);
            self.snd.probes = 0;
        } else if out_before > 0 && ack == self.snd.una && acked.duplicate() {
            self.stats.dup_acks_received += 1;
        }
        self.note_reordering(&acked);
        self.measure(env, &acked);
        self.control.count(acked.delivered, acked.ece, self.snd.una, self.snd.nxt);
        if out_before == 0 {
            // Nothing was outstanding: at most the window has opened.
            if self.snd.edge > self.snd.nxt {
                self.snd.probes = 0;
            }
            if acked.dsack {
                // The last retransmission may have been superfluous too.
                self.alert(env, &mut acked);
            }
            return;
        }
        if acked.segments > 0 || self.sacked_before_head(env, &acked) {
            self.arm_after_ack(env);
        }
        if ack < acked.una_before {
            // An old ACK: its SACKs count, and nothing else.
            acked.window_update = true;
        }
        self.after_ack(env, &mut acked, in_flight_before);
    }

    /// Whether segments that were sent before the head have been SACKed. They show that the path is alive, so the timer
    /// starts again; SACKs of what was sent after the head would only put off the timeout of a head that was lost twice
    /// (`tcp_clean_rtx_queue`). 2.6.32 waits for the head.
    fn sacked_before_head(&self, env: &Env, acked: &Acked) -> bool {
        let head = self.snd.board.queue.front();
        env.config.generation == Generation::Current
            && head.zip(acked.first_sacked).is_some_and(|(head, sacked)| sacked < head.at)
    }

    fn update_window(&mut self, segment: &Segment, ack: u64, acked: &mut Acked) {
        let seq = unwrap(self.rcv.nxt, segment.seq);
        let edge = ack + (u64::from(segment.window) << self.scale_out);
        let newer = ack > self.snd.una || seq > self.snd.edge_seq;
        if newer || (seq == self.snd.edge_seq && ack == self.snd.una && edge > self.snd.edge) {
            acked.window_update = edge != self.snd.edge && ack == self.snd.una;
            self.snd.edge_seq = seq;
            self.snd.edge = edge;
        }
    }

    fn tag_sacked(&mut self, env: &mut Env, segment: &Segment, ack: u64, acked: &mut Acked) {
        let count = usize::from(segment.sack.count).min(segment.sack.blocks.len());
        let mut blocks = [(0, 0); crate::packet::MAX_SACK_BLOCKS];
        for (block, &(start, end)) in blocks.iter_mut().zip(&segment.sack.blocks[..count]) {
            *block = (unwrap(self.snd.una, start), unwrap(self.snd.una, end));
        }
        let (first, second) = (blocks[0], blocks[1]);
        let mut skip = 0;
        if first.1 <= ack || (count > 1 && first.0 >= second.0 && first.1 <= second.1) {
            skip = 1;
            self.note_dsack(first, acked);
        }
        for &(start, end) in &blocks[skip..count] {
            if start >= end || start < self.snd.una || end > self.snd.nxt || start < ack {
                continue;
            }
            // Ranges that the last ACK reported are skipped.
            let known = self.snd.known.iter().find(|known| known.0 >= start && known.0 < known.1 && known.1 <= end);
            match known.copied() {
                Some((from, to)) => {
                    self.tag_range(env.now, start, from, acked);
                    self.tag_range(env.now, to, end, acked);
                }
                None => self.tag_range(env.now, start, end, acked),
            }
        }
        blocks[..skip].fill((0, 0));
        blocks[count..].fill((0, 0));
        self.snd.known = blocks;
    }

    fn note_dsack(&mut self, (start, end): (u64, u64), acked: &mut Acked) {
        acked.dsack = true;
        self.stats.dsacks_received += 1;
        if self.snd.probe_end.is_some_and(|probe_end| self.snd.probe_repeated && end == probe_end) {
            acked.dsack_of_probe = true;
        } else if self.snd.undo_retransmitted > 0 && self.snd.undo_marker.is_some_and(|marker| start >= marker) {
            let segments = end.saturating_sub(start).div_ceil(u64::from(self.mss.max(1)));
            self.snd.undo_retransmitted =
                self.snd.undo_retransmitted.saturating_sub(segments.min(1 << 20) as i32).max(0);
        }
    }

    fn tag_range(&mut self, now: Instant, start: u64, end: u64, acked: &mut Acked) {
        if start >= end {
            return;
        }
        let highest = self.snd.board.highest_sacked;
        let from = self.snd.board.index_of(start);
        for index in from..self.snd.board.queue.len() {
            let sent = self.snd.board.queue[index];
            if sent.end() > end {
                break;
            }
            if sent.seq < start || sent.has(SACKED) {
                continue;
            }
            self.advance_rack(now, sent.at, sent.end(), sent.has(EVER));
            let board = &mut self.snd.board;
            if sent.has(RETRANSMITTED) {
                board.retransmitted -= 1;
            }
            if sent.has(LOST) {
                board.lost -= 1;
            }
            board.queue[index].flags = (sent.flags & EVER) | SACKED;
            board.sacked += 1;
            acked.delivered += 1;
            acked.sacked = true;
            if !sent.has(EVER) {
                if sent.end() <= self.snd.high {
                    acked.original = true;
                } else {
                    acked.sacked_new = true;
                }
                if sent.seq < highest {
                    acked.late = Some(acked.late.map_or(sent.seq, |late| late.min(sent.seq)));
                }
                acked.first_sacked.get_or_insert(sent.at);
            } else {
                acked.sacked_new = true;
            }
            board.highest_sacked = board.highest_sacked.max(sent.end());
        }
    }

    fn clean(&mut self, ack: u64, now: Instant, acked: &mut Acked) {
        let head = self.snd.una;
        self.snd.una = ack;
        while let Some(sent) = self.snd.board.queue.front().copied() {
            if sent.end() > ack {
                if sent.seq < ack {
                    let front = &mut self.snd.board.queue[0];
                    front.len = (sent.end() - ack) as u32;
                    front.seq = ack;
                }
                break;
            }
            self.snd.board.pop(self.sack);
            acked.segments += 1;
            if sent.has(EVER) {
                acked.repeated = true;
                acked.repeated_beyond_head |= sent.seq > head;
            } else if !sent.has(SACKED) {
                acked.original |= sent.end() <= self.snd.high;
                acked.first.get_or_insert(sent.at);
                acked.last = Some(sent.at);
                if sent.seq < self.snd.board.highest_sacked {
                    acked.late = Some(acked.late.map_or(sent.seq, |late| late.min(sent.seq)));
                }
            }
            if !sent.has(SACKED) {
                acked.delivered += 1;
                self.advance_rack(now, sent.at, sent.end(), sent.has(EVER));
            }
        }
        if self.snd.board.queue.is_empty() {
            self.snd.board.sacked = 0;
        }
    }

    fn advance_rack(&mut self, now: Instant, sent: Instant, end: u64, repeated: bool) {
        let rtt_us = now.since(sent).us().min(u64::from(u32::MAX)) as u32;
        if repeated && rtt_us < self.rtt.min_us {
            // Too early for an ACK of the retransmission: it was for the original.
            return;
        }
        let rack = &mut self.snd.rack;
        rack.advanced = true;
        rack.rtt_us = rtt_us;
        if (sent, end) > (rack.at, rack.end) {
            (rack.at, rack.end) = (sent, end);
        }
    }

    /// Linux raises the threshold of duplicate ACKs when a segment that was not lost arrives late.
    fn note_reordering(&mut self, acked: &Acked) {
        const MOST: u64 = 127;
        let (Some(late), true) = (acked.late, self.sack) else { return };
        let distance = self.snd.board.highest_sacked.saturating_sub(late).div_ceil(u64::from(self.mss.max(1)));
        self.snd.reordered = true;
        self.snd.reordering = self.snd.reordering.max(distance.min(MOST) as u32);
    }

    fn measure(&mut self, env: &mut Env, acked: &Acked) {
        let config = env.config;
        let measured = |sent: Instant| i64::from(measured_us(config, sent, env.now));
        // Karn's rule: an ACK that covers a retransmitted segment is no sample.
        let mut sequence = acked.first.filter(|_| !acked.repeated).map(measured);
        let mut latest = acked.last.filter(|_| !acked.repeated).map(measured);
        let sacked = acked.first_sacked.map(measured);
        if sequence.is_none() && sacked.is_none() && acked.advanced && acked.ts_ecr != 0 {
            let elapsed = self.timestamp(env).wrapping_sub(acked.ts_ecr);
            if elapsed < 1 << 31 {
                let unit = config.timestamp_unit.us().clamp(1, 1 << 20) as u32;
                sequence = Some(i64::from(elapsed.max(unit)));
                latest = sequence;
            }
        }
        let Some(sample) = sequence.or(sacked) else { return };
        let mut used = sample;
        let mut least = latest.or(sacked).unwrap_or(sample);
        let mut spoilt = false;
        if let Some(Absences { vcpu, settings, acts }) = env.pvtcp {
            let (now, srtt) = (env.now.us(), self.rtt.srtt_us());
            let filtered = vcpu.filter_rtt(settings, now, srtt, self.rtt.mdev_us(), sample);
            spoilt = filtered != sample;
            if acts {
                used = filtered;
                least = vcpu.filter_rtt(settings, now, srtt, 0, least);
            }
        }
        self.rtt.min_us = self.rtt.min_us.min(least.clamp(1, 1 << 30) as u32);
        let used = used.clamp(1, i64::from(u32::MAX)) as u32;
        self.rtt.sample(config, used, self.snd.una, self.snd.nxt);
        self.control.rtt(used);
        env.notes.push(Note::RttSample {
            measured_us: sample.clamp(0, i64::from(u32::MAX)) as u32,
            used_us: used,
            spoilt,
            srtt_us: self.rtt.srtt_us(),
            rto: self.rtt.rto,
        });
    }

    fn after_ack(&mut self, env: &mut Env, acked: &mut Acked, in_flight_before: u32) {
        let paper = env.config.generation == Generation::Paper;
        let mut frozen = false;
        if self.snd.f_rto != FRto::Off {
            frozen = self.process_f_rto(env, acked);
        }
        if self.snd.probe_end.is_some() {
            self.judge_probe(env, acked);
        }
        let dubious = !acked.not_dup() || acked.sacked || acked.dsack || acked.ece || self.state != State::Open;
        let mut resend = false;
        if dubious {
            resend = self.alert(env, acked);
        } else {
            self.snd.retransmit_stamp = None;
        }
        if paper {
            let held = frozen || matches!(self.state, State::Recovery | State::Cwr);
            if acked.segments > 0 && !held && (!acked.ece || self.window.in_slow_start()) {
                self.grow(env, 1, in_flight_before);
            }
        } else if matches!(self.state, State::Recovery | State::Cwr) {
            let lost = self.snd.board.losses > acked.losses_before;
            self.reduce_proportionally(acked.delivered, lost, acked.advanced);
        } else if acked.segments > 0 || (acked.sacked && self.snd.reordering > 3) {
            self.grow(env, acked.delivered, in_flight_before);
        }
        if resend {
            self.resend_lost(env);
        }
    }

    fn grow(&mut self, env: &Env, segments: u32, in_flight_before: u32) {
        let limited = if self.window.in_slow_start() {
            self.snd.cwnd_limited || self.window.cwnd() < 2 * self.snd.most_out.max(in_flight_before)
        } else {
            self.snd.cwnd_limited
        };
        if limited && segments > 0 && self.snd.una >= self.snd.lowered_end {
            let sent = self.snd.nxt - self.snd.start;
            self.control.acked(&mut self.window, segments, env.now.us(), &self.rtt, sent);
        }
    }

    /// Restarts the RTO, or a probe's timeout.
    fn arm_after_ack(&mut self, env: &Env) {
        if !self.schedule_probe(env, true) {
            self.rearm_rto(env);
        }
    }

    /// SRTT as a duration.
    pub(super) fn srtt(&self) -> Duration {
        Duration::from_us(u64::from(self.rtt.srtt_us()))
    }
}
