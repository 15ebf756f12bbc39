//! What happens when timers run out: retransmissions and probes.

use super::config::Generation;
use super::sender::{Acked, State};
use super::{Connection, Env, Note, Phase, TimerKind};

impl Connection {
    pub(super) fn retransmit_timer(&mut self, env: &mut Env) {
        let Some((kind, _)) = self.timer.take() else { return };
        match (self.phase, kind) {
            (Phase::SynSent | Phase::SynReceived, _) => {
                self.stats.timeouts += 1;
                self.rtt.back_off(env.config);
                env.notes.push(Note::Timeout { times: self.rtt.backoff });
                self.send_syn(env, true);
            }
            (_, TimerKind::Persist) => {
                if self.snd.nxt < self.snd.end && self.snd.board.queue.is_empty() {
                    self.probe_window(env);
                }
            }
            (_, TimerKind::Tlp) => self.probe_tail(env),
            (_, TimerKind::Reo) => self.reordering_over(env),
            (_, TimerKind::Rto | TimerKind::DelayedAck) => self.timed_out(env),
        }
    }

    fn timed_out(&mut self, env: &mut Env) {
        if self.snd.board.queue.is_empty() {
            return;
        }
        self.stats.timeouts += 1;
        self.snd.probe_end = None;
        if env.config.f_rto && env.config.generation == Generation::Paper && self.may_use_f_rto() {
            self.enter_f_rto();
        } else {
            self.enter_loss(env);
        }
        self.resend(env, 0);
        self.snd.timeouts = self.snd.timeouts.saturating_add(1);
        self.rtt.back_off(env.config);
        env.notes.push(Note::Timeout { times: self.snd.timeouts });
        self.timer = Some((TimerKind::Rto, env.now + self.rtt.rto));
    }

    /// Sets the timer of a tail-loss probe (RFC 8985 §7); false if there is to be none.
    pub(super) fn schedule_probe(&mut self, env: &Env, rto_restarts: bool) -> bool {
        let config = env.config;
        let suited = matches!(self.state, State::Open | State::Cwr) && self.sack && config.tail_loss_probe;
        if !suited || self.snd.board.queue.is_empty() {
            return false;
        }
        let mut wait = config.rto_initial;
        if self.rtt.srtt_us() > 0 {
            let slack = if self.snd.board.out() == 1 { config.rto_min } else { config.timeout_min() };
            wait = config.in_jiffies(self.srtt() * 2 + slack);
        }
        let rto_at = match self.snd.board.queue.front() {
            Some(head) if !rto_restarts => head.at + self.rtt.rto,
            _ => env.now + self.rtt.rto,
        };
        let mut at = env.now + wait;
        if rto_at > env.now {
            at = at.min(rto_at);
        }
        self.timer = Some((TimerKind::Tlp, at));
        true
    }

    fn probe_tail(&mut self, env: &mut Env) {
        if self.snd.board.queue.is_empty() {
            return;
        }
        if self.snd.probe_end.is_none() {
            self.send_probe(env);
            self.snd.probe_end = Some(self.snd.nxt);
            self.stats.loss_probes += 1;
            env.notes.push(Note::LossProbe);
            self.timer = None;
        } else {
            self.timer = Some((TimerKind::Tlp, env.now));
        }
        self.rearm_rto(env);
    }

    fn send_probe(&mut self, env: &mut Env) {
        self.snd.probe_repeated = false;
        let new = self.snd.end.saturating_sub(self.snd.nxt).min(u64::from(self.mss)) as u32;
        if new > 0 && self.snd.nxt + u64::from(new) <= self.snd.edge {
            self.send_new(env, new);
        } else {
            self.resend(env, self.snd.board.queue.len() - 1);
            self.snd.probe_repeated = true;
        }
    }

    /// Judges the probe by an ACK: if the probe filled a hole, there was a loss.
    pub(super) fn judge_probe(&mut self, env: &Env, acked: &Acked) {
        let Some(end) = self.snd.probe_end else { return };
        let una = self.snd.una.max(acked.una_before);
        if una < end {
            return;
        }
        if !self.snd.probe_repeated || acked.dsack_of_probe {
            self.snd.probe_end = None;
        } else if una > end {
            self.repaired_by_probe(env);
        } else if !acked.advanced && !acked.not_dup() && !acked.sacked {
            self.snd.probe_end = None;
        }
    }
}
