//! A hierarchical timing wheel (Varghese and Lauck, SOSP 1987) that does not lose the order within a tick.
//!
//! Time is cut into ticks, and a tick's number into digits. An event is kept at the level of the highest digit in which its tick differs
//! from the present one, in the slot of that digit. The first occupied slot of the lowest occupied level holds what comes next: it is
//! spread over the levels below, until what remains is one tick's events, which are sorted. Slots are lists in one slab, first in, first
//! out; events of one tick are always in the same slot, so a stable sort is all that it takes to keep those of one instant in order.

use std::cmp::Reverse;

use super::{Entry, Event, Order};
use crate::memory::prefetch;
use crate::time::Instant;

/// Bits of a digit.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
/// No node.
const NIL: u32 = u32::MAX;
/// The bits of a time below its tick, if nothing else is asked for: ticks of 33 ns.
const TICK_BITS: u32 = 15;

/// A timing wheel with ticks of 2^`GRAIN` ps.
#[derive(Debug)]
pub struct Wheel<const GRAIN: u32 = { TICK_BITS }> {
    /// Events up to the present tick, the next one last.
    current: Vec<Entry>,
    tick: u64,
    levels: Vec<Level>,
    /// Which levels have events.
    occupied: u32,
    nodes: Vec<Node>,
    /// The first free node.
    free: u32,
    /// Of the next tick's nodes, the one that a cache has by now; each lies wherever there was room, so they are fetched one with each event.
    ahead: Slot,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    at: Instant,
    event: Event,
    next: u32,
}

const _: () = assert!(size_of::<Node>() == 24);

#[derive(Clone, Debug)]
struct Level {
    /// Which slots have events.
    occupied: u64,
    slots: [Slot; SLOTS],
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    first: u32,
    last: u32,
}

const NOTHING: Slot = Slot { first: NIL, last: NIL };

impl<const GRAIN: u32> Default for Wheel<GRAIN> {
    fn default() -> Self {
        let level = Level { occupied: 0, slots: [NOTHING; SLOTS] };
        let levels = (u64::BITS - GRAIN).div_ceil(DIGIT) as usize;
        Self {
            current: Vec::new(),
            tick: 0,
            levels: vec![level; levels],
            occupied: 0,
            nodes: Vec::new(),
            free: NIL,
            ahead: NOTHING,
        }
    }
}

impl<const GRAIN: u32> Wheel<GRAIN> {
    /// The lowest occupied level and its first occupied slot.
    fn first_slot(&self) -> Option<(usize, usize)> {
        if self.occupied == 0 {
            return None;
        }
        let level = self.occupied.trailing_zeros() as usize;
        Some((level, self.levels[level].occupied.trailing_zeros() as usize))
    }

    /// Puts a node at the end of its slot. Its tick must be later than the present one.
    #[inline]
    fn link(&mut self, index: u32, at: Instant) {
        let tick = at.ps() >> GRAIN;
        let level = (tick ^ self.tick).ilog2() / DIGIT;
        let digit = (tick >> (level * DIGIT)) as usize % SLOTS;
        let wheel = &mut self.levels[level as usize];
        let slot = &mut wheel.slots[digit];
        if wheel.occupied & 1 << digit == 0 {
            slot.first = index;
            wheel.occupied |= 1 << digit;
            self.occupied |= 1 << level;
        } else {
            self.nodes[slot.last as usize].next = index;
        }
        slot.last = index;
    }

    /// Goes on to the tick of the next events, and makes them current; but not to a tick that begins after `end`.
    fn refill(&mut self, end: Instant) {
        while self.current.is_empty() {
            let Some((level, digit)) = self.first_slot() else { return };
            let shift = level as u32 * DIGIT;
            let tick = (self.tick >> shift & !(SLOTS as u64 - 1) | digit as u64) << shift;
            if tick > end.ps() >> GRAIN {
                return;
            }
            self.tick = tick;
            let wheel = &mut self.levels[level];
            wheel.occupied &= !(1 << digit);
            if wheel.occupied == 0 {
                self.occupied &= !(1 << level);
            }
            let Slot { first, last } = wheel.slots[digit];
            self.spread(first, last);
        }
        let low = &self.levels[0];
        self.ahead = if low.occupied == 0 { NOTHING } else { low.slots[low.occupied.trailing_zeros() as usize] };
        if self.current.len() > 1 {
            // What comes out first is kept last, so of one instant's events the one put in first goes last.
            self.current.reverse();
            self.current.sort_by_key(|entry| Reverse(entry.at));
        }
    }

    /// Has a cache take in one more of the next tick's nodes.
    #[inline]
    fn fetch_ahead(&mut self) {
        let Slot { first, last } = self.ahead;
        if first == last {
            return;
        }
        if let Some(node) = self.nodes.get(first as usize) {
            self.ahead.first = node.next;
            prefetch(self.nodes.as_ptr().wrapping_add(node.next as usize));
        }
    }

    /// Hands on the events of a list: to the present tick, or to lower levels.
    fn spread(&mut self, first: u32, last: u32) {
        let mut index = first;
        loop {
            let Node { at, event, next } = self.nodes[index as usize];
            if at.ps() >> GRAIN == self.tick {
                self.current.push(Entry { at, event });
                self.nodes[index as usize].next = self.free;
                self.free = index;
            } else {
                self.link(index, at);
            }
            if index == last {
                return;
            }
            index = next;
        }
    }
}

impl<const GRAIN: u32> Order for Wheel<GRAIN> {
    #[inline]
    fn push(&mut self, at: Instant, event: Event) {
        if at.ps() >> GRAIN <= self.tick {
            let place = self.current.partition_point(|entry| entry.at > at);
            self.current.insert(place, Entry { at, event });
            return;
        }
        let node = Node { at, event, next: NIL };
        let index = if self.free == NIL {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            self.nodes[index as usize] = node;
            index
        };
        self.link(index, at);
    }

    #[inline]
    fn pop_before(&mut self, end: Instant) -> Option<(Instant, Event)> {
        if self.current.is_empty() {
            self.refill(end);
        }
        let Entry { at, event } = *self.current.last()?;
        if at > end {
            return None;
        }
        self.current.pop();
        self.fetch_ahead();
        Some((at, event))
    }

    #[inline]
    fn soon(&self, after: usize) -> Option<Event> {
        let place = self.current.len().wrapping_sub(after + 1);
        self.current.get(place).map(|entry| entry.event)
    }

    fn next_at(&self) -> Option<Instant> {
        if let Some(entry) = self.current.last() {
            return Some(entry.at);
        }
        let (level, digit) = self.first_slot()?;
        let Slot { first, last } = self.levels[level].slots[digit];
        let mut index = first;
        let mut least = self.nodes[index as usize].at;
        while index != last {
            index = self.nodes[index as usize].next;
            least = least.min(self.nodes[index as usize].at);
        }
        Some(least)
    }
}
