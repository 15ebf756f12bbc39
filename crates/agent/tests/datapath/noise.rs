//! Random and mutated packets: what cannot be read passes unchanged, and nothing else happens to the rest than the programs' purpose.

use evenkeel_agent::datapath::intf;
use evenkeel_algo::packet::{self, Kind};

use crate::frames::{ACK, ECE, LINUX_OPTIONS, RST, SYN, Segment};
use crate::handshake::{probes_of, syn, synack};
use crate::marks::{ack, connect, data};
use crate::place::{A, B, DROP, NEXT, Place, REDIRECT};

/// BPF_PROG_TEST_RUN takes no shorter frames that claim to be IPv6. The parser's own tests have them.
const LEAST: usize = 54;

/// splitmix64: the same packets in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

fn seeds(place: &mut Place) -> Vec<Vec<u8>> {
    let v6 = (("fd00::1", 40000), ("fd00::2", 80));
    let mut seeds = vec![
        syn().frame(),
        synack().frame(),
        Segment { vlan: Some(7), ..syn() }.frame(),
        Segment { options: LINUX_OPTIONS.to_vec(), ..Segment::new(v6.0, v6.1, SYN) }.frame(),
        data(0).frame(),
        data(1448).frame(),
        ack(0, 0).frame(),
        ack(1448, ECE).frame(),
        Segment { payload: 20, ..Segment::new(v6.0, v6.1, ACK) }.frame(),
        Segment::new((A, 40000), (B, 80), RST).frame(),
    ];
    seeds.extend(probes_of(place, &syn()));
    seeds
}

fn mutate(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut frame = seed.to_vec();
    for _ in 0..random.below(4) {
        // Headers, mostly: what follows them is not read.
        let at = random.below(frame.len().min(100));
        match random.below(3) {
            0 => frame[at] ^= 1 << random.below(8),
            1 => frame[at] = random.next() as u8,
            _ => frame[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        }
    }
    match random.below(8) {
        0 => frame.truncate(LEAST + random.below(frame.len() - LEAST + 1)),
        1 => frame.extend((0..random.below(64)).map(|_| random.next() as u8)),
        2 => frame = (0..LEAST + random.below(200)).map(|_| random.next() as u8).collect(),
        _ => {}
    }
    frame
}

fn noise(packets: u64, seed: u64) {
    let mut place = Place::new(intf::EK_MODE_ENFORCE);
    let seeds = seeds(&mut place);
    connect(&mut place);
    let mut random = Random(seed);
    let (mut unreadable, mut changed) = (0u64, 0u64);
    for i in 0..packets {
        let frame = mutate(&seeds[random.below(seeds.len())], &mut random);
        let (name, port) = if i % 2 == 0 { ("from_vm", place.pa) } else { ("to_vm", place.pb) };
        let outcome = place.datapath.trial(name, port, 0, &frame, 1).unwrap();
        assert_eq!(outcome.frame.len(), frame.len(), "packet {i} of seed {seed}: {frame:02x?}");
        let is_readable = matches!(packet::parse(&frame), Kind::Tcp(..));
        if is_readable {
            assert!([NEXT, DROP, REDIRECT].contains(&outcome.verdict), "packet {i} of seed {seed}: {frame:02x?}");
            changed += u64::from(outcome.frame != frame);
        } else {
            unreadable += 1;
            assert_eq!((outcome.verdict, &outcome.frame), (NEXT, &frame), "packet {i} of seed {seed}");
        }
    }
    // All kinds were met, or this has shown nothing.
    assert!(changed > 0);
    assert!(unreadable > packets / 10 && unreadable < packets * 9 / 10, "{unreadable}");
    let parsed = place.count(place.pa, intf::EK_COUNT_PACKETS_FROM_VM);
    assert!(parsed >= packets / 2, "{parsed}");
    println!("{packets} packets, {unreadable} unreadable, {changed} changed");
}

#[test]
fn a_million_packets_of_noise() {
    noise(1_000_000, 1);
}

#[test]
#[ignore = "takes minutes: `cargo test -p evenkeel-agent --test datapath -- --ignored`"]
fn ten_million_packets_of_noise() {
    noise(10_000_000, 2);
}
