//! What waits for a timer: unanswered SYNs, to be sent again, and SYN-ACKs whose probes are not in.

use evenkeel_algo::proboscis::{Pending, Resend};

use super::{Proboscis, SentTrain};
use crate::host::shim::{Effects, Verdict};
use crate::packet::{ConnId, Packet};
use crate::time::{Duration, Instant};

/// How often a held SYN-ACK's probes are checked.
pub(super) const HELD_POLL: Duration = Duration::from_us(evenkeel_algo::proboscis::HELD_POLL_US);

/// A SYN without an answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub syn: Packet,
    pub pending: Pending,
}

/// A SYN-ACK that waits for late probes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub synack: Packet,
    pub look_at: Instant,
    pub until: Instant,
}

impl Proboscis {
    /// Has [`look_at_timed`](Self::look_at_timed) check a flow at `at`.
    pub(super) fn time(&mut self, end: ConnId, at: Instant, effects: &mut Effects) {
        if !self.timed.contains(&end) {
            self.timed.push(end);
        }
        effects.wake(at);
    }

    /// Sends again what is due of an unanswered SYN. Returns when to check again.
    fn expire(&mut self, now: Instant, end: ConnId, effects: &mut Effects) -> Option<Instant> {
        let (timers, from, ahead_of) = (self.spec.timers, self.guest, self.ahead_of_syn());
        let flow = self.flows.get_mut(&end.index).filter(|flow| flow.generation == end.generation)?;
        let waiting = flow.waiting.as_mut()?;
        let due = |pending: &Pending| Some(Instant::START + Duration::from_us(pending.due_us(&timers)));
        if due(&waiting.pending).is_some_and(|at| at > now) {
            return due(&waiting.pending);
        }
        let (probes, syn) = match waiting.pending.expire(&timers, now.us()) {
            Resend::Wait => (0, false),
            Resend::Probes(probes) => (probes, false),
            Resend::Both(probes) => (probes, true),
            Resend::GiveUp => {
                flow.waiting = None;
                return None;
            }
        };
        let probes = self.trains.length(&timers, now.us() * 1000, probes).min(u32::from(u8::MAX)) as u8;
        let train = flow.trains;
        effects.to_network.extend(SentTrain { from, ahead_of, number: train, total: probes }.ahead_of(&waiting.syn));
        flow.trains = train.saturating_add(u8::from(probes > 0));
        let next = due(&waiting.pending);
        if syn {
            effects.to_network.push(waiting.syn);
        }
        self.probes_sent += u64::from(probes);
        self.syns_repeated += u64::from(syn);
        next
    }

    /// Lets a held SYN-ACK go if its probes are in or its time is over. Returns when to check again.
    fn look_at_held(&mut self, now: Instant, end: ConnId, effects: &mut Effects) -> Option<Instant> {
        let window = self.spec.window;
        let flow = self.flows.get_mut(&end.index).filter(|flow| flow.generation == end.generation)?;
        let held = flow.held.as_mut()?;
        if held.look_at > now {
            return Some(held.look_at);
        }
        if held.until > now && flow.train.synack_waits(&window, 0) {
            held.look_at = (now + HELD_POLL).min(held.until);
            return Some(held.look_at);
        }
        let mut synack = flow.held.take()?.synack;
        if self.synack_from_vm(now, end, &mut synack, effects) == Verdict::Pass {
            self.handshake_from_vm(end, &mut synack, true);
            effects.to_network.push(synack);
        }
        None
    }

    /// Does what is due.
    pub(super) fn look_at_timed(&mut self, now: Instant, effects: &mut Effects) {
        let mut timed = std::mem::take(&mut self.timed);
        timed.retain(|&end| {
            let next = self.look_at_held(now, end, effects);
            let again = self.expire(now, end, effects);
            let next = [next, again].into_iter().flatten().min();
            if let Some(at) = next {
                effects.wake(at);
            }
            next.is_some()
        });
        // Flows that began to wait meanwhile are in the new list.
        timed.append(&mut self.timed);
        self.timed = timed;
    }
}
