//! How much CPU time a group may use: Linux's bandwidth control (`cpu.max`, `cpu.max.burst`).
//!
//! 1. A group has a pool of run time. At the end of each period `quota` is added to it; what was left is kept as far
//!    as the pool then holds no more than `quota + burst` (`__refill_cfs_bandwidth_runtime`).
//! 2. Each core on which the group runs takes slices of 5 ms from the pool and uses them up
//!    (`__account_cfs_rq_runtime`, `__assign_cfs_rq_runtime`). Use is noticed when the scheduler looks, above all at
//!    ticks: a core may overdraw by almost a tick, and pays that back from what it is given next.
//! 3. A core whose share is used up while the pool is empty is throttled: no thread of the group runs there
//!    (`throttle_cfs_rq`).
//! 4. At the end of the period, throttled cores are given what they owe plus one nanosecond, in the order in which
//!    they were throttled, as far as the pool lasts (`distribute_cfs_runtime`); at their first use they take a slice.
//!    A core that owes more than there is stays throttled for another period.
//! 5. The timer of the periods starts with the first use, at a multiple of the period from a random offset
//!    (`init_cfs_bandwidth`, `start_cfs_bandwidth`), and stops after a period without any
//!    (`do_sched_cfs_period_timer`).
//! 6. A core on which the group falls asleep returns all but 1 ms (`__return_cfs_rq_runtime`). If other cores are
//!    throttled, they are given it 5 ms later (`do_sched_cfs_slack_timer`), unless the period is about to end.
//!
//! ```text
//!              use noticed, pool empty
//!   running ----------------------------> throttled
//!      ^                                      |
//!      +--------------------------------------+
//!        period over (or slack returned), debt paid
//! ```
//!
//! This module is passive: the scheduler reports what was used, and asks. `linux` does so for EEVDF.

use crate::time::Duration;

/// What a core takes from the pool at a time: `sched_cfs_bandwidth_slice_us`.
const SLICE_NS: i64 = 5_000_000;
/// What a core keeps when the group falls asleep on it: `min_cfs_rq_runtime`. A wake-up soon after then needs no lock.
const KEPT_NS: i64 = 1_000_000;
/// No slack is handed out when the period ends sooner than this: `min_bandwidth_expiration`.
const REFRESH_NS: i64 = 2_000_000;
/// How long slack is gathered before it is handed out: `cfs_bandwidth_slack_period`.
const SLACK_NS: i64 = 5_000_000;
/// The time of an event that is not planned.
const NEVER: i64 = i64::MAX;

/// A group's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPU time per period, over all cores.
    pub quota: Duration,
    /// Length of a period; the kernel's default is 100 ms.
    pub period: Duration,
    /// Unused time that may be kept for later.
    pub burst: Duration,
}

/// What a limit has done, as in `cpu.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaStats {
    /// Periods that ended: `nr_periods`.
    pub periods: u64,
    /// Periods at whose end some core was throttled: `nr_throttled`.
    pub throttled_periods: u64,
    /// For how long cores were throttled, all together: `throttled_usec`.
    pub throttled: Duration,
    /// Periods in which more than the quota was used: `nr_bursts`.
    pub bursts: u64,
}

/// A core's part of a group's run time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local {
    /// What is left of the last slice; negative if it is overdrawn.
    remaining: i64,
    throttled_at: Option<i64>,
}

impl Local {
    /// Whether no thread of the group may run on this core.
    pub const fn is_throttled(&self) -> bool {
        self.throttled_at.is_some()
    }

    /// Whether there is time left.
    pub const fn has_time(&self) -> bool {
        self.remaining > 0
    }
}

/// A group's run time. Instants are nanoseconds.
#[derive(Clone, Debug)]
pub struct Pool {
    quota: i64,
    period: i64,
    burst: i64,
    left: i64,
    /// What it held after the last refill.
    refilled: i64,
    /// No core has taken anything since the last period ended.
    idle: bool,
    active: bool,
    /// When the period ends; the past if the timer is stopped.
    ends: i64,
    slack_at: i64,
    /// Throttled cores, in the order in which they were throttled.
    throttled: Vec<u32>,
    stats: QuotaStats,
}

impl Pool {
    /// A full pool. Its periods end at multiples of their length after `offset`.
    pub fn new(quota: &Quota, offset: Duration) -> Self {
        let ns = |span: Duration| (span.ps() / 1000) as i64;
        Self {
            quota: ns(quota.quota),
            period: ns(quota.period).max(1),
            burst: ns(quota.burst),
            left: ns(quota.quota),
            refilled: ns(quota.quota),
            idle: false,
            active: false,
            ends: ns(offset),
            slack_at: NEVER,
            throttled: Vec::new(),
            stats: QuotaStats::default(),
        }
    }

    /// When the period ends; `None` while the timer is stopped.
    pub fn period_ends(&self) -> Option<i64> {
        self.active.then_some(self.ends)
    }

    /// When slack is handed out.
    pub fn slack_at(&self) -> Option<i64> {
        (self.slack_at < NEVER).then_some(self.slack_at)
    }

    /// Statistics so far; they do not include the present time of cores that are still throttled.
    pub const fn stats(&self) -> &QuotaStats {
        &self.stats
    }

    /// A core asks for run time up to `target`. Returns whether it has some then.
    fn assign(&mut self, local: &mut Local, target: i64, now: i64) -> bool {
        if !self.active {
            self.active = true;
            let passed = (now - self.ends).div_euclid(self.period) + 1;
            self.ends += passed.max(0) * self.period;
        }
        if self.left > 0 {
            let amount = self.left.min(target - local.remaining);
            self.left -= amount;
            local.remaining += amount;
            self.idle = false;
        }
        local.has_time()
    }

    /// A core has used `used`. Returns whether it may go on.
    pub fn charge(&mut self, local: &mut Local, used: i64, now: i64) -> bool {
        local.remaining -= used;
        local.has_time() || local.is_throttled() || self.assign(local, SLICE_NS, now)
    }

    /// Throttles a core without time, unless the pool holds some after all. Returns whether it did.
    pub fn throttle(&mut self, local: &mut Local, core: u32, now: i64) -> bool {
        if self.assign(local, 1, now) {
            return false;
        }
        self.throttled.push(core);
        local.throttled_at = Some(now);
        true
    }

    /// The group sleeps on this core, which returns its time beyond `KEPT_NS`.
    pub fn give_back(&mut self, local: &mut Local, now: i64) {
        let slack = local.remaining - KEPT_NS;
        if slack <= 0 {
            return;
        }
        self.left += slack;
        local.remaining -= slack;
        let soon = self.ends - now < SLACK_NS + REFRESH_NS;
        if self.left > SLICE_NS && !self.throttled.is_empty() && !soon && self.slack_at == NEVER {
            self.slack_at = now + SLACK_NS;
        }
    }

    /// The period is over. Returns whether cores are to be given time by [`Pool::next_freed`].
    pub fn refill(&mut self) -> bool {
        self.stats.periods += 1;
        self.left += self.quota;
        if self.refilled > self.left {
            self.stats.bursts += 1;
        }
        self.left = self.left.min(self.quota + self.burst);
        self.refilled = self.left;
        self.ends += self.period;
        if self.throttled.is_empty() {
            self.active = !self.idle;
            self.idle = true;
            return false;
        }
        self.stats.throttled_periods += 1;
        self.idle = false;
        true
    }

    /// Slack has been gathered. Returns whether cores are to be given it by [`Pool::next_freed`].
    pub fn slack_gathered(&mut self, now: i64) -> bool {
        self.slack_at = NEVER;
        self.ends - now >= REFRESH_NS && self.left > SLICE_NS
    }

    /// The throttled core to be given time next, if there is any to give.
    pub fn next_freed(&self) -> Option<u32> {
        self.throttled.first().copied().filter(|_| self.left > 0)
    }

    /// Gives the first throttled core what it owes plus a nanosecond. Returns whether that frees it; otherwise it stays
    /// first.
    pub fn free(&mut self, local: &mut Local, now: i64) -> bool {
        let amount = self.left.min(1 - local.remaining);
        self.left -= amount;
        local.remaining += amount;
        if !local.has_time() {
            return false;
        }
        self.throttled.remove(0);
        if let Some(since) = local.throttled_at.take() {
            self.stats.throttled += Duration::from_ns((now - since) as u64);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn pool(quota_ms: u64, burst_ms: u64) -> Pool {
        let [quota, period, burst] = [quota_ms, 100, burst_ms].map(Duration::from_ms);
        Pool::new(&Quota { quota, period, burst }, Duration::ZERO)
    }

    #[test]
    fn a_core_takes_slices_of_5_ms() {
        let (mut pool, mut core) = (pool(30, 0), Local::default());
        assert!(pool.charge(&mut core, 0, 0));
        assert_eq!((pool.left, core.remaining), (25 * MS, 5 * MS));
        assert!(pool.charge(&mut core, 4 * MS, 4 * MS));
        assert_eq!((pool.left, core.remaining), (25 * MS, MS));
        // It overdraws by 2 ms and gets a full slice on top of that.
        assert!(pool.charge(&mut core, 3 * MS, 7 * MS));
        assert_eq!((pool.left, core.remaining), (18 * MS, 5 * MS));
    }

    #[test]
    fn what_is_overdrawn_is_paid_back() {
        let (mut pool, mut core) = (pool(30, 0), Local::default());
        assert!(pool.charge(&mut core, 0, 0));
        assert!(!pool.charge(&mut core, 32 * MS, 32 * MS));
        assert!(pool.throttle(&mut core, 3, 32 * MS) && core.is_throttled());
        assert_eq!(pool.period_ends(), Some(100 * MS));
        assert!(pool.refill());
        assert_eq!(pool.next_freed(), Some(3));
        assert!(pool.free(&mut core, 100 * MS));
        assert_eq!((pool.left, core.remaining), (28 * MS - 1, 1));
        let stats = QuotaStats { periods: 1, throttled_periods: 1, throttled: Duration::from_ms(68), bursts: 0 };
        assert_eq!(*pool.stats(), stats);
    }

    #[test]
    fn a_debt_of_more_than_the_quota_takes_another_period() {
        let (mut pool, mut core) = (pool(3, 0), Local::default());
        assert!(!pool.charge(&mut core, 7 * MS, 7 * MS));
        assert!(pool.throttle(&mut core, 0, 7 * MS) && pool.refill());
        assert!(!pool.free(&mut core, 100 * MS));
        assert_eq!((pool.next_freed(), core.remaining), (None, -MS));
        assert!(pool.refill() && pool.free(&mut core, 200 * MS));
        assert_eq!(pool.stats().throttled, Duration::from_ms(193));
    }

    #[test]
    fn a_burst_is_what_was_not_used() {
        let (mut pool, mut core) = (pool(30, 20), Local::default());
        assert!(pool.charge(&mut core, 0, 0));
        assert!(!pool.refill());
        // 25 ms were left, 55 would be: more than quota and burst together.
        assert_eq!(pool.left, 50 * MS);
        assert!(pool.charge(&mut core, 54 * MS, 160 * MS));
        assert!(!pool.charge(&mut core, MS, 161 * MS));
        assert!(!pool.refill());
        assert_eq!(pool.stats().bursts, 1);
    }

    #[test]
    fn the_timer_stops_after_an_idle_period_and_keeps_its_phase() {
        let mut pool = Pool::new(
            &Quota { quota: Duration::from_ms(30), period: Duration::from_ms(100), burst: Duration::ZERO },
            Duration::from_ms(40),
        );
        let mut core = Local::default();
        assert_eq!(pool.period_ends(), None);
        assert!(pool.charge(&mut core, 0, 0));
        assert_eq!(pool.period_ends(), Some(40 * MS));
        assert!(!pool.refill());
        assert_eq!(pool.period_ends(), Some(140 * MS));
        assert!(!pool.refill());
        assert_eq!(pool.period_ends(), None);
        assert!(pool.charge(&mut core, 6 * MS, 777 * MS));
        assert_eq!(pool.period_ends(), Some(840 * MS));
    }

    #[test]
    fn slack_of_a_core_that_sleeps_goes_to_one_that_is_throttled() {
        let (mut pool, mut first, mut second) = (pool(20, 0), Local::default(), Local::default());
        for at in 0..3 {
            assert!(pool.charge(&mut first, 5 * MS * at.min(1), 5 * MS * at));
        }
        assert!(pool.charge(&mut second, 0, 10 * MS));
        assert!(!pool.charge(&mut second, 6 * MS, 16 * MS) && pool.throttle(&mut second, 1, 16 * MS));
        first.remaining = 9 * MS;
        pool.give_back(&mut first, 20 * MS);
        assert_eq!((first.remaining, pool.slack_at()), (KEPT_NS, Some(25 * MS)));
        assert!(pool.slack_gathered(25 * MS));
        assert_eq!(pool.next_freed(), Some(1));
        assert!(pool.free(&mut second, 25 * MS) && pool.slack_at().is_none());
    }
}
