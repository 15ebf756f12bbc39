//! A heap with four children per node: half as deep as a binary one, and the children of a node are neighbours in
//! memory.

use super::{Event, Order};
use crate::time::Instant;

const CHILDREN: usize = 4;

/// A 4-ary heap of events of 24 bytes with their numbers.
#[derive(Debug, Default)]
pub struct Quaternary {
    heap: Vec<Node>,
    number: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    at: Instant,
    /// Wraps around, which is harmless while the numbers of one instant's events lie within 2^31 of each other.
    number: u32,
    event: Event,
}

const _: () = assert!(size_of::<Node>() == 24);

impl Node {
    fn is_before(&self, other: &Self) -> bool {
        self.at < other.at || self.at == other.at && (self.number.wrapping_sub(other.number) as i32) < 0
    }
}

impl Order for Quaternary {
    fn push(&mut self, at: Instant, event: Event) {
        let node = Node { at, number: self.number, event };
        self.number = self.number.wrapping_add(1);
        let mut hole = self.heap.len();
        self.heap.push(node);
        while hole > 0 {
            let parent = (hole - 1) / CHILDREN;
            if !node.is_before(&self.heap[parent]) {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = node;
    }

    fn pop_before(&mut self, end: Instant) -> Option<(Instant, Event)> {
        let first = *self.heap.first()?;
        if first.at > end {
            return None;
        }
        let last = self.heap.pop()?;
        let heap = self.heap.as_mut_slice();
        let mut hole = 0;
        loop {
            let child = hole * CHILDREN + 1;
            let children = child..heap.len().min(child + CHILDREN);
            let Some(least) = children.reduce(|a, b| if heap[b].is_before(&heap[a]) { b } else { a }) else { break };
            if !heap[least].is_before(&last) {
                break;
            }
            heap[hole] = heap[least];
            hole = least;
        }
        if let Some(place) = heap.get_mut(hole) {
            *place = last;
        }
        Some((first.at, first.event))
    }

    fn next_at(&self) -> Option<Instant> {
        self.heap.first().map(|node| node.at)
    }
}
