//! Random numbers that are the same on every machine, drawn by a scenario's seed.

use crate::sweep::{GOLDEN_GAMMA, splitmix64};

/// A stream of splitmix64's outputs.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of a seed; `stream` tells the users of one seed apart.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self { state: splitmix64(seed ^ splitmix64(stream)) }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let bits = splitmix64(self.state);
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        bits
    }

    /// Evenly from 0 (included) to 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Evenly from 0 to `count - 1`; 0 for a count of 0.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.bits()) * count as u128) >> 64) as usize
    }

    /// From the exponential distribution with this mean: the time between events that come at random.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // From the libm crate, because the system's logarithms differ in their last bits.
        -libm::log(1.0 - self.unit()) * mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_their_mean_and_are_the_same_everywhere() {
        let draws = || {
            let mut random = Random::new(1, 2);
            (0..3).map(|_| random.exponential(1e3)).collect::<Vec<_>>()
        };
        assert_eq!(draws(), draws());
        let mut random = Random::new(1, 2);
        let mean = (0..100_000).map(|_| random.exponential(1.0)).sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn draws_stay_in_their_range() {
        let mut random = Random::new(7, 0);
        let mut seen = [0_u32; 5];
        for _ in 0..10_000 {
            seen[random.below(5)] += 1;
            assert!(random.unit() < 1.0);
        }
        assert!(seen.iter().all(|n| (1800..2200).contains(n)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
