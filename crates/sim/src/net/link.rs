//! A link in one direction, and the packets on it.

use std::collections::VecDeque;

use crate::event::{Event, Events, Onward, PortId};
use crate::packet::{Ecn, HostId, PacketId, Packets};
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// What is at a link's other end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(u32);

impl Peer {
    /// A host.
    pub const HOST: Self = Self(u32::MAX);

    /// The switch with this number.
    pub const fn of_switch(number: u32) -> Self {
        Self(number)
    }

    /// The number of the switch, if it is one.
    #[inline]
    pub const fn switch(self) -> Option<u32> {
        if self.0 == u32::MAX { None } else { Some(self.0) }
    }
}

/// What switches need of a packet, copied, because most packets at switches are in no cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub packet: PacketId,
    pub bytes: u32,
    pub dst: HostId,
    pub flow_hash: u32,
    /// ECN-capable.
    pub capable: bool,
}

impl Label {
    #[inline]
    pub fn of(id: PacketId, packets: &Packets) -> Self {
        let packet = &packets[id];
        let capable = packet.ecn != Ecn::NotEct;
        Self { packet: id, bytes: packet.wire_bytes, dst: packet.dst, flow_hash: packet.flow_hash, capable }
    }
}

/// A packet whose arrival is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub arrives: Instant,
    pub onward: Onward,
    pub label: Label,
}

const _: () = assert!(size_of::<Flight>() == 32);

/// A link fills one cache line, because each packet needs it.
#[derive(Debug)]
pub(super) struct Link {
    /// Packets whose arrival is known, in order of arrival: those on the link, then those that wait in a FIFO queue.
    pub flights: VecDeque<Flight>,
    /// When the last of them is sent.
    pub free_at: Instant,
    pub delay: Duration,
    pub to: Peer,
    /// Picoseconds per byte if that is a whole number, which saves a division per packet; else 0.
    byte_ps: u32,
    rate: Rate,
}

const _: () = assert!(size_of::<Link>() == 64);

impl Link {
    pub fn new(rate: Rate, delay: Duration, to: Peer) -> Self {
        const BYTE_BIT_PS: u64 = 8_000_000_000_000;
        let whole = (BYTE_BIT_PS % rate.bps() == 0).then_some(BYTE_BIT_PS / rate.bps());
        let byte_ps = whole.and_then(|ps| u32::try_from(ps).ok()).unwrap_or(0);
        Self { flights: VecDeque::new(), free_at: Instant::START, delay, to, rate, byte_ps }
    }

    /// When the last bit of a packet is sent.
    #[inline]
    pub fn sent_at(&self, flight: &Flight) -> Instant {
        Instant::from_ps(flight.arrives.ps() - self.delay.ps())
    }

    /// Sends a packet as soon as the link is free.
    #[inline(always)]
    pub fn transmit(&mut self, now: Instant, port: PortId, label: Label, onward: Onward, events: &mut Events) {
        self.free_at = self.free_at.max(now) + self.takes(label.bytes);
        let arrives = self.free_at + self.delay;
        if self.flights.is_empty() {
            events.push(arrives, Event::Arrival(port, onward));
        }
        self.flights.push_back(Flight { arrives, onward, label });
    }

    #[inline]
    fn takes(&self, bytes: u32) -> Duration {
        if self.byte_ps == 0 {
            self.rate.time_for(bytes)
        } else {
            Duration::from_ps(u64::from(bytes) * u64::from(self.byte_ps))
        }
    }

    /// The oldest packet on the link, and when its transmission began.
    pub fn began(&self) -> Option<(PacketId, Instant)> {
        let flight = self.flights.front()?;
        let takes = self.delay + self.takes(flight.label.bytes);
        Some((flight.label.packet, Instant::START + flight.arrives.since(Instant::START + takes)))
    }

    /// Bytes that were handed to the link and are not sent yet: the packets that wait, and the rest of the one being
    /// sent.
    pub fn unsent_bytes(&self, now: Instant) -> u64 {
        let unsent = self.flights.iter().rev().map_while(|flight| {
            let left = self.sent_at(flight).ps().checked_sub(now.ps()).filter(|left| *left > 0)?;
            let takes = self.takes(flight.label.bytes).ps().max(1);
            Some((u128::from(flight.label.bytes) * u128::from(left.min(takes))).div_ceil(u128::from(takes)) as u64)
        });
        unsent.sum()
    }

    /// The oldest packet leaves the link; the next one's arrival becomes an event.
    #[inline(always)]
    pub fn land(&mut self, port: PortId, events: &mut Events) -> Option<Flight> {
        let flight = self.flights.pop_front()?;
        match self.flights.front() {
            Some(next) => events.push(next.arrives, Event::Arrival(port, next.onward)),
            // Restarts the queue's memory at its beginning, which is still in a cache.
            None => self.flights.clear(),
        }
        Some(flight)
    }
}
