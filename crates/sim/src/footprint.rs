//! How much memory the parts of a run use.

use std::collections::VecDeque;

/// Bytes that the parts of a run have allocated, used or not: what grows with use keeps the size of its busiest moment.
/// Heap structures of mechanisms, of hosts' schedulers and of queues other than FIFOs are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Both ends of all connections that were open at once.
    pub connections: u64,
    /// The part of these that describes segments in flight and gaps.
    pub segments: u64,
    /// Guests, with what waits in them.
    pub guests: u64,
    /// Ports of switches and network cards.
    pub ports: u64,
    /// What is known of packets on links and in FIFOs.
    pub queues: u64,
    /// Which port leads where.
    pub routes: u64,
    /// Packets under way.
    pub packets: u64,
    /// Future events, the workload's calls among them.
    pub events: u64,
    /// What workloads know of their flows, and what they have recorded of them.
    pub workloads: u64,
    /// Counters and series.
    pub records: u64,
}

impl Footprint {
    /// The parts' names and bytes; [`Self::segments`] are in the connections.
    pub fn parts(&self) -> [(&'static str, u64); 9] {
        [
            ("connections", self.connections),
            ("guests", self.guests),
            ("ports", self.ports),
            ("queues and links", self.queues),
            ("routes", self.routes),
            ("packets", self.packets),
            ("events", self.events),
            ("workloads", self.workloads),
            ("records", self.records),
        ]
    }

    /// All parts together.
    pub fn total(&self) -> u64 {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Bytes that a vector has allocated.
pub(crate) fn of_vec<T>(vec: &Vec<T>) -> u64 {
    (vec.capacity() * size_of::<T>()) as u64
}

/// Bytes that a queue has allocated.
pub(crate) fn of_deque<T>(deque: &VecDeque<T>) -> u64 {
    (deque.capacity() * size_of::<T>()) as u64
}
