//! Whether this guest waits for its core: a timer that asks to be woken at fixed times, and how often it is late.
//!
//! A hypervisor that is paravirtual tells its guests of stolen time, others do not; a timer that fires late tells of it
//! everywhere. What it cannot tell apart is a guest whose own work keeps the agent from its processor: that counts as
//! waiting too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks; a prime, out of step with schedulers' periods and quotas.
const PERIOD: Duration = Duration::from_millis(71);
/// A timer that fires later than this waited for a core: schedulers' slices are of milliseconds, and what else delays a
/// timer takes less.
const LATE: Duration = Duration::from_millis(3);
/// Looks that count: as many as the bits that keep them.
const LOOKS: u32 = u32::BITS;
/// What stands for "not known yet".
const UNKNOWN: u32 = u32::MAX;

/// The last looks, a bit for each: whether the core was missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Looks {
    late: u32,
    taken: u32,
}

impl Looks {
    fn add(&mut self, is_late: bool) {
        self.late = self.late << 1 | u32::from(is_late);
        self.taken = (self.taken + 1).min(LOOKS);
    }

    /// The timer was to fire at `due` and has fired at `now`. Return: when it is to fire next. Looks that were slept
    /// through are taken then.
    fn woke(&mut self, due: Instant, now: Instant) -> Instant {
        let behind = now.saturating_duration_since(due);
        let missed = u32::try_from(behind.as_nanos() / PERIOD.as_nanos()).unwrap_or(u32::MAX - 1);
        for look in 0..=missed.min(LOOKS) {
            self.add(behind.saturating_sub(PERIOD * look) > LATE);
        }
        due + PERIOD * (missed + 1)
    }

    /// How much of the time the core was missing; nothing before there are enough looks.
    fn permille(&self) -> Option<u16> {
        (self.taken == LOOKS).then(|| (self.late.count_ones() * 1000 / LOOKS) as u16)
    }
}

/// A thread that looks.
#[derive(Debug)]
pub(super) struct OffCore(Arc<AtomicU32>);

impl OffCore {
    /// Starts it, at the priority of the thread that does. It ends soon after this is dropped.
    ///
    /// # Errors
    /// The system's.
    pub fn watch() -> io::Result<Self> {
        let share = Arc::new(AtomicU32::new(UNKNOWN));
        let seen = Arc::downgrade(&share);
        thread::Builder::new().name("off-core".to_owned()).spawn(move || {
            let mut looks = Looks::default();
            let mut due = Instant::now() + PERIOD;
            while let Some(share) = seen.upgrade() {
                share.store(looks.permille().map_or(UNKNOWN, u32::from), Ordering::Relaxed);
                drop(share);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                due = looks.woke(due, Instant::now());
            }
        })?;
        Ok(Self(share))
    }

    /// For how much of the last seconds the guest had no core; nothing in the first ones.
    pub fn permille(&self) -> Option<u16> {
        u16::try_from(self.0.load(Ordering::Relaxed)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A guest that has its core for `on` and is without it for `off`, again and again.
    fn share(on: Duration, off: Duration) -> u16 {
        let start = Instant::now();
        let wakes = |due: Instant| {
            let since = Duration::from_nanos(((due - start).as_nanos() % (on + off).as_nanos()) as u64);
            if since < on { due } else { due + (on + off - since) }
        };
        let mut looks = Looks::default();
        let mut due = start + PERIOD;
        while due < start + PERIOD * 10 * LOOKS {
            due = looks.woke(due, wakes(due));
        }
        looks.permille().unwrap()
    }

    #[test]
    fn looks_find_the_share_of_time_without_a_core() {
        assert_eq!(share(MS, Duration::ZERO), 0);
        for (on, off) in [(31, 31), (30, 60), (170, 34), (37, 300), (1000, 7)] {
            let expected = (off - 3) * 1000 / (on + off);
            let found = i64::from(share(on as u32 * MS, off as u32 * MS));
            assert!((found - expected).abs() <= 100, "{on} ms with and {off} without: {found}, not {expected}");
        }
    }

    #[test]
    fn looks_that_were_slept_through_count() {
        let start = Instant::now();
        let mut looks = Looks::default();
        let next = looks.woke(start, start + 3 * PERIOD + PERIOD / 2);
        assert_eq!((next, looks), (start + 4 * PERIOD, Looks { late: 0b1111, taken: 4 }));
        let next = looks.woke(next, next + LATE);
        assert_eq!((next, looks), (start + 5 * PERIOD, Looks { late: 0b11110, taken: 5 }));
        // A machine that stood still for a month.
        let next = looks.woke(next, next + 60_000_000 * PERIOD + LATE);
        assert_eq!((next, looks.permille()), (start + 60_000_006 * PERIOD, Some(1000)));
    }

    #[test]
    fn nothing_is_said_of_too_few_looks() {
        let (mut looks, start) = (Looks::default(), Instant::now());
        for _ in 1..LOOKS {
            looks.woke(start, start);
            assert_eq!(looks.permille(), None);
        }
        looks.woke(start, start);
        assert_eq!(looks.permille(), Some(0));
    }

    #[test]
    fn the_thread_looks_and_ends() {
        let watch = OffCore::watch().unwrap();
        assert_eq!(watch.permille(), None);
        let seen = Arc::downgrade(&watch.0);
        drop(watch);
        let deadline = Instant::now() + Duration::from_secs(10);
        while seen.upgrade().is_some() && Instant::now() < deadline {
            thread::sleep(MS);
        }
        assert!(seen.upgrade().is_none());
    }
}
