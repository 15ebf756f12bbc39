//! Random and mutated packets: what cannot be read passes unchanged, and nothing happens to the rest beyond the
//! programs' purpose.

use evenkeel_agent::datapath::intf;
use evenkeel_algo::frames::{ACK, ECE, LINUX_OPTIONS, RST, SYN, Segment};
use evenkeel_algo::noise::{self, Random};
use evenkeel_algo::packet::{self, Kind};

use crate::conversation::{ack, connect, data, probes_of, shown, syn, synack};
use crate::ports::{A, B, Bed, DROP, NEXT, REDIRECT};

/// BPF_PROG_TEST_RUN takes no shorter frames that claim to be IPv6. The parser's own tests have them.
const LEAST: usize = 54;

fn seeds(place: &mut Bed) -> Vec<Vec<u8>> {
    let v6 = (("fd00::1", 40000), ("fd00::2", 80));
    let mut seeds = vec![
        syn().frame(),
        synack().frame(),
        Segment { vlan: Some(7), ..syn() }.frame(),
        Segment { options: LINUX_OPTIONS.to_vec(), ..Segment::new(v6.0, v6.1, SYN) }.frame(),
        data(0).frame(),
        data(1448).frame(),
        ack(0, 0).frame(),
        shown(ack(1448, ECE)).frame(),
        Segment { payload: 20, ..Segment::new(v6.0, v6.1, ACK) }.frame(),
        Segment::new((A, 40000), (B, 80), RST).frame(),
    ];
    seeds.extend(probes_of(place, &syn()));
    seeds
}

#[test]
fn packets_of_noise() {
    const SEED: u64 = 1;
    let packets = noise::count(1_000_000);
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    let seeds = seeds(&mut place);
    let mut random = Random::new(SEED);
    let (mut unreadable, mut changed) = (0u64, 0u64);
    for i in 0..packets {
        let frame = noise::packet(&seeds, LEAST, &mut random);
        let (name, port) = if i % 2 == 0 { ("from_vm", place.pa) } else { ("to_vm", place.pb) };
        let outcome = place.datapath.trial(name, port, 0, &frame, 1).unwrap();
        assert_eq!(outcome.frame.len(), frame.len(), "packet {i} of seed {SEED}: {frame:02x?}");
        let is_readable = matches!(packet::parse(&frame), Kind::Tcp(..));
        if is_readable {
            assert!([NEXT, DROP, REDIRECT].contains(&outcome.verdict), "packet {i} of seed {SEED}: {frame:02x?}");
            changed += u64::from(outcome.frame != frame);
        } else {
            unreadable += 1;
            assert_eq!((outcome.verdict, &outcome.frame), (NEXT, &frame), "packet {i} of seed {SEED}");
        }
    }
    // All kinds were met, or this has shown nothing.
    assert!(changed > 0);
    assert!(unreadable > packets / 10 && unreadable < packets * 9 / 10, "{unreadable}");
    let parsed = place.count(place.pa, intf::EK_COUNT_PACKETS_FROM_VM);
    // What comes by again is counted once.
    assert!(parsed >= packets / 3, "{parsed}");
    println!("{packets} packets, {unreadable} unreadable, {changed} changed");
}
