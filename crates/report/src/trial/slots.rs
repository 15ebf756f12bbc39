//! Which mode holds when: pairs of slots of one random length, a mode in each, in random order.

use std::time::Duration;

use evenkeel_scenario::random::Random;

/// About how many slots a whole trial has by default.
const SLOTS: u32 = 40;
/// Bounds of the default mean length of a slot.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// The stream of a trial's seed that slots are drawn from.
const STREAM: u64 = 1;
/// How long after a change the exchanges that begin do not count, but at most a part of the slot.
const SETTLES: Duration = Duration::from_secs(1);
const SETTLING_PART: u32 = 5;
/// Exchanges that begin in the last part of a slot would mostly be cut off, and those of the slower mode more often.
const RUNS_OFF_PART: u32 = 4;

/// A stretch of time with one mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Whether the mechanism acts, and not only observes.
    pub enforces: bool,
    /// How long.
    pub length: Duration,
}

impl Slot {
    /// From when to when, after the slot's beginning, an exchange must begin to count.
    pub fn intake(&self) -> (Duration, Duration) {
        ((self.length / SETTLING_PART).min(SETTLES), self.length - self.length / RUNS_OFF_PART)
    }
}

/// The default mean length of slots in a trial of this length.
pub fn usual_slot(trial: Duration) -> Duration {
    (trial / SLOTS).clamp(SHORTEST, LONGEST)
}

/// The slots of a trial: two at a time, of one length between half and one and a half of the mean, with a mode each, in
/// random order. So nothing that comes at regular times meets one mode more often than the other.
pub fn slots(trial: Duration, mean: Duration, seed: u64) -> Vec<Slot> {
    let mut random = Random::new(seed, STREAM);
    let (mut slots, mut left) = (Vec::new(), trial);
    while left >= mean && !mean.is_zero() {
        let length = mean.mul_f64(0.5 + random.unit()).min(left / 2);
        let first = random.below(2) == 0;
        slots.extend([first, !first].map(|enforces| Slot { enforces, length }));
        left -= 2 * length;
    }
    slots
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_modes_have_the_same_time_and_all_of_it(
            trial_ms in 1000u64..4_000_000, mean_ms in 100u64..100_000, seed in any::<u64>(),
        ) {
            let (trial, mean) = (Duration::from_millis(trial_ms), Duration::from_millis(mean_ms));
            let slots = slots(trial, mean, seed);
            let whole: Duration = slots.iter().map(|slot| slot.length).sum();
            prop_assert!(whole <= trial && trial - whole < mean);
            for pair in slots.chunks(2) {
                prop_assert_eq!(pair[0].length, pair[1].length);
                prop_assert_ne!(pair[0].enforces, pair[1].enforces);
                prop_assert!(pair[0].length <= mean.mul_f64(1.5) && pair[0].length >= mean / 2);
                let (from, until) = pair[0].intake();
                prop_assert!(from < until && until < pair[0].length);
            }
        }
    }

    #[test]
    fn neither_mode_is_first_more_often() {
        let slots = slots(Duration::from_secs(20_000), Duration::from_secs(1), 3);
        let first = slots.chunks(2).filter(|pair| pair[0].enforces).count() as f64;
        let pairs = slots.len() as f64 / 2.0;
        assert!((first / pairs - 0.5).abs() < 0.02, "{first} of {pairs}");
    }

    #[test]
    fn a_short_trial_has_short_slots_and_a_long_one_no_long_ones() {
        let of = |seconds| usual_slot(Duration::from_secs(seconds)).as_secs();
        assert_eq!([20, 400, 3600, 86_400].map(of), [1, 10, 60, 60]);
    }
}
