//! Losses, and what the VM sends again.

use evenkeel_algo::congestion::Kind;
use evenkeel_algo::vflood::{self, DEFAULTS, Settings, State};

use crate::world::{HANDSHAKE_RTT_US, Step, World, flooded};

#[test]
fn three_duplicates_halve_the_window_and_the_repair_brings_the_flow_back() {
    let mut world = flooded(DEFAULTS);
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
        let mut world = flooded(Settings { congestion, ..DEFAULTS });
        world.apply(&Step::Arrive { flow: 0, lost: lost.into() });
        world.apply(&Step::Acks { flow: 0, count: 5 });
        let c = &world.connections[0];
        assert_eq!(c.flow.state(), State::PacketLoss);
        (world.connections[0].flow.cwnd(), c.out(), world)
    };
    let (cwnd, out, mut world) = half(Kind::Cubic);
    assert_eq!((cwnd, out), (7, 17));
    // Each that is sent again takes a place.
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
    // Linux's receivers send one for many (`tcp_comp_sack_nr`): their blocks tell of the others.
    let mut world = flooded(DEFAULTS);
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
    let mut world = flooded(DEFAULTS);
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
    let mut world = flooded(Settings { congestion: Kind::Cubic, ..DEFAULTS });
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
    let mut world = flooded(DEFAULTS);
    world.apply(&Step::Again { flow: 0, later: 0 });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.flow.cwnd()), (State::PacketLoss, 1));
    // Where SACK blocks told of the loss, it was no timeout; sent again once more, it is one.
    let mut world = flooded(DEFAULTS);
    world.apply(&Step::Arrive { flow: 0, lost: vec![true, false] });
    world.apply(&Step::Acks { flow: 0, count: 1 });
    world.apply(&Step::Wait { us: HANDSHAKE_RTT_US });
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!((world.connections[0].flow.state(), world.connections[0].flow.cwnd()), (State::PacketLoss, 5));
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!(world.connections[0].flow.cwnd(), 1);
    let mut world = flooded(DEFAULTS);
    world.apply(&Step::Arrive { flow: 0, lost: vec![false; 5] });
    world.apply(&Step::Acks { flow: 0, count: 5 });
    // The VM has not read these ACKs when its timer runs.
    world.connections[0].guest_acked = 0;
    let before = world.connections[0].wire.len();
    world.apply(&Step::Again { flow: 0, later: 0 });
    assert_eq!(world.connections[0].flow.state(), State::Active);
    // One gets an ACK once more, in case that was lost; the others do not leave.
    world.apply(&Step::Again { flow: 0, later: 1 });
    assert_eq!(world.connections[0].wire.len(), before + 1);
}
