//! Frames made by hand, with checksums computed in another way than the code under test does.

use std::net::IpAddr;

/// TCP flag.
pub const FIN: u8 = 1;
/// TCP flag.
pub const SYN: u8 = 2;
/// TCP flag.
pub const RST: u8 = 4;
/// TCP flag.
pub const ACK: u8 = 16;
/// TCP flag.
pub const URG: u8 = 32;
/// TCP flag.
pub const ECE: u8 = 64;
/// TCP flag.
pub const CWR: u8 = 128;

/// MSS 1460, SACK, timestamps, window scale 7: what Linux sends.
pub const LINUX_OPTIONS: &[u8] = &[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
/// Timestamps only, as after the handshake.
pub const TIMESTAMPS: &[u8] = &[1, 1, 8, 10, 0, 0, 0, 2, 0, 0, 0, 1];

/// A TCP segment on the wire.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Address and port.
    pub source: (IpAddr, u16),
    /// Address and port.
    pub destination: (IpAddr, u16),
    /// Number of a VLAN, in a tag of its own.
    pub vlan: Option<u16>,
    /// The ECN field.
    pub ecn: u8,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// [`SYN`] and others.
    pub flags: u8,
    /// The flag before them, of accurate ECN (RFC 9768).
    pub ae: bool,
    /// The window field.
    pub window: u16,
    /// TCP's options; a multiple of four bytes.
    pub options: Vec<u8>,
    /// Bytes of data.
    pub payload: usize,
}

impl Segment {
    /// Without options and data.
    pub fn new(source: (&str, u16), destination: (&str, u16), flags: u8) -> Self {
        Self {
            source: (source.0.parse().unwrap(), source.1),
            destination: (destination.0.parse().unwrap(), destination.1),
            vlan: None,
            ecn: 0,
            seq: 1000,
            ack: 0,
            flags,
            ae: false,
            window: 64240,
            options: Vec::new(),
            payload: 0,
        }
    }

    /// Where the TCP header begins.
    pub fn l4(&self) -> usize {
        14 + if self.vlan.is_some() { 4 } else { 0 } + if self.source.0.is_ipv4() { 20 } else { 40 }
    }

    /// Its bytes, from the Ethernet header.
    pub fn frame(&self) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(self.source.1.to_be_bytes());
        tcp.extend(self.destination.1.to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([(((20 + self.options.len()) / 4) << 4) as u8 | u8::from(self.ae), self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&self.options);
        tcp.extend((0..self.payload).map(|i| i as u8));
        let mut ip = Vec::new();
        match (self.source.0, self.destination.0) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                ip.extend([0x45, self.ecn]);
                ip.extend(((20 + tcp.len()) as u16).to_be_bytes());
                ip.extend([0x12, 0x34, 0x40, 0, 64, 6, 0, 0]);
                ip.extend(source.octets());
                ip.extend(destination.octets());
                let check = !sum(&ip);
                ip[10..12].copy_from_slice(&check.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                ip.extend([0x60, self.ecn << 4, 0, 0]);
                ip.extend((tcp.len() as u16).to_be_bytes());
                ip.extend([6, 64]);
                ip.extend(source.octets());
                ip.extend(destination.octets());
            }
            _ => panic!("addresses of one version"),
        }
        let mut frame: Vec<u8> = [mac(self.destination.0), mac(self.source.0)].concat();
        if let Some(tag) = self.vlan {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(if self.source.0.is_ipv4() { [8, 0] } else { [0x86, 0xdd] });
        let l3 = frame.len();
        frame.extend(ip);
        let l4 = frame.len();
        frame.extend(tcp);
        let check = !pseudo_sum(&frame, l3, l4);
        frame[l4 + 16..l4 + 18].copy_from_slice(&check.to_be_bytes());
        frame
    }
}

/// The MAC address of the machine with that IP address.
pub fn mac(address: IpAddr) -> [u8; 6] {
    let last = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    [2, 0, 0, 0, 0, last]
}

/// The internet checksum's sum, byte by byte.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = bytes.chunks(2).map(|c| u64::from(c[0]) << 8 | c.get(1).copied().map_or(0, u64::from)).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn pseudo_sum(frame: &[u8], l3: usize, l4: usize) -> u16 {
    let addresses = if frame[l3] >> 4 == 4 { &frame[l3 + 12..l3 + 20] } else { &frame[l3 + 8..l3 + 40] };
    let mut all = addresses.to_vec();
    all.extend(((frame.len() - l4) as u32).to_be_bytes());
    all.extend([0, 0, 0, 6]);
    all.extend(&frame[l4..]);
    sum(&all)
}

/// Panics unless the checksums and lengths of a frame are right.
pub fn assert_sound(frame: &[u8]) {
    let l3 = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let l4 = if frame[l3] >> 4 == 4 {
        assert_eq!(sum(&frame[l3..l3 + 20]), 0xffff, "IPv4 header checksum");
        assert_eq!(usize::from(u16::from_be_bytes([frame[l3 + 2], frame[l3 + 3]])), frame.len() - l3);
        l3 + 20
    } else {
        assert_eq!(usize::from(u16::from_be_bytes([frame[l3 + 4], frame[l3 + 5]])), frame.len() - l3 - 40);
        l3 + 40
    };
    assert_eq!(pseudo_sum(frame, l3, l4), 0xffff, "TCP checksum");
}

/// Sets the ECN field of an IPv4 frame without a VLAN tag.
pub fn set_ecn(frame: &mut [u8], ecn: u8) {
    frame[15] = frame[15] & !3 | ecn;
    frame[24..26].fill(0);
    let check = !sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
}

/// The ECN field of a frame without a VLAN tag.
pub fn ecn(frame: &[u8]) -> u8 {
    if frame[12] == 8 { frame[15] & 3 } else { frame[15] >> 4 & 3 }
}
