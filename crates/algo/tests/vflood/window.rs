//! What leaves, and when.

use evenkeel_algo::congestion::{Congestion, Kind, Path};
use evenkeel_algo::vflood::{self, Flow, HostSettings, Sacked, Settings, State, Verdict, Vm};
use proptest::prelude::*;

use crate::world::{MSS, RENO, SCALE, Step, flooded};

#[test]
fn slow_start_goes_on_without_the_vm() {
    let mut world = flooded(RENO);
    let mut flights = Vec::new();
    for _ in 0..6 {
        let flight = world.connections[0].wire.len();
        flights.push(flight);
        // One ACK for each, and no word from the VM.
        world.apply(&Step::Arrive { flow: 0, lost: vec![false; flight] });
        world.apply(&Step::Acks { flow: 0, count: flight });
        world.connections[0].window = 65;
    }
    assert_eq!(flights, [10, 20, 40, 65, 65, 65], "doubled up to the receiver's window");
}

/// A flow that begins with `segments` segments in its window, all of them on their way.
fn with_out(segments: u32) -> (HostSettings, Vm, Flow) {
    let host = HostSettings::new(&Settings { initial_window: segments, ..RENO });
    let (mut vm, mut flow) = (Vm::default(), Flow::default());
    flow.vm_syn(&host, 7, 1);
    flow.peer_syn(64_000, SCALE, MSS, 200);
    for segment in 0..segments {
        assert_eq!(flow.data(&mut vm, &host, 8 + segment * MSS, MSS, 300), Verdict::Pass);
    }
    (host, vm, flow)
}

#[test]
fn a_packet_of_several_segments_waits_for_room_that_is_coming_and_is_split_otherwise() {
    const OUT: u32 = 40;
    let (host, mut vm, mut flow) = with_out(OUT);
    let next = 8 + OUT * MSS;
    for segments in [1, 10, 40] {
        assert!(!flow.splits(&host, next, segments * MSS), "none of {segments} segments may leave");
    }
    // Two have arrived, which makes room for four.
    flow.acked(&host, &vflood::Ack { number: 8 + 2 * MSS, window: 64_000, is_pure: true, ..Default::default() }, 400);
    assert!(!flow.splits(&host, next, 9 * MSS), "38 that are on their way will make room for nine");
    assert!(flow.splits(&host, next, 10 * MSS), "ten are too many");
    flow.acked(&host, &vflood::Ack { number: 8 + 5 * MSS, window: 64_000, is_pure: true, ..Default::default() }, 500);
    assert_eq!(flow.data(&mut vm, &host, next, 9 * MSS, 500), Verdict::Pass);
    let duplicate = vflood::Ack {
        number: 8 + 5 * MSS,
        window: 64_000,
        is_pure: true,
        sacked: Sacked::of(8 + 5 * MSS, &[(next - MSS, next)], MSS),
        ..Default::default()
    };
    // While a loss is repaired, data leaves on each duplicate ACK.
    for _ in 0..3 {
        flow.acked(&host, &duplicate, 600);
    }
    assert_eq!((flow.state(), flow.cwnd()), (State::PacketLoss, 22));
    for _ in 0..30 {
        flow.acked(&host, &duplicate, 600);
    }
    assert!(flow.splits(&host, next + 9 * MSS, 11 * MSS));
}

#[test]
fn one_packet_of_a_quarter_of_the_window_leaves_whole_after_each_ack() {
    const OUT: u32 = 60;
    let few = HostSettings::new(&Settings { initial_window: 3, ..RENO });
    let (_, mut vm, mut flow) = with_out(OUT);
    let acked =
        |arrived: u32| vflood::Ack { number: 8 + arrived * MSS, window: 64_000, is_pure: true, ..Default::default() };
    // All but twenty have arrived, and one ACK covers the last of them.
    for arrived in 1..=40 {
        flow.acked(&few, &acked(arrived), 400);
    }
    let mut next = 8 + OUT * MSS;
    assert_eq!(flow.clone().data(&mut vm, &few, next, 36 * MSS, 500), Verdict::Hold, "more than a quarter");
    assert!(flow.splits(&few, next, 36 * MSS) && !flow.is_whole(next, 36 * MSS));
    assert!(flow.is_whole(next, 20 * MSS));
    assert_eq!(flow.data(&mut vm, &few, next, 20 * MSS, 500), Verdict::Pass);
    next += 20 * MSS;
    assert_eq!(flow.data(&mut vm, &few, next, 20 * MSS, 500), Verdict::Hold, "one after each ACK");
    assert!(!flow.splits(&few, next, 20 * MSS), "the next ACK lets it out");
    flow.acked(&few, &acked(41), 600);
    assert_eq!(flow.release(&mut vm, &few, next, 20 * MSS, 600), Verdict::Pass);
    assert_eq!(flow.release(&mut vm, &few, next + 20 * MSS, 3 * MSS, 600), Verdict::Hold);
}

/// With nothing out, no ACK comes that would let the packet go: the sender would wait for its timer.
#[test]
fn a_packet_beyond_the_receivers_window_is_split_if_nothing_is_out() {
    let host = HostSettings::new(&Settings { initial_window: 30, ..RENO });
    for offered in [10, 12, 15, 16] {
        let (mut vm, mut flow) = (Vm::default(), Flow::default());
        flow.vm_syn(&host, 7, 1);
        // The window of a SYN-ACK is not scaled.
        flow.peer_syn((offered * MSS) as u16, SCALE, MSS, 200);
        let (bytes, fits) = (16 * MSS, offered >= 16);
        assert_eq!((flow.is_whole(8, bytes), flow.takes_whole(&vm, &host, 8, bytes)), (fits, fits), "{offered}");
        let pieces = (0..16).map(|segment| flow.data(&mut vm, &host, 8 + segment * MSS, MSS, 300));
        assert_eq!(pieces.filter(|verdict| *verdict == Verdict::Pass).count(), offered as usize);
    }
}

#[test]
fn what_a_guest_puts_into_a_packet_leaves_whole() {
    for out in [8, 40, 60] {
        let (host, mut vm, mut flow) = with_out(out);
        let next = 8 + out * MSS;
        let bytes = vflood::guest_packet(true, out) * MSS;
        assert_eq!(flow.data(&mut vm, &host, next, bytes, 300), Verdict::Hold);
        let number = 8 + bytes;
        flow.acked(&host, &vflood::Ack { number, window: 64_000, is_pure: true, ..Default::default() }, 400);
        assert_eq!(flow.release(&mut vm, &host, next, bytes, 400), Verdict::Pass);
    }
    assert_eq!(vflood::guest_packet(false, 500), vflood::guest_packet(true, 1), "as Linux has it");
}

#[test]
fn a_guest_does_not_count_on_a_host_that_may_have_forgotten_it() {
    assert!(vflood::guest_counts_on_host(0) && vflood::guest_counts_on_host(300_000_000));
    assert!(!vflood::guest_counts_on_host(300_000_001) && !vflood::guest_counts_on_host(u64::MAX));
}

#[test]
fn an_ack_for_what_was_never_sent_means_nothing() {
    let mut world = flooded(RENO);
    let before = world.connections[0].flow.clone();
    let c = &mut world.connections[0];
    let beyond = c.seq(c.guest_end + 1);
    c.flow.acked(&world.host, &vflood::Ack { number: beyond, window: 1000, is_pure: true, ..Default::default() }, 2000);
    assert_eq!((c.flow.snd_una(), c.flow.snd_nxt()), (before.snd_una(), before.snd_nxt()));
}

/// ACK division (RFC 5681 §3.1): a receiver that acknowledges octet by octet.
#[test]
fn a_thousand_acks_for_a_segment_are_worth_one() {
    let (host, mut vm, mut flow) = with_out(40);
    let acked = |bytes: u32| vflood::Ack { number: 8 + bytes, window: 64_000, is_pure: true, ..Default::default() };
    for bytes in 1..=MSS {
        assert_eq!(flow.cwnd(), 40);
        flow.acked(&host, &acked(bytes), 400);
    }
    assert_eq!(flow.cwnd(), 41);
    // A short segment is one if it is the last that is out.
    assert_eq!(flow.data(&mut vm, &host, 8 + 40 * MSS, MSS / 2, 500), Verdict::Pass);
    flow.acked(&host, &acked(2 * MSS + MSS / 2), 600);
    assert_eq!(flow.cwnd(), 42);
    flow.acked(&host, &acked(40 * MSS + MSS / 2), 700);
    assert_eq!(flow.cwnd(), 42 + 38 + 1, "half of the third segment, 37 more and the short one");
}

#[test]
fn bare_acks_stay_inside_the_receivers_window_and_held_ones_go_ahead() {
    let mut world = flooded(RENO);
    let c = &mut world.connections[0];
    let (una, nxt) = (c.flow.snd_una(), c.flow.snd_nxt());
    assert!(una != nxt);
    // What is held counts as sent for the VM; its window may end before; a keepalive; what a reset answers.
    for (seq, is_reset, leaves_with) in [
        (c.seq(c.guest_end), false, nxt),
        (c.seq(c.guest_end), true, nxt),
        (una, false, nxt),
        (una - 1, false, una - 1),
        (una, true, una),
    ] {
        assert_eq!(c.flow.bare_seq(seq, is_reset), leaves_with, "{seq} {is_reset}");
    }
    assert!(c.flow.ack_is_due(77));
    c.flow.ack_out(77);
    assert!(!c.flow.ack_is_due(77) && !c.flow.ack_is_due(76) && c.flow.ack_is_due(78));
}

/// A VM's timeouts are window probes only while its own window is closed, and others end its connection.
#[test]
fn a_receiver_that_stays_closed_closes_the_vms_window() {
    const OUT: u32 = 10;
    let (host, mut vm, mut flow) = with_out(OUT);
    let end = 8 + OUT * MSS;
    assert_eq!(flow.data(&mut vm, &host, end, MSS, 400), Verdict::Hold);
    let ack =
        |segments: u32, window| vflood::Ack { number: 8 + segments * MSS, window, is_pure: true, ..Default::default() };
    let mut told = |ack: &vflood::Ack, now_us| {
        flow.acked(&host, ack, now_us);
        flow.grant(&mut vm, &host);
        flow.granted(ack.number).unwrap() != vflood::CLOSED
    };
    assert!(told(&ack(OUT / 2, 5), 500) && told(&ack(OUT / 2, 5), 510), "something is on its way");
    assert!(told(&ack(OUT, 0), 600), "the VM may hand over more meanwhile");
    assert!(!told(&ack(OUT, 0), 700), "a window probe was answered");
    assert!(!told(&ack(OUT, 0), 800));
    const { assert!(1 << SCALE < MSS) };
    assert!(told(&ack(OUT, 1), 900), "another window");
    assert!(!told(&ack(OUT, 1), 1000), "which has no room for a segment");
    assert!(told(&ack(OUT, 0), 1100), "taken back, and not said again");
    assert!(!told(&ack(OUT, 0), 1200));
    assert!(told(&ack(OUT, 1000), 1300), "there is room again");
}

#[test]
fn vegas_keeps_a_few_segments_in_the_queue() {
    // A path of 10 segments a millisecond and 1 ms: its window is 10, and anything beyond waits.
    let mut vegas = Congestion::new(Kind::Vegas, 2);
    for round in 0..200u64 {
        let rtt_us = 1000 + 100 * vegas.cwnd().saturating_sub(10);
        vegas.rtt(rtt_us);
        let acked = vegas.cwnd();
        vegas.acked(acked, &Path { now_us: round * 1000, srtt_us: 1000, min_rtt_us: 1000, round_over: true });
    }
    assert!((12..=14).contains(&vegas.cwnd()), "{}", vegas.cwnd());
    assert!(vegas.ssthresh() < u32::MAX, "it left slow start before any loss");
    vegas.lost();
    assert!((6..=7).contains(&vegas.cwnd()));
    vegas.timed_out();
    assert_eq!(vegas.cwnd(), 1);
}

#[test]
fn an_idle_window_begins_anew() {
    for kind in [Kind::Reno, Kind::Cubic, Kind::Vegas] {
        let mut window = Congestion::new(kind, 10);
        window.rtt(100);
        window.acked(90, &Path { now_us: 1000, srtt_us: 100, min_rtt_us: 100, round_over: false });
        assert_eq!(window.cwnd(), 100, "{kind:?}");
        window.lost();
        let before = window.cwnd();
        window.idle(300_000, 200_000, 10);
        assert_eq!((window.cwnd(), window.ssthresh()), (before / 2, before), "{kind:?}");
        window.idle(1_000_000, 200_000, 10);
        assert_eq!((window.cwnd(), window.ssthresh()), (10, before), "{kind:?}");
    }
}

#[test]
fn data_of_the_other_end_that_acknowledges_nothing_new_tells_nothing() {
    let (host, mut vm, mut flow) = with_out(4);
    let ack = |segments: u32| vflood::Ack { number: 8 + segments * MSS, window: 64_000, ..Default::default() };
    flow.grant(&mut vm, &host).unwrap();
    assert!(!flow.is_told(&ack(0)), "the first window that is scaled");
    flow.acked(&host, &ack(0), 400);
    let known = ack(0);
    assert!(flow.is_told(&known));
    assert!(!flow.is_told(&ack(1)), "something arrived");
    assert!(!flow.is_told(&vflood::Ack { window: 32_000, ..known }), "another window");
    assert!(!flow.is_told(&vflood::Ack { is_pure: true, ..known }), "a duplicate ACK");
    assert!(!flow.is_told(&vflood::Ack { sacked: Sacked::of(8, &[(8 + MSS, 8 + 2 * MSS)], MSS), ..known }), "a gap");
    flow.acked(&host, &ack(4), 500);
    flow.grant(&mut vm, &host).unwrap();
    assert!(flow.is_told(&vflood::Ack { is_pure: true, ..ack(4) }), "nothing is out");
}

proptest! {
    #[test]
    fn a_segment_that_is_acknowledged_in_parts_lets_the_window_grow_once(
        out in 1u32..60,
        parts in proptest::collection::vec(1..3 * MSS, 1..100),
    ) {
        let (host, _, mut flow) = with_out(out);
        let mut acked = 0;
        for part in parts {
            acked = (acked + part).min(out * MSS);
            let number = 8 + acked;
            flow.acked(&host, &vflood::Ack { number, window: 64_000, is_pure: true, ..Default::default() }, 400);
            prop_assert!(flow.cwnd() <= out + acked / MSS, "{} of {out} and {acked} bytes", flow.cwnd());
        }
    }

    #[test]
    fn whoever_asks_is_told_what_becomes_of_the_first_packet(
        out in 1u32..60,
        duplicates in 0..4,
        arrived in 0u32..60,
        window in 0u16..8192,
        first in 0u32..60,
        segments in 1u32..100,
        is_whole in any::<bool>(),
    ) {
        let (host, vm, mut flow) = with_out(out);
        let number = 8 + arrived.min(out) * MSS;
        for _ in 0..duplicates {
            let sacked = Sacked::of(8, &[(8 + MSS, 8 + out.max(2) * MSS)], MSS);
            let duplicate = vflood::Ack { number: 8, window: 8000, is_pure: true, sacked, ..Default::default() };
            flow.acked(&host, &duplicate, 350);
        }
        flow.acked(&host, &vflood::Ack { number, window, is_pure: true, ..Default::default() }, 400);
        let (seq, bytes) = (8 + first.min(out) * MSS, segments * MSS);
        let mut asked = flow.clone();
        let leaves = asked.leaves(&host, seq, bytes, is_whole);
        for flow in [&mut flow, &mut asked] {
            let mut vm = vm.clone();
            let verdict = if is_whole {
                flow.release_whole(&mut vm, &host, seq, bytes, 500)
            } else {
                flow.release(&mut vm, &host, seq, bytes, 500)
            };
            let is_split = is_whole && verdict == Verdict::Hold && flow.splits(&host, seq, bytes);
            prop_assert_eq!(leaves, verdict != Verdict::Hold || is_split);
        }
    }
}
