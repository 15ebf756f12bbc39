//! What must hold for data on its way from vFlood's queue to the port, whatever the VM sends meanwhile.

use std::collections::{BTreeSet, VecDeque};

use evenkeel_algo::vflood::Returns;
use proptest::prelude::*;

const SEGMENT_BYTES: u32 = 1448;

#[derive(Debug, Clone)]
enum Step {
    /// Segments leave the queue: new ones, some milliseconds after those before, or once more those from `back` before
    /// the newest on.
    Leave { count: u32, back: Option<u32>, ms: u32 },
    /// That many of the oldest come by, joined if they follow on each other.
    Come(usize),
    /// The VM sends segments from `back` before the newest on, later than all that has left.
    Sent { count: u32, back: u32 },
}

fn leave() -> impl Strategy<Value = Step> {
    let back = proptest::option::weighted(0.1, 1..60u32);
    (1..20u32, back, 0..3u32).prop_map(|(count, back, ms)| Step::Leave { count, back, ms })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => leave(),
        2 => (1..30usize).prop_map(Step::Come),
        1 => (1..5u32, 0..60u32).prop_map(|(count, back)| Step::Sent { count, back }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_comes_by_is_known_and_nothing_else(
        first in any::<u32>(),
        now_ms in any::<u32>(),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let at = |segment: u32| first.wrapping_add(segment.wrapping_mul(SEGMENT_BYTES));
        let mut returns = Returns::default();
        // On their way, in the order in which they left, each with its timestamp; and their bursts.
        let mut way = VecDeque::<(u32, u32)>::new();
        let mut bursts = VecDeque::<usize>::new();
        let (mut newest, mut ts_val) = (100, 7);
        // In the end all of it comes.
        let last = std::iter::repeat_n(Step::Come(usize::MAX), steps.len());
        for (burst, step) in steps.into_iter().chain(last).enumerate() {
            match step {
                Step::Leave { count, back, ms } => {
                    // Data that is sent again follows on nothing, and is not known where there are more bursts than
                    // ranges.
                    if back.is_some() && bursts.iter().collect::<BTreeSet<_>>().len() >= Returns::RANGES {
                        continue;
                    }
                    // The VM sends again later than it sent.
                    ts_val += ms + u32::from(back.is_some());
                    let start = back.map_or(newest, |back| newest - back.min(newest));
                    for segment in start..start + count {
                        returns.note(at(segment), SEGMENT_BYTES, ts_val, now_ms);
                        way.push_back((segment, ts_val));
                        bursts.push_back(burst);
                    }
                    newest = newest.max(start + count);
                }
                Step::Come(most) => {
                    let Some((start, ts_val)) = way.front().copied() else { continue };
                    let follow = way.iter().zip(start..).take_while(|(next, wanted)| **next == (*wanted, ts_val));
                    let count = most.min(follow.count());
                    way.drain(..count);
                    bursts.drain(..count);
                    let bytes = count as u32 * SEGMENT_BYTES;
                    prop_assert!(returns.take(at(start), bytes, ts_val), "{} of {}", count, start);
                    prop_assert_eq!(returns.is_empty(now_ms), way.is_empty());
                }
                Step::Sent { count, back } => {
                    let start = newest - back.min(newest);
                    prop_assert!(!returns.take(at(start), count * SEGMENT_BYTES, ts_val + 1), "{}", start);
                    prop_assert!(!returns.take(at(newest), count * SEGMENT_BYTES, ts_val), "{}", newest);
                }
            }
        }
    }
}

/// A VM's timestamp is another one every millisecond, and what was let out at different times waits for one CPU.
#[test]
fn what_many_acks_let_out_is_known() {
    let mut returns = Returns::default();
    let bursts = 3 * Returns::RANGES as u32;
    for burst in 0..bursts {
        returns.note(burst * SEGMENT_BYTES, SEGMENT_BYTES, 100 + burst, burst);
    }
    for burst in 0..bursts {
        let seq = burst * SEGMENT_BYTES;
        assert!(!returns.take(seq, SEGMENT_BYTES, 100 + bursts), "the VM sends {burst} again");
        assert!(returns.take(seq, SEGMENT_BYTES, 100 + burst), "{burst}");
        assert!(!returns.take(seq, SEGMENT_BYTES, 100 + burst), "{burst} twice");
    }
    assert!(returns.is_empty(bursts));
}

#[test]
fn what_is_lost_on_the_way_makes_room_for_what_comes() {
    let mut returns = Returns::default();
    let at = |burst: usize| burst as u32 * 10 * SEGMENT_BYTES;
    for burst in 0..Returns::RANGES {
        returns.note(at(burst), 2 * SEGMENT_BYTES, 0, 0);
    }
    returns.note(at(Returns::RANGES), SEGMENT_BYTES, 0, Returns::LOST_MS);
    assert!(!returns.take(at(Returns::RANGES), SEGMENT_BYTES, 0), "there is no room");
    // The first segment of a burst is lost, and then the others of all bursts.
    assert!(returns.take(at(1) + SEGMENT_BYTES, SEGMENT_BYTES, 0) && !returns.take(at(1), SEGMENT_BYTES, 0));
    let later_ms = Returns::LOST_MS + 1;
    assert!(!returns.is_empty(Returns::LOST_MS) && returns.is_empty(later_ms));
    for burst in 0..Returns::RANGES {
        returns.note(at(burst) + SEGMENT_BYTES, SEGMENT_BYTES, 0, later_ms);
    }
    assert!((0..Returns::RANGES).all(|burst| returns.take(at(burst) + SEGMENT_BYTES, SEGMENT_BYTES, 0)));
}
