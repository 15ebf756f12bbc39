//! Headers that others own: signed ones (TCP-MD5, TCP-AO), and those whose bits are counters (accurate ECN, RFC 9768).
//! The programs write nothing there, and make up or keep no ACK.

use evenkeel_agent::datapath::{Datapath, intf};
use evenkeel_algo::frames::{ACK, CWR, ECE, LINUX_OPTIONS, RST, Segment, TIMESTAMPS, ecn};

use crate::conversation::{connect, connect_by, data, probes_of, syn, synack};
use crate::ports::{A, B, Bed, DROP, NEXT, settings};

const V4: [(&str, u16); 2] = [(A, 40000), (B, 80)];
const V6: [(&str, u16); 2] = [("fd00::1", 40000), ("fd00::2", 80)];
/// In the room of timestamps: TCP-MD5, TCP-AO with MACs of 96 and 64 bits, an alternate checksum.
const SIGNATURES: [&[u8]; 4] = [
    &[1, 1, 19, 18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
    &[29, 16, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
    &[29, 12, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8],
    &[14, 3, 1, 1],
];

/// All that can be on without a device that holds packets.
fn everything() -> intf::ek_port {
    intf::ek_port {
        vsnoop: intf::ek_vsnoop_settings {
            mode: intf::EK_MODE_ENFORCE,
            settings: intf::vsnoop_settings { budget_segments: 100 },
            reserve_segments: 0,
            ..Default::default()
        },
        ..settings(intf::EK_MODE_ENFORCE)
    }
}

fn place() -> Bed {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    for port in [place.pa, place.pb] {
        place.datapath.attach(port, &everything()).unwrap();
    }
    place
}

/// The same segment between these ends, of which `[0]` is the opener.
fn between(ends: [(&str, u16); 2], like: &Segment) -> Segment {
    let [source, destination] =
        if like.source.0 == A.parse::<std::net::IpAddr>().unwrap() { ends } else { [ends[1], ends[0]] };
    Segment {
        source: (source.0.parse().unwrap(), source.1),
        destination: (destination.0.parse().unwrap(), destination.1),
        ..like.clone()
    }
}

fn signed(segment: &Segment, signature: &[u8]) -> Segment {
    let mut options = segment.options.clone();
    options.truncate(40 - signature.len());
    if options.len() % 4 != 0 || segment.options.len() > options.len() {
        options = vec![2, 4, 5, 0xb4];
    }
    Segment { options: [signature, &options].concat(), ..segment.clone() }
}

fn is_known(datapath: &Datapath, port: u32) -> bool {
    datapath.flows().unwrap().iter().any(|(key, _)| key.ifindex == port)
        || datapath.snoops().unwrap().iter().any(|(key, _)| key.ifindex == port)
}

#[test]
fn nothing_is_written_into_a_signed_connection() {
    let mut place = place();
    for ends in [V4, V6] {
        let [syn, synack] = [between(ends, &syn()), between(ends, &synack())];
        let answer = Segment { seq: 5001, ack: 1001 + 100, ..Segment::new((B, 80), (A, 40000), ACK | ECE) };
        let [data, answer] = [between(ends, &Segment { options: vec![], ..data(0) }), between(ends, &answer)];
        for signature in SIGNATURES {
            // A connection with the same addresses was there before, and the other host probes though the SYN is
            // signed.
            connect_by(&mut place, &syn, &synack);
            assert!(is_known(&place.datapath, place.pa) && is_known(&place.datapath, place.pb));
            let before = place.count(place.pa, intf::EK_COUNT_PROBES_SENT);
            for (from, to, segment) in [
                (place.pa, place.pb, signed(&syn, signature)),
                (place.pb, place.pa, signed(&synack, signature)),
                (place.pa, place.pb, Segment { seq: 1001, ..signed(&data, signature) }),
                (place.pb, place.pa, signed(&answer, signature)),
            ] {
                let frame = segment.frame();
                let sent = place.run_from_vm(from, &frame);
                assert_eq!((sent.verdict, &sent.frame), (NEXT, &frame), "{signature:?}");
                for marked in [0, 2, 3] {
                    let frame = Segment { ecn: marked, ..segment.clone() }.frame();
                    let came = place.run_to_vm(to, &frame);
                    assert_eq!((came.verdict, &came.frame), (NEXT, &frame), "{signature:?}");
                }
            }
            assert!(!is_known(&place.datapath, place.pa) && !is_known(&place.datapath, place.pb));
            assert_eq!(place.count(place.pa, intf::EK_COUNT_PROBES_SENT), before, "no probes go ahead of it");
        }
    }
    // Each port: its own SYN or SYN-ACK once as it left, and the other end's three times as it came.
    for port in [place.pa, place.pb] {
        assert_eq!(place.count(port, intf::EK_COUNT_SIGNED), 2 * 4 * SIGNATURES.len() as u64);
    }
}

/// On a connection of several paths the window is relative to the ACK in an option (RFC 8684 §3.3.1).
#[test]
fn a_connection_of_several_paths_is_let_go() {
    const CAPABLE: [u8; 12] = [30, 12, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8];
    let mut place = place();
    let [syn, synack] = [syn(), synack()].map(|segment| signed(&segment, &CAPABLE));
    let answers = [(false, synack), (true, self::synack())];
    for (is_treated, synack) in answers {
        place.run_to_vm(place.pb, &syn.frame());
        let sent = place.run_from_vm(place.pb, &synack.frame());
        assert_eq!((sent.verdict, sent.frame), (NEXT, synack.frame()));
        assert_eq!(is_known(&place.datapath, place.pb), is_treated);
        assert_eq!(place.count(place.pb, intf::EK_COUNT_MULTIPATH), 1);
    }
    let data = signed(&data(0), &[30, 4, 0x20, 0]).frame();
    assert_eq!(place.run_to_vm(place.pb, &data).frame, data);
    assert!(!is_known(&place.datapath, place.pb));
}

/// Connections of several paths are let go, and a later probe's number may be that of a SYN's data.
#[test]
fn a_syn_with_data_or_that_asks_for_several_paths_has_no_probes() {
    const CAPABLE: [u8; 4] = [30, 4, 1, 1];
    const JOIN: [u8; 12] = [30, 12, 0x10, 1, 1, 2, 3, 4, 5, 6, 7, 8];
    const COOKIE: [u8; 12] = [34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1];
    let mut place = place();
    connect(&mut place);
    let sent = place.count(place.pa, intf::EK_COUNT_PROBES_SENT);
    let kinds = [(40001, &CAPABLE[..], 0), (40002, &JOIN[..], 0), (40003, &COOKIE[..], 100)];
    for (spared, (port, asks, payload)) in kinds.into_iter().enumerate() {
        let plain = Segment { source: (A.parse().unwrap(), port), ..syn() };
        let first = Segment { payload, ..signed(&plain, asks) };
        // Linux gives option and data up when it repeats its SYN; the other end may have them.
        for (again, segment) in [first, plain.clone()].into_iter().enumerate() {
            let outcome = place.run_from_vm(place.pa, &segment.frame());
            assert_eq!((outcome.verdict, outcome.frame), (NEXT, segment.frame()), "{segment:?}");
            assert_eq!(place.count(place.pa, intf::EK_COUNT_PROBES_SPARED), (2 * spared + again + 1) as u64);
        }
        let known = place.datapath.noted_flows().unwrap().len();
        place.run_to_vm(place.pa, &Segment { destination: plain.source, ..synack() }.frame());
        assert_eq!(place.datapath.noted_flows().unwrap().len(), known + 1, "the answer has one path");
    }
    assert_eq!(place.count(place.pa, intf::EK_COUNT_PROBES_SENT), sent);
}

/// A key may be set on a connection that is already open.
#[test]
fn a_connection_that_begins_to_sign_is_let_go() {
    let mut place = place();
    for signature in SIGNATURES {
        connect(&mut place);
        let first = signed(&data(0), signature).frame();
        assert_eq!(place.run_from_vm(place.pa, &first).frame, first);
        assert!(!is_known(&place.datapath, place.pa));
        let later = data(1448).frame();
        assert_eq!(place.run_from_vm(place.pa, &later).frame, later);
        // A packet that the VM would not take tells its host nothing.
        for offset in [1 << 17, 1 << 29, 1 << 30, 1 << 31, 0u32.wrapping_sub(1448 + 1)] {
            let forged = signed(&Segment { seq: 1001u32.wrapping_add(offset), ..data(0) }, signature).frame();
            assert_eq!(place.run_to_vm(place.pb, &forged).frame, forged);
        }
        let other_syn = signed(&Segment { seq: 77, ..syn() }, signature).frame();
        assert_eq!(place.run_to_vm(place.pb, &other_syn).frame, other_syn);
        assert!(is_known(&place.datapath, place.pb));
        // One that the VM has in part it takes.
        let overlaps = signed(&Segment { seq: 1001u32.wrapping_sub(1448), ..data(0) }, signature).frame();
        assert_eq!(place.run_to_vm(place.pb, &overlaps).frame, overlaps);
        assert!(!is_known(&place.datapath, place.pb));
    }
}

/// AE, CWR and ECE.
fn bits(segment: &Segment, bits: u8) -> Segment {
    let flags = segment.flags | if bits & 2 != 0 { CWR } else { 0 } | if bits & 1 != 0 { ECE } else { 0 };
    Segment { flags, ae: bits & 4 != 0, ..segment.clone() }
}

fn bits_of(frame: &[u8]) -> u8 {
    let l4 = if frame[12] == 8 { 34 } else { 54 };
    (frame[l4 + 12] & 1) << 2 | frame[l4 + 13] >> 6
}

/// RFC 9768 Table 2, and the combinations that it lacks.
#[test]
fn whose_ecn_is_follows_the_handshake() {
    const NOBODYS: u32 = 0;
    const CLASSIC: u32 = intf::EK_FLOW_NATIVE_ECN;
    const ACCURATE: u32 = intf::EK_FLOW_NATIVE_ECN | intf::EK_FLOW_ACCURATE_ECN;
    let mut place = place();
    for (asked, answers) in [
        (0b111, [ACCURATE, CLASSIC, ACCURATE, ACCURATE, ACCURATE, ACCURATE, ACCURATE, ACCURATE]),
        (0b011, [NOBODYS, CLASSIC, ACCURATE, ACCURATE, ACCURATE, ACCURATE, ACCURATE, ACCURATE]),
        (0b000, [NOBODYS, ACCURATE, ACCURATE, ACCURATE, ACCURATE, ACCURATE, ACCURATE, ACCURATE]),
        (0b100, [ACCURATE, CLASSIC, ACCURATE, ACCURATE, ACCURATE, ACCURATE, ACCURATE, ACCURATE]),
    ] {
        for (answered, expected) in (0..).zip(answers) {
            let source = (A.parse().unwrap(), 1000 + u16::from(asked << 3 | answered));
            let syn = bits(&Segment { source, ..syn() }, asked);
            let synack = bits(&Segment { destination: source, ..synack() }, answered);
            connect_by(&mut place, &syn, &synack);
            let flows = place.datapath.flows().unwrap();
            let flags = flows.iter().filter(|(key, _)| [key.local_port, key.remote_port].contains(&source.1));
            let flags: Vec<u32> = flags.map(|(_, flow)| flow.flags & ACCURATE).collect();
            assert_eq!(flags, [expected; 2], "SYN {asked:03b}, SYN-ACK {answered:03b}");
        }
    }
}

#[test]
fn counters_of_marks_are_neither_read_nor_written() {
    let mut place = place();
    for ends in [V4, V6] {
        connect_by(&mut place, &bits(&between(ends, &syn()), 0b111), &bits(&between(ends, &synack()), 0b010));
        assert!(place.datapath.snoops().unwrap().is_empty(), "no ACK is made up or kept");
        for (count, marked) in (0..16).map(|i| (i % 8, i % 4)) {
            let sent = bits(&Segment { ecn: marked, ..between(ends, &data(0)) }, count);
            let answer = Segment { seq: 5001, ack: 1001 + 1448, window: 8000, ..synack() };
            let answer = Segment { flags: ACK, options: TIMESTAMPS.to_vec(), ..answer };
            let answer = bits(&Segment { ecn: marked, ..between(ends, &answer) }, count);
            for (from, to, segment) in [(place.pa, place.pb, sent), (place.pb, place.pa, answer)] {
                let frame = segment.frame();
                assert_eq!(place.run_from_vm(from, &frame).frame, frame);
                assert_eq!(place.run_to_vm(to, &frame).frame, frame);
            }
        }
    }
    for port in [place.pa, place.pb] {
        assert_eq!(place.count(port, intf::EK_COUNT_ACCURATE_ECN), 2);
        for counter in [intf::EK_COUNT_ECT_SET, intf::EK_COUNT_ECE_SET, intf::EK_COUNT_CE_HIDDEN] {
            assert_eq!(place.count(port, counter), 0, "{counter}");
        }
    }
}

/// The handshake itself: its bits and its IP-ECN field are answered by the other end.
#[test]
fn a_handshake_of_accurate_ecn_stays_as_it_is() {
    let mut place = place();
    for [(a, _), (b, _)] in [V4, V6] {
        for (port, asked, answered) in [(1, 0b111, 0b100), (2, 0b111, 0b110), (3, 0b100, 0b100)] {
            let ends = [(a, port), (b, 80)];
            let asks = bits(&Segment { ecn: 2, ..between(ends, &syn()) }, asked);
            for probe in probes_of(&mut place, &asks) {
                assert_eq!(place.run_to_vm(place.pb, &probe).verdict, DROP);
            }
            for marked in [2, 3] {
                let frame = Segment { ecn: marked, ..asks.clone() }.frame();
                assert_eq!(place.run_to_vm(place.pb, &frame).frame, frame);
            }
            let answer = bits(&between(ends, &synack()), answered);
            let sent = place.run_from_vm(place.pb, &answer.frame()).frame;
            assert_eq!((bits_of(&sent), ecn(&sent)), (answered, 0));
            for marked in [0, 2, 3] {
                let frame = Segment { ecn: marked, ..answer.clone() }.frame();
                assert_eq!(place.run_to_vm(place.pa, &frame).frame, frame);
            }
        }
    }
}

/// A client whose SYNs are not answered asks for less with the same number, and the server may have seen the first.
#[test]
fn a_syn_that_asks_for_less_takes_nothing_back() {
    let mut place = place();
    probes_of(&mut place, &bits(&syn(), 0b111));
    let fallback = syn().frame();
    let again = place.run_from_vm(place.pa, &fallback);
    assert_eq!(ecn(&again.frame), 0, "its server may answer what stands here");
    place.run_to_vm(place.pa, &synack().frame());
    assert_ne!(place.only_flow(place.pa).flags & intf::EK_FLOW_ACCURATE_ECN, 0);
    for asked in [0b111, 0b000] {
        place.run_to_vm(place.pb, &bits(&syn(), asked).frame());
    }
    place.run_from_vm(place.pb, &synack().frame());
    assert_ne!(place.only_flow(place.pb).flags & intf::EK_FLOW_ACCURATE_ECN, 0);
}

/// Two answers differ, and no host can know which of them the other end goes by.
#[test]
fn synacks_that_disagree_end_it() {
    let mut place = place();
    connect(&mut place);
    for (from_vm, port) in [(true, place.pb), (false, place.pa)] {
        assert!(is_known(&place.datapath, port));
        let other = bits(&synack(), 0b010).frame();
        let outcome = if from_vm { place.run_from_vm(port, &other) } else { place.run_to_vm(port, &other) };
        assert_eq!((outcome.verdict, outcome.frame), (NEXT, other));
        assert!(!is_known(&place.datapath, port));
    }
}

/// A listener that falls back to SYN cookies answers a SYN that comes again with another number, and fewer options.
#[test]
fn a_second_synack_of_another_connection_ends_it() {
    let option = |at: usize, none: &[u8]| {
        let mut options = LINUX_OPTIONS.to_vec();
        options[at..at + none.len()].copy_from_slice(none);
        Segment { options, ..synack() }
    };
    let scale = LINUX_OPTIONS.iter().position(|&kind| kind == 3).unwrap();
    let others = [
        (Segment { seq: 77, ..synack() }, true),
        (option(scale, &[1, 1, 1]), true),
        (option(6, &[1; 10]), true),
        (Segment { window: 1, ..synack() }, false),
    ];
    for (other, ends) in others {
        let mut place = place();
        connect(&mut place);
        for (from_vm, port) in [(true, place.pb), (false, place.pa)] {
            assert!(is_known(&place.datapath, port));
            let frame = other.frame();
            let outcome = if from_vm { place.run_from_vm(port, &frame) } else { place.run_to_vm(port, &frame) };
            assert_eq!(is_known(&place.datapath, port), !ends, "{other:?}");
            assert!(!ends || (outcome.verdict, &outcome.frame) == (NEXT, &frame), "{other:?}");
        }
    }
}

/// The SYN was not noted, and neither is its answer: what is known is of a connection before it.
#[test]
fn an_answer_of_the_vms_to_an_unknown_syn_ends_what_was_before() {
    let mut place = place();
    connect(&mut place);
    let port = place.pb;
    let other = Segment { ack: 7_001, ..synack() };
    place.run_to_vm(port, &other.frame());
    assert!(is_known(&place.datapath, port), "others' may be forged");
    assert_eq!(place.run_from_vm(port, &other.frame()).frame, other.frame());
    assert!(!is_known(&place.datapath, port));
}

/// The VM opens a connection with the same addresses and ports, which is not noted.
#[test]
fn an_unknown_syn_of_the_vms_ends_what_was_before() {
    let unreadable = Segment { options: vec![3, 60, 7, 0], ..syn() };
    for (seq, ends) in [(syn().seq, false), (7_000, true)] {
        let mut place = place();
        connect(&mut place);
        let (pa, pb) = (place.pa, place.pb);
        let other = Segment { seq, ..unreadable.clone() }.frame();
        place.run_to_vm(pb, &other);
        assert!(is_known(&place.datapath, pb), "others' may be forged");
        assert_eq!(place.run_from_vm(pa, &other).frame, other);
        assert_eq!(is_known(&place.datapath, pa), !ends, "{seq}");
    }
}

/// An option of accurate ECN where nobody asked for it: something on the way has changed the handshake.
#[test]
fn an_option_that_counts_marks_is_enough() {
    let mut place = place();
    for kind in [172, 174] {
        let counts = vec![1, 1, 1, kind, 8, 0, 0, 1, 0, 0, 1, 1];
        connect(&mut place);
        let frame = Segment { options: counts.clone(), ..data(0) }.frame();
        assert_eq!(place.run_from_vm(place.pa, &frame).frame, frame);
        assert_eq!(place.run_to_vm(place.pb, &frame).frame, frame);
        assert!(!is_known(&place.datapath, place.pa) && !is_known(&place.datapath, place.pb));
        let mut options = LINUX_OPTIONS.to_vec();
        options.extend(&counts);
        let second = Segment { source: (A.parse().unwrap(), 7), ..syn() };
        let answer = Segment { options, destination: second.source, ..synack() };
        connect_by(&mut place, &second, &answer);
        assert_ne!(place.only_flow(place.pa).flags & intf::EK_FLOW_ACCURATE_ECN, 0);
        for port in [place.pa, place.pb] {
            place.run_from_vm(port, &Segment::new((A, 7), (B, 80), RST).frame());
            place.run_from_vm(port, &Segment::new((B, 80), (A, 7), RST).frame());
        }
    }
}
