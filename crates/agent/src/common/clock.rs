//! The clock that programs in the kernel and agents have in common.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(|time| Duration::from(time).as_nanos().try_into().unwrap_or(u64::MAX))
        .unwrap_or_default()
}
