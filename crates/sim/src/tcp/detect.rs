//! How losses are found: by RACK's clock, by counting, by a timeout.

use super::config::Generation;
use super::scoreboard::{EVER, Fate, LOST, RETRANSMITTED, SACKED};
use super::sender::{Acked, State};
use super::{Connection, Env, TimerKind};
use crate::time::Duration;

impl Connection {
    /// Marks segments as lost by RACK or by three duplicate ACKs.
    pub(super) fn find_losses(&mut self, env: &mut Env, acked: &mut Acked) {
        if self.snd.board.queue.is_empty() {
            return;
        }
        if !self.sack {
            let enough = self.state < State::Recovery && self.snd.board.sacked >= self.snd.reordering;
            if enough || (self.state == State::Recovery && acked.advanced) {
                self.snd.board.mark_lost(0);
                let board = &mut self.snd.board;
                board.sacked = board.sacked.min(board.out().saturating_sub(board.lost));
            }
        } else if env.config.rack {
            let before = self.snd.board.retransmitted;
            if self.snd.rack.advanced {
                self.snd.rack.advanced = false;
                if let Some(wait) = self.rack_losses(env) {
                    let at = env.now + env.config.in_jiffies(wait + env.config.timeout_min()).min(self.rtt.rto);
                    self.timer = Some((TimerKind::Reo, at));
                }
            }
            acked.lost_again |= self.snd.board.retransmitted < before;
        } else {
            self.mark_by_count(env.config.generation == Generation::Paper && !self.snd.reordered);
        }
    }

    /// Marks a segment as lost that has three SACKed segments above it, or with FACK three of any kind up to the
    /// highest SACKed.
    fn mark_by_count(&mut self, fack: bool) {
        let threshold = self.snd.reordering;
        let board = &mut self.snd.board;
        if board.sacked == 0 || (!fack && board.sacked < threshold) {
            return;
        }
        let beyond = board.index_of(board.highest_sacked);
        let mut seen = 0;
        let end = (0..beyond).rev().find(|&index| {
            seen += u32::from(fack || board.queue[index].has(SACKED));
            seen == threshold
        });
        let Some(end) = end else { return };
        // With FACK, the third segment from the top is itself above the lost ones.
        let end_seq = board.queue[end].seq;
        for index in board.index_of(board.marked_to)..end {
            if !board.queue[index].has(LOST | SACKED) {
                board.mark_lost(index);
            }
        }
        board.marked_to = board.marked_to.max(end_seq);
    }

    fn reordering_window_us(&self) -> u32 {
        let board = &self.snd.board;
        if !self.snd.reordered && (self.state >= State::Recovery || board.sacked >= self.snd.reordering) {
            return 0;
        }
        (self.rtt.min_us / 4).min(self.rtt.srtt_us())
    }

    /// Marks segments that were sent long enough before one that arrived. Returns how long to wait for the rest.
    pub(super) fn rack_losses(&mut self, env: &Env) -> Option<Duration> {
        let allowed = u64::from(self.snd.rack.rtt_us) + u64::from(self.reordering_window_us());
        let newest = (self.snd.rack.at, self.snd.rack.end);
        let mut wait = None;
        self.snd.board.judge(|sent| {
            if (sent.at, sent.end()) >= newest {
                return if sent.has(EVER) && sent.at == newest.0 { Fate::Open } else { Fate::AllOpen };
            }
            let age = env.now.since(sent.at).us();
            if age >= allowed {
                return Fate::Lost;
            }
            wait = wait.max(Some(Duration::from_us(allowed - age)));
            Fate::Open
        });
        wait
    }

    /// RACK's reordering timer has run out.
    pub(super) fn reordering_over(&mut self, env: &mut Env) {
        let before = self.snd.board.in_flight();
        self.rack_losses(env);
        if self.snd.board.in_flight() != before {
            if self.state != State::Recovery && self.state != State::Loss {
                self.enter_recovery(env, false);
                self.reduce_proportionally(1, true, false);
            }
            self.resend_lost(env);
        }
        if !matches!(self.timer, Some((TimerKind::Rto, _))) {
            self.rearm_rto(env);
        }
    }

    pub(super) fn mark_all_lost(&mut self, env: &Env) {
        let recent = env.config.rack && self.sack;
        let board = &mut self.snd.board;
        if board.queue.front().is_some_and(|head| head.has(SACKED)) {
            // The receiver has reneged (RFC 2018 §8).
            for sent in &mut board.queue {
                sent.flags &= !SACKED;
            }
            board.sacked = 0;
            board.highest_sacked = 0;
            self.snd.known = Default::default();
        }
        if !self.sack {
            board.sacked = 0;
        }
        for (index, sent) in board.queue.iter_mut().enumerate() {
            if sent.has(SACKED) {
                continue;
            }
            let age = env.now.since(sent.at).us();
            if recent && index > 0 && age < u64::from(self.snd.rack.rtt_us) {
                continue;
            }
            board.retransmitted -= u32::from(sent.has(RETRANSMITTED));
            board.lost += u32::from(!sent.has(LOST));
            board.losses += 1;
            sent.flags = (sent.flags & EVER) | LOST;
        }
        board.forget_hints();
    }
}
