//! F-RTO as Linux 2.6.32 did it (RFC 4138): the head is sent again, and two ACKs decide before anything else is done.

use super::config::SpuriousResponse;
use super::scoreboard::{EVER, LOST, RETRANSMITTED, SACKED};
use super::sender::{Acked, FRto, State};
use super::{Connection, Env, Note, UndoKind, UndoOf};

impl Connection {
    /// Whether F-RTO may answer a timeout: without SACK, only if nothing but the head was sent again.
    pub(super) fn may_use_f_rto(&self) -> bool {
        self.sack || !self.snd.board.queue.iter().skip(1).any(|sent| sent.has(EVER))
    }

    /// A timeout: no segment counts as lost yet.
    pub(super) fn enter_f_rto(&mut self) {
        let new = (self.snd.f_rto == FRto::Off && self.state <= State::Disorder)
            || self.snd.una == self.snd.high
            || ((self.state == State::Loss || self.snd.f_rto != FRto::Off) && self.snd.timeouts == 0);
        if new {
            self.snd.prior_ssthresh = self.current_ssthresh();
            self.snd.prior_cwnd = self.window.cwnd();
            let cwnd = if self.snd.f_rto == FRto::Off { self.window.cwnd() } else { 2 };
            let sent = self.snd.nxt - self.snd.start;
            let ssthresh = self.control.ssthresh(cwnd, true, sent);
            self.window.set_ssthresh(ssthresh);
        }
        self.snd.undo_marker = Some(self.snd.una);
        self.snd.undo_retransmitted = 0;
        if let Some(head) = self.snd.board.queue.front_mut() {
            if head.has(EVER) {
                self.snd.undo_marker = None;
            }
            self.snd.board.retransmitted -= u32::from(head.has(RETRANSMITTED));
            head.flags &= !RETRANSMITTED;
        }
        let most = self.snd.board.in_flight() + 1;
        self.window.set_cwnd(self.window.cwnd().min(most));
        let earlier = self.snd.f_rto != FRto::Off || self.state >= State::Recovery;
        let keep = self.sack && earlier && self.snd.high > self.snd.una;
        self.snd.f_rto_mark = if keep { self.snd.high } else { self.snd.nxt };
        self.state = State::Disorder;
        self.snd.high = self.snd.nxt;
        self.snd.f_rto = FRto::First;
    }

    /// The timeout was real: goes on as after any timeout, with `allowed` more segments in flight.
    fn f_rto_failed(&mut self, allowed: u32, mut counted: bool) {
        let first = self.snd.f_rto == FRto::First;
        let board = &mut self.snd.board;
        board.lost = 0;
        board.retransmitted = 0;
        if !self.sack {
            board.sacked = 0;
        }
        for sent in &mut board.queue {
            sent.flags &= !LOST;
            if first && !counted {
                // The retransmitted head is in flight, as long as no ACK has come for it.
                board.retransmitted += u32::from(sent.has(RETRANSMITTED));
                counted = true;
            } else {
                if sent.has(EVER) {
                    self.snd.undo_marker = None;
                }
                sent.flags &= !RETRANSMITTED;
            }
            if !sent.has(SACKED) {
                sent.flags |= LOST;
                board.lost += 1;
                board.losses += 1;
            }
        }
        board.forget_hints();
        self.window.set_cwnd(self.snd.board.in_flight() + allowed);
        self.window.set_credit(0);
        self.control.timed_out();
        self.snd.f_rto = FRto::Off;
        self.snd.reordering = self.snd.reordering.min(3);
        self.state = State::Loss;
        self.snd.high = self.snd.nxt;
        self.snd.send_cwr = self.ecn;
    }

    /// An ACK after the timeout. Returns true if the window must not grow by it.
    pub(super) fn process_f_rto(&mut self, env: &mut Env, acked: &Acked) -> bool {
        let first = self.snd.f_rto == FRto::First;
        let data = acked.segments > 0;
        if acked.repeated_beyond_head || (!first && acked.repeated) {
            self.snd.undo_marker = None;
        }
        if self.snd.una >= self.snd.f_rto_mark {
            self.f_rto_failed(if first { 2 } else { 3 }, data);
            return true;
        }
        if !self.sack {
            if !acked.forward() && acked.not_dup() {
                return true;
            }
            if !data {
                self.f_rto_failed(if first { 0 } else { 3 }, data);
                return true;
            }
        } else {
            if !data && first {
                let most = self.snd.board.in_flight();
                self.window.set_cwnd(self.window.cwnd().min(most));
                return true;
            }
            if !first && (!acked.forward() || (acked.sacked && acked.sacked_new)) {
                if acked.forward() || !acked.not_dup() {
                    self.f_rto_failed(3, data);
                }
                return true;
            }
        }
        if first {
            let cwnd = self.snd.board.in_flight() + 2;
            self.window.set_cwnd(cwnd);
            self.snd.f_rto = FRto::Second;
            if !self.can_send_new() {
                self.f_rto_failed(2, data);
            }
            return true;
        }
        self.f_rto_spurious(env);
        false
    }

    fn f_rto_spurious(&mut self, env: &mut Env) {
        self.stats.spurious_rtos += 1;
        env.notes.push(Note::SpuriousTimeout);
        if env.config.spurious_response == SpuriousResponse::Undo && self.snd.prior_ssthresh > 0 {
            self.window.set_cwnd(self.window.cwnd().max(self.snd.prior_cwnd));
            self.window.set_ssthresh(self.window.ssthresh().max(self.snd.prior_ssthresh));
            self.stats.undone[UndoOf::Loss] += 1;
            env.notes.push(Note::Undone(UndoKind::FRto));
        } else {
            self.window.set_cwnd(self.window.cwnd().min(self.window.ssthresh()));
            self.window.set_credit(0);
            self.snd.send_cwr = self.ecn;
        }
        let most = self.snd.board.in_flight() + 3;
        self.window.set_cwnd(self.window.cwnd().min(most));
        self.snd.f_rto = FRto::Off;
        self.snd.undo_marker = None;
    }
}
