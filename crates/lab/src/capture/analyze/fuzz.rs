//! The analysis ends without a panic whatever packets a capture holds.

use proptest::prelude::*;

use super::build::{KEY, packet};
use super::flow::{Flow, Span, first_byte, flows};
use super::timeouts::Rule;
use super::{acks, clock, needless, rtt, timeouts, wakeup};
use crate::capture::packets::{Flags, Packet};

/// Packets of the test's flow in both directions, with any numbers.
fn packets() -> impl Strategy<Value = Vec<Packet>> {
    let one = (
        any::<bool>(),
        -2_000_000_000i64..2_000_000_000,
        number(),
        number(),
        0u32..70_000,
        any::<u8>(),
        prop::collection::vec((number(), number()), 0..4),
    );
    let one = one.prop_map(|(back, t_ns, seq, ack, len, flags, sack)| {
        let forth = Packet { ack, flags: Flags(flags), sack, ..packet(t_ns, seq, len) };
        if back { Packet { src: KEY.receiver, dst: KEY.sender, ..forth } } else { forth }
    });
    prop::collection::vec(one, 0..60)
}

/// Mostly close to each other, so that they overlap; some anywhere.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..5000, 1 => any::<u32>()]
}

proptest! {
    #[test]
    fn any_packets_are_analyzed(
        vm in packets(),
        port in packets(),
        off in prop::collection::vec((any::<i64>(), any::<i64>()), 0..5),
    ) {
        for (key, _) in flows(&vm).into_iter().chain([(KEY, 0)]) {
            let Some(first) = first_byte(key, &vm) else { continue };
            let (vm, port) = (Flow::new(key, first, &vm), Flow::new(key, first, &port));
            let _ = rtt::samples(&vm);
            let _ = acks::count(&vm, Span::ALL);
            let found = timeouts::runs(&vm, Rule::new(8000, 250, true), Span::ALL);
            prop_assert!(found.runs.iter().sum::<u64>() <= found.timeouts);
            let Some(clock) = clock::align(&vm, &port) else { continue };
            let compared = needless::compare(&vm, &clock, &port);
            let sent = vm.segments_seen_before().map(|(_, before)| before).sum::<u64>();
            prop_assert_eq!(compared.bytes, sent);
            let views = wakeup::Views { sender: &vm, clock: &clock, sender_port: &port, receiver_port: Some(&port) };
            let _ = wakeup::pick(views, &off);
        }
    }
}
