//! Packets as Ethernet frames, with the headers and options that Linux sends.

use etherparse::{EtherType, Ethernet2Header, IcmpEchoHeader, Icmpv4Header, Icmpv4Type, IpEcn, IpNumber, Ipv4Header};
use etherparse::{TcpHeader, TcpOptionElement};
use evenkeel_scenario::trace::{Carries, Ecn, Packet, Probe, Segment};

use super::ports::{Ports, address, mac};

/// Hops that an IP packet may take, as Linux has it.
const TTL: u8 = 64;
/// IPv4 and TCP headers without options.
const HEADER_BYTES: u32 = 40;
/// An echo request's data: with its header 64 bytes.
const ECHO_DATA_BYTES: usize = 56;
/// Payload that any packet can have.
static ZEROS: [u8; 65_535] = [0; 65_535];
/// ProBoSCIS's option (algo/proboscis/wire.h): kind, length, and who it is from.
const PROBE_OPTION: [u8; 6] = [254, 20, b'E', b'V', b'K', b'L'];
const PROBE_VERSION: u8 = 1;
/// How far from the SYN's sequence number a probe's or a report's is.
const PROBE_OFFSET: u32 = 1 << 31;
/// The same of later trains ahead of a SYN.
const LATER_PROBE_OFFSET: u32 = 2;

/// A frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its bytes, as many as are wanted.
    pub bytes: Vec<u8>,
    /// How many it has.
    pub length: u32,
}

/// A packet as a frame: all of it if `payload` is wanted, or only its headers. None if its connection is not known, or
/// if it is too long for IP's length field.
pub fn frame(packet: &Packet, ports: &Ports, mtu_bytes: u32, payload: bool) -> Option<Frame> {
    let content = match &packet.carries {
        Carries::Tcp(segment) => {
            let [source, destination] = directed(ports.of(segment.by.connection)?, segment.by.is_opener);
            let header = tcp(segment, source, destination, mtu_bytes)?;
            Content::Tcp(Box::new(header), segment.payload_bytes as usize)
        }
        Carries::Probe(probe) => {
            let [source, destination] = directed(ports.of(probe.by.connection)?, probe.by.is_opener);
            Content::Tcp(Box::new(of_probe(probe, source, destination)?), 0)
        }
        Carries::Echo { number, is_reply } => {
            let echo = IcmpEchoHeader { id: 1, seq: *number as u16 };
            let kind = if *is_reply { Icmpv4Type::EchoReply(echo) } else { Icmpv4Type::EchoRequest(echo) };
            Content::Icmp(Icmpv4Header::with_checksum(kind, &ZEROS[..ECHO_DATA_BYTES]), ECHO_DATA_BYTES)
        }
    };
    written(packet, content, payload)
}

enum Content {
    Tcp(Box<TcpHeader>, usize),
    Icmp(Icmpv4Header, usize),
}

fn written(packet: &Packet, content: Content, payload: bool) -> Option<Frame> {
    let (header_bytes, payload_bytes, protocol) = match &content {
        Content::Tcp(header, bytes) => (header.header_len(), *bytes, IpNumber::TCP),
        Content::Icmp(header, bytes) => (header.header_len(), *bytes, IpNumber::ICMP),
    };
    let ip_payload = u16::try_from(header_bytes + payload_bytes).ok()?;
    let mut ip = Ipv4Header::new(ip_payload, TTL, protocol, address(packet.from), address(packet.to)).ok()?;
    // A packet that must not be fragmented needs no identification (RFC 6864).
    ip.dont_fragment = true;
    ip.ecn = IpEcn::try_new(match packet.ecn {
        Ecn::NotEct => 0,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    })
    .ok()?;
    ip.header_checksum = ip.calc_header_checksum();
    let ethernet =
        Ethernet2Header { source: mac(packet.from), destination: mac(packet.to), ether_type: EtherType::IPV4 };
    let zeros = &ZEROS[..payload_bytes];
    let mut bytes = Vec::with_capacity(Ethernet2Header::LEN + ip.header_len() + header_bytes + payload_bytes);
    bytes.extend_from_slice(&ethernet.to_bytes());
    bytes.extend_from_slice(&ip.to_bytes());
    match content {
        Content::Tcp(mut header, _) => {
            header.checksum = header.calc_checksum_ipv4(&ip, zeros).ok()?;
            bytes.extend_from_slice(&header.to_bytes());
        }
        Content::Icmp(header, _) => bytes.extend_from_slice(&header.to_bytes()),
    }
    let length = (bytes.len() + payload_bytes) as u32;
    if payload {
        bytes.extend_from_slice(zeros);
    }
    Some(Frame { bytes, length })
}

/// The ports of an end, its own first.
fn directed([opener, acceptor]: [u16; 2], is_opener: bool) -> [u16; 2] {
    if is_opener { [opener, acceptor] } else { [acceptor, opener] }
}

fn tcp(segment: &Segment, source: u16, destination: u16, mtu_bytes: u32) -> Option<TcpHeader> {
    let mut header = TcpHeader::new(source, destination, segment.seq, segment.window);
    header.ack = segment.ack.is_some();
    header.acknowledgment_number = segment.ack.unwrap_or(0);
    header.syn = segment.syn.is_some();
    header.ece = segment.ece;
    header.cwr = segment.cwr;
    header.psh = segment.psh;
    header.set_options(&options(segment, mtu_bytes)).ok()?;
    Some(header)
}

/// In Linux's order, padded as there.
fn options(segment: &Segment, mtu_bytes: u32) -> Vec<TcpOptionElement> {
    use TcpOptionElement::{MaximumSegmentSize, Noop, SelectiveAcknowledgementPermitted, Timestamp, WindowScale};
    let mut options = Vec::new();
    let permits_sack = segment.syn.is_some_and(|syn| syn.sack_permitted);
    if segment.syn.is_some() {
        options.push(MaximumSegmentSize(mtu_bytes.saturating_sub(HEADER_BYTES).min(u32::from(u16::MAX)) as u16));
    }
    match segment.timestamps {
        Some([own, echoed]) if permits_sack => {
            options.extend([SelectiveAcknowledgementPermitted, Timestamp(own, echoed)]);
        }
        Some([own, echoed]) => options.extend([Noop, Noop, Timestamp(own, echoed)]),
        None if permits_sack => options.extend([Noop, Noop, SelectiveAcknowledgementPermitted]),
        None => {}
    }
    if let Some(syn) = segment.syn {
        options.extend([Noop, WindowScale(syn.window_scale)]);
    }
    if let [first, rest @ ..] = &segment.sack[..usize::from(segment.sack_count)] {
        let mut more = [None; 3];
        more.iter_mut().zip(rest).for_each(|(place, block)| *place = Some(*block));
        options.extend([Noop, Noop, TcpOptionElement::SelectiveAcknowledgement(*first, more)]);
    }
    options
}

/// A probe or a report; its tag, a matter of the hosts' keys, is 0.
fn of_probe(probe: &Probe, source: u16, destination: u16) -> Option<TcpHeader> {
    let precedes_syn = probe.report.is_none() && !probe.is_answer;
    let seq = if precedes_syn && probe.train > 0 { LATER_PROBE_OFFSET } else { PROBE_OFFSET };
    let mut header = TcpHeader::new(source, destination, seq, 0);
    header.rst = precedes_syn && probe.train == 0;
    let mut option = [0; 20];
    option[..PROBE_OPTION.len()].copy_from_slice(&PROBE_OPTION);
    let kind = match (probe.report, probe.is_answer) {
        (Some(_), _) => 2,
        (None, true) => 3,
        (None, false) => 1,
    };
    let [seen, marked] = probe.report.unwrap_or([0, 0]);
    option[6..12].copy_from_slice(&[PROBE_VERSION << 4 | kind, probe.train, probe.index, probe.total, seen, marked]);
    header.set_options_raw(&option).ok()?;
    Some(header)
}

#[cfg(test)]
mod tests {
    use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
    use evenkeel_scenario::trace::{End, Origin, Point, Syn, Way};
    use proptest::prelude::*;

    use super::*;

    fn packet(carries: Carries, ecn: Ecn) -> Packet {
        let (point, way, origin) = (Point::NetworkSide, Way::In, Origin::Passes);
        Packet { machine: 1, point, way, origin, from: 0, to: 1, ecn, carries }
    }

    fn segments() -> impl Strategy<Value = Segment> {
        let numbers = (any::<u32>(), any::<Option<u32>>(), 0..60_000_u32, any::<u16>());
        let blocks = (any::<[(u32, u32); 3]>(), 0..=3_u8);
        let syn = prop::option::of((0..=14_u8, any::<bool>()));
        (numbers, any::<[bool; 4]>(), prop::option::of(any::<[u32; 2]>()), blocks, syn).prop_map(
            |((seq, ack, payload_bytes, window), [is_opener, ece, cwr, psh], timestamps, (sack, count), syn)| Segment {
                by: End { connection: 0, is_opener },
                seq,
                ack,
                payload_bytes,
                window,
                syn: syn.map(|(window_scale, sack_permitted)| Syn { window_scale, sack_permitted }),
                ece,
                cwr,
                psh,
                timestamps,
                sack,
                // No SYN has any, and no header more room.
                sack_count: if syn.is_some() { 0 } else { count },
            },
        )
    }

    proptest! {
        #[test]
        fn a_segment_is_read_as_it_was_written(segment in segments()) {
            let mut ports = Ports::default();
            ports.open([0, 1]);
            let frame = frame(&packet(Carries::Tcp(segment), Ecn::Ce), &ports, 1500, true).unwrap();
            prop_assert_eq!(frame.bytes.len(), frame.length as usize);
            let read = PacketHeaders::from_ethernet_slice(&frame.bytes).unwrap();
            let (Some(NetHeaders::Ipv4(ip, _)), Some(TransportHeader::Tcp(tcp))) = (read.net, read.transport) else {
                panic!("no TCP over IPv4");
            };
            prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            let data = read.payload.slice();
            prop_assert_eq!(tcp.checksum, tcp.calc_checksum_ipv4(&ip, data).unwrap());
            prop_assert_eq!(ip.ecn.value(), 3);
            prop_assert_eq!(data.len(), segment.payload_bytes as usize);
            prop_assert!(data.iter().all(|byte| *byte == 0));
            prop_assert_eq!((tcp.sequence_number, tcp.window_size), (segment.seq, segment.window));
            prop_assert_eq!(tcp.ack.then_some(tcp.acknowledgment_number), segment.ack);
            let flags = (segment.ece, segment.cwr, segment.psh, segment.syn.is_some());
            prop_assert_eq!((tcp.ece, tcp.cwr, tcp.psh, tcp.syn), flags);
            let ports = [tcp.source_port, tcp.destination_port];
            prop_assert_eq!(ports, if segment.by.is_opener { [49_152, 49_000] } else { [49_000, 49_152] });
            let found: Vec<_> = tcp.options_iterator().collect::<Result<_, _>>().unwrap();
            let is_known = |option: &&TcpOptionElement| **option != TcpOptionElement::Noop;
            let wanted = options(&segment, 1500);
            let count = |of: &[TcpOptionElement]| of.iter().filter(is_known).count();
            prop_assert_eq!(count(&found), count(&wanted));
            for option in wanted.iter().filter(is_known) {
                prop_assert!(found.contains(option), "{option:?} of {found:?}");
            }
        }
    }

    #[test]
    fn headers_alone_are_the_same_headers() {
        let mut ports = Ports::default();
        ports.open([0, 1]);
        let by = End { connection: 0, is_opener: true };
        let probe = Carries::Probe(Probe { by, report: Some([9, 3]), is_answer: false, train: 1, index: 0, total: 10 });
        for carries in [Carries::Echo { number: 7, is_reply: true }, probe] {
            let [all, headers] =
                [true, false].map(|all| frame(&packet(carries, Ecn::Ect0), &ports, 1500, all).unwrap());
            assert_eq!(all.length, headers.length);
            assert_eq!(all.bytes[..headers.bytes.len()], headers.bytes);
        }
        let echo = frame(&packet(Carries::Echo { number: 7, is_reply: true }, Ecn::NotEct), &ports, 1500, true);
        assert_eq!(echo.unwrap().length, 14 + 84);
        let report = frame(&packet(probe, Ecn::Ect0), &ports, 1500, true).unwrap();
        // The option, without its tag.
        assert_eq!(report.bytes[54..66], [254, 20, b'E', b'V', b'K', b'L', 0x12, 1, 0, 10, 9, 3]);
        // Sequence number and flags.
        for (train, is_answer, seq, flags) in
            [(0, false, 1 << 31, 4), (1, false, 2u32, 0), (0, true, 1 << 31, 0), (1, true, 1 << 31, 0)]
        {
            let probe = Carries::Probe(Probe { by, report: None, is_answer, train, index: 0, total: 10 });
            let bytes = frame(&packet(probe, Ecn::Ect0), &ports, 1500, true).unwrap().bytes;
            assert_eq!((&bytes[38..42], bytes[47]), (&seq.to_be_bytes()[..], flags));
        }
    }

    #[test]
    fn a_packet_of_no_connection_is_none() {
        let by = End { connection: 0, is_opener: true };
        let probe = Probe { by, report: None, is_answer: false, train: 0, index: 0, total: 10 };
        assert_eq!(frame(&packet(Carries::Probe(probe), Ecn::NotEct), &Ports::default(), 1500, true), None);
    }
}
