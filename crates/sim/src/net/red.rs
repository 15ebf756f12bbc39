//! RED on the instantaneous queue (Floyd93 without the average; RFC 8257 with both thresholds equal).

use evenkeel_scenario::sweep::splitmix64;

use super::topology::RedSpec;

const MILLION: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Red {
    spec: RedSpec,
    state: u64,
}

/// What becomes of an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Mark,
    Drop,
}

impl Red {
    pub fn new(spec: RedSpec, seed: u64) -> Self {
        Self { spec, state: splitmix64(seed) }
    }

    /// While fewer segments wait than this, all packets pass.
    pub fn least_segments(&self) -> u32 {
        self.spec.min_segments.min(self.spec.max_segments)
    }

    /// The verdict on a packet that arrives while `waiting_segments` wait.
    #[inline]
    pub fn judge(&mut self, waiting_segments: u32, capable: bool) -> Verdict {
        if !self.congested(waiting_segments) {
            Verdict::Pass
        } else if capable {
            Verdict::Mark
        } else {
            Verdict::Drop
        }
    }

    #[inline]
    fn congested(&mut self, waiting: u32) -> bool {
        let RedSpec { min_segments, max_segments, max_probability_ppm } = self.spec;
        if waiting >= max_segments {
            return true;
        }
        if waiting < min_segments {
            return false;
        }
        let range = u64::from(max_segments - min_segments);
        let ppm = u64::from(max_probability_ppm) * u64::from(waiting - min_segments) / range;
        self.state = splitmix64(self.state);
        ((self.state >> 32) * MILLION) >> 32 < ppm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probability_grows_between_the_thresholds() {
        let spec = RedSpec { min_segments: 10, max_segments: 30, max_probability_ppm: 100_000 };
        let mut red = Red::new(spec, 7);
        let mut share = |waiting| (0..100_000).filter(|_| red.congested(waiting)).count();
        assert_eq!(share(9), 0);
        assert_eq!(share(10), 0);
        assert!((4_700..5_300).contains(&share(20)), "half way: half of 10%");
        assert!((9_100..9_900).contains(&share(29)), "19/20 of 10%");
        assert_eq!(share(30), 100_000);
    }
}
