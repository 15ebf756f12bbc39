//! pFabric: small queues ordered by how much flows have left to send.

use super::ledger::{Ledger, Waiting};
use super::pool::Pool;
use super::topology::Limit;
use crate::packet::PacketId;

#[derive(Debug)]
pub(super) struct PFabric {
    /// In no order: queues are short, and sending and dropping choose packets by different criteria.
    entries: Vec<Entry>,
    limit: Limit,
    waiting: Waiting,
    arrivals: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Hash and destination.
    flow: u64,
    number: u64,
    remaining: u32,
    bytes: u32,
    id: PacketId,
}

impl PFabric {
    pub fn new(limit: Limit) -> Self {
        Self { entries: Vec::new(), limit, waiting: Waiting::default(), arrivals: 0 }
    }

    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    /// Takes a packet in. If there is no room, packets with more remaining are dropped for it; if there are none, it is
    /// dropped itself.
    pub fn offer(&mut self, id: PacketId, pool: Option<&Pool>, ledger: &mut Ledger) {
        let packet = &ledger.packets[id];
        let arriving = Entry {
            flow: u64::from(packet.flow_hash) << 32 | u64::from(packet.dst.0),
            number: self.arrivals,
            remaining: packet.remaining_bytes,
            bytes: packet.wire_bytes,
            id,
        };
        self.arrivals += 1;
        let mut given_back = 0;
        while !(self.waiting.fits(self.limit, arriving.bytes)
            && pool.is_none_or(|pool| pool.admits_after(given_back, self.waiting.bytes, arriving.bytes)))
        {
            let worst = (0..self.entries.len()).max_by_key(|&i| (self.entries[i].remaining, self.entries[i].number));
            let Some(worst) = worst.filter(|&i| self.entries[i].remaining > arriving.remaining) else {
                ledger.refuse(id);
                return;
            };
            let dropped = self.take(worst);
            given_back += u64::from(dropped.bytes);
            ledger.drop_queued(dropped.id);
        }
        self.entries.push(arriving);
        self.waiting.join(arriving.bytes);
        ledger.accept(arriving.bytes);
    }

    /// Takes out the earliest packet of the flow that has the least remaining: a flow's packets keep their order, and
    /// none starves behind later ones.
    pub fn next(&mut self) -> Option<PacketId> {
        let flow = self.entries.iter().min_by_key(|entry| (entry.remaining, entry.number))?.flow;
        let of_flow = (0..self.entries.len()).filter(|&i| self.entries[i].flow == flow);
        let first = of_flow.min_by_key(|&i| self.entries[i].number)?;
        Some(self.take(first).id)
    }

    fn take(&mut self, index: usize) -> Entry {
        let entry = self.entries.swap_remove(index);
        self.waiting.leave(entry.bytes);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::PortStats;
    use super::super::tests::packet;
    use super::*;
    use crate::packet::{Packet, Packets};

    fn order(limit: u32, arriving: &[(u32, u32)]) -> (Vec<(u32, u32)>, u64) {
        let (mut packets, mut stats, mut queue) =
            (Packets::default(), PortStats::default(), PFabric::new(Limit::segments(limit)));
        let mut ledger = Ledger { packets: &mut packets, stats: &mut stats };
        for &(flow_hash, remaining_bytes) in arriving {
            let id = ledger.packets.insert(Packet { flow_hash, remaining_bytes, ..packet(0) });
            queue.offer(id, None, &mut ledger);
        }
        let sent = std::iter::from_fn(|| queue.next())
            .map(|id| (ledger.packets[id].flow_hash, ledger.packets[id].remaining_bytes))
            .collect();
        (sent, stats.drops)
    }

    #[test]
    fn the_flow_with_the_least_remaining_goes_first_in_its_own_order() {
        let (sent, drops) = order(10, &[(1, 900), (2, 500), (1, 400), (3, 600), (2, 450)]);
        assert_eq!(sent, [(1, 900), (1, 400), (2, 500), (2, 450), (3, 600)]);
        assert_eq!(drops, 0);
    }

    #[test]
    fn the_packet_with_the_most_remaining_is_dropped() {
        let (sent, drops) = order(2, &[(1, 900), (2, 500), (3, 700), (4, 800)]);
        assert_eq!(sent, [(2, 500), (3, 700)]);
        assert_eq!(drops, 2);
    }

    #[test]
    fn of_equals_the_later_is_dropped() {
        let (sent, _) = order(1, &[(1, 500), (2, 500)]);
        assert_eq!(sent, [(1, 500)]);
    }
}
