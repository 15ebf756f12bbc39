//! A first-in, first-out queue: the departure of a packet is known when it arrives.

use super::ledger::Waiting;
use super::link::Link;
use super::red::Red;
use super::topology::Limit;
use crate::time::Instant;

/// Its packets are in [`Link::flights`]; this says which of them still wait. It fills one cache line together with the
/// discriminant of [`super::port::Queue`].
#[derive(Debug)]
pub(super) struct Fifo {
    pub limit: Limit,
    /// Boxed, because it is not consulted while fewer than `red_from` wait.
    red: Option<Box<Red>>,
    red_from: u32,
    pub waiting: Waiting,
    /// How many flights, counted from the oldest, were being sent or on the link at the last [`Self::drain`].
    begun: u32,
    /// When the last of these is sent, and the first waiting packet begins.
    next_begin: Instant,
}

impl Fifo {
    pub fn new(limit: Limit, red: Option<Red>) -> Self {
        let red_from = red.as_ref().map_or(u32::MAX, Red::least_segments);
        let red = red.map(Box::new);
        Self { limit, red, red_from, waiting: Waiting::default(), begun: 0, next_begin: Instant::START }
    }

    /// RED, if it has a say on a packet that arrives now.
    #[inline]
    pub fn red(&mut self) -> Option<&mut Red> {
        if self.waiting.segments < self.red_from { None } else { self.red.as_deref_mut() }
    }

    /// Takes packets whose transmission has begun by now out of the backlog. Returns how many bytes those are.
    #[inline]
    pub fn drain(&mut self, link: &Link, now: Instant) -> u64 {
        let before = self.waiting.bytes;
        // A packet that waits begins when the one before it is sent.
        while self.waiting.segments > 0 && self.next_begin <= now {
            let Some(flight) = link.flights.get(self.begun as usize) else { break };
            self.waiting.leave(flight.label.bytes);
            self.begun += 1;
            self.next_begin = link.sent_at(flight);
        }
        before - self.waiting.bytes
    }

    /// A packet was handed to the link; it and all before it are sent by `sent_at`.
    #[inline]
    pub fn sent(&mut self, link_was_free: bool, bytes: u32, sent_at: Instant) {
        if link_was_free {
            self.begun += 1;
            self.next_begin = sent_at;
        } else {
            self.waiting.join(bytes);
        }
    }

    /// The oldest flight has arrived. Returns how many of its bytes still counted as waiting.
    #[inline]
    pub fn landed(&mut self, bytes: u32) -> u64 {
        if self.begun > 0 {
            self.begun -= 1;
            return 0;
        }
        self.waiting.leave(bytes);
        u64::from(bytes)
    }
}
