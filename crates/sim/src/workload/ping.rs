//! ICMP echo requests at fixed times.

use std::collections::VecDeque;

use super::{Members, Random, Recording, System};
use crate::packet::GuestId;
use crate::time::{Duration, Instant};

/// A reply that takes longer counts as lost.
const LOST_AFTER: Duration = Duration::from_s(1);

#[derive(Debug)]
pub(super) struct Ping {
    pingers: Vec<Pinger>,
    to: GuestId,
    interval: Duration,
}

#[derive(Debug)]
struct Pinger {
    guest: GuestId,
    due: Instant,
    number: u32,
    waiting: VecDeque<(u32, Instant)>,
}

impl Ping {
    pub(super) fn new(members: &Members, interval: Duration) -> Self {
        let mut random = Random::new(members.seed, 0);
        let pinger =
            |guest| Pinger { guest, due: Instant::START + random.span(interval), number: 0, waiting: VecDeque::new() };
        let pingers = members.from.iter().map(|m| m.guest).map(pinger).collect();
        Self { pingers, to: members.to[0].guest, interval }
    }

    pub(super) fn start(&self, system: &mut impl System) {
        for (tag, pinger) in self.pingers.iter().enumerate() {
            system.call_in(pinger.guest, pinger.due, tag as u32);
        }
    }

    pub(super) fn on_call(&mut self, system: &mut impl System, recording: &mut Recording, tag: u32) {
        let now = system.now();
        let Some(pinger) = self.pingers.get_mut(tag as usize) else { return };
        while let Some(&(_, sent)) = pinger.waiting.front().filter(|(_, sent)| now.since(*sent) > LOST_AFTER) {
            recording.ping_lost(sent);
            pinger.waiting.pop_front();
        }
        pinger.number = pinger.number.wrapping_add(1);
        pinger.waiting.push_back((pinger.number, now));
        system.ping(pinger.guest, self.to, pinger.number);
        // Requests that fell due while this VM was off its core are skipped.
        let missed = now.since(pinger.due).ps() / self.interval.ps().max(1);
        pinger.due += self.interval * (missed + 1);
        system.call_in(pinger.guest, pinger.due, tag);
    }

    pub(super) fn on_echo(&mut self, system: &impl System, recording: &mut Recording, guest: GuestId, number: u32) {
        let now = system.now();
        let Some(pinger) = self.pingers.iter_mut().find(|p| p.guest == guest) else { return };
        let Some(place) = pinger.waiting.iter().position(|(waiting, _)| *waiting == number) else { return };
        if let Some((_, sent)) = pinger.waiting.remove(place) {
            if now.since(sent) > LOST_AFTER { recording.ping_lost(sent) } else { recording.ping(guest, sent, now) }
        }
    }
}
