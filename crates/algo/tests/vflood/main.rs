//! What must hold for vFlood whatever the guest, the network and the receiver do.

mod buffer;
mod loss;
mod window;
mod world;

use evenkeel_algo::vflood::{DEFAULTS, Policy, Settings};
use proptest::prelude::*;

use world::{FLOWS, Step, World, settings, step};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn on_the_wire_it_is_a_standard_sender_and_nothing_that_is_held_is_lost(
        settings in settings(),
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(settings);
        for step in &steps {
            world.apply(step);
        }
        world.drain();
    }

    #[test]
    fn an_obedient_guest_is_never_refused(
        steps in proptest::collection::vec((0..FLOWS, 1..200u32, 1..30usize), 1..100),
        policy in prop_oneof![Just(Policy::Fair), Just(Policy::Priority)],
    ) {
        // Larger than the windows before any grant, and without losses, which take back what could be sent at once.
        let mut world = World::new(Settings { buffer_segments: 200, policy, ..DEFAULTS });
        for (flow, segments, acks) in steps {
            world.apply(&Step::Flood { flow, segments, obedient: true });
            let c = &world.connections[flow];
            prop_assert_eq!(c.wire.len() + c.queue.len() + c.delivered as usize, c.guest_end as usize);
            world.apply(&Step::Arrive { flow, lost: vec![false; acks] });
            world.apply(&Step::Acks { flow, count: acks });
        }
    }
}
