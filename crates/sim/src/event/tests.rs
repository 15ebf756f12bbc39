//! Every queue gives the order that sorting by time and number gives.

use proptest::prelude::*;

use super::binary::Binary;
use super::quaternary::Quaternary;
use super::radix::Radix;
use super::wheel::Wheel;
use super::{Agenda, Event, Events, Order};
use crate::packet::ConnId;
use crate::time::{Duration, Instant};

#[derive(Clone, Debug)]
enum Step {
    /// Put an event in, this long after the present.
    Push(u64),
    Pop,
    /// Take out what is due within this time, and let the time pass.
    Until(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let span = || {
        prop_oneof![
            4 => prop::sample::select(vec![0, 1, 80, 8_191, 8_192, 8_193, 1_230_400, 50_000_000, 200_000_000_000]),
            3 => 0..20_000_u64,
            3 => 100_000..10_000_000_u64,
            1 => 4_000_000_000..200_000_000_000_u64,
            1 => 0..1_u64 << 60,
        ]
    };
    prop::collection::vec(
        prop_oneof![5 => span().prop_map(Step::Push), 4 => Just(Step::Pop), 1 => span().prop_map(Step::Until)],
        0..400,
    )
}

/// The reference: a list in which the earliest is searched for.
#[derive(Default)]
struct Plain(Vec<(Instant, u32)>);

impl Plain {
    fn next(&self) -> Option<(Instant, u32)> {
        self.0.iter().min().copied()
    }

    fn pop_before(&mut self, end: Instant) -> Option<(Instant, Event)> {
        let next = self.next().filter(|next| next.0 <= end)?;
        self.0.retain(|entry| *entry != next);
        Some((next.0, Event::Workload(next.1)))
    }
}

fn agrees<Q: Order>(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut events = Agenda::<Q>::default();
    let mut plain = Plain::default();
    let mut now = Instant::START;
    let mut handled = 0;
    for (number, step) in (0..).zip(steps) {
        match *step {
            Step::Push(after) => {
                let at = now + Duration::from_ps(after);
                if at == Instant::NEVER {
                    continue;
                }
                events.push(at, Event::Workload(number));
                plain.0.push((at, number));
            }
            Step::Pop => {
                let popped = events.pop();
                prop_assert_eq!(popped, plain.pop_before(Instant::NEVER));
                now = popped.map_or(now, |(at, _)| at);
                handled += u64::from(popped.is_some());
            }
            Step::Until(within) => {
                let end = now + Duration::from_ps(within);
                while let Some(expected) = plain.pop_before(end) {
                    prop_assert_eq!(events.pop_before(end), Some(expected));
                    handled += 1;
                }
                prop_assert_eq!(events.pop_before(end), None);
                // Odd steps leave the present at the last event: what comes next may be before `end`.
                if number % 2 == 0 {
                    now = end;
                } else {
                    now = events.last.max(now);
                }
            }
        }
        prop_assert_eq!(events.next_at(), plain.next().map(|next| next.0));
        prop_assert_eq!(events.len(), plain.0.len());
        prop_assert_eq!(events.is_empty(), plain.0.is_empty());
        prop_assert_eq!(events.handled(), handled);
    }
    while let Some(expected) = plain.pop_before(Instant::NEVER) {
        prop_assert_eq!(events.pop(), Some(expected));
    }
    prop_assert_eq!(events.pop(), None);
    Ok(())
}

proptest! {
    #[test]
    fn binary_heap_is_in_order(steps in steps()) {
        agrees::<Binary>(&steps)?;
    }

    #[test]
    fn quaternary_heap_is_in_order(steps in steps()) {
        agrees::<Quaternary>(&steps)?;
    }

    #[test]
    fn radix_heap_is_in_order(steps in steps()) {
        agrees::<Radix>(&steps)?;
    }

    #[test]
    fn wheel_is_in_order(steps in steps()) {
        agrees::<Wheel>(&steps)?;
    }

    #[test]
    fn coarse_wheel_is_in_order(steps in steps()) {
        agrees::<Wheel<20>>(&steps)?;
    }
}

#[test]
fn an_event_keeps_what_it_carries() {
    let mut events = Events::default();
    let event = Event::Timer(ConnId { index: 7, generation: u32::MAX });
    events.push(Instant::from_ps(u64::MAX - 1), event);
    assert_eq!(events.pop(), Some((Instant::from_ps(u64::MAX - 1), event)));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "before")]
fn the_past_is_refused() {
    let mut events = Events::default();
    events.push(Instant::from_ps(2), Event::Sample);
    events.pop();
    events.push(Instant::from_ps(1), Event::Sample);
}
