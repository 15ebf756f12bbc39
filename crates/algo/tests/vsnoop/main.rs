//! vSnoop's safety: an early ACK cannot be taken back.

mod world;

use evenkeel_algo::vsnoop::{
    self, Core, Doubt, Flow, HOLE_US, LIFE_US, SEGMENT_MEMORY_BYTES, Settings, State, Vm, VmAck,
};
use proptest::prelude::*;

use world::{BUFFER, Data, MSS, SCALE, World, step};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_is_acknowledged_early_is_in_the_queue_and_in_the_window(
        limit in 4..40usize,
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut world = World::new(limit);
        for step in &steps {
            world.apply(step);
        }
        world.drain();
    }
}

fn receive(world: &mut World, segments: u32) {
    for _ in 0..segments {
        world.send(0, 0, MSS);
        world.network(0, false, 0);
        world.backlog();
    }
}

fn bare(ack: u32, window: u16) -> VmAck {
    VmAck { seq: 900, bytes: 0, ack, window, ts_val: 5, is_bare: true, has_later: false }
}

#[test]
fn data_in_order_is_acknowledged_while_the_vm_is_away() {
    let mut world = World::new(100);
    receive(&mut world, 15);
    // The last segment is the VM's to acknowledge.
    assert_eq!((world.early, world.connections[0].acked), (14, 14 * MSS));
    // Memory is certain for this many segments.
    let certain = BUFFER / SEGMENT_MEMORY_BYTES;
    receive(&mut world, 15);
    assert_eq!((world.early as u32, world.connections[0].acked), (certain - 1, (certain - 1) * MSS));
    assert_eq!(world.connections[0].flow.doubt(), Doubt::ORDER, "behind what may find no memory");
    world.wake(20, u32::MAX);
    world.wake(30, u32::MAX);
    assert_eq!((world.connections[0].acked, world.connections[0].edge), (30 * MSS, BUFFER + 30 * MSS));
    receive(&mut world, 2);
    assert_eq!(world.connections[0].flow.state(), State::Active);
}

/// A VM that reads nothing offers less and less, and may not have memory for what it has offered.
#[test]
fn what_may_find_no_memory_is_the_vms() {
    let mut world = World::new(100);
    receive(&mut world, 22);
    assert_eq!(world.connections[0].flow.doubt(), Doubt::CERTAIN);
    receive(&mut world, 1);
    assert_eq!(world.connections[0].flow.doubt(), Doubt::MEMORY);
    world.wake(23, 0);
    let early = world.early;
    receive(&mut world, 5);
    assert_eq!(world.early, early, "the VM's window has not grown since");
    world.wake(0, u32::MAX);
    world.wake(100, u32::MAX);
    receive(&mut world, 2);
    assert_eq!(world.early, early + 1);
}

#[test]
fn the_queues_share_is_all_that_is_promised() {
    let mut world = World::new(20);
    receive(&mut world, 8);
    assert_eq!((world.early, world.connections[0].flow.state()), (4, State::NoBuffer));
    assert_eq!(world.connections[0].flow.doubt(), Doubt::BUDGET);
    world.wake(8, 0);
    receive(&mut world, 2);
    assert_eq!((world.early, world.connections[0].flow.state()), (5, State::Active));
}

#[test]
fn a_vm_that_has_its_core_speaks_for_itself() {
    let mut world = World::new(100);
    receive(&mut world, 3);
    assert_eq!(world.early, 2);
    for (core, doubt) in [(Core::On, Doubt::RUNS), (Core::Unknown, Doubt::CORE)] {
        world.core = core;
        receive(&mut world, 2);
        assert_eq!((world.early, world.connections[0].flow.doubt()), (2, doubt));
    }
    world.core = Core::Off;
    receive(&mut world, 1);
    assert_eq!((world.early, world.connections[0].flow.state()), (3, State::Active));
    assert_eq!(world.connections[0].promised, 7 * MSS, "all that it had left to the VM");
}

/// Senders in slow start fill the queue with what early ACKs let them send, and with no more than its share; few early
/// ACKs are sent.
#[test]
fn what_early_acks_let_come_finds_room() {
    const INITIAL_WINDOW: u32 = 10;
    for (flows, budget_segments) in [(1, 60), (1, 500), (3, 200), (8, 500)] {
        let settings = Settings { budget_segments };
        let (mut vm, mut queued, mut acks) = (Vm::default(), 0, 0);
        let wide =
            |ack| VmAck { seq: 900, bytes: 0, ack, window: u16::MAX, ts_val: 5, is_bare: true, has_later: false };
        let mut senders: Vec<_> = (0..flows)
            .map(|_| {
                let mut flow = Flow::default();
                flow.peer_syn(0, MSS);
                flow.vm_syn(14);
                flow.vm_ack(&mut vm, &wide(1), 1);
                // Next segment, what it knows to have arrived, and its window.
                (flow, 0u32, 0u32, INITIAL_WINDOW)
            })
            .collect();
        // Each sends in turn what its window allows.
        while let Some((flow, next, acked, window)) =
            senders.iter_mut().filter(|(_, next, acked, window)| next - acked < *window).min_by_key(|sender| sender.1)
        {
            let data = Data { seq: 1 + *next * MSS, bytes: MSS }.whole();
            *next += 1;
            queued += 1;
            if let Some(early) = flow.data(&mut vm, settings, data, 2) {
                let news = (early.ack - 1) / MSS - *acked;
                acks += 1;
                *acked += news;
                *window += news;
            }
        }
        assert!(queued <= budget_segments + flows * INITIAL_WINDOW, "{queued} of {budget_segments}, {flows} senders");
        assert!(queued > budget_segments / 2, "{queued} of {budget_segments}, {flows} senders");
        // Sixteen for each doubling of a window; where it is small, one for each segment.
        let most = flows * 16 * (budget_segments / flows / INITIAL_WINDOW).ilog2().max(1);
        assert!(acks <= most, "{acks} early ACKs, {most} at most");
        for (flow, next, ..) in &mut senders {
            flow.vm_ack(&mut vm, &wide(1 + *next * MSS), 3);
        }
        assert_eq!((vm.outstanding(), vm.coming()), (0, 0));
    }
}

#[test]
fn a_gap_ends_early_acks_until_the_vm_has_caught_up() {
    let mut world = World::new(100);
    receive(&mut world, 2);
    world.send(0, 0, MSS);
    world.network(0, true, 0);
    receive(&mut world, 3);
    assert_eq!((world.early, world.connections[0].flow.state()), (1, State::UnexpectedSequence));
    assert_eq!(world.connections[0].flow.doubt(), Doubt::ORDER);
    world.send(0, 4, MSS);
    world.network(0, false, 0);
    receive(&mut world, 1);
    assert_eq!(world.early, 1, "not before the VM says so");
    world.wake(100, 0);
    receive(&mut world, 2);
    assert_eq!((world.early, world.connections[0].flow.state()), (2, State::Active));
}

/// The VM's SACK blocks tell of data that was delivered and that it has not taken.
#[test]
fn a_hole_in_the_vm_ends_early_acks_until_it_is_filled() {
    let mut world = World::new(100);
    receive(&mut world, 1);
    let c = &mut world.connections[0];
    let end = c.flow.acked().wrapping_add(MSS);
    let hole = VmAck { is_bare: false, has_later: true, ..bare(c.flow.acked(), 12_500) };
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 2));
    assert_eq!((c.flow.state(), world.vm.doubt()), (State::UnexpectedSequence, Doubt::CERTAIN));
    receive(&mut world, 1);
    assert_eq!(world.early, 0, "the first segment was not taken");
    let c = &mut world.connections[0];
    assert!(c.flow.vm_ack(&mut world.vm, &bare(end.wrapping_add(MSS), 12_250), 3));
    receive(&mut world, 2);
    assert_eq!(world.early, 1);
}

#[test]
fn a_vm_that_has_lost_what_was_promised_is_promised_for_no_more() {
    let mut world = World::new(100);
    receive(&mut world, 4);
    let c = &mut world.connections[0];
    let hole = VmAck { is_bare: false, has_later: true, ..bare(c.flow.acked().wrapping_sub(MSS), 12_500) };
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 2));
    assert_eq!((c.flow.state(), world.vm.doubt()), (State::UnexpectedSequence, Doubt::CERTAIN));
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 1 + HOLE_US));
    assert_eq!(world.vm.doubt(), Doubt::CERTAIN, "two CPUs may have exchanged packets");
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 2 + HOLE_US));
    assert_eq!(world.vm.doubt(), Doubt::BROKEN);
    let early = world.early;
    receive(&mut world, 2);
    world.send(1, 0, MSS);
    world.network(1, false, 0);
    assert_eq!(world.early, early, "of no connection");
    let c = &mut world.connections[0];
    assert!(
        c.flow.vm_ack(&mut world.vm, &bare(c.flow.acked().wrapping_sub(MSS), 12_500), 3 + HOLE_US),
        "its own ACKs pass"
    );
}

/// CPUs act on times that they have read up to a tick apart, so an earlier time may come after a later one.
#[test]
fn a_time_that_goes_back_is_neither_a_silence_nor_an_old_hole() {
    const TICK_US: u64 = 4000;
    let mut world = World::new(100);
    world.now_us = 10 * TICK_US;
    receive(&mut world, 4);
    let c = &mut world.connections[0];
    let part = c.irs.wrapping_add(1 + MSS);
    c.flow.vm_ack(&mut world.vm, &bare(part, 12_375), world.now_us + TICK_US);
    let early = world.early;
    receive(&mut world, 2);
    assert_eq!(world.early, early + 2, "{:?}", world.connections[0].flow.doubt());
    let c = &mut world.connections[0];
    let hole = VmAck { is_bare: false, has_later: true, ..bare(part, 12_375) };
    for now_us in [world.now_us + TICK_US, world.now_us] {
        assert!(c.flow.vm_ack(&mut world.vm, &hole, now_us));
        assert_eq!(world.vm.doubt(), Doubt::CERTAIN);
    }
}

/// CPUs of a machine behind the VM, or of the VM's, may exchange its ACKs.
#[test]
fn an_ack_that_was_overtaken_tells_of_no_loss() {
    let mut world = World::new(100);
    receive(&mut world, 4);
    let c = &mut world.connections[0];
    let first = c.flow.acked().wrapping_sub(MSS);
    let filled = bare(first.wrapping_add(2 * MSS), 12_250);
    assert!(c.flow.vm_ack(&mut world.vm, &filled, 2));
    let hole = VmAck { is_bare: false, has_later: true, ..bare(first, 12_500) };
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 2));
    assert_eq!((c.flow.state(), world.vm.doubt()), (State::Active, Doubt::CERTAIN));
    assert!(c.flow.vm_ack(&mut world.vm, &hole, 2 + HOLE_US));
    assert_eq!(world.vm.doubt(), Doubt::CERTAIN);
}

#[test]
fn a_vm_that_takes_back_its_window_is_promised_for_no_more() {
    let mut world = World::new(100);
    receive(&mut world, 4);
    let c = &mut world.connections[0];
    let first = c.irs.wrapping_add(1);
    // Rounding may take back less than a step (RFC 7323 §2.4).
    c.flow.vm_ack(&mut world.vm, &bare(first.wrapping_add(2), 12_499), 2);
    assert_eq!(world.vm.doubt(), Doubt::CERTAIN);
    c.flow.vm_ack(&mut world.vm, &bare(first.wrapping_add(MSS), 10_000), 3);
    assert_eq!(world.vm.doubt(), Doubt::TOOK_BACK);
    let early = world.early;
    receive(&mut world, 2);
    assert_eq!(world.early, early);
}

/// No early ACK tells the other end that a dead VM lives: neither for data, nor for a keepalive with an octet that the
/// VM has, or was promised.
#[test]
fn a_dead_vm_is_not_kept_alive() {
    for was_away in [false, true] {
        let mut world = World::new(100);
        receive(&mut world, 3);
        if !was_away {
            world.wake(100, u32::MAX);
        }
        world.now_us += LIFE_US;
        let early = world.early;
        let c = &mut world.connections[0];
        let keepalive = |seq: u32| vsnoop::Data {
            seq,
            bytes: 1,
            segments: 1,
            last_bytes: 1,
            is_fin: false,
            doubt: Doubt::CERTAIN,
            core: Core::Off,
        };
        for seq in [c.flow.acked().wrapping_sub(1), c.irs.wrapping_add(3 * MSS)] {
            assert!(c.flow.data(&mut world.vm, world.settings, keepalive(seq), world.now_us).is_none());
            world.now_us += 1_000;
        }
        if was_away {
            receive(&mut world, 3);
            assert_eq!(world.early, early);
            assert_eq!(world.connections[0].flow.doubt(), Doubt::SILENCE);
        }
    }
}

#[test]
fn acks_that_say_nothing_new_are_dropped_and_all_others_pass() {
    let mut world = World::new(100);
    receive(&mut world, 4);
    let c = &mut world.connections[0];
    let told = c.flow.acked();
    // The window's edge stays where it is.
    let old = bare(told.wrapping_sub(MSS), 12_500 - 250);
    let mut passes = |ack| c.flow.vm_ack(&mut world.vm, &ack, 2);
    assert!(!passes(old));
    assert!(passes(VmAck { is_bare: false, ..old }), "with SACK blocks, an echo or data");
    assert!(passes(VmAck { seq: 899, ..old }), "a window probe wants an answer");
    assert!(!passes(bare(told, 12_500 - 375)));
    assert!(passes(bare(told, 12_500)), "a larger window");
    assert!(passes(bare(told.wrapping_add(1), 12_500)), "a higher number");
}

#[test]
fn nothing_is_acknowledged_for_a_vm_that_has_said_nothing_or_is_closing() {
    let (mut vm, settings) = (Vm::default(), Settings { budget_segments: 50 });
    let mut flow = Flow::default();
    let data = |seq, is_fin| vsnoop::Data { is_fin, ..Data { seq, bytes: MSS }.whole() };
    assert!(flow.data(&mut vm, settings, data(1, false), 1).is_none(), "first seen in the middle");
    flow.peer_syn(0, MSS);
    flow.vm_syn(SCALE);
    assert!(flow.data(&mut vm, settings, data(1, false), 1).is_none());
    assert!(flow.data(&mut vm, settings, data(1 + MSS, false), 1).is_none());
    assert_eq!(flow.doubt(), Doubt::HANDSHAKE);
    assert!(flow.vm_ack(&mut vm, &bare(1 + MSS, 5000), 2));
    // A listener may have dropped what came before its connection was made.
    assert!(flow.data(&mut vm, settings, data(1 + 2 * MSS, false), 2).is_none());
    assert!(flow.vm_ack(&mut vm, &bare(1 + 2 * MSS, 5000), 3));
    assert!(flow.data(&mut vm, settings, data(1 + 3 * MSS, false), 3).is_some());
    assert!(flow.data(&mut vm, settings, data(1 + 4 * MSS, true), 3).is_none(), "the FIN is the VM's to acknowledge");
    assert_eq!(flow.doubt(), Doubt::CLOSING);
    flow.close(&mut vm);
    assert_eq!(vm.outstanding(), 0);
}

#[test]
fn what_was_promised_is_acknowledged_again_if_it_comes_again() {
    let mut world = World::new(100);
    receive(&mut world, 4);
    world.send(0, 2, MSS);
    world.network(0, false, 0);
    assert_eq!((world.early, world.connections[0].acked), (4, 3 * MSS));
    // Neither the last segment nor what the VM has acknowledged gets an early ACK again.
    world.send(0, 1, MSS);
    world.network(0, false, 0);
    world.wake(100, u32::MAX);
    world.send(0, 2, MSS);
    world.network(0, false, 0);
    assert_eq!(world.early, 4);
}

#[test]
fn a_question_is_answered_once_the_vm_has_caught_up() {
    let mut world = World::new(100);
    receive(&mut world, 3);
    world.wake(100, 0);
    let c = &mut world.connections[0];
    let answer = VmAck { ts_val: 50, ..c.vm_ack(false) };
    let vm = &mut world.vm;
    assert!(!c.flow.vm_ack(vm, &answer, 2), "it says nothing new");
    let next = c.flow.acked();
    c.flow.peer_ack(next, false);
    assert!(!c.flow.vm_ack(vm, &answer, 2), "an ordinary ACK asks nothing");
    c.flow.peer_ack(next.wrapping_sub(1), false);
    assert!(c.flow.vm_ack(vm, &VmAck { ack: next.wrapping_sub(MSS), ..answer }, 2), "from before the question");
    assert!(c.flow.vm_ack(vm, &answer, 2), "a keepalive's answer");
    assert!(!c.flow.vm_ack(vm, &answer, 2), "one is enough");
    c.flow.peer_ack(next, true);
    assert!(c.flow.vm_ack(vm, &answer, 2), "a challenge");
}

#[test]
fn a_joined_packet_counts_as_its_segments() {
    let mut world = World::new(50);
    let c = &mut world.connections[0];
    let joined = Data { seq: c.irs.wrapping_add(1), bytes: 8 * MSS - 100 }.whole();
    let early = c.flow.data(&mut world.vm, world.settings, joined, 1).unwrap();
    assert_eq!(c.offset(early.ack), 7 * MSS, "all but the last segment");
    assert_eq!(world.vm.outstanding(), 8);
    c.flow.vm_ack(&mut world.vm, &bare(c.irs.wrapping_add(1 + 4 * MSS), 12_500), 2);
    assert_eq!(world.vm.outstanding(), 4);
}

#[test]
fn what_rode_is_forgotten_before_numbers_wrap() {
    let mut world = World::new(400);
    receive(&mut world, 2);
    world.ride(0);
    let (c, vm) = (&mut world.connections[0], &mut world.vm);
    assert!(c.flow.has_ridden(c.flow.acked()));
    // Two gigabytes, none of which rides.
    let mut seq = c.irs.wrapping_add(1 + 2 * MSS);
    c.flow.vm_ack(vm, &bare(seq, 20_000), 1);
    for _ in 0..40_000 {
        let data = vsnoop::Data { segments: 2, last_bytes: MSS, ..Data { seq, bytes: 60_000 }.whole() };
        let early = c.flow.data(vm, world.settings, data, 1).expect("it fits");
        assert!(!c.flow.has_ridden(early.ack));
        seq = seq.wrapping_add(60_000);
        c.flow.vm_ack(vm, &bare(seq, 20_000), 1);
    }
}

#[test]
fn what_was_unsure_is_forgotten_before_numbers_wrap() {
    let mut world = World::new(400);
    receive(&mut world, 2);
    let (c, vm) = (&mut world.connections[0], &mut world.vm);
    let mut seq = c.irs.wrapping_add(1 + 2 * MSS);
    let data = |seq, core| vsnoop::Data { segments: 2, last_bytes: MSS, core, ..Data { seq, bytes: 60_000 }.whole() };
    c.flow.vm_ack(vm, &bare(seq, 20_000), 1);
    // More than the VM has offered room for.
    for _ in 0..(20_000 << SCALE) / 60_000 + 1 {
        assert_ne!(c.flow.doubt(), Doubt::WINDOW);
        c.flow.data(vm, world.settings, data(seq, Core::Off), 1);
        seq = seq.wrapping_add(60_000);
    }
    assert_eq!(c.flow.doubt(), Doubt::WINDOW);
    // Two gigabytes for a VM that has its core.
    for _ in 0..40_000 {
        seq = seq.wrapping_add(60_000);
        c.flow.vm_ack(vm, &bare(seq, 20_000), 1);
        assert!(c.flow.data(vm, world.settings, data(seq, Core::On), 1).is_none());
    }
    seq = seq.wrapping_add(60_000);
    c.flow.vm_ack(vm, &bare(seq, 20_000), 1);
    let early = c.flow.data(vm, world.settings, data(seq, Core::Off), 1);
    assert!(early.is_some(), "{:?}", c.flow.doubt());
}
