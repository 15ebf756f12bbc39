//! Who may hold how much, and what the VM is told.

use evenkeel_algo::vflood::{
    ALPHA_ONE, Ack, CLOSED, DEFAULTS, Flow, Guest, HostSettings, Policy, Settings, State, Verdict, Vm, guest_held,
};
use evenkeel_algo::window::{self, By};

use crate::world::{Connection, FLOWS, MSS, SCALE, Step, World};

#[test]
fn one_flow_has_half_of_the_buffer_and_two_have_a_third_each() {
    let flood = |flows: usize| {
        let mut world = World::new(Settings { buffer_segments: 600, ..DEFAULTS });
        for index in flows..FLOWS {
            world.connections[index].flow.close(&mut world.vm);
        }
        for _ in 0..200 {
            for flow in 0..flows {
                world.apply(&Step::Flood { flow, segments: 1000, obedient: true });
                world.apply(&Step::Arrive { flow, lost: vec![false; 3] });
                world.apply(&Step::Acks { flow, count: 3 });
            }
        }
        let held = |c: &Connection| c.queue.len() as u32;
        world.connections[..flows].iter().map(held).collect::<Vec<_>>()
    };
    let near = |held: u32, share: u32| held.abs_diff(share) <= share / 10;
    let (one, two) = (flood(1), flood(2));
    assert!(near(one[0], 300), "{one:?}");
    assert!(near(two[0], 200) && near(two[1], 200), "{two:?}");
}

#[test]
fn flows_of_low_rtt_may_hold_more_where_they_have_priority() {
    // Before the first data, and when a segment is out.
    let granted = |settings: Settings, rtt_us: u64| {
        let host = HostSettings::new(&settings);
        let (mut vm, mut flow) = (Vm::default(), Flow::default());
        flow.vm_syn(&host, 7, 1);
        flow.peer_syn(64_000, SCALE, MSS, 1 + rtt_us);
        let first = flow.grant(&mut vm, &host).unwrap();
        assert_eq!(flow.data(&mut vm, &host, 8, MSS, 2 + rtt_us), Verdict::Pass);
        [first, flow.grant(&mut vm, &host).unwrap()].map(|bytes| bytes / MSS - DEFAULTS.initial_window)
    };
    let priority = Settings { policy: Policy::Priority, alpha: ALPHA_ONE / 2, ..DEFAULTS };
    // Alpha of 1/2 leaves two thirds to others, alpha of 4 a fifth. A flow that has sent nothing gets half of what any
    // flow gets, whatever its RTT.
    assert_eq!((granted(priority, 60_000), granted(priority, 300)), ([341, 682], [341, 1638]));
    assert_eq!((granted(DEFAULTS, 60_000), granted(DEFAULTS, 300)), ([512, 1024], [512, 1024]));
    // Nor is more granted than a VM may flood where nothing is said.
    assert_eq!(granted(Settings { buffer_segments: 8192, ..DEFAULTS }, 300), [512, 4096]);
}

#[test]
fn a_full_buffer_takes_the_flow_offline_and_free_room_brings_it_back() {
    let mut world = World::new(Settings { buffer_segments: 50, policy: Policy::None, ..DEFAULTS });
    world.apply(&Step::Flood { flow: 0, segments: 70, obedient: false });
    let c = &world.connections[0];
    assert_eq!((c.flow.state(), c.queue.len(), c.wire.len()), (State::NoBuffer, 50, 10));
    // A segment that found no room is not taken for held when it is sent again, even beside segments that came later.
    world.apply(&Step::Arrive { flow: 0, lost: vec![false; 10] });
    world.apply(&Step::Acks { flow: 0, count: 10 });
    world.apply(&Step::Flood { flow: 0, segments: 1, obedient: false });
    world.apply(&Step::Arrive { flow: 0, lost: vec![false; 20] });
    world.apply(&Step::Acks { flow: 0, count: 20 });
    assert_eq!(world.connections[0].flow.state(), State::Active);
    world.drain();
}

#[test]
fn a_grant_takes_the_place_of_the_receivers_window_and_limits_still_hold() {
    let arbitrate = |vflood_bytes, proboscis_bytes| {
        window::arbitrate(window::Offers { proboscis_bytes, vflood_bytes, ..Default::default() }, 100, 4, MSS)
    };
    assert_eq!(arbitrate(Some(16_000), None), (1000, By::Vflood), "raised");
    assert_eq!(arbitrate(Some(1_200), None), (75, By::Vflood), "or lowered");
    assert_eq!(arbitrate(Some(u32::MAX - 1), None), (65_535, By::Vflood));
    assert_eq!(arbitrate(Some(CLOSED), None), (0, By::Vflood));
    assert_eq!(arbitrate(Some(CLOSED), Some(8_000)), (0, By::Vflood));
    assert_eq!(arbitrate(Some(16_000), Some(8_000)), (500, By::Proboscis));
    assert_eq!(arbitrate(Some(16_000), Some(32_000)), (1000, By::Vflood));
    assert_eq!(arbitrate(None, None), (100, By::Receiver));
}

/// A VM that is told of no room only sends window probes, and their answers tell it no more.
#[test]
fn a_grant_is_never_told_as_less_than_a_segment_that_the_receiver_has_room_for() {
    for scale in 0..=14 {
        let segment = MSS.div_ceil(1 << scale) as u16;
        for (granted, offered) in [(1, 65_535), (MSS, 65_535), (10 * MSS, 65_535), (1, segment), (1, 1), (1, 0)] {
            let offers = window::Offers { vflood_bytes: Some(granted), ..Default::default() };
            let (field, _) = window::arbitrate(offers, offered, scale, MSS);
            assert!(field >= segment.min(offered), "{granted} bytes, {offered} << {scale}: {field}");
            assert!(u32::from(field) << scale < granted.max(MSS) + (1 << scale), "{granted} << {scale}: {field}");
        }
    }
}

/// A grant that grew when nobody could tell the VM is told with the next ACK, whatever that says.
#[test]
fn an_ack_for_a_vm_that_waits_to_be_told_more_is_not_known() {
    let host = HostSettings::new(&DEFAULTS);
    let (mut vm, mut flow) = (Vm::default(), Flow::default());
    flow.vm_syn(&host, 7, 1);
    flow.peer_syn(64_000, SCALE, MSS, 2);
    let ack = Ack { number: 8, window: 1000, is_pure: true, ..Default::default() };
    flow.acked(&host, &ack, 3);
    assert!(!flow.is_told(&ack), "nothing is granted yet");
    flow.grant(&mut vm, &host).unwrap();
    assert!(flow.is_told(&ack));
}

/// There may be no memory for what was counted as held.
#[test]
fn what_cannot_be_held_is_refused() {
    let host = HostSettings::new(&Settings { initial_window: 1, ..DEFAULTS });
    let (mut vm, mut flow) = (Vm::default(), Flow::default());
    flow.vm_syn(&host, 7, 1);
    flow.peer_syn(64_000, SCALE, MSS, 2);
    assert_eq!(flow.data(&mut vm, &host, 8, MSS, 3), Verdict::Pass);
    assert_eq!(flow.data(&mut vm, &host, 8 + MSS, MSS, 4), Verdict::Hold);
    assert_eq!(flow.data(&mut vm, &host, 8 + 2 * MSS, MSS, 5), Verdict::Hold);
    flow.unheld(&mut vm, 8 + 2 * MSS, MSS);
    assert_eq!((flow.held_segments(), vm.held_segments()), (1, 1));
    assert_eq!(flow.data(&mut vm, &host, 8 + MSS, MSS, 6), Verdict::Drop, "it is held already");
    assert_eq!(flow.data(&mut vm, &host, 8 + 2 * MSS, MSS, 7), Verdict::Pass, "it is not");
}

#[test]
fn the_guest_floods_only_online_and_unhurt() {
    let guest =
        Guest { is_online: true, is_repairing: false, shadow: 10, granted_segments: None, held: 0, in_flight: 9 };
    assert_eq!(guest.cwnd(), 512);
    assert_eq!(Guest { granted_segments: Some(2000), ..guest }.cwnd(), 2000);
    assert_eq!(Guest { shadow: 100, granted_segments: Some(20), ..guest }.cwnd(), 100, "the window keeps it anyway");
    assert_eq!(Guest { is_repairing: true, granted_segments: Some(2000), ..guest }.cwnd(), 10);
    assert_eq!(Guest { is_online: false, held: 5, ..guest }.cwnd(), 10);
    // 200 are out, 50 have arrived, about 20 are in the network: the lost ones among these may be sent again.
    let held = guest_held(200, 50, 20);
    let repairing = Guest { is_repairing: true, shadow: 20, held, ..guest };
    assert_eq!((held, Guest { in_flight: 190, ..repairing }.cwnd()), (130, 150));
    assert_eq!(Guest { in_flight: 100, ..repairing }.cwnd(), 101, "one for each ACK");
    assert_eq!(Guest { in_flight: 5, ..repairing }.cwnd(), 20);
    assert_eq!((guest_held(15, 0, 20), guest_held(5, 9, 0)), (0, 0));
}
