//! When a host forgets what it has learned of another host, of a connection, of a port.

use std::mem::offset_of;
use std::net::IpAddr;

use evenkeel_agent::datapath::intf;
use evenkeel_algo::frames::{ACK, CWR, ECE, FIN, RST, Segment, ecn};
use evenkeel_testbed::place::Tap;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::conversation::{MSS, ack, connect, connect_by, data, probes_of, shown, syn, synack};
use crate::ports::{A, Bed, DROP, NEXT, settings};

/// The same segment between IPv6 addresses.
fn v6(segment: Segment) -> Segment {
    let to = |(address, port): (IpAddr, u16)| {
        (if address.to_string() == A { "fd00::1" } else { "fd00::2" }.parse().unwrap(), port)
    };
    Segment { source: to(segment.source), destination: to(segment.destination), ..segment }
}

fn v4(segment: Segment) -> Segment {
    segment
}

/// Gives a port another mode, as the agent does at a reload.
fn attach(place: &mut Bed, port: u32, mode: u32) {
    place.datapath.attach(port, &settings(mode)).unwrap();
}

/// Writes into each entry of a map.
fn patch(place: &Bed, map: &str, offset: usize, bytes: &[u8]) {
    let map = MapHandle::from_pinned_path(place.pins().join(map)).unwrap();
    let keys: Vec<_> = map.keys().collect();
    assert!(!keys.is_empty());
    for key in keys {
        let mut value = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
        value[offset..offset + bytes.len()].copy_from_slice(bytes);
        map.update(&key, &value, MapFlags::ANY).unwrap();
    }
}

fn knows(place: &Bed, port: u32) -> bool {
    place.datapath.flows().unwrap().iter().any(|(key, _)| key.ifindex == port)
}

/// The receiver's host is gone: its VM's ACKs come as the VM sent them.
#[test]
fn data_is_no_longer_ecn_capable_once_nobody_echoes_marks() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    for of in [v4, v6] {
        connect_by(&mut place, &of(syn()), &of(synack()));
        for i in 0..10 {
            assert_eq!(ecn(&place.run_from_vm(place.pa, &of(data(i * MSS)).frame()).frame), 2);
        }
        let limited = place.run_to_vm(place.pa, &of(shown(ack(MSS, ECE))).frame());
        assert_ne!(limited.frame, of(shown(ack(MSS, 0))).frame(), "a window that follows marks");
        let windows = place.count(place.pa, intf::EK_COUNT_WINDOWS_LIMITED);
        for frame in [of(ack(2 * MSS, 0)).frame(), of(shown(ack(3 * MSS, ECE))).frame()] {
            assert_eq!(place.run_to_vm(place.pa, &frame).frame, frame);
        }
        assert_eq!(place.count(place.pa, intf::EK_COUNT_WINDOWS_LIMITED), windows);
        for frame in [of(data(10 * MSS)).frame(), Segment { payload: 0, ..of(data(11 * MSS)) }.frame()] {
            assert_eq!(place.run_from_vm(place.pa, &frame).frame, frame);
        }
        let marked = Segment { payload: 100, ecn: 3, ..of(ack(3 * MSS, 0)) }.frame();
        assert_eq!(place.run_to_vm(place.pa, &marked).frame, marked, "nobody hides marks");
        let flow = place.only_flow(place.pa);
        assert_eq!(flow.flags & (intf::EK_FLOW_PEER | intf::EK_FLOW_PEER_GONE), intf::EK_FLOW_PEER_GONE);
        for port in [place.pa, place.pb] {
            place.run_from_vm(port, &Segment { flags: RST, ..of(data(0)) }.frame());
            place.run_from_vm(port, &Segment { flags: RST, ..of(ack(0, 0)) }.frame());
        }
    }
    assert_eq!(place.count(place.pa, intf::EK_COUNT_PEERS_GONE), 2);
}

/// The sender's host is gone.
#[test]
fn marks_are_no_longer_hidden_once_nobody_heeds_their_echo() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    for of in [v4, v6] {
        connect_by(&mut place, &of(syn()), &of(synack()));
        let marked = Segment { ecn: 3, ..of(data(0)) }.frame();
        assert_ne!(place.run_to_vm(place.pb, &marked).frame, marked);
        let frame = of(data(MSS)).frame();
        assert_eq!(place.run_to_vm(place.pb, &frame).frame, frame);
        let frame = of(ack(MSS, 0)).frame();
        assert_eq!(place.run_from_vm(place.pb, &frame).frame, frame, "no echo, and not ECN-capable");
        assert_eq!(place.run_to_vm(place.pb, &marked).frame, marked);
        // A late SYN-ACK does not change that.
        place.run_from_vm(place.pb, &of(synack()).frame());
        assert_eq!(place.only_flow(place.pb).flags & intf::EK_FLOW_PEER, 0);
        for port in [place.pa, place.pb] {
            place.run_from_vm(port, &Segment { flags: RST, ..of(data(0)) }.frame());
            place.run_from_vm(port, &Segment { flags: RST, ..of(ack(0, 0)) }.frame());
        }
    }
}

/// A report tells that a host has evenkeel, not that it sees to ECN; a host that missed the report does not.
#[test]
fn only_a_host_that_shows_it_is_taken_to_see_to_ecn() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let mut port = settings(intf::EK_MODE_ENFORCE);
    port.proboscis.ecn_for_guests = 0;
    let pb = place.pb;
    place.datapath.attach(pb, &port).unwrap();
    let probes = probes_of(&mut place, &syn());
    for probe in &probes {
        assert_eq!(place.run_to_vm(pb, probe).verdict, DROP);
    }
    place.run_to_vm(pb, &syn().frame());
    let tap = Tap::new(pb);
    let answer = place.run_from_vm(pb, &synack().frame()).frame;
    let report = tap.tcp(1).remove(0);
    assert_eq!(place.run_to_vm(place.pa, &report).verdict, DROP);
    place.run_to_vm(place.pa, &answer);
    let frame = data(0).frame();
    assert_eq!(place.run_from_vm(place.pa, &frame).frame, frame);

    attach(&mut place, pb, intf::EK_MODE_ENFORCE);
    let source = (A.parse().unwrap(), 40001);
    let second = Segment { source, ..syn() };
    for probe in probes_of(&mut place, &second) {
        place.run_to_vm(pb, &probe);
    }
    place.run_to_vm(pb, &second.frame());
    let answer = place.run_from_vm(pb, &Segment { destination: source, ..synack() }.frame()).frame;
    place.run_to_vm(place.pa, &answer);
    let first = place.run_from_vm(place.pa, &Segment { source, payload: 0, ..data(0) }.frame()).frame;
    place.run_to_vm(pb, &first);
    let frame = Segment { destination: source, payload: 500, ..ack(0, 0) }.frame();
    assert_eq!(place.run_from_vm(pb, &frame).frame, frame);
}

/// A packet that its VM would not take says nothing about the other host.
#[test]
fn who_cannot_be_the_other_end_ends_nothing() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    place.run_from_vm(place.pa, &data(0).frame());
    let edge = 5001 + (u32::from(data(0).window) << 7);
    for strange in [
        Segment { ack: 1001 + MSS + 1, ..ack(0, 0) },
        Segment { ack: 1000u32.wrapping_sub(8000 << 7), ..ack(0, 0) },
        Segment { ack: 1001u32.wrapping_sub(1 << 30), ..ack(0, 0) },
        Segment { flags: CWR, ..ack(0, 0) },
        Segment { seq: 5000, ..ack(0, 0) },
        Segment { seq: edge + 1, ..ack(0, 0) },
    ] {
        place.run_to_vm(place.pa, &strange.frame());
        assert_ne!(place.only_flow(place.pa).flags & intf::EK_FLOW_PEER, 0, "{strange:?}");
    }
    assert_eq!(place.count(place.pa, intf::EK_COUNT_PEERS_GONE), 0);
    place.run_to_vm(place.pa, &Segment { seq: edge, ..ack(MSS, 0) }.frame());
    assert_eq!(place.count(place.pa, intf::EK_COUNT_PEERS_GONE), 1);
}

/// A packet with the addresses and ports of the other end, and a number that is far off the VM's window: it passes, and
/// nothing follows from it.
#[test]
fn what_is_far_off_the_window_tells_nothing() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    let pa = place.pa;
    for i in 0..4 {
        place.run_from_vm(pa, &data(i * MSS).frame());
    }
    place.run_to_vm(pa, &shown(ack(MSS, 0)).frame());
    let known = place.only_flow(pa);
    let window = u32::from(data(0).window) << 7;
    for seq in [5001 + window + 65_537, 5001 ^ 1 << 31, 4999u32.wrapping_sub(65_536 + window)] {
        for strange in [
            ack(2 * MSS, ECE),
            shown(ack(2 * MSS, ECE)),
            Segment { window: 1, ..shown(ack(3 * MSS, 0)) },
            Segment { ecn: 3, payload: 0, ..ack(MSS, 0) },
            Segment { flags: FIN | ACK, ..shown(ack(MSS, 0)) },
            Segment { flags: RST, ..shown(ack(MSS, 0)) },
        ] {
            let frame = Segment { seq, ..strange.clone() }.frame();
            let reached = place.run_to_vm(pa, &frame);
            assert_eq!((reached.verdict, reached.frame), (NEXT, frame));
            assert_eq!(place.only_flow(pa), known, "{seq}: {strange:?}");
        }
    }
}

/// The VM acknowledges only what it has offered to take: with another number, packets have gone another way, or this
/// one is of a connection before. Nobody knows what else is not as it seems.
#[test]
fn a_number_that_the_vm_cannot_have_ends_what_is_known() {
    const JOINED: u32 = 1 << 20;
    const OVERTAKEN: u32 = 1 << 26;
    let edge = u32::from(data(0).window) << 7;
    for (offset, window, is_its) in [
        (edge, 0, true),
        (edge + JOINED, 0, true),
        (edge + JOINED + 1, 0, false),
        (1 << 31, 0, false),
        (0u32.wrapping_sub(OVERTAKEN), 0, true),
        (0u32.wrapping_sub(OVERTAKEN + 1), 0, false),
    ] {
        let mut place = Bed::new(intf::EK_MODE_ENFORCE);
        connect(&mut place);
        let pa = place.pa;
        place.run_from_vm(pa, &data(0).frame());
        // What it takes back may be on its way.
        place.run_from_vm(pa, &Segment { window: 1, ..data(MSS) }.frame());
        let frame = Segment { ack: 5001u32.wrapping_add(offset), window, ..data(2 * MSS) }.frame();
        let left = place.run_from_vm(pa, &frame);
        assert_eq!((left.verdict, knows(&place, pa)), (NEXT, is_its), "{offset}");
        assert!(is_its || left.frame == frame);
    }
}

/// Packets of a port that is off are not read, so what was known may be of other connections by now.
#[test]
fn what_was_known_before_a_port_was_off_is_not_known_after() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let pa = place.pa;
    connect(&mut place);
    probes_of(&mut place, &Segment { source: (A.parse().unwrap(), 7), ..syn() });
    attach(&mut place, pa, intf::EK_MODE_OBSERVE);
    attach(&mut place, pa, intf::EK_MODE_ENFORCE);
    let frame = place.run_from_vm(place.pa, &data(0).frame()).frame;
    assert_eq!(ecn(&frame), 2, "it was read all the time");
    attach(&mut place, pa, intf::EK_MODE_OFF);
    attach(&mut place, pa, intf::EK_MODE_ENFORCE);
    assert!(!knows(&place, place.pa), "listed before a packet shows that it is not known");
    let frame = data(MSS).frame();
    assert_eq!(place.run_from_vm(place.pa, &frame).frame, frame);
    let answer = Segment { destination: (A.parse().unwrap(), 7), ..synack() };
    place.run_to_vm(place.pa, &answer.frame());
    let noted = place.datapath.noted_flows().unwrap();
    assert!(noted.iter().all(|(key, _)| key.ifindex != pa));
    assert!(knows(&place, place.pb));
}

/// The sender gave up long ago: an answer with its SYN's number does not answer that SYN.
#[test]
fn a_handshake_ends() {
    let long_ago = 1u64.to_ne_bytes();
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    // What passed before the port was read is forgotten too; here the port was always read.
    patch(&place, "ports", offset_of!(intf::ek_port, since_ns), &0u64.to_ne_bytes());
    for probe in probes_of(&mut place, &syn()) {
        place.run_to_vm(place.pb, &probe);
    }
    place.run_to_vm(place.pb, &syn().frame());
    patch(&place, "handshakes", offset_of!(intf::ek_handshake, syn_ns), &long_ago);
    patch(&place, "trains", offset_of!(intf::ek_train, first_ns), &long_ago);
    for (port, from_vm) in [(place.pa, false), (place.pb, true)] {
        let frame = synack().frame();
        let outcome = if from_vm { place.run_from_vm(port, &frame) } else { place.run_to_vm(port, &frame) };
        assert_eq!((outcome.verdict, outcome.frame), (NEXT, frame));
        assert!(!knows(&place, port));
    }
    // Its probes count for no other SYN.
    place.run_to_vm(place.pb, &syn().frame());
    let frame = synack().frame();
    assert_eq!(place.run_from_vm(place.pb, &frame).frame, frame);
    assert!(knows(&place, place.pb));
}

/// A host without evenkeel may have it by now, and one that had it may have lost it.
#[test]
fn what_a_peer_made_of_probes_is_asked_anew() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let sent = |place: &mut Bed, port: u16| {
        let before = place.count(place.pa, intf::EK_COUNT_PROBES_SENT);
        let source = (A.parse().unwrap(), port);
        place.run_from_vm(place.pa, &Segment { source, ..syn() }.frame());
        place.run_to_vm(place.pa, &Segment { destination: source, ..synack() }.frame());
        place.count(place.pa, intf::EK_COUNT_PROBES_SENT) - before
    };
    let asked = (0..20).filter(|i| sent(&mut place, 100 + i) > 0).count();
    assert_eq!(asked, 16);
    patch(&place, "peers", offset_of!(intf::ek_peer, heard_ns), &1u64.to_ne_bytes());
    let asked = (0..20).filter(|i| sent(&mut place, 200 + i) > 0).count();
    assert_eq!(asked, 1, "once more");
}

/// One end of a connection moves: to another host, and back.
#[test]
fn whether_the_other_end_is_on_this_host_follows_its_packets() {
    const UPLINK: u32 = 1;
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let (pa, pb) = (place.pa, place.pb);
    place.run_from_vm(pa, &syn().frame());
    place.datapath.trial_from("to_vm", pa, pb, &synack().frame()).unwrap();
    for from in [pb, UPLINK, UPLINK, pb] {
        place.datapath.trial_from("to_vm", pa, from, &ack(0, 0).frame()).unwrap();
        let is_local = place.only_flow(pa).flags & intf::EK_FLOW_LOCAL != 0;
        assert_eq!(is_local, from == pb);
    }
}

/// The VM's FIN, behind `offset` bytes.
fn fin(offset: u32) -> Segment {
    Segment { flags: ACK | FIN, payload: 0, ..data(offset) }
}

/// The other end's FIN, which acknowledges `bytes` bytes.
fn remote_fin(bytes: u32) -> Segment {
    Segment { flags: ACK | FIN, ..ack(bytes, 0) }
}

/// The VM acknowledges the other end's FIN, after `offset` bytes and a FIN of its own.
fn last_ack(offset: u32) -> Segment {
    Segment { seq: 1002 + offset, ack: 5002, payload: 0, ..data(offset) }
}

#[test]
fn a_closed_flow_leaves_the_table() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    place.run_from_vm(place.pa, &fin(0).frame());
    place.run_to_vm(place.pa, &Segment { ack: 1002, ..remote_fin(0) }.frame());
    assert!(knows(&place, place.pa));
    place.run_from_vm(place.pa, &last_ack(0).frame());
    assert!(!knows(&place, place.pa));
}

/// The other end closes its side at once, while the VM's data and the FIN behind it are still on their way.
#[test]
fn two_fins_are_not_the_end_of_a_flow_whose_data_is_on_its_way() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    place.run_to_vm(place.pa, &remote_fin(0).frame());
    for i in 0..3 {
        place.run_from_vm(place.pa, &Segment { ack: 5002, ..data(i * MSS) }.frame());
    }
    place.run_from_vm(place.pa, &Segment { ack: 5002, ..fin(3 * MSS) }.frame());
    for acked in [MSS, 2 * MSS, 3 * MSS] {
        place.run_to_vm(place.pa, &Segment { seq: 5002, ..ack(acked, 0) }.frame());
        assert!(knows(&place, place.pa), "{acked} bytes have arrived, and no FIN");
    }
    place.run_to_vm(place.pa, &Segment { seq: 5002, ..ack(3 * MSS + 1, 0) }.frame());
    assert!(!knows(&place, place.pa));
}

/// Somebody forges a FIN of the other end's; the VM ignores it.
#[test]
fn a_forged_fin_does_not_end_a_flow() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    connect(&mut place);
    place.run_to_vm(place.pa, &Segment { seq: 9001, ..remote_fin(0) }.frame());
    place.run_from_vm(place.pa, &fin(0).frame());
    place.run_to_vm(place.pa, &ack(1, 0).frame());
    assert!(knows(&place, place.pa));
    place.run_to_vm(place.pa, &Segment { ack: 1002, ..remote_fin(0) }.frame());
    // With a number that the VM does not take it is not the other end's, whatever comes after it.
    for seq in [4999, 5002 + (u32::from(data(0).window) << 7)] {
        place.run_to_vm(place.pa, &Segment { seq, ..remote_fin(0) }.frame());
    }
    place.run_from_vm(place.pa, &last_ack(0).frame());
    assert!(!knows(&place, place.pa));
}
