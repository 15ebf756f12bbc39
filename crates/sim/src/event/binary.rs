//! The standard library's binary heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Event, Order};
use crate::time::Instant;

/// A binary heap of events and their numbers.
#[derive(Debug, Default)]
pub struct Binary {
    heap: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    number: u64,
}

impl Order for Binary {
    fn push(&mut self, at: Instant, event: Event) {
        self.heap.push(Reverse((at, self.number, event)));
        self.number += 1;
    }

    fn pop_before(&mut self, end: Instant) -> Option<(Instant, Event)> {
        if self.next_at()? > end {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }
}
