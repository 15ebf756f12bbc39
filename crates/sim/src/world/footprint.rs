//! How a world's memory is used.

use super::{Core, World};
use crate::footprint::{Footprint, of_vec};
use crate::guest::Guest;

impl<A, R> World<A, R> {
    /// How its memory is used. Workloads and records are left at 0: they are not the world's.
    pub fn footprint(&self) -> Footprint {
        let Core { events, packets, net, guests, conns, calls, free_calls, .. } = &self.core;
        let segments = conns.slots.iter().map(|slot| slot.conn.heap_bytes()).sum();
        let network = net.footprint();
        Footprint {
            connections: conns.bytes() + segments,
            segments,
            guests: of_vec(guests) + guests.iter().map(Guest::heap_bytes).sum::<u64>(),
            packets: packets.bytes(),
            events: events.bytes() + of_vec(calls) + of_vec(free_calls),
            ..network
        }
    }
}
