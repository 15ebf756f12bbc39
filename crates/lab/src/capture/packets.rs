//! Reads TCP headers from a pcap file of the lab or of tcpdump.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TcpOptionElement, TransportSlice};
use pcap_file::pcap::PcapReader;
use pcap_file::{DataLink, PcapError, TsResolution};

use super::live::SLL2_BYTES;

/// Length of a LINUX_SLL header.
const SLL_BYTES: usize = 16;
/// `sll_pkttype` of a packet that leaves the interface.
const PACKET_OUTGOING: u8 = 4;
/// More packets than any capture of the lab holds.
const MAX_PACKETS: usize = 50_000_000;

/// The flags of a TCP header, as in its 14th byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// FIN.
    pub const FIN: u8 = 0x01;
    /// SYN.
    pub const SYN: u8 = 0x02;
    /// RST.
    pub const RST: u8 = 0x04;
    /// ACK.
    pub const ACK: u8 = 0x10;

    /// Whether FIN is set.
    #[must_use]
    pub fn fin(self) -> bool {
        self.0 & Self::FIN != 0
    }

    /// Whether SYN is set.
    #[must_use]
    pub fn syn(self) -> bool {
        self.0 & Self::SYN != 0
    }

    /// Whether RST is set.
    #[must_use]
    pub fn rst(self) -> bool {
        self.0 & Self::RST != 0
    }

    /// Whether ACK is set.
    #[must_use]
    pub fn ack(self) -> bool {
        self.0 & Self::ACK != 0
    }
}

/// One TCP packet; with segmentation offload it can be many segments long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// CLOCK_REALTIME of the machine that captured it.
    pub t_ns: i64,
    /// Interface number, where the file tells it.
    pub interface: Option<u32>,
    /// Whether it was leaving the interface (at a tap: towards the VM), where the file tells it.
    pub outgoing: Option<bool>,
    /// Address and port it comes from.
    pub src: SocketAddr,
    /// Address and port it goes to.
    pub dst: SocketAddr,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Payload bytes, as the IP header has it.
    pub len: u32,
    /// Flags.
    pub flags: Flags,
    /// The window field, unscaled.
    pub window: u16,
    /// SACK blocks, first byte and the one after the last.
    pub sack: Vec<(u32, u32)>,
}

/// What is in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// TCP packets in the order of time.
    pub packets: Vec<Packet>,
    /// Records that are no TCP packets or cut too short to tell.
    pub skipped: u64,
    /// Whether the file ends in the middle of a record, as when the VM that wrote it was switched off.
    pub cut_off: bool,
}

/// Reads a file.
///
/// # Errors
/// When it cannot be read or is no pcap file of a link type known here.
pub fn read(file: &Path) -> anyhow::Result<Trace> {
    let input = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    read_from(input).with_context(|| format!("cannot read {}", file.display()))
}

/// Reads a pcap stream.
///
/// # Errors
/// When it is no pcap stream of a link type known here.
pub fn read_from(input: impl Read) -> anyhow::Result<Trace> {
    let mut reader = PcapReader::new(input).context("no pcap file")?;
    let header = reader.header();
    let link = Link::of(header.datalink).with_context(|| format!("link type {:?} is not known", header.datalink))?;
    let unit_ns = if header.ts_resolution == TsResolution::NanoSecond { 1 } else { 1000 };
    let mut trace = Trace::default();
    // Raw records: the checked reader refuses a packet of which only a part was kept.
    while let Some(record) = reader.next_raw_packet() {
        let record = match record {
            Ok(record) => record,
            Err(PcapError::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                trace.cut_off = true;
                break;
            }
            Err(error) => return Err(error).context("a broken record"),
        };
        anyhow::ensure!(trace.packets.len() < MAX_PACKETS, "more than {MAX_PACKETS} packets");
        let t_ns = i64::from(record.ts_sec) * 1_000_000_000 + i64::from(record.ts_frac) * unit_ns;
        match parse(link, &record.data, record.orig_len, t_ns) {
            Some(packet) => trace.packets.push(packet),
            None => trace.skipped += 1,
        }
    }
    trace.packets.sort_by_key(|packet| packet.t_ns);
    Ok(trace)
}

/// What a record begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Ethernet,
    LinuxSll,
    LinuxSll2,
    Ip,
}

impl Link {
    fn of(datalink: DataLink) -> Option<Self> {
        match datalink {
            DataLink::ETHERNET => Some(Self::Ethernet),
            DataLink::LINUX_SLL => Some(Self::LinuxSll),
            DataLink::LINUX_SLL2 => Some(Self::LinuxSll2),
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Some(Self::Ip),
            _ => None,
        }
    }
}

/// Parses one record. None if it is no TCP packet, or its TCP header is incomplete.
fn parse(link: Link, data: &[u8], wire_len: u32, t_ns: i64) -> Option<Packet> {
    let (mut interface, mut outgoing) = (None, None);
    let sliced = match link {
        Link::Ethernet => LaxSlicedPacket::from_ethernet(data).ok()?,
        Link::LinuxSll => {
            let (header, rest) = data.split_at_checked(SLL_BYTES)?;
            outgoing = Some(header[1] == PACKET_OUTGOING);
            LaxSlicedPacket::from_ether_type(EtherType(u16::from_be_bytes([header[14], header[15]])), rest)
        }
        Link::LinuxSll2 => {
            let (header, rest) = data.split_at_checked(SLL2_BYTES)?;
            interface = Some(u32::from_be_bytes([header[4], header[5], header[6], header[7]]));
            outgoing = Some(header[10] == PACKET_OUTGOING);
            LaxSlicedPacket::from_ether_type(EtherType(u16::from_be_bytes([header[0], header[1]])), rest)
        }
        Link::Ip => LaxSlicedPacket::from_ip(data).ok()?,
    };
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else {
        return None;
    };
    // The addresses, the IP header and its length, and the length of the whole IP packet.
    let (source, destination, ip_start, ip_header, ip_len) = match sliced.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let addresses = (header.source_addr().into(), header.destination_addr().into());
            (addresses.0, addresses.1, header.slice(), header.slice().len(), usize::from(header.total_len()))
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let addresses = (header.source_addr().into(), header.destination_addr().into());
            let len = usize::from(header.payload_length());
            (addresses.0, addresses.1, header.slice(), header.slice().len(), if len == 0 { 0 } else { len + 40 })
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let offset = |part: &[u8]| (part.as_ptr() as usize).checked_sub(data.as_ptr() as usize);
    let (ip_start, tcp_start) = (offset(ip_start)?, offset(tcp.slice())?);
    // A packet above 64 KB has a length of zero: its length on the wire counts instead.
    let ip_len = if ip_len == 0 { (wire_len as usize).checked_sub(ip_start)? } else { ip_len };
    if tcp_start < ip_start + ip_header {
        return None;
    }
    let payload = (ip_start + ip_len).checked_sub(tcp_start + tcp.header_len())?;
    let sack = tcp.options_iterator().filter_map(Result::ok).find_map(|option| match option {
        TcpOptionElement::SelectiveAcknowledgement(first, more) => {
            Some(std::iter::once(first).chain(more.into_iter().flatten()).collect())
        }
        _ => None,
    });
    Some(Packet {
        t_ns,
        interface,
        outgoing,
        src: SocketAddr::new(source, tcp.source_port()),
        dst: SocketAddr::new(destination, tcp.destination_port()),
        seq: tcp.sequence_number(),
        ack: tcp.acknowledgment_number(),
        len: u32::try_from(payload).ok()?,
        flags: Flags(tcp.slice()[13]),
        window: tcp.window_size(),
        sack: sack.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use etherparse::PacketBuilder;
    use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
    use proptest::prelude::*;

    use super::*;

    fn frame(payload: usize) -> Vec<u8> {
        let options = [
            TcpOptionElement::Noop,
            TcpOptionElement::SelectiveAcknowledgement((10, 20), [Some((30, 40)), None, None]),
        ];
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1000, 2000, 77, 512)
            .ack(88)
            .options(&options)
            .expect("options fit");
        let mut frame = Vec::new();
        builder.write(&mut frame, &vec![0; payload]).expect("written");
        frame
    }

    fn expected(len: u32) -> Packet {
        Packet {
            t_ns: 5,
            interface: None,
            outgoing: None,
            src: "10.0.0.1:1000".parse().expect("address"),
            dst: "10.0.0.2:2000".parse().expect("address"),
            seq: 77,
            ack: 88,
            len,
            flags: Flags(Flags::ACK),
            window: 512,
            sack: vec![(10, 20), (30, 40)],
        }
    }

    fn file(datalink: DataLink, ts_resolution: TsResolution, records: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
        let header = PcapHeader { datalink, ts_resolution, snaplen: 128, ..PcapHeader::default() };
        let mut writer = PcapWriter::with_header(Vec::new(), header).expect("written");
        for &(ts_sec, ts_frac, data, orig_len) in records {
            let incl_len = u32::try_from(data.len()).expect("short");
            writer
                .write_raw_packet(&RawPcapPacket { ts_sec, ts_frac, incl_len, orig_len, data: Cow::Borrowed(data) })
                .expect("written");
        }
        writer.into_writer()
    }

    #[test]
    fn a_packet_cut_at_the_snap_length_tells_its_true_payload() {
        let frame = frame(1400);
        assert_eq!(parse(Link::Ethernet, &frame[..96], frame.len() as u32, 5), Some(expected(1400)));
    }

    #[test]
    fn padding_of_a_short_frame_is_no_payload() {
        let mut frame = frame(0);
        frame.resize(90, 0);
        assert_eq!(parse(Link::Ethernet, &frame, 90, 5), Some(expected(0)));
    }

    #[test]
    fn cooked_records_tell_interface_and_direction() {
        let frame = frame(9);
        let mut record = vec![0x08, 0x00, 0, 0, 0, 0, 0, 7, 0, 1, PACKET_OUTGOING, 6, 0, 0, 0, 0, 0, 0, 0, 0];
        record.extend_from_slice(&frame[14..]);
        let packet = parse(Link::LinuxSll2, &record, record.len() as u32, 5);
        assert_eq!(packet, Some(Packet { interface: Some(7), outgoing: Some(true), ..expected(9) }));
        let mut record = vec![0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x00];
        record.extend_from_slice(&frame[14..]);
        let packet = parse(Link::LinuxSll, &record, record.len() as u32, 5);
        assert_eq!(packet, Some(Packet { outgoing: Some(false), ..expected(9) }));
        assert_eq!(parse(Link::Ip, &frame[14..], 0, 5), Some(expected(9)));
    }

    #[test]
    fn ipv6_is_understood() {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6([1; 16], [2; 16], 64).tcp(1, 2, 3, 4).syn();
        builder.write(&mut frame, &[0; 33]).expect("written");
        let packet = parse(Link::Ethernet, &frame, frame.len() as u32, 0).expect("understood");
        assert!(packet.len == 33 && packet.flags.syn() && packet.src.is_ipv6());
    }

    #[test]
    fn a_packet_above_64_kb_has_the_wire_s_length() {
        let mut frame = frame(0);
        frame[16..18].fill(0);
        let packet = parse(Link::Ethernet, &frame, frame.len() as u32 + 100_000, 5);
        assert_eq!(packet, Some(expected(100_000)));
    }

    #[test]
    fn files_of_both_resolutions_are_read_and_sorted() {
        let frame = frame(1400);
        let kept = &frame[..96];
        for (resolution, unit) in [(TsResolution::MicroSecond, 1000), (TsResolution::NanoSecond, 1)] {
            let bytes =
                file(DataLink::ETHERNET, resolution, &[(3, 7, kept, 1474), (2, 9, kept, 1474), (4, 0, &[0; 20], 20)]);
            let trace = read_from(bytes.as_slice()).expect("read");
            let times: Vec<i64> = trace.packets.iter().map(|p| p.t_ns).collect();
            assert_eq!(times, [2_000_000_000 + 9 * unit, 3_000_000_000 + 7 * unit]);
            assert!(trace.skipped == 1 && !trace.cut_off);
            let trace = read_from(&bytes[..bytes.len() - 5]).expect("read");
            assert!(trace.packets.len() == 2 && trace.cut_off);
        }
    }

    #[test]
    fn what_is_no_capture_is_refused() {
        assert!(read_from(&b"hello, this is no pcap file at all"[..]).is_err());
        assert!(read_from(&b""[..]).is_err());
        let usb = file(DataLink::USB_LINUX, TsResolution::NanoSecond, &[]);
        assert!(read_from(usb.as_slice()).expect_err("unknown").to_string().contains("USB_LINUX"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(
            data in prop::collection::vec(any::<u8>(), 0..200),
            wire_len: u32,
            t_ns: i64,
        ) {
            for link in [Link::Ethernet, Link::LinuxSll, Link::LinuxSll2, Link::Ip] {
                let _ = parse(link, &data, wire_len, t_ns);
            }
        }

        #[test]
        fn a_damaged_packet_is_parsed_without_panic(at in 0usize..86, value: u8, cut in 0usize..100, wire_len: u32) {
            let mut frame = frame(20);
            frame[at] = value;
            frame.truncate(cut);
            let _ = parse(Link::Ethernet, &frame, wire_len, 0);
            if let Some(ip) = frame.get(14..) {
                let _ = parse(Link::Ip, ip, wire_len, 0);
            }
        }

        #[test]
        fn any_file_is_read_without_panic(tail in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = file(DataLink::ETHERNET, TsResolution::NanoSecond, &[]);
            bytes.extend_from_slice(&tail);
            let _ = read_from(bytes.as_slice());
        }
    }
}
