//! Packets in flight, in a slab.

use crate::footprint::of_vec;
use crate::memory::{self, prefetch};
use crate::time::Instant;

/// Bytes on the wire around an IP packet: Ethernet header and checksum, preamble and gap.
pub const FRAME_OVERHEAD_BYTES: u32 = 38;
/// IPv4 and TCP headers without options.
pub const HEADER_BYTES: u32 = 40;
/// The shortest Ethernet frame, preamble and gap included.
const MIN_WIRE_BYTES: u32 = 84;
/// A bare ACK: headers, and timestamps.
const ACK_BYTES: u32 = FRAME_OVERHEAD_BYTES + HEADER_BYTES + 12;

/// A machine with a network card: an end of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A VM, or a machine without a hypervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestId(pub u32);

/// One end of a connection. `generation` tells the present connection in a slot from earlier ones, whose late packets
/// are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    /// Slot in the table of connections.
    pub index: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// A packet in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketId(pub u32);

/// The ECN field of the IP header (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The ends do not use ECN.
    #[default]
    NotEct,
    /// ECN-capable.
    Ect0,
    /// Congestion experienced.
    Ce,
}

/// TCP flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// Opens a connection.
    pub const SYN: Self = Self(1);
    /// The acknowledgement number is valid.
    pub const ACK: Self = Self(2);
    /// ECN echo: a mark was seen (RFC 3168; per-packet state in RFC 8257).
    pub const ECE: Self = Self(4);
    /// Congestion window reduced.
    pub const CWR: Self = Self(8);
    /// The last segment of what the application has written.
    pub const PSH: Self = Self(16);
    /// On a SYN: selective acknowledgements are understood.
    pub const SACK_PERMITTED: Self = Self(32);

    /// Whether all of these are set.
    #[inline]
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These without others.
    #[inline]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// These and others.
    #[inline]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

/// Most SACK blocks in a segment with timestamps (RFC 2018).
pub const MAX_SACK_BLOCKS: usize = 3;

/// SACK blocks, the most recent first; a DSACK (RFC 2883) is the first block, at or below the acknowledgement or inside
/// the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    /// Left edge (included) and right edge (excluded).
    pub blocks: [(u32, u32); MAX_SACK_BLOCKS],
    /// How many blocks are used.
    pub count: u8,
}

/// A TCP header, with its options and the length of the payload. Sequence numbers wrap as on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First byte of the payload.
    pub seq: u32,
    /// Next byte expected, if [`Flags::ACK`].
    pub ack: u32,
    /// Length of the payload.
    pub payload_bytes: u32,
    /// The window field, still to be scaled; on a SYN, in bytes.
    pub window: u16,
    /// Window scale offered on a SYN (RFC 7323).
    pub window_scale: u8,
    /// Flags.
    pub flags: Flags,
    /// TSval (RFC 7323), microseconds; 0 without timestamps.
    pub ts_val: u32,
    /// TSecr.
    pub ts_ecr: u32,
    /// SACK blocks.
    pub sack: SackBlocks,
}

impl Segment {
    /// Bytes on the wire, with the options that Linux sends.
    #[inline]
    pub fn wire_bytes(&self) -> u32 {
        let timestamps = if self.ts_val != 0 { 12 } else { 0 };
        let blocks = if self.sack.count > 0 { 4 + 8 * u32::from(self.sack.count) } else { 0 };
        let of_syn = if self.flags.has(Flags::SYN) { 8 } else { 0 };
        (FRAME_OVERHEAD_BYTES + HEADER_BYTES + timestamps + blocks + of_syn + self.payload_bytes).max(MIN_WIRE_BYTES)
    }

    /// Bytes of sequence space: the payload, and one for a SYN.
    #[inline]
    pub const fn seq_len(&self) -> u32 {
        self.payload_bytes + self.flags.has(Flags::SYN) as u32
    }
}

/// What a probe precedes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AheadOf {
    /// A SYN.
    Syn,
    /// A SYN whose SYN-ACK is to have probes, too.
    SynToProbeBack,
    /// A SYN-ACK.
    SynAck,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A TCP segment for this end of a connection.
    Tcp(ConnId, Segment),
    /// A probe of ProBoSCIS, from host to host, on the path of a SYN or SYN-ACK for this end.
    Probe {
        /// The end that the SYN opens, or the end that has sent the SYN.
        to: ConnId,
        /// The VM that sent the SYN or SYN-ACK.
        from: GuestId,
        /// What it goes ahead of.
        ahead_of: AheadOf,
        /// Number of the train.
        train: u8,
        /// Its place in the train.
        index: u8,
        /// Length of the train.
        total: u8,
    },
    /// A report on a SYN's probes, back to this end's host.
    Report {
        /// The end that sent the SYN.
        to: ConnId,
        /// The VM that answers it.
        from: GuestId,
        /// How many came.
        seen: u8,
        /// How many of these were marked.
        marked: u8,
    },
    /// An ICMP echo request or its reply.
    Echo {
        /// Who asked.
        from: GuestId,
        /// Number of the request.
        number: u32,
        /// Whether this is the reply.
        reply: bool,
    },
}

impl Payload {
    /// The end of a connection that it is addressed to.
    #[inline]
    pub const fn end(&self) -> Option<ConnId> {
        match *self {
            Self::Tcp(to, _) | Self::Probe { to, .. } | Self::Report { to, .. } => Some(to),
            Self::Echo { .. } => None,
        }
    }
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The host it goes to.
    pub dst: HostId,
    /// The guest on that host.
    pub guest: GuestId,
    /// Hash of its 5-tuple: the same for all packets of a direction of a flow (ECMP, FQ-CoDel).
    pub flow_hash: u32,
    /// Bytes on the wire, [`FRAME_OVERHEAD_BYTES`] included.
    pub wire_bytes: u32,
    /// Priority class, 0 first (PIAS).
    pub class: u8,
    /// ECN field.
    pub ecn: Ecn,
    /// Payload of each of its segments but the last, if the guest leaves the cutting to others (GSO); 0: it is a single
    /// segment.
    pub gso_bytes: u16,
    /// Bytes that the flow still has to send, this packet's included (pFabric).
    pub remaining_bytes: u32,
    /// When it entered the queue that it is in.
    pub enqueued: Instant,
    /// Headers and payload.
    pub payload: Payload,
}

impl Packet {
    /// Payload of each of its segments but the last one, if it is to be cut.
    #[inline]
    pub fn segment_bytes(&self) -> Option<u32> {
        (self.gso_bytes > 0).then_some(u32::from(self.gso_bytes))
    }

    /// Its segments, in order, as packets of their own: only the first keeps CWR, only the last PSH.
    pub fn cut(&self) -> impl DoubleEndedIterator<Item = Self> + use<> {
        let of = *self;
        let payload_bytes = if let Payload::Tcp(_, whole) = of.payload { whole.payload_bytes } else { 0 };
        let size = self.segment_bytes().unwrap_or(payload_bytes).max(1);
        let last = payload_bytes.div_ceil(size).max(1) - 1;
        (0..=last).map(move |index| {
            let mut packet = of;
            if let (Payload::Tcp(_, segment), 1..) = (&mut packet.payload, of.gso_bytes) {
                let start = index * size;
                segment.seq = segment.seq.wrapping_add(start);
                segment.payload_bytes = size.min(payload_bytes - start);
                if index < last {
                    segment.flags = segment.flags.without(Flags::PSH);
                }
                if index > 0 {
                    segment.flags = segment.flags.without(Flags::CWR);
                }
                packet.wire_bytes = segment.wire_bytes();
                packet.gso_bytes = 0;
            }
            packet
        })
    }

    /// Its ACK, without its data.
    pub fn bare_ack(&self, seq: u32) -> Self {
        let mut ack = Self { wire_bytes: ACK_BYTES, gso_bytes: 0, remaining_bytes: 0, ..*self };
        if let Payload::Tcp(_, segment) = &mut ack.payload {
            *segment = Segment { seq, payload_bytes: 0, flags: segment.flags.without(Flags::PSH), ..*segment };
        }
        ack
    }
}

/// The packets in flight.
#[derive(Debug, Default)]
pub struct Packets {
    slots: Vec<Packet>,
    free: Vec<u32>,
}

impl Packets {
    /// Takes a packet in.
    #[inline]
    pub fn insert(&mut self, packet: Packet) -> PacketId {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = packet;
            return PacketId(index);
        }
        memory::push(&mut self.slots, packet);
        PacketId((self.slots.len() - 1) as u32)
    }

    /// Gives a packet's slot to later ones.
    #[inline]
    pub fn remove(&mut self, id: PacketId) -> Packet {
        self.free.push(id.0);
        self.slots[id.0 as usize]
    }

    /// Prefetches a packet.
    #[inline]
    pub fn prefetch(&self, id: PacketId) {
        prefetch(self.slots.as_ptr().wrapping_add(id.0 as usize));
    }

    /// How many are in flight.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether none is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the slab has allocated.
    pub(crate) fn bytes(&self) -> u64 {
        of_vec(&self.slots) + of_vec(&self.free)
    }

    /// Most that were in flight at once.
    pub fn peak(&self) -> usize {
        self.slots.len()
    }
}

impl std::ops::Index<PacketId> for Packets {
    type Output = Packet;
    #[inline]
    fn index(&self, id: PacketId) -> &Packet {
        &self.slots[id.0 as usize]
    }
}

impl std::ops::IndexMut<PacketId> for Packets {
    #[inline]
    fn index_mut(&mut self, id: PacketId) -> &mut Packet {
        &mut self.slots[id.0 as usize]
    }
}
