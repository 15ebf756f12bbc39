//! A link in one direction, and the packets on it.

use std::collections::VecDeque;

use crate::event::{Event, Events, PortId};
use crate::packet::{HostId, PacketId, Packets};
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// What is at a link's other end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    Host(HostId),
    Switch(u32),
}

/// What switches need of a packet, copied: they are busiest with packets that are in no cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub packet: PacketId,
    pub bytes: u32,
    pub dst: HostId,
    pub flow_hash: u32,
}

impl Label {
    #[inline]
    pub fn of(id: PacketId, packets: &Packets) -> Self {
        let packet = &packets[id];
        Self { packet: id, bytes: packet.wire_bytes, dst: packet.dst, flow_hash: packet.flow_hash }
    }
}

/// A packet whose arrival is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub arrives: Instant,
    pub label: Label,
}

/// In this order, what each packet needs is one cache line.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Link {
    /// Packets whose arrival is known, in its order: on the link, and behind them those that wait in a FIFO queue.
    pub flights: VecDeque<Flight>,
    /// When the last of them is sent.
    pub free_at: Instant,
    pub delay: Duration,
    pub to: Peer,
    /// Picoseconds per byte if that is whole, which saves a division per packet; else 0.
    byte_ps: u64,
    rate: Rate,
}

impl Link {
    pub fn new(rate: Rate, delay: Duration, to: Peer) -> Self {
        const BYTE_BIT_PS: u64 = 8_000_000_000_000;
        let byte_ps = if BYTE_BIT_PS % rate.bps() == 0 { BYTE_BIT_PS / rate.bps() } else { 0 };
        Self { flights: VecDeque::new(), free_at: Instant::START, delay, to, rate, byte_ps }
    }

    /// When a packet is sent, the last bit of it.
    #[inline]
    pub fn sent_at(&self, flight: &Flight) -> Instant {
        Instant::from_ps(flight.arrives.ps() - self.delay.ps())
    }

    /// Sends a packet as soon as the link is free.
    #[inline]
    pub fn transmit(&mut self, now: Instant, port: PortId, label: Label, events: &mut Events) {
        self.free_at = self.free_at.max(now) + self.takes(label.bytes);
        let arrives = self.free_at + self.delay;
        if self.flights.is_empty() {
            events.push(arrives, Event::Arrival(port));
        }
        self.flights.push_back(Flight { arrives, label });
    }

    fn takes(&self, bytes: u32) -> Duration {
        if self.byte_ps == 0 { self.rate.time_for(bytes) } else { Duration::from_ps(u64::from(bytes) * self.byte_ps) }
    }

    /// The oldest packet on the link, and when its transmission began.
    pub fn began(&self) -> Option<(PacketId, Instant)> {
        let flight = self.flights.front()?;
        let takes = self.delay + self.takes(flight.label.bytes);
        Some((flight.label.packet, Instant::START + flight.arrives.since(Instant::START + takes)))
    }

    /// The oldest packet leaves the link; the next one's arrival becomes an event.
    #[inline]
    pub fn land(&mut self, port: PortId, events: &mut Events) -> Option<Flight> {
        let flight = self.flights.pop_front()?;
        match self.flights.front() {
            Some(next) => events.push(next.arrives, Event::Arrival(port)),
            // Begins again where the memory is still in a cache.
            None => self.flights.clear(),
        }
        Some(flight)
    }
}
