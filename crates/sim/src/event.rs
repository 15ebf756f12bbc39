//! What happens, and when: the queue of future events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::packet::{ConnId, GuestId};
use crate::time::Instant;

/// An output port: of a switch, or of a host's network card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// Something that happens at an instant. Small, because most of the simulator's work is to sort these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The oldest packet on this port's link reaches the link's other end.
    Arrival(PortId),
    /// A port whose departures are not known in advance has sent a packet and looks for the next.
    PortFree(PortId),
    /// The oldest packet that crosses this guest's host, towards the guest, has crossed it.
    ToGuest(GuestId),
    /// The oldest packet that crosses this guest's host, from the guest, has crossed it.
    FromGuest(GuestId),
    /// A connection's timer may be due: it is looked at, and set again if it was put off meanwhile.
    Timer(ConnId),
    /// A guest's virtual CPU gets its core, or loses it.
    Slice(GuestId),
    /// A guest's virtual CPU may be done with the packets that kept it busy.
    Tick(GuestId),
    /// A guest's held timers are looked at again (PVTCP).
    Release(GuestId),
    /// The workload asked to be called, with a number of its own.
    Workload(u32),
    /// Series are sampled.
    Sample,
}

/// Future events, in the order of their time; those of one instant in the order in which they were put in.
#[derive(Debug, Default)]
pub struct Events {
    heap: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    number: u64,
    popped: u64,
}

impl Events {
    /// Puts in an event.
    pub fn push(&mut self, at: Instant, event: Event) {
        self.heap.push(Reverse((at, self.number, event)));
        self.number += 1;
    }

    /// Takes the next event out.
    pub fn pop(&mut self) -> Option<(Instant, Event)> {
        let Reverse((at, _, event)) = self.heap.pop()?;
        self.popped += 1;
        Some((at, event))
    }

    /// When the next event is.
    pub fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// How many events were taken out.
    pub fn handled(&self) -> u64 {
        self.popped
    }

    /// How many are waiting.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none is waiting.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
