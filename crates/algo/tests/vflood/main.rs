//! What must hold for vFlood whatever the guest, the network and the receiver do.

mod buffer;
mod loss;
mod window;
mod world;

use evenkeel_algo::congestion::Kind;
use evenkeel_algo::vflood::{self, DEFAULTS, Policy, Settings, State};
use proptest::prelude::*;

use loss::needless_timeout;
use world::{FLOWS, Step, World, ends, settings, step};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn on_the_wire_it_is_a_standard_sender_and_nothing_that_is_held_is_lost(
        settings in settings(),
        ends in ends(),
        is_direct in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut world = World { is_direct, ..World::with(settings, ends) };
        for step in &steps {
            world.apply(step);
        }
        world.drain();
    }

    #[test]
    fn a_timeout_that_lost_nothing_is_taken_back(
        congestion in prop_oneof![Just(Kind::Reno), Just(Kind::Cubic), Just(Kind::Vegas)],
        ends in ends().prop_filter("something that tells", |ends| ends.timestamps || ends.sack),
        chunks in proptest::collection::vec((2..20usize, 0..4u32), 1..10),
    ) {
        let (mut world, cwnd) = needless_timeout(ends, congestion);
        let (mut arrived, out) = (0, world.connections[0].wire.len() - 1);
        for (count, again) in chunks {
            arrived += count;
            if arrived >= out {
                break;
            }
            world.apply(&Step::Arrive { flow: 0, lost: vec![false; count] });
            world.apply(&Step::Acks { flow: 0, count });
            // What the VM has sent again meanwhile is needless too.
            let c = &world.connections[0];
            for later in 0..again.min(c.lost_end.saturating_sub(c.guest_acked)) {
                world.apply(&Step::Again { flow: 0, later });
            }
            let c = &world.connections[0];
            prop_assert!(c.undone > 0 && c.flow.state() == State::Active, "{:?}", c.flow);
            prop_assert!(congestion == Kind::Vegas || c.flow.cwnd() >= cwnd);
        }
    }

    #[test]
    fn a_token_is_not_what_all_packets_have(session in any::<u32>()) {
        prop_assert!(vflood::token(session) != 0);
        prop_assert!(vflood::token(session & 0xffff) == 1.max(session as u16), "16 bits of it make a difference");
    }

    #[test]
    fn an_obedient_guest_is_never_refused(
        steps in proptest::collection::vec((0..FLOWS, 1..200u32, 1..30usize), 1..100),
        policy in prop_oneof![Just(Policy::Fair), Just(Policy::Priority)],
        is_direct in any::<bool>(),
    ) {
        // The buffer is larger than the windows before any grant. Losses would take back what could be sent at once:
        // there are none.
        let settings = Settings { buffer_segments: 200, policy, ..DEFAULTS };
        let mut world = World { is_direct, ..World::new(settings) };
        for (flow, segments, acks) in steps {
            world.apply(&Step::Flood { flow, segments, obedient: true });
            let c = &world.connections[flow];
            prop_assert_eq!(c.wire.len() + c.queue.len() + c.delivered as usize, c.guest_end as usize);
            world.apply(&Step::Arrive { flow, lost: vec![false; acks] });
            world.apply(&Step::Acks { flow, count: acks });
        }
    }
}
