//! ECN on behalf of guests that have none, and the window that follows from marks.

use std::mem::offset_of;

use evenkeel_agent::datapath::{Outcome, intf};
use evenkeel_algo::frames::{ACK, CWR, ECE, SYN, Segment, URG, assert_sound, ecn, set_ecn};
use evenkeel_testbed::place::Tap;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::conversation::{MSS, ack, connect, data, probes_of, shown, syn, synack};
use crate::ports::{Bed, NEXT, settings};

fn window(outcome: &Outcome) -> u32 {
    u32::from(u16::from_be_bytes([outcome.frame[48], outcome.frame[49]]))
}

#[test]
fn marks_are_hidden_echoed_and_hidden_again() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    let sent = place.run_from_vm(place.pa, &data(0).frame());
    assert_eq!((sent.verdict, ecn(&sent.frame)), (NEXT, 2), "made ECN-capable");
    assert_sound(&sent.frame);

    let mut marked = sent.frame;
    set_ecn(&mut marked, 3);
    let seen = place.run_to_vm(place.pb, &marked);
    assert_ne!(ecn(&seen.frame), 3, "the VM sees no mark");
    assert_sound(&seen.frame);

    let echo = place.run_from_vm(place.pb, &ack(MSS, 0).frame());
    assert_eq!(echo.frame[47] & ECE, ECE);
    assert_eq!(ecn(&echo.frame), 2, "a pure ACK is ECN-capable too");
    assert_sound(&echo.frame);
    let plain = place.run_from_vm(place.pb, &ack(MSS, 0).frame());
    assert_eq!(plain.frame[47] & ECE, 0, "once for each mark");

    let seen = place.run_to_vm(place.pa, &echo.frame);
    assert_eq!(seen.frame[47], ACK, "the VM sees no echo");
    assert_sound(&seen.frame);
    assert!(window(&seen) < 8000);
    assert_eq!(place.count(place.pa, intf::EK_COUNT_ECT_SET), 2, "the SYN and the data");
    assert_eq!(place.count(place.pb, intf::EK_COUNT_ECT_SET), 3, "the SYN-ACK and two ACKs");
    for (port, counter) in [
        (place.pb, intf::EK_COUNT_CE_HIDDEN),
        (place.pb, intf::EK_COUNT_ECE_SET),
        (place.pa, intf::EK_COUNT_ECE_HIDDEN),
        (place.pa, intf::EK_COUNT_WINDOWS_LIMITED),
    ] {
        assert_eq!(place.count(port, counter), 1, "{counter}");
    }
}

/// A port that marks drops what is not ECN-capable, so SYNs must be, and the VMs must not see it.
#[test]
fn handshakes_are_ecn_capable_between_the_hosts() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let probes = probes_of(&mut place, &syn());
    place.run_to_vm(place.pb, &probes[0]);
    for ecn_field in [2, 3] {
        let on_the_wire = Segment { ecn: ecn_field, ..syn() }.frame();
        assert_eq!(place.run_to_vm(place.pb, &on_the_wire).frame, syn().frame());
    }
    let tap = Tap::new(place.pb);
    let answer = place.run_from_vm(place.pb, &synack().frame());
    assert_eq!(ecn(&answer.frame), 2);
    assert_sound(&answer.frame);
    let report = tap.tcp(1).remove(0);
    assert_eq!(ecn(&report), 2, "ECT(0), or a port that marks drops it");
    assert_eq!(report[47], 0, "a RST ahead of the SYN-ACK would end the connection for firewalls on the way");
    assert_sound(&report);
    place.run_to_vm(place.pa, &report);
    let mut marked = answer.frame.clone();
    set_ecn(&mut marked, 3);
    let seen = place.run_to_vm(place.pa, &marked);
    assert_eq!(ecn(&seen.frame), 0, "the VM sees none");
    assert_sound(&seen.frame);
}

/// A SYN sent again is like the first, or a port that marks would drop it time after time.
#[test]
fn a_syn_sent_again_is_as_ecn_capable_as_the_first() {
    let offers = Segment { flags: SYN | ECE | CWR, ..syn() };
    for (syn, expected) in [(syn(), 2), (offers, 0)] {
        let mut place = Bed::new(intf::EK_MODE_ENFORCE);
        probes_of(&mut place, &syn);
        let frame = syn.frame();
        let mut event = intf::ek_event::default();
        event.flow.ifindex = place.pa;
        event.frame_bytes = frame.len().try_into().unwrap();
        event.frame[..frame.len()].copy_from_slice(&frame);
        let tap = Tap::new(place.pa);
        place.datapath.inject(&event, 0, 1, true).unwrap();
        let again = tap.tcp(1).remove(0);
        assert_eq!(ecn(&again), expected);
        assert_sound(&again);
    }
}

/// A SYN from a host without evenkeel, or of a VM with ECN, stays as it is.
#[test]
fn handshakes_of_others_stay() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let strange = Segment { ecn: 3, ..syn() }.frame();
    assert_eq!(place.run_to_vm(place.pb, &strange).frame, strange);
    let offers = Segment { flags: SYN | ECE | CWR, ..syn() };
    let probes = probes_of(&mut place, &offers);
    place.run_to_vm(place.pb, &probes[0]);
    let native = Segment { ecn: 2, ..offers }.frame();
    assert_eq!(place.run_to_vm(place.pb, &native).frame, native);
}

#[test]
fn a_mark_halves_the_first_window_and_growth_follows() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    for i in 0..10 {
        place.run_from_vm(place.pa, &data(i * MSS).frame());
    }
    // The window of data ends with its first segment, and then with all that was on its way.
    place.run_to_vm(place.pa, &shown(ack(MSS, 0)).frame());
    let marked = place.run_to_vm(place.pa, &shown(ack(10 * MSS, ECE)).frame());
    let flow = place.only_flow(place.pa);
    let alpha = flow.sender.dctcp.alpha;
    assert!((950..=1024).contains(&alpha), "{alpha}");
    let expected = (10 * MSS - ((10 * MSS * alpha) >> 11)) >> 7;
    assert!(window(&marked).abs_diff(expected) <= MSS >> 7, "{} {expected}", window(&marked));
    assert_eq!(flow.window_set_bytes, window(&marked) << 7);
    assert_eq!(flow.window_offered_bytes, 8000 << 7);
    assert_eq!(u32::from(flow.window_by), intf::WINDOW_BY_PROBOSCIS);

    for i in 10..14 {
        place.run_from_vm(place.pa, &data(i * MSS).frame());
    }
    let before = flow.sender.limit_bytes;
    place.run_to_vm(place.pa, &shown(ack(14 * MSS, 0)).frame());
    place.run_from_vm(place.pa, &data(14 * MSS).frame());
    place.run_to_vm(place.pa, &shown(ack(15 * MSS, 0)).frame());
    assert!(place.only_flow(place.pa).sender.limit_bytes > before, "a window without marks");
}

#[test]
fn elephants_are_left_alone() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let mut port = settings(intf::EK_MODE_ENFORCE);
    port.proboscis.settings.elephant_bytes = 2 * u64::from(MSS);
    place.datapath.attach(place.pa, &port).unwrap();
    connect(&mut place);
    for i in 0..2 {
        assert_eq!(ecn(&place.run_from_vm(place.pa, &data(i * MSS).frame()).frame), 2);
    }
    let large = data(2 * MSS).frame();
    assert_eq!(place.run_from_vm(place.pa, &large).frame, large, "no longer ECN-capable");
    let seen = place.run_to_vm(place.pa, &shown(ack(3 * MSS, ECE)).frame());
    assert_eq!(window(&seen), 8000);
}

#[test]
fn without_evenkeel_at_the_other_end_nothing_is_changed() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    probes_of(&mut place, &syn());
    for frame in [synack().frame(), ack(0, ECE).frame(), ack(MSS, ECE).frame()] {
        let seen = place.run_to_vm(place.pa, &frame);
        assert_eq!((seen.verdict, seen.frame), (NEXT, frame));
    }
    let mut marked = Segment { payload: 100, ..ack(0, 0) }.frame();
    set_ecn(&mut marked, 3);
    assert_eq!(place.run_to_vm(place.pa, &marked).frame, marked);
    let frame = data(0).frame();
    assert_eq!(place.run_from_vm(place.pa, &frame).frame, frame);
}

/// A connection whose VM at `pb` has sent 100 bytes, and has had its window lowered.
fn lowered() -> Bed {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    place.run_from_vm(place.pb, &Segment { payload: 100, ..ack(0, 0) }.frame());
    let flows = MapHandle::from_pinned_path(place.pins().join("flows")).unwrap();
    for key in flows.keys() {
        let mut flow = flows.lookup(&key, MapFlags::ANY).unwrap().unwrap();
        flow[offset_of!(intf::ek_flow, windows_limited)] = 1;
        flows.update(&key, &flow, MapFlags::ANY).unwrap();
    }
    place
}

/// Where ACKs come in by another port, its number is not below what this one has seen acknowledged.
#[test]
fn a_keepalive_keeps_its_number() {
    let mut place = lowered();
    for (seq, leaves) in [(5001u32, 5101u32), (5099, 5101), (5100, 5100), (5101, 5101)] {
        let left = place.run_from_vm(place.pb, &Segment { seq, ..ack(0, 0) }.frame()).frame;
        assert_sound(&left);
        assert_eq!(left[38..42], leaves.to_be_bytes(), "{seq}");
    }
}

/// Both write the same word of the header.
#[test]
fn an_ack_gets_its_number_and_its_echo() {
    let mut place = lowered();
    let mut marked = shown(data(0)).frame();
    set_ecn(&mut marked, 3);
    place.run_to_vm(place.pb, &marked);
    // At its window's edge, and urgent about what it has not sent yet.
    let said = Segment { flags: ACK | URG, ..ack(MSS, 0) };
    let left = place.run_from_vm(place.pb, &said.frame()).frame;
    assert_sound(&left);
    assert_eq!((left[47], &left[38..42]), (ACK | ECE, &5101u32.to_be_bytes()[..]));
}

/// What comes from behind the VM.
fn forwarded(segment: &Segment) -> Vec<u8> {
    let mut frame = segment.frame();
    frame[22] -= 1;
    // RFC 1624.
    let sum = u32::from(u16::from_be_bytes([frame[24], frame[25]])) + 0x100;
    frame[24..26].copy_from_slice(&((sum + (sum >> 16)) as u16).to_be_bytes());
    frame
}

/// It was made ECN-capable where it came in, and beyond this port nobody heeds marks.
#[test]
fn what_a_vm_forwards_is_not_ecn_capable_unless_its_guests_are() {
    let capable = shown(data(0));
    for (agrees, mode, leaves_with) in
        [(0, intf::EK_MODE_ENFORCE, 0), (ECE, intf::EK_MODE_ENFORCE, 2), (0, intf::EK_MODE_OBSERVE, 2)]
    {
        let mut place = Bed::new(mode);
        place.run_from_vm(place.pa, &forwarded(&Segment { flags: SYN | ECE | CWR, ..syn() }));
        place.run_to_vm(place.pa, &Segment { flags: SYN | ACK | agrees, ..synack() }.frame());
        let left = place.run_from_vm(place.pa, &forwarded(&capable)).frame;
        assert_sound(&left);
        assert_eq!(ecn(&left), leaves_with, "{agrees} {mode}");
        let own = place.run_from_vm(place.pa, &capable.frame()).frame;
        assert_eq!(own, capable.frame(), "the VM's own");
    }
}

/// A SYN-ACK with a mark, which its VM is not to see: of a connection that is known.
#[test]
fn a_synacks_mark_is_hidden_where_it_is_the_flows() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    for (ack, is_its) in [(1001, true), (7001, false)] {
        let frame = Segment { ack, ecn: 3, ..synack() }.frame();
        assert_eq!(place.run_to_vm(place.pa, &frame).frame != frame, is_its);
    }
}

#[test]
fn ports_that_are_off_or_unknown_are_passed_over() {
    let mut place = Bed::new(intf::EK_MODE_OFF);
    let frame = syn().frame();
    for (port, name) in [(place.pa, "from_vm"), (place.pa, "to_vm"), (1, "from_vm"), (1, "to_vm")] {
        let outcome = place.datapath.trial(name, port, 0, &frame, 1).unwrap();
        assert_eq!((outcome.verdict, outcome.frame), (NEXT, frame.clone()));
    }
    assert_eq!(place.count(place.pa, intf::EK_COUNT_PACKETS_FROM_VM), 0);
}
