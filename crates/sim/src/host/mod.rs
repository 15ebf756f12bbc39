//! A VM's port on its host: the driver domain, which never sleeps, between the network card and the VM.
//!
//! Every packet crosses it in order and in a fixed time, in either direction. A packet for the VM then waits in the
//! port's queue until the virtual CPU takes it, or is dropped if the queue is full. A ring may lie between the queue
//! and the VM; it bounds what the VM hands over.

pub mod cera;
pub mod cores;
pub mod proboscis;
pub mod scheduler;
pub mod shim;
pub mod vflood;
pub mod vsnoop;

use std::collections::VecDeque;

use crate::footprint::of_deque;
use crate::packet::PacketId;
use crate::time::{Duration, Instant};
use shim::Shims;

/// A port's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// How long a packet takes to cross the driver domain.
    pub delay: Duration,
    /// Packets that may wait for the virtual CPU.
    pub queue_segments: u32,
    /// Packets that the ring between VM and host holds in each direction. Packets for the VM fill it before any wait in
    /// the queue; the VM's packets stay in it until they have left the host. `None`: no ring, and no bound on what the
    /// VM hands over.
    pub ring_slots: Option<u32>,
}

/// What a port has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets towards the VM, those dropped included.
    pub to_vm: u64,
    /// Packets from the VM.
    pub from_vm: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
    /// Most that waited in the queue.
    pub peak_segments: u32,
}

/// Packets on their way through the driver domain, the oldest first.
#[derive(Debug, Default)]
pub struct Crossing(VecDeque<(Instant, PacketId)>);

impl Crossing {
    /// A packet enters. Returns when it is across if it is the only one; otherwise an event for an earlier one is
    /// pending.
    pub fn enter(&mut self, across: Instant, packet: PacketId) -> Option<Instant> {
        self.0.push_back((across, packet));
        (self.0.len() == 1).then_some(across)
    }

    /// The oldest packet is across. Returns it, and when the next one is across.
    pub fn leave(&mut self) -> Option<(PacketId, Option<Instant>)> {
        let (_, packet) = self.0.pop_front()?;
        Some((packet, self.0.front().map(|next| next.0)))
    }
}

/// A port.
#[derive(Debug)]
pub struct Port {
    pub(crate) delay: Duration,
    pub(crate) queue_segments: usize,
    pub(crate) ring_slots: Option<usize>,
    /// Packets from the VM that are on their way through the driver domain.
    pub(crate) entered: usize,
    pub(crate) to_vm: Crossing,
    pub(crate) from_vm: Crossing,
    /// The mechanisms on the host.
    pub shims: Shims,
    pub(crate) stats: PortStats,
}

impl Port {
    /// A port that nothing has crossed yet.
    pub fn new(spec: &PortSpec) -> Self {
        Self {
            delay: spec.delay,
            queue_segments: spec.queue_segments as usize,
            ring_slots: spec.ring_slots.map(|slots| slots as usize),
            entered: 0,
            to_vm: Crossing::default(),
            from_vm: Crossing::default(),
            shims: Shims::default(),
            stats: PortStats::default(),
        }
    }

    /// Bytes allocated for packets that cross it.
    pub(crate) fn heap_bytes(&self) -> u64 {
        of_deque(&self.to_vm.0) + of_deque(&self.from_vm.0)
    }

    /// Packets that may wait for the VM, in the ring and in the queue.
    #[inline]
    pub(crate) fn places(&self) -> usize {
        self.queue_segments + self.ring_slots.unwrap_or(0)
    }

    /// Whether the ring has a place for a packet of the VM's. Packets that the host holds are copies and keep no place:
    /// otherwise retransmissions could not come in, and nothing else lets held data out.
    #[inline]
    pub(crate) fn has_slot(&self) -> bool {
        self.ring_slots.is_none_or(|slots| self.entered < slots)
    }

    /// What it has done so far.
    pub const fn stats(&self) -> &PortStats {
        &self.stats
    }
}
