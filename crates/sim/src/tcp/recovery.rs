//! Linux's states of congestion, and how the window is reduced.

use super::config::Generation;
use super::sender::{Acked, FRto, State};
use super::{Connection, Env, Note};

impl Connection {
    /// Handles an ACK that is more than routine. Returns true if lost segments may be sent again.
    pub(super) fn alert(&mut self, env: &mut Env, acked: &mut Acked) -> bool {
        if acked.ece {
            self.snd.prior_ssthresh = 0;
        }
        let duplicate = acked.duplicate();
        if self.state == State::Open {
            self.snd.retransmit_stamp = None;
        } else if self.snd.una >= self.snd.high && self.leave_state(env, acked) {
            return false;
        }
        match self.state {
            State::Recovery => {
                if !acked.advanced {
                    self.count_duplicate(duplicate);
                } else {
                    if !self.sack {
                        self.forget_duplicates(acked.segments);
                    }
                    if self.undo_partial(env, acked) {
                        return true;
                    }
                }
                if self.undo_dsack(env) {
                    self.try_to_open(env, acked);
                }
                self.find_losses(env, acked);
                if self.state != State::Recovery {
                    if self.snd.board.lost == 0 {
                        return false;
                    }
                    self.enter_recovery(env, acked.ece);
                }
            }
            State::Loss => {
                let resend = self.in_loss(env, acked, duplicate);
                self.find_losses(env, acked);
                if self.state != State::Open && !acked.lost_again {
                    return resend;
                }
                if !self.recover_or_open(env, acked) {
                    return resend;
                }
            }
            State::Open | State::Disorder | State::Cwr => {
                if !self.sack && acked.advanced {
                    self.snd.board.sacked = 0;
                }
                self.count_duplicate(duplicate);
                if self.state <= State::Disorder {
                    self.undo_dsack(env);
                }
                self.find_losses(env, acked);
                if !self.recover_or_open(env, acked) {
                    if env.config.generation == Generation::Paper && self.state == State::Cwr {
                        self.halve_rate(acked);
                    }
                    return false;
                }
            }
        }
        if env.config.generation == Generation::Paper && self.state == State::Recovery {
            self.halve_rate(acked);
        }
        true
    }

    /// All that was out when the state was entered is acknowledged. Returns true if the state stays for now.
    fn leave_state(&mut self, env: &mut Env, acked: &Acked) -> bool {
        let beyond = self.snd.una != self.snd.high;
        match self.state {
            State::Cwr if beyond => {
                self.end_reduction();
                self.state = State::Open;
            }
            State::Recovery => {
                if !self.sack {
                    self.snd.board.sacked = 0;
                }
                if self.undo_recovery(env, acked) {
                    return true;
                }
                self.end_reduction();
            }
            State::Disorder if env.config.generation == Generation::Paper && self.snd.f_rto == FRto::Off => {
                self.undo_dsack(env);
                if self.snd.undo_marker.is_none() || !self.sack || beyond {
                    self.snd.undo_marker = None;
                    self.state = State::Open;
                }
            }
            State::Open | State::Disorder | State::Cwr | State::Loss => {}
        }
        false
    }

    fn count_duplicate(&mut self, duplicate: bool) {
        if !self.sack && duplicate {
            let board = &mut self.snd.board;
            board.sacked = (board.sacked + 1).min(board.out().saturating_sub(board.lost.max(1)));
        }
    }

    /// Without SACK, an ACK accounts for the duplicate ACKs before it, except for the segment that was sent again.
    fn forget_duplicates(&mut self, segments: u32) {
        let board = &mut self.snd.board;
        board.sacked = board.sacked.saturating_sub(segments.saturating_sub(1));
        board.sacked = board.sacked.min(board.out().saturating_sub(board.lost));
    }

    fn recover_or_open(&mut self, env: &mut Env, acked: &Acked) -> bool {
        if self.snd.f_rto != FRto::Off || self.snd.board.lost == 0 || self.state == State::Loss {
            if self.state != State::Loss {
                self.try_to_open(env, acked);
            }
            return false;
        }
        self.enter_recovery(env, acked.ece);
        true
    }

    pub(super) fn enter_recovery(&mut self, env: &mut Env, ece: bool) {
        self.init_undo();
        self.snd.prior_ssthresh = 0;
        if self.state < State::Cwr {
            if !ece {
                self.snd.prior_ssthresh = self.current_ssthresh();
            }
            self.begin_reduction(true);
        } else {
            self.snd.high = self.snd.nxt;
        }
        self.state = State::Recovery;
        self.stats.fast_recoveries += 1;
        env.notes.push(Note::FastRecovery);
    }

    /// `tcp_current_ssthresh`: the threshold that a restart would take.
    pub(super) fn current_ssthresh(&self) -> u32 {
        let (cwnd, ssthresh) = (self.window.cwnd(), self.window.ssthresh());
        if matches!(self.state, State::Cwr | State::Recovery) { ssthresh } else { ssthresh.max(cwnd / 2 + cwnd / 4) }
    }

    fn begin_reduction(&mut self, loss: bool) {
        let cwnd = self.window.cwnd();
        let sent = self.snd.nxt - self.snd.start;
        self.snd.high = self.snd.nxt;
        self.snd.probe_end = None;
        self.snd.prior_cwnd = cwnd;
        self.snd.prr_delivered = 0;
        self.snd.prr_out = 0;
        let ssthresh = self.control.ssthresh(cwnd, loss, sent);
        self.window.set_ssthresh(ssthresh);
        self.window.set_credit(0);
        self.snd.send_cwr = self.ecn;
    }

    /// A tail-loss probe filled a hole: that counts as a loss, and the window is reduced at once.
    pub(super) fn repaired_by_probe(&mut self, env: &Env) {
        self.begin_reduction(true);
        self.state = State::Cwr;
        self.end_reduction();
        self.keep_open(env);
        self.stats.loss_probe_recoveries += 1;
    }

    fn end_reduction(&mut self) {
        let ssthresh = self.window.ssthresh();
        if ssthresh < u32::MAX && (self.state == State::Cwr || self.snd.undo_marker.is_some()) {
            self.window.set_cwnd(ssthresh);
        }
    }

    /// Reduces the window because marks show congestion.
    fn enter_cwr(&mut self, env: &mut Env) {
        self.snd.prior_ssthresh = 0;
        if self.state >= State::Cwr {
            return;
        }
        self.snd.undo_marker = None;
        self.begin_reduction(false);
        if env.config.generation == Generation::Paper {
            let most = self.snd.board.in_flight() + 1;
            self.window.set_cwnd(self.window.cwnd().min(most));
        }
        self.state = State::Cwr;
        self.stats.ecn_reductions += 1;
        env.notes.push(Note::Marked);
    }

    pub(super) fn try_to_open(&mut self, env: &mut Env, acked: &Acked) {
        if self.snd.board.retransmitted == 0 {
            self.snd.retransmit_stamp = None;
        }
        if acked.ece {
            self.enter_cwr(env);
        }
        if self.state != State::Cwr {
            self.keep_open(env);
            if env.config.generation == Generation::Paper && self.snd.f_rto == FRto::Off {
                self.moderate();
            }
        }
    }

    pub(super) fn keep_open(&mut self, env: &Env) {
        let board = &self.snd.board;
        let waits_for_dsacks = env.config.generation == Generation::Paper && self.snd.undo_marker.is_some();
        let unsettled = board.sacked + board.lost + board.retransmitted > 0 || waits_for_dsacks;
        let state = if unsettled { State::Disorder } else { State::Open };
        if self.state != state {
            self.state = state;
            self.snd.high = self.snd.nxt;
        }
    }

    /// Limits bursts to three segments (2.6.32).
    pub(super) fn moderate(&mut self) {
        let most = self.snd.board.in_flight() + 3;
        self.window.set_cwnd(self.window.cwnd().min(most));
    }

    /// Proportional rate reduction (RFC 6937, with Linux's slow-start part).
    pub(super) fn reduce_proportionally(&mut self, delivered: u32, lost: bool, advanced: bool) {
        if delivered == 0 || self.snd.prior_cwnd == 0 {
            return;
        }
        self.snd.prr_delivered += delivered;
        let in_flight = self.snd.board.in_flight();
        let (ssthresh, done, out) = (self.window.ssthresh(), self.snd.prr_delivered, self.snd.prr_out);
        let mut send = if in_flight > ssthresh {
            let share = (u64::from(ssthresh) * u64::from(done)).div_ceil(u64::from(self.snd.prior_cwnd));
            share.saturating_sub(u64::from(out)).min(u64::from(u32::MAX)) as u32
        } else {
            let step = done.saturating_sub(out).max(delivered) + u32::from(advanced && !lost);
            step.min(ssthresh - in_flight)
        };
        send = send.max(u32::from(out == 0));
        self.window.set_cwnd(in_flight.saturating_add(send));
    }

    /// 2.6.32: one segment less for every second ACK, down to the threshold.
    fn halve_rate(&mut self, acked: &Acked) {
        let progress = acked.advanced || acked.sacked || acked.dsack || (!self.sack && acked.duplicate());
        if !progress {
            return;
        }
        let credit = self.window.credit() + 1;
        self.window.set_credit(credit & 1);
        let mut cwnd = self.window.cwnd();
        if cwnd > self.window.ssthresh() {
            cwnd -= credit >> 1;
        }
        self.window.set_cwnd(cwnd.min(self.snd.board.in_flight() + 1));
    }

    /// Handles an ACK in the Loss state, with current Linux's F-RTO (RFC 5682). Returns true if lost segments may be
    /// sent again.
    fn in_loss(&mut self, env: &mut Env, acked: &Acked, duplicate: bool) -> bool {
        let recovered = self.snd.una >= self.snd.high;
        if acked.advanced && self.undo_loss(env, acked, false) {
            return false;
        }
        if self.snd.f_rto_in_loss {
            if acked.original && self.undo_loss(env, acked, true) {
                return false;
            }
            if self.snd.nxt > self.snd.high {
                if acked.sacked || duplicate {
                    self.snd.f_rto_in_loss = false;
                }
            } else if acked.advanced && !recovered {
                self.snd.high = self.snd.nxt;
                if self.can_send_new() {
                    self.snd.f_rto_new = true;
                    return false;
                }
                self.snd.f_rto_in_loss = false;
            }
        }
        if recovered {
            self.undo_recovery(env, acked);
            return false;
        }
        if !self.sack {
            if acked.advanced {
                self.snd.board.sacked = 0;
            } else if self.snd.nxt > self.snd.high {
                self.count_duplicate(duplicate);
            }
        }
        true
    }

    /// Enters the Loss state after a timeout; outstanding segments count as lost.
    pub(super) fn enter_loss(&mut self, env: &mut Env) {
        let new_recovery = self.state < State::Recovery;
        self.mark_all_lost(env);
        if self.state <= State::Disorder
            || self.snd.una >= self.snd.high
            || (self.state == State::Loss && self.snd.timeouts == 0)
        {
            self.snd.prior_ssthresh = self.current_ssthresh();
            self.snd.prior_cwnd = self.window.cwnd();
            let sent = self.snd.nxt - self.snd.start;
            let ssthresh = self.control.ssthresh(self.window.cwnd(), true, sent);
            self.window.set_ssthresh(ssthresh);
            self.control.timed_out();
            self.init_undo();
        }
        self.window.set_cwnd(self.snd.board.in_flight() + 1);
        self.window.set_credit(0);
        self.snd.reordering = self.snd.reordering.min(3);
        self.state = State::Loss;
        self.snd.high = self.snd.nxt;
        self.snd.send_cwr = self.ecn;
        let current = env.config.generation == Generation::Current;
        self.snd.f_rto_in_loss = env.config.f_rto && current && (new_recovery || self.snd.timeouts > 0);
    }
}
