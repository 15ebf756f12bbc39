//! A guest's clock ticks.

use crate::time::{Duration, Instant};

/// When ticks are: at a phase and every period from then on. Without a period there are none, and timers are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    period_ps: u64,
    phase_ps: u64,
}

impl Clock {
    /// `hz` ticks a second, the first of them after `phase` (of which whole periods are left out). 0: none.
    pub fn new(hz: u32, phase: Duration) -> Self {
        let period_ps = Duration::from_s(1).ps().checked_div(u64::from(hz)).unwrap_or(0);
        Self { period_ps, phase_ps: phase.ps().checked_rem(period_ps).unwrap_or(0) }
    }

    /// Whether there are ticks.
    pub const fn ticks(&self) -> bool {
        self.period_ps > 0
    }

    /// Time between ticks.
    pub const fn period(&self) -> Duration {
        Duration::from_ps(self.period_ps)
    }

    /// The first tick at or after an instant: when a timer that is due at that instant runs.
    #[inline]
    pub fn at_or_after(&self, at: Instant) -> Instant {
        if self.period_ps == 0 || at == Instant::NEVER {
            return at;
        }
        let periods = at.ps().saturating_sub(self.phase_ps).div_ceil(self.period_ps);
        Instant::from_ps(self.phase_ps + periods * self.period_ps)
    }

    /// How many ticks there have been, one at this very instant included: what the kernel calls jiffies.
    pub const fn count(&self, now: Instant) -> u64 {
        if self.period_ps == 0 || now.ps() < self.phase_ps {
            return 0;
        }
        (now.ps() - self.phase_ps) / self.period_ps + 1
    }

    /// When the tick with this number was or will be; the first is number 1.
    pub const fn tick(&self, count: u64) -> Instant {
        Instant::from_ps(self.phase_ps + count.saturating_sub(1) * self.period_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_rounded_up_to_ticks() {
        let clock = Clock::new(1000, Duration::from_us(3300));
        let us = |us| Instant::START + Duration::from_us(us);
        assert_eq!(clock.at_or_after(us(0)), us(300));
        assert_eq!(clock.at_or_after(us(300)), us(300));
        assert_eq!(clock.at_or_after(us(301)), us(1300));
        assert_eq!((clock.count(us(299)), clock.count(us(300)), clock.count(us(1299))), (0, 1, 1));
        assert_eq!(clock.tick(clock.count(us(5000))), us(4300));
    }

    #[test]
    fn without_ticks_time_is_exact() {
        let clock = Clock::new(0, Duration::from_us(3));
        assert_eq!(clock.at_or_after(Instant::from_ps(17)), Instant::from_ps(17));
        assert!(!clock.ticks());
    }
}
