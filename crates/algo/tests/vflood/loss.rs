//! Losses, and what the VM sends again.

use evenkeel_algo::congestion::Kind;
use evenkeel_algo::vflood::{self, Settings, State};

use crate::world::{Ends, HANDSHAKE_RTT_US, RENO, Step, World, flooded};

#[test]
fn three_duplicates_halve_the_window_and_the_repair_brings_the_flow_back() {
    let mut world = flooded(RENO);
    world.apply(&Step::Arrive { flow: 0, lost: vec![true, false, false, false] });
    world.apply(&Step::Acks { flow: 0, count: 3 });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.flow.cwnd()), (State::PacketLoss, 5));
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!(world.connections[0].flow.cwnd(), 5, "it was counted already");
    world.apply(&Step::Arrive { flow: 0, lost: vec![false; 10] });
    world.apply(&Step::Acks { flow: 0, count: 10 });
    assert_eq!(world.connections[0].flow.state(), State::Active);
}

#[test]
fn lost_segments_are_not_in_cubics_network() {
    // Half of the window is lost, and half of the data is held: as the rest arrives, new data leaves in its place.
    let lost = [true, true, true, true, true, false, false, false, false, false];
    let half = |congestion| {
        let mut world = flooded(Settings { congestion, ..RENO });
        world.apply(&Step::Arrive { flow: 0, lost: lost.into() });
        world.apply(&Step::Acks { flow: 0, count: 5 });
        let c = &world.connections[0];
        assert_eq!(c.flow.state(), State::PacketLoss);
        (world.connections[0].flow.cwnd(), c.out(), world)
    };
    let (cwnd, out, mut world) = half(Kind::Cubic);
    assert_eq!((cwnd, out), (7, 17));
    // Each segment that is sent again takes a place.
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    world.apply(&Step::Again { flow: 0, later: 0 });
    world.apply(&Step::Arrive { flow: 0, lost: vec![false] });
    world.apply(&Step::Acks { flow: 0, count: 1 });
    let c = &world.connections[0];
    assert_eq!((c.out(), c.wire.len()), (17, 7));
    // Reno knows only of those that have left: two for the first duplicate ACKs (RFC 3042), and none since.
    let (cwnd, out, _) = half(Kind::Reno);
    assert_eq!((cwnd, out), (5, 12));
}

#[test]
fn fewer_duplicate_acks_than_segments_do_not_slow_the_flow_down() {
    // Linux's receivers send one duplicate ACK for many segments (`tcp_comp_sack_nr`): SACK blocks tell of the others.
    let mut world = flooded(RENO);
    let lost: Vec<bool> = (0..10).map(|segment| segment == 0).collect();
    world.apply(&Step::Arrive { flow: 0, lost });
    let c = &mut world.connections[0];
    c.acks = c.acks.pop_back().into_iter().collect();
    world.apply(&Step::Acks { flow: 0, count: 1 });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.flow.cwnd(), c.out()), (State::PacketLoss, 5, 9 + 5));
}

#[test]
fn a_guess_of_the_guests_does_not_leave_before_anybody_can_know() {
    let mut world = flooded(RENO);
    let lost = (0..10).map(|segment| segment == 0).collect();
    world.apply(&Step::Arrive { flow: 0, lost });
    world.apply(&Step::Acks { flow: 0, count: 9 });
    assert_eq!(world.connections[0].flow.state(), State::PacketLoss);
    let sent = |world: &mut World, later| {
        let before = world.connections[0].wire.len();
        world.apply(&Step::Again { flow: 0, later });
        world.connections[0].wire.len() - before
    };
    let last = world.connections[0].out() - 1;
    assert_eq!((sent(&mut world, last), sent(&mut world, 0)), (0, 1), "the loss is known");
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    assert_eq!(sent(&mut world, last), 1);
}

#[test]
fn what_was_sent_again_and_lost_leaves_cubics_network_in_time() {
    let mut world = flooded(Settings { congestion: Kind::Cubic, ..RENO });
    let lost = (0..10).map(|segment| segment == 0).collect();
    world.apply(&Step::Arrive { flow: 0, lost });
    world.apply(&Step::Acks { flow: 0, count: 9 });
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    let on_wire = |world: &World| world.connections[0].wire.len() as u32;
    assert_eq!(on_wire(&world), world.connections[0].flow.cwnd());
    world.apply(&Step::Again { flow: 0, later: 0 });
    world.connections[0].wire.pop_back();
    let next = |world: &mut World| {
        world.apply(&Step::Arrive { flow: 0, lost: vec![false] });
        world.apply(&Step::Acks { flow: 0, count: 1 });
        on_wire(world)
    };
    let cwnd = world.connections[0].flow.cwnd();
    assert_eq!(next(&mut world), cwnd - 1, "it may be on its way");
    world.apply(&Step::Wait { us: 2 * HANDSHAKE_RTT_US });
    assert_eq!(next(&mut world), cwnd, "it cannot be");
}

#[test]
fn data_that_came_twice_is_told_from_a_gap() {
    let is_dsack = |blocks: &[(u32, u32)]| vflood::is_dsack(1000, blocks);
    assert!(!is_dsack(&[]) && !is_dsack(&[(1100, 1200)]) && !is_dsack(&[(1300, 1400), (1100, 1200)]));
    assert!(!is_dsack(&[(1100, 1400), (1100, 1200)]), "a block that has grown");
    assert!(is_dsack(&[(900, 1000)]) && is_dsack(&[(800, 900), (1100, 1200)]));
    assert!(is_dsack(&[(1100, 1200), (1100, 1200)]), "all that came out of order came twice");
    assert!(is_dsack(&[(1150, 1200), (1100, 1300)]) && is_dsack(&[(1100, 1200), (1100, 1300)]));
    assert!(vflood::is_dsack(5, &[(u32::MAX - 9, 2)]), "numbers wrap");
}

#[test]
fn the_guests_timeout_begins_slow_start_anew_and_a_needless_one_does_nothing() {
    let mut world = flooded(RENO);
    world.apply(&Step::Again { flow: 0, later: 0 });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.flow.cwnd()), (State::PacketLoss, 1));
    // After SACK blocks told of the loss, the first retransmission is no timeout; a second one is.
    let mut world = flooded(RENO);
    world.apply(&Step::Arrive { flow: 0, lost: vec![true, false] });
    world.apply(&Step::Acks { flow: 0, count: 1 });
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!((world.connections[0].flow.state(), world.connections[0].flow.cwnd()), (State::PacketLoss, 5));
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!(world.connections[0].flow.cwnd(), 1);
    let mut world = flooded(RENO);
    world.apply(&Step::Arrive { flow: 0, lost: vec![false; 5] });
    world.apply(&Step::Acks { flow: 0, count: 5 });
    // The VM has not read these ACKs when its timer runs.
    world.connections[0].guest_acked = 0;
    let before = world.connections[0].wire.len();
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!(world.connections[0].flow.state(), State::Active);
    // One leaves, to get another ACK in case the first was lost; the others do not leave.
    world.apply(&Step::Again { flow: 0, later: 1 });
    assert_eq!(world.connections[0].wire.len(), before + 1);
}

#[test]
fn a_guess_of_the_guests_is_no_loss_without_a_sign_of_the_receivers() {
    // The guess passes, in case it is right.
    let mut world = flooded(RENO);
    world.apply(&Step::Arrive { flow: 0, lost: vec![false] });
    world.apply(&Step::Acks { flow: 0, count: 1 });
    let (cwnd, before) = (world.connections[0].flow.cwnd(), world.connections[0].wire.len());
    world.apply(&Step::Again { flow: 0, later: 0 });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.flow.cwnd(), c.wire.len()), (State::Active, cwnd, before + 1));
    // A timer may have run out.
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!((world.connections[0].flow.state(), world.connections[0].flow.cwnd()), (State::PacketLoss, 1));
    // The guest's guess comes before the third duplicate ACK.
    let mut world = flooded(RENO);
    world.apply(&Step::Arrive { flow: 0, lost: vec![false, true, false] });
    world.apply(&Step::Acks { flow: 0, count: 2 });
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!((world.connections[0].flow.state(), world.connections[0].flow.cwnd()), (State::PacketLoss, 5));
}

const PLAIN: Ends = Ends { timestamps: false, sack: false };
const TIMESTAMPS: Ends = Ends { timestamps: true, sack: false };
const SACK: Ends = Ends { timestamps: false, sack: true };
const BOTH: Ends = Ends { timestamps: true, sack: true };

/// Forty segments are out, none of them lost, and the VM's timer runs out all the same. Also returns the window before.
pub fn needless_timeout(ends: Ends, congestion: Kind) -> (World, u32) {
    let mut world = World::with(Settings { congestion, ..RENO }, ends);
    world.apply(&Step::Flood { flow: 0, segments: 5000, obedient: true });
    for flight in [10, 20] {
        world.apply(&Step::Arrive { flow: 0, lost: vec![false; flight] });
        world.apply(&Step::Wait { us: 2 * HANDSHAKE_RTT_US });
        world.apply(&Step::Acks { flow: 0, count: flight });
    }
    let cwnd = world.connections[0].flow.cwnd();
    world.apply(&Step::Wait { us: 250_000 });
    world.apply(&Step::Again { flow: 0, later: 0 });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.flow.cwnd()), (State::PacketLoss, 1));
    (world, cwnd)
}

fn arrive(world: &mut World, lost: &[bool]) {
    world.apply(&Step::Arrive { flow: 0, lost: lost.into() });
    world.apply(&Step::Acks { flow: 0, count: lost.len() });
}

#[test]
fn a_needless_timeout_is_taken_back_with_the_first_ack_that_tells() {
    for congestion in [Kind::Reno, Kind::Cubic, Kind::Vegas] {
        // An echoed timestamp tells at once; without one, an ACK for more than was sent again does.
        for (ends, first) in [(TIMESTAMPS, 1), (BOTH, 1), (SACK, 2)] {
            let (mut world, cwnd) = needless_timeout(ends, congestion);
            let granted = world.connections[0].guest_edge;
            arrive(&mut world, &vec![false; first]);
            let c = &world.connections[0];
            assert_eq!((c.flow.state(), c.undone), (State::Active, 1), "{ends:?}");
            assert!(c.flow.cwnd() >= cwnd);
            arrive(&mut world, &[false; 20]);
            assert!(world.connections[0].guest_edge > granted, "the VM may flood again");
        }
        let (mut world, _) = needless_timeout(PLAIN, congestion);
        arrive(&mut world, &[false; 40]);
        assert_eq!(world.connections[0].undone, 0, "nothing can tell");
    }
}

#[test]
fn what_the_vm_sends_again_after_a_needless_timeout_does_not_leave() {
    let (mut world, cwnd) = needless_timeout(SACK, Kind::Reno);
    arrive(&mut world, &[false; 2]);
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.undone), (State::Active, 1));
    let before = c.wire.len();
    for later in [0, 1, 5] {
        world.apply(&Step::Again { flow: 0, later });
    }
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.wire.len()), (State::Active, before));
    assert!(c.flow.cwnd() >= cwnd);
    // Unless nothing has arrived for a round trip: then it is another timeout.
    world.apply(&Step::Wait { us: 250_000 });
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!(world.connections[0].wire.len(), before + 1);
    assert_eq!(world.connections[0].flow.state(), State::PacketLoss);
}

#[test]
fn what_the_vm_sends_again_behind_what_has_arrived_does_not_leave() {
    let mut world = flooded(RENO);
    arrive(&mut world, &[false; 5]);
    let c = &mut world.connections[0];
    // The ACKs have not reached the VM.
    c.guest_acked -= 5;
    let before = c.wire.len();
    for later in 0..8 {
        world.apply(&Step::Again { flow: 0, later });
    }
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.wire.len()), (State::Active, before + 1), "one gets another ACK");
    // Unless nothing has arrived for a round trip: then it may be lost.
    world.apply(&Step::Wait { us: 2 * HANDSHAKE_RTT_US });
    world.apply(&Step::Again { flow: 0, later: 5 });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.wire.len()), (State::PacketLoss, before + 2));
}

#[test]
fn a_timeout_with_a_loss_stays_one() {
    for ends in [PLAIN, TIMESTAMPS, SACK, BOTH] {
        // All that was out was lost.
        let (mut world, _) = needless_timeout(ends, Kind::Reno);
        let out = world.connections[0].wire.len() - 1;
        arrive(&mut world, &[vec![true; out], vec![false]].concat());
        for _ in 0..5 {
            world.apply(&Step::Again { flow: 0, later: 0 });
            world.apply(&Step::Again { flow: 0, later: 1 });
            // However short the path has become since its RTT was measured.
            arrive(&mut world, &[false; 2]);
        }
        let c = &world.connections[0];
        assert_eq!((c.flow.state(), c.undone), (State::PacketLoss, 0), "{ends:?}");
    }
}

#[test]
fn reordering_is_found_to_be_none_when_it_shows() {
    let late_head = |ends| {
        let mut world = World::with(RENO, ends);
        world.apply(&Step::Flood { flow: 0, segments: 5000, obedient: true });
        let c = &mut world.connections[0];
        let head = c.wire.pop_front().unwrap();
        c.wire.insert(5, head);
        arrive(&mut world, &[false; 5]);
        assert_eq!(world.connections[0].flow.state(), State::PacketLoss);
        world
    };
    // The VM has sent nothing again yet.
    for ends in [PLAIN, BOTH] {
        let mut world = late_head(ends);
        arrive(&mut world, &[false]);
        let c = &world.connections[0];
        assert_eq!((c.flow.state(), c.undone), (State::Active, 1), "{ends:?}");
    }
    // It has sent something again: an older timestamp tells, or that all of it comes twice.
    for (ends, first) in [(TIMESTAMPS, 1), (BOTH, 1), (SACK, 0)] {
        let mut world = late_head(ends);
        world.apply(&Step::Wait { us: 5000 });
        world.apply(&Step::Again { flow: 0, later: 0 });
        arrive(&mut world, &[false]);
        assert_eq!(world.connections[0].undone, first, "{ends:?}");
        let rest = world.connections[0].wire.len();
        arrive(&mut world, &vec![false; rest]);
        assert_eq!(world.connections[0].undone, 1, "{ends:?}");
        assert!(world.connections[0].flow.cwnd() >= 10);
    }
}
