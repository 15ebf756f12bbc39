//! Probes before a SYN-ACK, and the window of the opener's first ACKs.

use evenkeel_agent::datapath::intf;
use evenkeel_algo::frames::{ACK, LINUX_OPTIONS, SYN, Segment, TIMESTAMPS, assert_sound, ecn, set_ecn};
use evenkeel_testbed::place::Tap;

use crate::conversation::{MSS, probes_of, syn, synack};
use crate::ports::{A, B, Bed, DROP, NEXT, REDIRECT, settings};

/// What the VM offers, at the scale of its SYN.
const OFFERED: u16 = 502;

/// Two enforcing ports, each with probes of answers on or off.
fn bed(opener: bool, acceptor: bool) -> Bed {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    for (port, answers) in [(place.pa, opener), (place.pb, acceptor)] {
        set(&mut place, port, intf::EK_MODE_ENFORCE, answers);
    }
    place
}

fn set(place: &mut Bed, port: u32, mode: u32, answers: bool) {
    let mut of = settings(mode);
    of.proboscis.settings.answers = u32::from(answers);
    place.datapath.attach(port, &of).unwrap();
}

/// Lets a SYN come to `pb` behind its probes. Returns what its SYN-ACK makes `pb` send, and the SYN-ACK as it leaves.
fn answered(place: &mut Bed, syn: &Segment, synack: &Segment) -> (Vec<Vec<u8>>, Vec<u8>) {
    for probe in probes_of(place, syn) {
        assert_eq!(place.run_to_vm(place.pb, &probe).verdict, DROP);
    }
    place.run_to_vm(place.pb, &syn.frame());
    answer_again(place, synack)
}

fn answer_again(place: &mut Bed, synack: &Segment) -> (Vec<Vec<u8>>, Vec<u8>) {
    let tap = Tap::new(place.pb);
    let outcome = place.run_from_vm(place.pb, &synack.frame());
    assert_eq!(outcome.verdict, REDIRECT);
    (tap.tcp(11), outcome.frame)
}

/// Lets the report and `seen` of ten probes come to `pa`, `marked` of them with a mark, then the SYN-ACK.
fn come(place: &mut Bed, (mut frames, synack): (Vec<Vec<u8>>, Vec<u8>), seen: usize, marked: usize) {
    frames[1..=marked].iter_mut().for_each(|probe| set_ecn(probe, 3));
    for frame in &frames[..=seen] {
        assert_eq!(place.run_to_vm(place.pa, frame).verdict, DROP);
    }
    assert_eq!(place.run_to_vm(place.pa, &synack).verdict, NEXT);
}

fn ack(ack: u32, payload: usize) -> Segment {
    let options = TIMESTAMPS.to_vec();
    Segment { seq: 1001, ack, window: OFFERED, options, payload, ..Segment::new((A, 40000), (B, 80), ACK) }
}

/// The window of what the VM sends, as it leaves.
fn window(place: &mut Bed, segment: &Segment) -> u16 {
    let outcome = place.run_from_vm(place.pa, &segment.frame());
    assert_eq!(outcome.verdict, NEXT);
    assert_sound(&outcome.frame);
    u16::from_be_bytes([outcome.frame[48], outcome.frame[49]])
}

/// A window field with room for this many whole segments, in the unit of the VM's scale.
fn field(segments: u32) -> u16 {
    (segments * MSS).div_ceil(128) as u16
}

#[test]
fn probes_go_between_report_and_synack() {
    let mut place = bed(true, true);
    let (frames, behind) = answered(&mut place, &syn(), &synack());
    assert_eq!(frames.len(), 11);
    for (i, frame) in frames.iter().enumerate() {
        assert_sound(frame);
        assert_eq!((frame.len(), frame[47], ecn(frame)), (74, 0, 2), "no flag, ECT(0)");
        assert_eq!(frame[38..42], (syn().seq ^ 1 << 31).to_be_bytes());
        let report = [254, 20, b'E', b'V', b'K', b'L', 0x12, 0, 0, 10, 10, 0];
        let probe = [254, 20, b'E', b'V', b'K', b'L', 0x13, 0, (i as u8).wrapping_sub(1), 10, 0, 0];
        assert_eq!(frame[54..66], if i == 0 { report } else { probe });
    }
    let left = Segment { window: 14480, ecn: 2, ..synack() }.frame();
    assert_eq!(behind, left, "its window follows the SYN's probes as ever");
    assert_eq!(place.count(place.pb, intf::EK_COUNT_ANSWER_PROBES_SENT), 10);
    assert_eq!(place.count(place.pb, intf::EK_COUNT_PROBES_SENT), 0);
}

#[test]
fn probes_go_before_a_synack_ipv6() {
    let mut place = bed(true, true);
    let ends = (("fd00::1", 1), ("fd00::2", 2));
    let options = LINUX_OPTIONS.to_vec();
    let syn = Segment { options: options.clone(), ..Segment::new(ends.0, ends.1, SYN) };
    let ack = syn.seq.wrapping_add(1);
    let synack = Segment { options, seq: 5000, ack, window: 65160, ..Segment::new(ends.1, ends.0, SYN | ACK) };
    let (frames, behind) = answered(&mut place, &syn, &synack);
    frames.iter().for_each(|frame| assert_sound(frame));
    come(&mut place, (frames, behind), 10, 0);
    let flow = place.only_flow(place.pa);
    assert_eq!((flow.answer_seen, flow.answer.limit_bytes), (10, 10 * MSS));
}

#[test]
fn both_hosts_must_have_it_on() {
    for (opener, acceptor) in [(true, false), (false, true)] {
        let frames = std::thread::spawn(move || {
            let mut place = bed(opener, acceptor);
            let (frames, _) = answered(&mut place, &syn(), &synack());
            assert_eq!(place.count(place.pb, intf::EK_COUNT_ANSWER_PROBES_SENT), 0);
            frames.len()
        });
        assert_eq!(frames.join().unwrap(), 1, "the report alone");
    }
}

#[test]
fn the_first_flight_follows_the_probes() {
    let cases = [
        (10, 0, field(10)),
        (10, 3, field(7)),
        (10, 6, field(1)),
        (5, 0, field(10)),
        (4, 0, field(1)),
        (0, 0, OFFERED),
    ];
    for (seen, marked, expected) in cases {
        let is_as_said = std::thread::spawn(move || {
            let mut place = bed(true, true);
            let all = answered(&mut place, &syn(), &synack());
            come(&mut place, all, seen, marked);
            assert_eq!(window(&mut place, &ack(5001, 0)), expected, "the handshake's last segment");
            assert_eq!(window(&mut place, &ack(5001, 200)), expected, "the request");
            assert_eq!(window(&mut place, &ack(5001 + MSS, 0)), OFFERED, "the first byte is acknowledged");
            assert_eq!(window(&mut place, &ack(5001, 200)), OFFERED, "the request, sent again");
            let flow = place.only_flow(place.pa);
            let set = if expected == OFFERED { 0 } else { u32::from(expected) << 7 };
            assert_eq!(flow.answer_window_bytes, set);
        });
        assert!(is_as_said.join().is_ok(), "{seen} probes came, {marked} with a mark");
    }
}

#[test]
fn a_window_smaller_than_the_probes_allow_is_the_vms() {
    let mut place = bed(true, true);
    let all = answered(&mut place, &syn(), &synack());
    come(&mut place, all, 10, 0);
    assert_eq!(window(&mut place, &Segment { window: 7, ..ack(5001, 0) }), 7);
    assert_eq!(window(&mut place, &ack(5001, 0)), field(10), "a later one is not");
}

/// A window that passed unchanged is not taken back later.
#[test]
fn observing_changes_no_window_and_none_afterwards() {
    let mut place = bed(true, true);
    let pa = place.pa;
    let all = answered(&mut place, &syn(), &synack());
    come(&mut place, all, 10, 10);
    set(&mut place, pa, intf::EK_MODE_OBSERVE, true);
    assert_eq!(window(&mut place, &ack(5001, 0)), OFFERED);
    assert_eq!(place.only_flow(place.pa).answer_window_bytes, u32::from(field(1)) << 7, "as it would have been");
    set(&mut place, pa, intf::EK_MODE_ENFORCE, true);
    assert_eq!(window(&mut place, &ack(5001, 200)), OFFERED);
}

#[test]
fn late_probes_change_nothing() {
    let mut place = bed(true, true);
    let (frames, behind) = answered(&mut place, &syn(), &synack());
    come(&mut place, (frames.clone(), behind), 0, 0);
    for frame in &frames[1..] {
        assert_eq!(place.run_to_vm(place.pa, frame).verdict, DROP);
    }
    assert_eq!(window(&mut place, &ack(5001, 0)), OFFERED);
}

/// A SYN-ACK that comes again has a train of its own, which says nothing once the first SYN-ACK has come.
#[test]
fn a_synack_that_comes_again_settles_nothing_anew() {
    let mut place = bed(true, true);
    let all = answered(&mut place, &syn(), &synack());
    let again = answer_again(&mut place, &synack());
    assert_eq!((again.0.len(), again.0[1][54 + 7]), (11, 1));
    come(&mut place, all, 10, 0);
    assert_eq!(window(&mut place, &ack(5001, 0)), field(10));
    come(&mut place, again, 10, 10);
    assert_eq!(window(&mut place, &ack(5001, 200)), field(10));
}

#[test]
fn where_the_first_synack_is_lost_the_second_counts() {
    let mut place = bed(true, true);
    let (frames, _) = answered(&mut place, &syn(), &synack());
    for frame in &frames {
        place.run_to_vm(place.pa, frame);
    }
    let again = answer_again(&mut place, &synack());
    come(&mut place, again, 10, 10);
    assert_eq!(window(&mut place, &ack(5001, 0)), field(1));
}

/// With TCP Fast Open the answer may be on its way under the window of the SYN, which is not taken back.
#[test]
fn what_opens_fast_is_left_alone() {
    let cookie: &[u8] = &[34, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    let experiment: &[u8] = &[254, 12, 0xf9, 0x89, 1, 2, 3, 4, 5, 6, 7, 8];
    for (option, payload) in [(cookie, 0), (experiment, 0), (&[34, 2], 0), (&[], 100)] {
        let is_left = std::thread::spawn(move || {
            let mut place = bed(true, true);
            let mut options = [LINUX_OPTIONS, option].concat();
            options.resize(options.len().next_multiple_of(4), 1);
            let all = answered(&mut place, &Segment { options, ..syn() }, &synack());
            if payload > 0 {
                // Repeated with data, which the other end may answer at once.
                let pa = place.pa;
                assert_eq!(place.run_from_vm(pa, &Segment { payload, ..syn() }.frame()).verdict, NEXT);
            }
            come(&mut place, all, 10, 10);
            assert_eq!(window(&mut place, &ack(5001, 0)), OFFERED);
            assert_eq!(place.only_flow(place.pa).answer_seen, 0);
        });
        assert!(is_left.join().is_ok(), "{option:?}, {payload} bytes");
    }
}

/// Only a host that signs its SYN's probes gets probes of the answer, so no forged address is sent any.
#[test]
fn a_flood_of_forged_syns_makes_no_probes() {
    let mut place = bed(true, true);
    let all = answered(&mut place, &syn(), &synack());
    come(&mut place, all, 10, 0);
    let sent = place.count(place.pb, intf::EK_COUNT_ANSWER_PROBES_SENT);
    for port in 1000..1100 {
        let source = (A.parse().unwrap(), port);
        place.run_to_vm(place.pb, &Segment { source, ..syn() }.frame());
        place.run_from_vm(place.pb, &Segment { destination: source, ..synack() }.frame());
    }
    assert_eq!(place.count(place.pb, intf::EK_COUNT_ANSWER_PROBES_SENT), sent);
}

#[test]
fn probes_of_answers_are_part_of_the_vms_budget() {
    let mut place = bed(true, true);
    let mut port = settings(intf::EK_MODE_ENFORCE);
    // At most one probe per second: the refill is too small for another train.
    (port.proboscis.settings.budget_probes_per_s, port.proboscis.settings.budget_burst_probes) = (1, 25);
    port.proboscis.settings.answers = 1;
    place.datapath.attach(place.pb, &port).unwrap();
    let lengths = [40000u16, 40001, 40002].map(|port| {
        let source = (A.parse().unwrap(), port);
        let (frames, _) =
            answered(&mut place, &Segment { source, ..syn() }, &Segment { destination: source, ..synack() });
        frames.len()
    });
    assert_eq!(lengths, [11, 11, 1]);
    assert_eq!(place.count(place.pb, intf::EK_COUNT_PROBES_REFUSED), 1);
}

/// Without a SYN of the VM's, the probes are for nobody, and nothing of them is kept.
#[test]
fn probes_that_nobody_asked_for_are_dropped() {
    let mut place = bed(true, true);
    let (frames, _) = answered(&mut place, &syn(), &synack());
    let other = place.pb;
    for frame in &frames[1..] {
        assert_eq!(place.run_to_vm(other, frame).verdict, DROP);
    }
    assert_eq!(place.count(other, intf::EK_COUNT_PROBES_SEEN), 10, "the SYN's alone");
}
