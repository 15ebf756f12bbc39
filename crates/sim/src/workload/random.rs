//! Random times, made of the random numbers that lab and simulator share.

use evenkeel_scenario::random;

use crate::time::Duration;

/// A stream of random numbers, and of times made of them.
#[derive(Clone, Debug)]
pub struct Random(random::Random);

impl Random {
    /// The stream of a seed; `stream` tells the users of one seed apart.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(random::Random::new(seed, stream))
    }

    /// Evenly from 0 (included) to 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        self.0.unit()
    }

    /// Evenly from 0 to `count - 1`; 0 for a count of 0.
    pub fn below(&mut self, count: usize) -> usize {
        self.0.below(count)
    }

    /// Evenly from zero to less than `span`.
    pub fn span(&mut self, span: Duration) -> Duration {
        Duration::from_ps(((u128::from(self.0.bits()) * u128::from(span.ps())) >> 64) as u64)
    }

    /// The time to the next of random events that are `mean_ps` picoseconds apart on average.
    pub fn gap(&mut self, mean_ps: f64) -> Duration {
        // Less than a year in any case.
        Duration::from_ps(self.0.exponential(mean_ps).min(3e19 / 2.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_their_mean_and_spans_their_bound() {
        let mut random = Random::new(1, 2);
        let mean = (0..100_000).map(|_| random.gap(1e9).ps() as f64).sum::<f64>() / 1e5;
        assert!((mean / 1e9 - 1.0).abs() < 0.01, "{mean}");
        assert!((0..1000).all(|_| random.span(Duration::from_ns(3)) < Duration::from_ns(3)));
    }
}
