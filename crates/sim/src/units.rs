//! Sizes and rates as types.

use crate::time::Duration;

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// A rate of `bps` bits per second, at least 1.
    pub const fn from_bps(bps: u64) -> Self {
        Self(if bps == 0 { 1 } else { bps })
    }

    /// A rate of `mbit` megabits per second.
    pub const fn from_mbit(mbit: u64) -> Self {
        Self::from_bps(mbit * 1_000_000)
    }

    /// Bits per second.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// How long these bytes take on a link of this rate, rounded down to a picosecond. Up to 2 MB at once.
    #[inline]
    pub const fn time_for(self, bytes: u32) -> Duration {
        Duration::from_ps(bytes as u64 * 8_000_000_000_000 / self.0)
    }
}
