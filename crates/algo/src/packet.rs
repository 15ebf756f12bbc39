//! Reading Ethernet, VLAN tags, IPv4, IPv6 and TCP, as the eBPF programs do.

use crate::sys;

/// How much of a frame is looked at.
pub const HEAD_BYTES: usize = sys::PACKET_HEAD_BYTES as usize;

/// A TCP segment's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Source address; IPv4 as `::ffff:a.b.c.d`.
    pub source: [u8; 16],
    /// Destination address, likewise.
    pub destination: [u8; 16],
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Bytes of data.
    pub payload_bytes: u32,
    /// The window field.
    pub window: u16,
    /// Offset of the IP header.
    pub l3: u16,
    /// Offset of the TCP header.
    pub l4: u16,
    /// Length of the TCP header.
    pub tcp_bytes: u8,
    /// The flags, FIN lowest.
    pub flags: u8,
    /// The ECN field.
    pub ecn: u8,
    /// Version of IP.
    pub version: u8,
}

/// Options of a TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale as it is in the option, which may be more than 14.
    pub wscale: Option<u8>,
    /// Whether it has timestamps.
    pub has_timestamps: bool,
    /// Offset in the frame of the first option of kind 254.
    pub experiment: Option<u16>,
    /// Whether the header is signed, or summed in another way than TCP's own: RFC 1146, 2385, 5925.
    pub is_signed: bool,
    /// Whether it counts ECN marks: accurate ECN, RFC 9768.
    pub counts_ecn: bool,
    /// Whether it may be answered before the handshake is over: TCP Fast Open, or an experiment.
    pub opens_fast: bool,
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP; its options are `None` if they are malformed.
    Tcp(Packet, Option<Options>),
    /// Well formed as far as it was read, but not TCP, or a fragment.
    Other,
    /// Headers that contradict themselves or the frame's length.
    Broken,
}

/// Reads the first [`HEAD_BYTES`] bytes of a frame.
pub fn parse(frame: &[u8]) -> Kind {
    parse_head(frame, frame.len())
}

/// Reads the beginning of a frame of `frame_bytes` bytes.
pub fn parse_head(head: &[u8], frame_bytes: usize) -> Kind {
    let valid = head.len().min(HEAD_BYTES);
    let mut input = sys::packet_head {
        bytes: [0; HEAD_BYTES],
        valid: valid as u32,
        frame_bytes: u32::try_from(frame_bytes).unwrap_or(u32::MAX),
    };
    input.bytes[..valid].copy_from_slice(&head[..valid]);
    let mut packet = sys::packet::default();
    // SAFETY: both pointers are to live values for the length of the call; the C code does not keep them.
    match unsafe { sys::packet_parse(&input, &mut packet) } {
        sys::packet_kind::PACKET_OTHER => return Kind::Other,
        sys::packet_kind::PACKET_BROKEN => return Kind::Broken,
        sys::packet_kind::PACKET_TCP => {}
    }
    let mut options = sys::packet_options::default();
    // SAFETY: as above.
    let is_well_formed = unsafe { sys::packet_parse_options(&input, &packet, &mut options) };
    let options = is_well_formed.then(|| Options {
        mss: (options.mss != 0).then_some(options.mss),
        wscale: (options.wscale != 0xff).then_some(options.wscale),
        has_timestamps: options.has_timestamps,
        experiment: (options.experiment != 0).then_some(options.experiment),
        is_signed: options.claims & sys::packet_claim_PACKET_SIGNED != 0,
        counts_ecn: options.claims & sys::packet_claim_PACKET_COUNTS_ECN != 0,
        opens_fast: options.opens_fast,
    });
    let p = packet;
    Kind::Tcp(
        Packet {
            source: p.source,
            destination: p.destination,
            source_port: p.source_port,
            destination_port: p.destination_port,
            seq: p.seq,
            ack: p.ack,
            payload_bytes: p.payload_bytes,
            window: p.window,
            l3: p.l3,
            l4: p.l4,
            tcp_bytes: p.tcp_bytes,
            flags: p.flags,
            ecn: p.ecn,
            version: p.version,
        },
        options,
    )
}

/// Writes NOPs over the SACK blocks (RFC 2018) among TCP's options, at most 40 bytes. Returns whether there were any.
pub fn hide_sack(options: &mut [u8]) -> bool {
    let mut room = [0; sys::PACKET_OPTIONS_BYTES as usize];
    let length = options.len().min(room.len());
    room[..length].copy_from_slice(&options[..length]);
    // SAFETY: the room is as large as the C code says, and it is told how much of it counts.
    let is_hidden = unsafe { sys::packet_hide_sack(room.as_mut_ptr(), length as u32) };
    options[..length].copy_from_slice(&room[..length]);
    is_hidden
}
