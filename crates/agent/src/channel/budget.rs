//! Bounds how much of something may come: at once, and per second in the long run.

use std::time::Instant;

const MILLION: u64 = 1_000_000;

/// A bucket of tokens.
#[derive(Debug, Clone)]
pub struct Budget {
    per_s: u64,
    burst: u64,
    /// In millionths.
    left: u64,
    since: Instant,
}

impl Budget {
    /// A full one.
    pub fn new(per_s: u32, burst: u32, now: Instant) -> Self {
        Self { per_s: per_s.into(), burst: burst.into(), left: u64::from(burst) * MILLION, since: now }
    }

    /// Spends this amount; false if there is less, and then all of it is spent.
    pub fn spend(&mut self, amount: usize, now: Instant) -> bool {
        self.fill(now);
        let cost = amount as u64 * MILLION;
        let is_enough = cost <= self.left;
        self.left = self.left.saturating_sub(cost);
        is_enough
    }

    /// Spends this amount only if there is as much.
    pub fn afford(&mut self, amount: usize, now: Instant) -> bool {
        self.fill(now);
        self.left >= amount as u64 * MILLION && self.spend(amount, now)
    }

    fn fill(&mut self, now: Instant) {
        // More than an hour fills any bucket, and no product overflows.
        let elapsed_us = now.saturating_duration_since(self.since).as_micros().min(1 << 32) as u64;
        self.left = (self.left + elapsed_us * self.per_s).min(self.burst * MILLION);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_fills_again() {
        let begin = Instant::now();
        let mut budget = Budget::new(100, 10, begin);
        assert!(budget.spend(10, begin));
        assert!(!budget.spend(1, begin));
        let later = begin + Duration::from_millis(50);
        assert!(budget.spend(5, later) && !budget.spend(1, later));
        let much_later = begin + Duration::from_secs(1000);
        assert!(budget.spend(10, much_later) && !budget.spend(1, much_later));
    }

    #[test]
    fn what_cannot_be_afforded_costs_nothing() {
        let begin = Instant::now();
        let mut budget = Budget::new(1, 10, begin);
        assert!(budget.afford(8, begin) && !budget.afford(3, begin) && budget.afford(2, begin));
        assert!(budget.spend(0, begin) && !budget.spend(1, begin));
    }
}
