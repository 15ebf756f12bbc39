//! First in, first out: the departure of a packet is known when it arrives.

use super::ledger::Waiting;
use super::link::Link;
use super::red::Red;
use super::topology::Limit;
use crate::time::Instant;

/// Its packets are in [`Link::flights`]; this says which of them still wait. With the discriminant of
/// [`super::port::Queue`] one cache line.
#[derive(Debug)]
pub(super) struct Fifo {
    pub limit: Limit,
    /// Apart, because it is not asked while fewer wait than `red_from`.
    red: Option<Box<Red>>,
    red_from: u32,
    pub waiting: Waiting,
    /// How many flights, from the oldest on, were being sent or on the link when [`Self::drain`] last looked.
    begun: u32,
    /// When the last of them is sent: what waits first begins then.
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

    /// Takes the packets out of the backlog whose transmission has begun by now; says how many bytes those are.
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

    /// A packet was handed to the link, which was free or not; all before it is sent at `sent_at`, itself included.
    #[inline]
    pub fn sent(&mut self, link_was_free: bool, bytes: u32, sent_at: Instant) {
        if link_was_free {
            self.begun += 1;
            self.next_begin = sent_at;
        } else {
            self.waiting.join(bytes);
        }
    }

    /// The oldest flight has arrived; says how many bytes still counted as waiting.
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
