//! A hierarchical timing wheel (Varghese87) that does not lose the order within a tick.
//!
//! Time is divided into ticks, and ticks are grouped into blocks. In the present block and the next one ("near"
//! blocks), each tick has a slot; nearly all events go there at once, because links are short. For later blocks, the
//! block's number is split into digits, and an event is kept at the level of the highest digit in which its block
//! differs from the last near one, in the slot of that digit. When the block becomes near, the slot's events move to
//! the levels below. Slots are first-in, first-out lists in one slab. Events of one tick are always in the same slot,
//! so a stable sort of a tick's few events keeps those of one instant in order.

use super::{Entry, Event, Order};
use crate::footprint::of_vec;
use crate::memory::{self, prefetch};
use crate::time::Instant;

/// Bits of a digit.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
/// No node.
const NIL: u32 = u32::MAX;
/// The bits of a time below its tick, by default: ticks of 8 ns.
const TICK_BITS: u32 = 13;
/// Bits of a tick within its block.
const BLOCK_BITS: u32 = 8;
/// Slots of two blocks, and the words whose bits say which are occupied.
const NEAR: usize = 2 << BLOCK_BITS;
const WORDS: usize = NEAR / u64::BITS as usize;
/// With fewer than `FEW` events in order, those of the next ticks join them, up to `ENOUGH`, so that [`Order::soon`]
/// sees past the end of a tick.
const FEW: usize = 16;
const ENOUGH: usize = 32;
/// Up to this many events are sorted by insertion.
const SORTED_SINGLY: usize = 32;

/// A timing wheel with ticks of 2^`GRAIN` ps.
#[derive(Debug)]
pub struct Wheel<const GRAIN: u32 = { TICK_BITS }> {
    /// Events up to `tick`, in order; the first `taken` have been taken out.
    current: Vec<Entry>,
    taken: usize,
    /// The last tick whose events are in order.
    tick: u64,
    /// Slots of the ticks after `tick`, up to the end of `last_near`, which is at most the block after that of `tick`.
    near: Box<[Slot; NEAR]>,
    near_occupied: [u64; WORDS],
    /// Which words of `near_occupied` have bits set.
    near_words: u8,
    last_near: u64,
    levels: Vec<Level>,
    /// Which levels have events.
    occupied: u32,
    nodes: Vec<Node>,
    /// The first free node.
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    at: Instant,
    event: Event,
    next: u32,
}

const _: () = assert!(size_of::<Node>() == 24);
const _: () = assert!(WORDS == u8::BITS as usize);

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
        let levels = (u64::BITS - GRAIN - BLOCK_BITS).div_ceil(DIGIT) as usize;
        Self {
            current: Vec::new(),
            taken: 0,
            tick: 0,
            near: Box::new([NOTHING; NEAR]),
            near_occupied: [0; WORDS],
            near_words: 0,
            last_near: 1,
            levels: vec![level; levels],
            occupied: 0,
            nodes: Vec::new(),
            free: NIL,
        }
    }
}

impl<const GRAIN: u32> Wheel<GRAIN> {
    /// Bytes that it has allocated.
    pub(super) fn bytes(&self) -> u64 {
        let near = size_of::<[Slot; NEAR]>() as u64;
        of_vec(&self.current) + near + of_vec(&self.levels) + of_vec(&self.nodes)
    }

    /// The lowest occupied level and its first occupied slot.
    fn first_slot(&self) -> Option<(usize, usize)> {
        if self.occupied == 0 {
            return None;
        }
        let level = self.occupied.trailing_zeros() as usize;
        Some((level, self.levels[level].occupied.trailing_zeros() as usize))
    }

    /// The next near tick that has events.
    #[inline]
    fn next_near(&self) -> Option<u64> {
        if self.near_words == 0 {
            return None;
        }
        let from = (self.tick + 1) as usize % NEAR;
        let word = from / u64::BITS as usize;
        let rest = self.near_occupied[word] >> (from % u64::BITS as usize);
        if rest != 0 {
            return Some(self.tick + 1 + u64::from(rest.trailing_zeros()));
        }
        // The other words in turn, and this one's bits below last.
        let word = (word + 1 + self.near_words.rotate_right(word as u32 + 1).trailing_zeros() as usize) % WORDS;
        let slot = word * u64::BITS as usize + self.near_occupied[word].trailing_zeros() as usize;
        Some(self.tick + 1 + (slot.wrapping_sub(from) % NEAR) as u64)
    }

    /// Puts a node at the end of its slot. Its tick must be later than the present one.
    #[inline]
    fn link(&mut self, index: u32, at: Instant) {
        let tick = at.ps() >> GRAIN;
        let block = tick >> BLOCK_BITS;
        if block > self.last_near {
            return self.link_far(index, block);
        }
        let slot = tick as usize % NEAR;
        let (word, bit) = (slot / u64::BITS as usize, 1 << (slot % u64::BITS as usize));
        let slot = &mut self.near[slot];
        if self.near_occupied[word] & bit == 0 {
            self.near_occupied[word] |= bit;
            self.near_words |= 1 << word;
            slot.first = index;
        } else {
            self.nodes[slot.last as usize].next = index;
        }
        slot.last = index;
    }

    fn link_far(&mut self, index: u32, block: u64) {
        let level = (block ^ self.last_near).ilog2() / DIGIT;
        let digit = (block >> (level * DIGIT)) as usize % SLOTS;
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

    /// Advances to the ticks of the next events and puts these in order, but not to a tick that begins after `end`.
    fn refill(&mut self, end: Instant) {
        self.current.drain(..self.taken);
        self.taken = 0;
        let end = end.ps() >> GRAIN;
        let mut near = self.next_near();
        while self.current.len() < ENOUGH {
            if let Some(tick) = near {
                if tick > end {
                    return;
                }
                self.load(tick);
                near = self.next_near();
                if let Some(next) = near {
                    prefetch(self.nodes.as_ptr().wrapping_add(self.near[next as usize % NEAR].first as usize));
                }
            } else if self.current.is_empty() {
                let Some((level, digit)) = self.first_slot() else { return };
                let shift = level as u32 * DIGIT;
                let block = (self.last_near >> shift & !(SLOTS as u64 - 1) | digit as u64) << shift;
                if block << BLOCK_BITS > end {
                    return;
                }
                // Nothing is before that block.
                self.tick = (block << BLOCK_BITS) - 1;
                self.make_near(block);
                near = self.next_near();
            } else {
                return;
            }
        }
    }

    /// Puts a near tick's events in order.
    fn load(&mut self, tick: u64) {
        self.tick = tick;
        let slot = tick as usize % NEAR;
        let word = slot / u64::BITS as usize;
        self.near_occupied[word] &= !(1 << (slot % u64::BITS as usize));
        if self.near_occupied[word] == 0 {
            self.near_words &= !(1 << word);
        }
        let Slot { first, last } = self.near[slot];
        let sorted = self.current.len();
        let mut index = first;
        loop {
            let Node { at, event, next } = self.nodes[index as usize];
            self.current.push(Entry { at, event });
            if index == last {
                break;
            }
            index = next;
        }
        self.nodes[last as usize].next = self.free;
        self.free = first;
        sort(&mut self.current[sorted..]);
        if tick >> BLOCK_BITS == self.last_near {
            self.make_near(self.last_near + 1);
        }
    }

    /// Makes a block the last near one. No event may lie between it and the present one.
    fn make_near(&mut self, block: u64) {
        let level = (block ^ self.last_near).ilog2() / DIGIT;
        let digit = (block >> (level * DIGIT)) as usize % SLOTS;
        self.last_near = block;
        let wheel = &mut self.levels[level as usize];
        if wheel.occupied & 1 << digit == 0 {
            return;
        }
        wheel.occupied &= !(1 << digit);
        if wheel.occupied == 0 {
            self.occupied &= !(1 << level);
        }
        let Slot { first, last } = wheel.slots[digit];
        let mut index = first;
        loop {
            let Node { at, next, .. } = self.nodes[index as usize];
            self.link(index, at);
            if index == last {
                return;
            }
            index = next;
        }
    }

    /// The earliest of a slot's events.
    fn least(&self, Slot { first, last }: Slot) -> Instant {
        let mut index = first;
        let mut least = self.nodes[index as usize].at;
        while index != last {
            index = self.nodes[index as usize].next;
            least = least.min(self.nodes[index as usize].at);
        }
        least
    }
}

/// Sorts a tick's events by time; those of one instant keep their order.
#[inline]
fn sort(entries: &mut [Entry]) {
    if entries.len() > SORTED_SINGLY {
        entries.sort_by_key(|entry| entry.at);
        return;
    }
    for from in 1..entries.len() {
        let entry = entries[from];
        let mut place = from;
        while place > 0 && entries[place - 1].at > entry.at {
            entries[place] = entries[place - 1];
            place -= 1;
        }
        entries[place] = entry;
    }
}

impl<const GRAIN: u32> Order for Wheel<GRAIN> {
    #[inline]
    fn push(&mut self, at: Instant, event: Event) {
        if at.ps() >> GRAIN <= self.tick {
            let place = self.taken + self.current[self.taken..].partition_point(|entry| entry.at <= at);
            self.current.insert(place, Entry { at, event });
            return;
        }
        let node = Node { at, event, next: NIL };
        let index = self.free;
        match self.nodes.get_mut(index as usize) {
            Some(free) => {
                self.free = free.next;
                *free = node;
                self.link(index, at);
            }
            None => {
                memory::push(&mut self.nodes, node);
                self.link(self.nodes.len() as u32 - 1, at);
            }
        }
    }

    #[inline]
    fn pop_before(&mut self, end: Instant) -> Option<(Instant, Event)> {
        if self.current.len() - self.taken < FEW {
            self.refill(end);
        }
        let Entry { at, event } = *self.current.get(self.taken)?;
        if at > end {
            return None;
        }
        self.taken += 1;
        Some((at, event))
    }

    #[inline]
    fn soon(&self, after: usize) -> Option<Event> {
        self.current.get(self.taken + after).map(|entry| entry.event)
    }

    fn next_at(&self) -> Option<Instant> {
        if let Some(entry) = self.current.get(self.taken) {
            return Some(entry.at);
        }
        if let Some(tick) = self.next_near() {
            return Some(self.least(self.near[tick as usize % NEAR]));
        }
        let (level, digit) = self.first_slot()?;
        Some(self.least(self.levels[level].slots[digit]))
    }
}
