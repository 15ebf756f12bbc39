//! Packets that the host itself sends.

use evenkeel_algo::proboscis::TCP_BYTES;

use crate::packet::{AheadOf, Ecn, FRAME_OVERHEAD_BYTES, GuestId, Packet, Payload};

/// IPv4, and TCP with the probe's option.
const PROBE_BYTES: u32 = 20 + TCP_BYTES;

/// A packet that the host itself sends, on the path of a packet of its VM.
pub(super) fn own(of: &Packet, ecn: Ecn, payload: Payload) -> Packet {
    Packet { wire_bytes: FRAME_OVERHEAD_BYTES + PROBE_BYTES, ecn, remaining_bytes: 0, payload, ..*of }
}

/// A train of probes to be sent.
#[derive(Clone, Copy)]
pub(super) struct SentTrain {
    pub from: GuestId,
    pub ahead_of: AheadOf,
    pub number: u8,
    pub total: u8,
}

impl SentTrain {
    /// Its probes, on the path of a SYN or SYN-ACK.
    pub(super) fn ahead_of(self, packet: &Packet) -> impl Iterator<Item = Packet> {
        let Self { from, ahead_of, number: train, total } = self;
        let to = packet.payload.end().unwrap_or_default();
        let probe = move |index| Payload::Probe { to, from, ahead_of, train, index, total };
        (0..total).map(move |index| own(packet, Ecn::Ect0, probe(index)))
    }
}
