//! Takes back reductions of the window that proved needless.

use super::config::{Generation, SpuriousResponse};
use super::sender::{Acked, State};
use super::{Connection, Env, Note, UndoKind, UndoOf};

impl Connection {
    pub(super) fn init_undo(&mut self) {
        self.snd.undo_marker = Some(self.snd.una);
        let out = self.snd.board.retransmitted;
        self.snd.undo_retransmitted = if out == 0 { -1 } else { out as i32 };
    }

    /// The evidence, if any, that the reduction was needless.
    fn may_undo(&self, env: &Env, acked: &Acked) -> Option<UndoKind> {
        self.snd.undo_marker?;
        if self.snd.undo_retransmitted == 0 {
            return Some(UndoKind::Dsack);
        }
        self.eifel(env, acked).then_some(UndoKind::Eifel)
    }

    /// Whether the ACK was sent for a segment from before the first retransmission.
    fn eifel(&self, env: &Env, acked: &Acked) -> bool {
        let echoed = acked.ts_ecr;
        env.config.eifel
            && echoed != 0
            && self.snd.retransmit_stamp.is_some_and(|stamp| (echoed.wrapping_sub(stamp) as i32) < 0)
    }

    fn undo(&mut self, env: &mut Env, kind: UndoKind, of: UndoOf, unmark: bool) {
        if unmark {
            self.snd.board.unmark_losses();
        }
        if self.snd.prior_ssthresh > 0 {
            let halve = kind == UndoKind::FRto && env.config.spurious_response == SpuriousResponse::RateHalving;
            if halve {
                self.window.set_cwnd(self.window.ssthresh());
            } else {
                self.window.set_cwnd(self.window.cwnd().max(self.snd.prior_cwnd));
                self.window.set_ssthresh(self.window.ssthresh().max(self.snd.prior_ssthresh));
                self.snd.send_cwr = false;
            }
            if env.config.generation == Generation::Paper {
                self.moderate();
            }
            if !halve {
                self.stats.undone[of] += 1;
                env.notes.push(Note::Undone(kind));
            }
        }
        self.snd.cwnd_stamp = env.now;
        self.snd.undo_marker = None;
        self.snd.rack.advanced = true;
    }

    /// All that was out at the reduction is acknowledged. Returns true if the state stays until more is.
    pub(super) fn undo_recovery(&mut self, env: &mut Env, acked: &Acked) -> bool {
        if let Some(kind) = self.may_undo(env, acked) {
            let of = if self.state == State::Loss { UndoOf::Loss } else { UndoOf::Full };
            self.undo(env, kind, of, false);
        }
        if self.snd.una == self.snd.high && !self.sack && !self.snd.board.queue.is_empty() {
            return true;
        }
        self.state = State::Open;
        self.snd.f_rto_in_loss = false;
        if self.snd.board.sacked + self.snd.board.lost > 0 {
            self.snd.board.unmark_losses();
        }
        false
    }

    pub(super) fn undo_dsack(&mut self, env: &mut Env) -> bool {
        if self.snd.undo_marker.is_none() || self.snd.undo_retransmitted != 0 {
            return false;
        }
        self.undo(env, UndoKind::Dsack, UndoOf::Dsack, false);
        true
    }

    pub(super) fn undo_partial(&mut self, env: &mut Env, acked: &Acked) -> bool {
        if self.snd.undo_marker.is_none() || !self.eifel(env, acked) {
            return false;
        }
        if self.snd.board.retransmitted > 0 {
            return true;
        }
        self.undo(env, UndoKind::Eifel, UndoOf::Partial, true);
        self.keep_open(env);
        true
    }

    pub(super) fn undo_loss(&mut self, env: &mut Env, acked: &Acked, by_f_rto: bool) -> bool {
        let kind = if by_f_rto { Some(UndoKind::FRto) } else { self.may_undo(env, acked) };
        let Some(kind) = kind else { return false };
        if by_f_rto {
            self.stats.spurious_rtos += 1;
            env.notes.push(Note::SpuriousTimeout);
        }
        self.undo(env, kind, UndoOf::Loss, true);
        self.snd.timeouts = 0;
        self.snd.f_rto_in_loss = false;
        if by_f_rto || self.sack {
            self.state = State::Open;
        }
        true
    }
}
