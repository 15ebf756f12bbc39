//! A radix heap: one bucket for each highest bit in which an event's time can differ from the last time that came out.
//!
//! Events of one instant are always in one bucket, in the order in which they were put in, so they need no numbers.

use std::collections::VecDeque;

use super::{Entry, Event, Order};
use crate::time::Instant;

const BUCKETS: usize = u64::BITS as usize;

/// A radix heap.
#[derive(Debug)]
pub struct Radix {
    last: Instant,
    /// Events at `last`.
    due: VecDeque<Event>,
    buckets: [Vec<Entry>; BUCKETS],
    /// Which buckets have events.
    occupied: u64,
}

impl Default for Radix {
    fn default() -> Self {
        Self { last: Instant::START, due: VecDeque::new(), buckets: std::array::from_fn(|_| Vec::new()), occupied: 0 }
    }
}

impl Radix {
    fn first_bucket(&self) -> Option<usize> {
        (self.occupied != 0).then(|| self.occupied.trailing_zeros() as usize)
    }
}

impl Order for Radix {
    fn push(&mut self, at: Instant, event: Event) {
        match (at.ps() ^ self.last.ps()).checked_ilog2() {
            None => self.due.push_back(event),
            Some(bit) => {
                self.buckets[bit as usize].push(Entry { at, event });
                self.occupied |= 1 << bit;
            }
        }
    }

    fn pop_before(&mut self, end: Instant) -> Option<(Instant, Event)> {
        if self.due.is_empty() {
            let bucket = self.first_bucket()?;
            let first = self.buckets[bucket].iter().map(|entry| entry.at).min()?;
            if first > end {
                return None;
            }
            self.last = first;
            self.occupied &= !(1 << bucket);
            let mut entries = std::mem::take(&mut self.buckets[bucket]);
            for Entry { at, event } in entries.drain(..) {
                self.push(at, event);
            }
            self.buckets[bucket] = entries;
        } else if self.last > end {
            return None;
        }
        self.due.pop_front().map(|event| (self.last, event))
    }

    fn next_at(&self) -> Option<Instant> {
        if !self.due.is_empty() {
            return Some(self.last);
        }
        self.buckets[self.first_bucket()?].iter().map(|entry| entry.at).min()
    }
}
