//! The beginning of one TCP connection between two hosts with evenkeel, frame by frame.

use evenkeel_agent::datapath::intf;
use evenkeel_algo::frames::{ACK, CWR, ECE, LINUX_OPTIONS, SYN, Segment, TIMESTAMPS, assert_sound};
use evenkeel_testbed::place::Tap;

use crate::ports::{A, B, Bed, DROP, NEXT, REDIRECT};

/// Bytes of data in a full segment.
pub const MSS: u32 = 1448;

/// The SYN.
pub fn syn() -> Segment {
    Segment { options: LINUX_OPTIONS.to_vec(), ..Segment::new((A, 40000), (B, 80), SYN) }
}

/// Its answer.
pub fn synack() -> Segment {
    let options = LINUX_OPTIONS.to_vec();
    Segment { options, seq: 5000, ack: 1001, window: 65160, ..Segment::new((B, 80), (A, 40000), SYN | ACK) }
}

/// A full segment, `offset` bytes after the first.
pub fn data(offset: u32) -> Segment {
    Segment {
        seq: 1001 + offset,
        ack: 5001,
        options: TIMESTAMPS.to_vec(),
        payload: MSS as usize,
        ..Segment::new((A, 40000), (B, 80), ACK)
    }
}

/// The receiver's ACK for `bytes` bytes.
pub fn ack(bytes: u32, flags: u8) -> Segment {
    Segment {
        seq: 5001,
        ack: 1001 + bytes,
        window: 8000,
        options: TIMESTAMPS.to_vec(),
        ..Segment::new((B, 80), (A, 40000), ACK | flags)
    }
}

/// The segment as it comes from a host that sees to ECN for its VM.
pub fn shown(segment: Segment) -> Segment {
    Segment { ecn: 2, ..segment }
}

/// The segment with options of IP's that say nothing.
pub fn with_ip_options(segment: &Segment) -> Vec<u8> {
    let mut frame = segment.frame();
    if segment.source.0.is_ipv4() {
        frame[14] += 1;
        frame[17] += 4;
        frame.splice(34..34, [1; 4]);
        let sum = u32::from(!u16::from_be_bytes([frame[24], frame[25]])) + 0x0100 + 4 + 2 * 0x0101;
        let check = !((sum & 0xffff) + (sum >> 16)) as u16;
        frame[24..26].copy_from_slice(&check.to_be_bytes());
    } else {
        frame[19] += 8;
        frame[20] = 60;
        frame.splice(54..54, [6, 0, 1, 4, 0, 0, 0, 0]);
    }
    frame
}

/// Sends a SYN from `pa` and returns its probes.
pub fn probes_of(place: &mut Bed, syn: &Segment) -> Vec<Vec<u8>> {
    let tap = Tap::new(place.pa);
    let frame = syn.frame();
    let outcome = place.run_from_vm(place.pa, &frame);
    assert_eq!(outcome.verdict, REDIRECT);
    let ecn = if syn.flags & (ECE | CWR) == 0 && !syn.ae { 2 } else { syn.ecn };
    let marked = Segment { ecn, ..syn.clone() }.frame();
    assert!(outcome.frame == marked, "the SYN has changed, but for ECT(0) where it offers no ECN");
    tap.tcp(10)
}

/// Opens a connection from `pa` to `pb`; afterwards their hosts know of each other.
pub fn connect(place: &mut Bed) {
    connect_by(place, &syn(), &synack());
    for port in [place.pa, place.pb] {
        assert_ne!(place.only_flow(port).flags & intf::EK_FLOW_PEER, 0);
    }
}

/// The same with this SYN and its answer. The SYN comes as the VM sends it, the answer as its host sends it.
pub fn connect_by(place: &mut Bed, syn: &Segment, synack: &Segment) {
    let probes = probes_of(place, syn);
    for probe in &probes {
        assert_eq!(place.run_to_vm(place.pb, probe).verdict, DROP);
    }
    place.run_to_vm(place.pb, &syn.frame());
    let tap = Tap::new(place.pb);
    let answer = place.run_from_vm(place.pb, &synack.frame());
    assert_eq!(answer.verdict, REDIRECT, "the SYN-ACK goes behind its report");
    let report = tap.tcp(1).remove(0);
    assert_sound(&report);
    assert_eq!(place.run_to_vm(place.pa, &report).verdict, DROP);
    assert_eq!(place.run_to_vm(place.pa, &answer.frame).verdict, NEXT);
}
