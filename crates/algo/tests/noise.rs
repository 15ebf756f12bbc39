//! Random and mutated packets through everything that reads bytes of the network. `make noise` runs ten million of them
//! with sanitizers in the C code.

use evenkeel_algo::frames::{ACK, ECE, LINUX_OPTIONS, RST, SYN, Segment, TIMESTAMPS};
use evenkeel_algo::noise::{self, Random};
use evenkeel_algo::packet::{self, HEAD_BYTES, Kind};
use evenkeel_algo::proboscis::{OPTION_BYTES, ProbeKind, ProbeOption};

fn seeds() -> Vec<Vec<u8>> {
    let v4 = (("10.0.0.1", 40000), ("10.0.0.2", 80));
    let v6 = (("fd00::1", 40000), ("fd00::2", 80));
    let probe = |index, kind| {
        ProbeOption { kind, train: 0, index, total: 10, seen: 0, marked: 0 }.write(0x0102_0304_0506_0708).to_vec()
    };
    let segments = [
        Segment { options: LINUX_OPTIONS.to_vec(), ..Segment::new(v4.0, v4.1, SYN) },
        Segment { options: LINUX_OPTIONS.to_vec(), ..Segment::new(v6.0, v6.1, SYN | ACK) },
        Segment { options: TIMESTAMPS.to_vec(), payload: 1448, ..Segment::new(v4.0, v4.1, ACK) },
        Segment { options: TIMESTAMPS.to_vec(), ..Segment::new(v6.0, v6.1, ACK | ECE) },
        Segment { vlan: Some(7), payload: 20, ..Segment::new(v4.0, v4.1, ACK) },
        Segment { options: probe(3, ProbeKind::Probe), ..Segment::new(v4.0, v4.1, RST) },
        Segment { options: probe(0, ProbeKind::Report), vlan: Some(7), ..Segment::new(v6.0, v6.1, RST) },
    ];
    let mut frames: Vec<_> = segments.iter().map(Segment::frame).collect();
    // Two tags, and extension headers of IPv6: hop-by-hop options and a destination option.
    let mut tags = frames[2].clone();
    tags.splice(12..12, [0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]);
    let mut extended = frames[1].clone();
    extended.splice(54..54, [60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0]);
    extended[20] = 0;
    extended[19] += 16;
    frames.extend([tags, extended]);
    frames
}

/// Checks what must hold of any answer; returns whether it is TCP, and whether it has a probe's option.
fn check(frame: &[u8]) -> (bool, bool) {
    let Kind::Tcp(packet, options) = packet::parse(frame) else { return (false, false) };
    let end = usize::from(packet.l4) + usize::from(packet.tcp_bytes);
    assert!(packet.l3 >= 14 && packet.l4 >= packet.l3 + 20 && packet.tcp_bytes >= 20, "{frame:02x?}");
    assert!(end <= frame.len().min(HEAD_BYTES) && end + packet.payload_bytes as usize <= frame.len(), "{frame:02x?}");
    let Some(at) = options.and_then(|o| o.experiment).map(usize::from) else { return (true, false) };
    assert!(at + 2 <= end && at >= usize::from(packet.l4) + 20 && frame[at] == 254, "{frame:02x?}");
    let Some(bytes) = frame.get(at..at + OPTION_BYTES) else { return (true, false) };
    let Some((option, tag)) = ProbeOption::read(bytes.try_into().unwrap()) else { return (true, false) };
    assert_eq!(option.write(tag), bytes, "what was read is not what is written");
    (true, true)
}

/// The most usual headers are read by code of their own, but not behind a tag: both must say the same.
fn check_tagged(frame: &[u8]) {
    if frame.len() < 15 || frame[12..15] != [8, 0, 0x45] {
        return;
    }
    let mut tagged = frame.to_vec();
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    let moved = match packet::parse(frame) {
        Kind::Tcp(packet, options) => {
            let options = options.map(|o| packet::Options { experiment: o.experiment.map(|at| at + 4), ..o });
            Kind::Tcp(packet::Packet { l3: packet.l3 + 4, l4: packet.l4 + 4, ..packet }, options)
        }
        other => other,
    };
    assert_eq!(moved, packet::parse(&tagged), "{frame:02x?}");
}

#[test]
fn every_seed_is_tcp() {
    for frame in seeds() {
        assert!(check(&frame).0, "{frame:02x?}");
    }
}

#[test]
fn packets_of_noise() {
    let packets = noise::count(1_000_000);
    let (seeds, mut random) = (seeds(), Random::new(1));
    let (mut tcp, mut probes) = (0u64, 0u64);
    for _ in 0..packets {
        let frame = noise::packet(&seeds, 0, &mut random);
        let (is_tcp, is_probe) = check(&frame);
        check_tagged(&frame);
        tcp += u64::from(is_tcp);
        probes += u64::from(is_probe);
        // The same bytes at the head of a longer frame, as a GSO packet's are.
        let _ = packet::parse_head(&frame, frame.len() + random.below(1 << 17));
    }
    // All kinds were met, or this has shown nothing.
    assert!(tcp > packets / 10 && tcp < packets * 9 / 10, "{tcp} of {packets} are TCP");
    assert!(probes > packets / 100, "{probes} of {packets} are probes");
    println!("{packets} packets, {tcp} TCP, {probes} probes");
}
