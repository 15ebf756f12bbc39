//! Whether this guest waits for its core: a timer asks to be woken at fixed times, and `algo/vflood/rest.h` counts how
//! often it is late. If the guest's own work keeps the agent from its processor, that cannot be told apart and counts
//! as waiting, too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use evenkeel_algo::rest::{LOOK_US, Looks};

use crate::common::clock;

/// What stands for "not known yet".
const UNKNOWN: u32 = u32::MAX;

fn now_us() -> u64 {
    clock::now_ns() / 1000
}

/// A thread that looks.
#[derive(Debug)]
pub(super) struct OffCore(Arc<AtomicU32>);

impl OffCore {
    /// Starts the thread, at the caller's priority. It ends soon after this is dropped.
    ///
    /// # Errors
    /// The system's.
    pub fn watch() -> io::Result<Self> {
        let share = Arc::new(AtomicU32::new(UNKNOWN));
        let seen = Arc::downgrade(&share);
        thread::Builder::new().name("off-core".to_owned()).spawn(move || {
            let mut looks = Looks::default();
            let mut due_us = now_us() + LOOK_US;
            while let Some(share) = seen.upgrade() {
                share.store(looks.permille().map_or(UNKNOWN, u32::from), Ordering::Relaxed);
                drop(share);
                thread::sleep(Duration::from_micros(due_us.saturating_sub(now_us())));
                due_us = looks.woke(due_us, now_us());
            }
        })?;
        Ok(Self(share))
    }

    /// The share of the last seconds, in permille, in which the guest had no core; `None` in the first ones.
    pub fn permille(&self) -> Option<u16> {
        u16::try_from(self.0.load(Ordering::Relaxed)).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

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
