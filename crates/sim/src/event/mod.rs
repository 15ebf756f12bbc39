//! The queue of future events.
//!
//! [`Events`] is the fastest of the queues below, by `benches/event_queue.rs`; the others are there to compare it with,
//! and to test it.

pub mod binary;
pub mod quaternary;
pub mod radix;
#[cfg(test)]
mod tests;
pub mod wheel;

use crate::packet::{ConnId, GuestId, HostId, PacketId};
use crate::time::Instant;

/// An output port: of a switch, or of a host's network card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// Where a packet goes at the other end of a link: to the port from which a switch sends it on, or to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Onward(u32);

/// An [`Onward`], taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    /// A switch's port.
    Port(PortId),
    /// A host, which gets this packet.
    Host(PacketId),
}

impl Onward {
    const HOST: u32 = 1 << 31;

    /// Out of that port.
    #[inline]
    pub const fn port(port: PortId) -> Self {
        Self(port.0)
    }

    /// To its host.
    #[inline]
    pub const fn host(packet: PacketId) -> Self {
        Self(packet.0 | Self::HOST)
    }

    /// Which of the two it is.
    #[inline]
    pub const fn meets(self) -> Meets {
        if self.0 & Self::HOST == 0 { Meets::Port(PortId(self.0)) } else { Meets::Host(PacketId(self.0 & !Self::HOST)) }
    }
}

/// Something that happens at an instant. Small, because most of the simulator's work is to sort these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The oldest packet on this port's link reaches the other end of the link and goes on from there.
    Arrival(PortId, Onward),
    /// A port whose departures are not known in advance has sent a packet and looks for the next.
    PortFree(PortId),
    /// The oldest packet that crosses this guest's host, towards the guest, has crossed it.
    ToGuest(GuestId),
    /// The oldest packet that crosses this guest's host, from the guest, has crossed it.
    FromGuest(GuestId),
    /// A connection's timer may be due: it is checked, and set again if it was put off meanwhile.
    Timer(ConnId),
    /// A guest's virtual CPU gets its core, or loses it.
    Slice(GuestId),
    /// A host's scheduler has something to decide, or an entity on the host begins or ends to compute.
    Cores(HostId),
    /// A host's own thread is done with a packet, if it has kept its core.
    Domain(HostId),
    /// A guest's virtual CPU may be done with the packets that kept it busy.
    Tick(GuestId),
    /// A guest's held timers are checked again (PVTCP).
    Release(GuestId),
    /// The mechanisms on a guest's host asked to be called.
    Shims(GuestId),
    /// A host's epoch ends (CERA).
    Epoch(HostId),
    /// A host's message to a guest's client arrives (CERA).
    Share(GuestId),
    /// A guest's agent checks whether the guest's core is missing (vFlood).
    Look(GuestId),
    /// A guest's agent sends its heartbeat, and the host acts on what it has heard (vFlood).
    Heartbeat(GuestId),
    /// A guest may have been idle long enough to give up its core.
    Idle(GuestId),
    /// The workload asked to be called, with a number of its own.
    Workload(u32),
    /// Series are sampled.
    Sample,
}

/// A queue of events in order of time; events of one instant come out in the order in which they were put in. No event
/// may be earlier than one that has come out.
pub trait Order: Default {
    /// Puts in an event.
    fn push(&mut self, at: Instant, event: Event);
    /// Takes the next event out if it is no later than `end`.
    fn pop_before(&mut self, end: Instant) -> Option<(Instant, Event)>;
    /// When the next event is.
    fn next_at(&self) -> Option<Instant>;
    /// A guess at the event that comes after this many others, to prefetch its memory. `None` if that takes a search.
    fn soon(&self, _after: usize) -> Option<Event> {
        None
    }
}

/// Future events in order of time; events of one instant in the order in which they were put in.
pub type Events = Agenda<wheel::Wheel>;

/// A queue of future events, with counts.
#[derive(Debug, Default)]
pub struct Agenda<Q> {
    order: Q,
    waiting: usize,
    popped: u64,
    last: Instant,
}

impl<Q: Order> Agenda<Q> {
    /// Puts in an event, no earlier than the last that was taken out.
    #[inline]
    pub fn push(&mut self, at: Instant, event: Event) {
        debug_assert!(at >= self.last, "{event:?} at {at:?}, before {:?}", self.last);
        debug_assert!(at != Instant::NEVER, "{event:?} never happens");
        self.order.push(at, event);
        self.waiting += 1;
    }

    /// Takes the next event out.
    #[inline]
    pub fn pop(&mut self) -> Option<(Instant, Event)> {
        self.pop_before(Instant::NEVER)
    }

    /// Takes the next event out if it is at or before `end`. Cheaper than to ask [`Self::next_at`] first.
    #[inline]
    pub fn pop_before(&mut self, end: Instant) -> Option<(Instant, Event)> {
        let (at, event) = self.order.pop_before(end)?;
        self.waiting -= 1;
        self.popped += 1;
        self.last = at;
        Some((at, event))
    }

    /// When the next event is. May have to search.
    pub fn next_at(&self) -> Option<Instant> {
        self.order.next_at()
    }

    /// The event that comes after `after` others, if that is known without a search and no other is put in before it.
    #[inline]
    pub fn soon(&self, after: usize) -> Option<Event> {
        self.order.soon(after)
    }

    /// How many events were taken out.
    pub fn handled(&self) -> u64 {
        self.popped
    }

    /// How many are waiting.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether none is waiting.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}

impl Events {
    /// Bytes that it has allocated.
    pub fn bytes(&self) -> u64 {
        self.order.bytes()
    }
}

/// What a queue keeps of an event that carries its own time: 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    event: Event,
}

const _: () = assert!(size_of::<Entry>() <= 24);
