//! A load that computes beside others, for a share of each cycle, by the clock, as load generators do.

use std::time::Duration;

use super::cores::{monotonic_ns, sleep_until_ns};

/// Longest sleep, so that the end is seen.
const LOOK_UP_NS: u64 = 20_000_000;
/// Steps between two looks at the clock: some microseconds, and some ten in translated code.
const STEPS: u32 = 2_000;

/// How a load computes.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Share of each cycle, from 0 to 1.
    pub share: f64,
    /// Length of a cycle.
    pub duty: Duration,
    /// How far into its first cycle it starts.
    pub phase: Duration,
}

impl Load {
    /// Computes until `is_over`. What it does not get done in its part of a cycle is not made up for.
    pub fn compute(&self, is_over: impl Fn() -> bool) {
        let start_ns = monotonic_ns();
        while !is_over() {
            let now_ns = monotonic_ns();
            match self.idle_ns(now_ns - start_ns) {
                0 => {
                    // No spin hint: at one, a hypervisor takes the core away.
                    for step in 0..STEPS {
                        std::hint::black_box(step);
                    }
                }
                left_ns => sleep_until_ns(now_ns + left_ns.min(LOOK_UP_NS)),
            }
        }
    }

    /// How long it has nothing to do, this long after its start; 0 if it computes.
    fn idle_ns(&self, elapsed_ns: u64) -> u64 {
        let duty_ns = (self.duty.as_nanos() as u64).max(1);
        let in_cycle_ns = (elapsed_ns + self.phase.as_nanos() as u64) % duty_ns;
        if (in_cycle_ns as f64) < self.share * duty_ns as f64 { 0 } else { duty_ns - in_cycle_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn load(share: f64, phase_ms: u64) -> Load {
        Load { share, duty: Duration::from_millis(30), phase: Duration::from_millis(phase_ms) }
    }

    #[test]
    fn it_computes_for_its_share_of_each_cycle() {
        let some = load(0.6, 0);
        assert_eq!([0, 17, 18, 29, 30, 47, 48].map(|ms| some.idle_ns(ms * MS)), [0, 0, 12 * MS, MS, 0, 0, 12 * MS]);
        assert_eq!([0, 7, 20].map(|ms| load(0.6, 10).idle_ns(ms * MS)), [0, 0, 0]);
        assert_eq!(load(0.6, 10).idle_ns(8 * MS), 12 * MS);
    }

    #[test]
    fn all_or_nothing() {
        for ms in 0..60 {
            assert_eq!(load(1.0, 3).idle_ns(ms * MS), 0);
            assert!(load(0.0, 3).idle_ns(ms * MS) > 0);
        }
    }

    #[test]
    fn it_ends() {
        let left = std::cell::Cell::new(3);
        load(1.0, 0).compute(|| left.replace(left.get() - 1) == 0);
    }
}
