//! What is sent again, and what waits: the timers of ProBoSCIS as a machine that knows no clock and sends nothing.
//!
//! Events of the datapath and the time go in, orders to send come out. The decisions are
//! `algo/proboscis/proboscis.h`'s: probes of an unanswered SYN again after b1, the SYN after b2, up to MAX_TIME
//! (ProBoSCIS Algorithm 1, lines 22 to 37); a held SYN-ACK when its probes are in, or after b3 (ProBoSCIS Algorithm 2,
//! lines 23 to 30). Times are microseconds of one clock.

use std::collections::{BTreeMap, HashMap};

use evenkeel_algo::proboscis::{HELD_POLL_US, Pending, Resend as Verdict, Settings};

use crate::datapath::intf::{self, ek_event, ek_flow_key};

/// SYNs and SYN-ACKs that are handled at once: a flood of them must not use up the memory.
pub const MAX_WAITING: usize = 16_384;

/// What the machine asks about when a timer is due.
pub trait Facts {
    /// Settings of the port, if it is still one and ProBoSCIS acts on it.
    fn settings(&self, ifindex: u32) -> Option<Settings>;
    /// How many trains of probes went before this SYN, if it is still unanswered.
    fn trains_sent(&self, flow: &ek_flow_key, iss: u32) -> Option<u8>;
    /// Whether all probes of the train before this SYN have come.
    fn is_train_complete(&self, flow: &ek_flow_key, iss: u32) -> bool;
}

/// An order to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Send {
    /// Probes of a SYN, and the SYN behind them.
    Syn {
        /// The SYN, as the datapath gave it.
        event: Box<ek_event>,
        /// How many probes.
        probes: u32,
        /// Number of their train.
        train: u8,
        /// Whether the SYN follows, too.
        with_syn: bool,
    },
    /// A SYN-ACK that was held.
    SynAck {
        /// The SYN-ACK, as the datapath gave it.
        event: Box<ek_event>,
    },
}

/// How often the machine did what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that probes were sent again.
    pub probes_resent: u64,
    /// SYNs that were sent again.
    pub syns_resent: u64,
    /// SYNs that nobody had answered after MAX_TIME.
    pub syns_given_up: u64,
    /// SYN-ACKs let go because their probes were in.
    pub synacks_in_time: u64,
    /// SYN-ACKs let go although probes were missing.
    pub synacks_late: u64,
    /// SYNs not cared for because there were too many.
    pub overflows: u64,
}

#[derive(Debug)]
enum Waiting {
    Syn { event: Box<ek_event>, pending: Pending },
    SynAck { event: Box<ek_event>, since_us: u64 },
}

impl Waiting {
    fn event(&self) -> &ek_event {
        match self {
            Self::Syn { event, .. } | Self::SynAck { event, .. } => event,
        }
    }
}

/// Whose timer it is: a flow has one SYN or SYN-ACK at a time.
type Id = (ek_flow_key, u32);

/// When a timer is due, and a number that makes the key unique.
type When = (u64, u64);

/// The timers.
#[derive(Debug, Default)]
pub struct Resend {
    waiting: HashMap<Id, (When, Waiting)>,
    due: BTreeMap<When, Id>,
    next: u64,
    counts: Counts,
}

impl Resend {
    /// An event of the datapath.
    pub fn event(&mut self, event: Box<ek_event>, now_us: u64, facts: &impl Facts) -> Option<Send> {
        let id = (event.flow, event.iss);
        self.remove(&id);
        let settings = facts.settings(event.flow.ifindex);
        let is_full = self.waiting.len() >= MAX_WAITING;
        match event.type_ {
            intf::EK_EVENT_SYN_PROBED | intf::EK_EVENT_SYN_STRANGER => {
                let settings = settings?;
                if is_full {
                    self.counts.overflows += 1;
                    return None;
                }
                let pending = Pending::new(now_us, event.type_ == intf::EK_EVENT_SYN_STRANGER);
                let due_us = pending.due_us(&settings);
                self.insert(id, due_us, Waiting::Syn { event, pending });
                None
            }
            intf::EK_EVENT_SYNACK_HELD => {
                // Only the agent has this SYN-ACK: it had better leave too early than never.
                let waits = settings.is_some_and(|s| s.b3_us > 0) && !is_full;
                if !waits || facts.is_train_complete(&event.flow, event.iss) {
                    self.counts.synacks_late += u64::from(!waits);
                    self.counts.synacks_in_time += u64::from(waits);
                    return Some(Send::SynAck { event });
                }
                self.insert(id, now_us + HELD_POLL_US, Waiting::SynAck { event, since_us: now_us });
                None
            }
            // Of a newer datapath.
            _ => None,
        }
    }

    /// When [`expire`](Self::expire) is to be called next.
    pub fn due_us(&self) -> Option<u64> {
        self.due.first_key_value().map(|((due_us, _), _)| *due_us)
    }

    /// Everything that is due.
    pub fn expire(&mut self, now_us: u64, facts: &impl Facts) -> Vec<Send> {
        let mut sends = Vec::new();
        while self.due_us().is_some_and(|due_us| due_us <= now_us) {
            let Some((_, id)) = self.due.pop_first() else { break };
            if let Some((_, waiting)) = self.waiting.remove(&id) {
                sends.extend(self.fire(id, waiting, now_us, facts));
            }
        }
        sends
    }

    /// Gives up all timers; what was held goes out at once. For the agent's end.
    pub fn drain(&mut self) -> Vec<Send> {
        self.due.clear();
        let held = self.waiting.drain().filter_map(|(_, (_, waiting))| match waiting {
            Waiting::SynAck { event, .. } => Some(Send::SynAck { event }),
            Waiting::Syn { .. } => None,
        });
        let held: Vec<Send> = held.collect();
        self.counts.synacks_late += held.len() as u64;
        held
    }

    /// A port is gone: what waits for it is dropped.
    pub fn gone(&mut self, ifindex: u32) {
        let due = &mut self.due;
        self.waiting.retain(|(flow, _), (when, _)| {
            let stays = flow.ifindex != ifindex;
            if !stays {
                due.remove(when);
            }
            stays
        });
    }

    /// SYNs and SYN-ACKs that wait.
    pub fn waiting(&self) -> (u64, u64) {
        let syns = self.waiting.values().filter(|(_, w)| matches!(w, Waiting::Syn { .. })).count();
        (syns as u64, (self.waiting.len() - syns) as u64)
    }

    /// What it did so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn fire(&mut self, id: Id, waiting: Waiting, now_us: u64, facts: &impl Facts) -> Option<Send> {
        let settings = facts.settings(waiting.event().flow.ifindex);
        match waiting {
            Waiting::Syn { event, mut pending } => {
                let (settings, trains) = (settings?, facts.trains_sent(&event.flow, event.iss)?);
                let (probes, with_syn) = match pending.expire(&settings, now_us) {
                    Verdict::Wait => (0, false),
                    Verdict::Probes(probes) => (probes, false),
                    Verdict::Both(probes) => (probes, true),
                    Verdict::GiveUp => {
                        self.counts.syns_given_up += 1;
                        return None;
                    }
                };
                // Settings may have changed since: a timer is never due again in the same instant.
                let due_us = pending.due_us(&settings).max(now_us + 1);
                let send = Send::Syn { event: event.clone(), probes, train: trains, with_syn };
                self.insert(id, due_us, Waiting::Syn { event, pending });
                self.counts.probes_resent += u64::from(probes > 0);
                self.counts.syns_resent += u64::from(with_syn);
                (probes > 0 || with_syn).then_some(send)
            }
            Waiting::SynAck { event, since_us } => {
                let is_complete = facts.is_train_complete(&event.flow, event.iss);
                let until_us = since_us + settings.map_or(0, |s| u64::from(s.b3_us));
                if !is_complete && now_us < until_us {
                    self.insert(id, (now_us + HELD_POLL_US).min(until_us), Waiting::SynAck { event, since_us });
                    return None;
                }
                self.counts.synacks_in_time += u64::from(is_complete);
                self.counts.synacks_late += u64::from(!is_complete);
                Some(Send::SynAck { event })
            }
        }
    }

    fn insert(&mut self, id: Id, due_us: u64, waiting: Waiting) {
        let when = (due_us, self.next);
        self.next += 1;
        self.due.insert(when, id);
        self.waiting.insert(id, (when, waiting));
    }

    fn remove(&mut self, id: &Id) {
        if let Some((when, _)) = self.waiting.remove(id) {
            self.due.remove(&when);
        }
    }
}

#[cfg(test)]
mod tests;
