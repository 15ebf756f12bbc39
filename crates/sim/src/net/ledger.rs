//! The accounts that every queue keeps: what waits in it, and what became of packets.

use super::pool::Pool;
use super::red::{Red, Verdict};
use super::topology::Limit;
use crate::packet::{Ecn, PacketId, Packets};

/// What a port has done. Every packet that was handed to it counts in `packets` or in `drops`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets that were sent, or wait to be sent.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Drops of packets that would have been marked if they had been ECN-capable.
    pub drops_not_ect: u64,
    /// Packets marked.
    pub marks: u64,
    /// Most packets that waited at once.
    pub peak_segments: u32,
    /// Most bytes that waited at once.
    pub peak_bytes: u64,
}

impl PortStats {
    /// Updates the peaks by what waits.
    #[inline]
    pub(super) fn peak(&mut self, waiting: Waiting) {
        self.peak_segments = self.peak_segments.max(waiting.segments);
        self.peak_bytes = self.peak_bytes.max(waiting.bytes);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.drops += other.drops;
        self.drops_not_ect += other.drops_not_ect;
        self.marks += other.marks;
        self.peak_segments = self.peak_segments.max(other.peak_segments);
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
    }
}

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    pub segments: u32,
    pub bytes: u64,
}

impl Waiting {
    pub fn join(&mut self, bytes: u32) {
        self.segments += 1;
        self.bytes += u64::from(bytes);
    }

    pub fn leave(&mut self, bytes: u32) {
        self.segments -= 1;
        self.bytes -= u64::from(bytes);
    }

    pub fn within(self, limit: Limit) -> bool {
        self.segments <= limit.segments && self.bytes <= limit.bytes
    }

    /// Whether one more packet keeps to the limit.
    pub fn fits(self, limit: Limit, bytes: u32) -> bool {
        self.segments < limit.segments && self.bytes + u64::from(bytes) <= limit.bytes
    }
}

/// Whether a packet of `bytes` keeps to the limit and to the share of a common memory.
pub(super) fn fits(bytes: u32, waiting: Waiting, limit: Limit, pool: Option<&Pool>) -> bool {
    waiting.fits(limit, bytes) && pool.is_none_or(|pool| pool.admits(waiting.bytes, bytes))
}

/// The packets, and the statistics of the port whose queue handles some of them.
pub(super) struct Ledger<'a> {
    pub packets: &'a mut Packets,
    pub stats: &'a mut PortStats,
}

impl Ledger<'_> {
    #[inline]
    pub fn mark(&mut self, id: PacketId) {
        self.packets[id].ecn = Ecn::Ce;
        self.stats.marks += 1;
    }

    /// Whether a packet keeps to the limit and to the share of a common memory.
    pub fn fits(&self, id: PacketId, waiting: Waiting, limit: Limit, pool: Option<&Pool>) -> bool {
        fits(self.packets[id].wire_bytes, waiting, limit, pool)
    }

    /// Drops a packet that was not taken in.
    pub fn refuse(&mut self, id: PacketId) {
        self.packets.remove(id);
        self.stats.drops += 1;
    }

    /// Drops a packet that was taken in.
    pub fn drop_queued(&mut self, id: PacketId) {
        let packet = self.packets.remove(id);
        self.stats.drops += 1;
        self.stats.packets -= 1;
        self.stats.bytes -= u64::from(packet.wire_bytes);
    }

    /// Lets RED judge a packet that fits. Returns whether it may go on.
    #[inline(always)]
    pub fn passes(&mut self, red: Option<&mut Red>, waiting: Waiting, id: PacketId, capable: bool) -> bool {
        match red.map_or(Verdict::Pass, |red| red.judge(waiting.segments, capable)) {
            Verdict::Pass => true,
            Verdict::Mark => {
                self.mark(id);
                true
            }
            Verdict::Drop => {
                self.refuse(id);
                self.stats.drops_not_ect += 1;
                false
            }
        }
    }

    /// Counts a packet that was taken in.
    #[inline]
    pub fn accept(&mut self, bytes: u32) {
        self.stats.packets += 1;
        self.stats.bytes += u64::from(bytes);
    }
}
