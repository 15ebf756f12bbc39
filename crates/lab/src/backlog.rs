//! What waited in a qdisc, as it is sampled, sent between machines and kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What waited in a qdisc, and what went through it meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backlog {
    /// CLOCK_MONOTONIC of each sample, and what waits, in packets.
    pub samples: Vec<(u64, u32)>,
    /// All samples of what waits, in bytes, added up.
    pub waiting_bytes: u64,
    /// Bytes that were sent between the first sample and the last.
    pub sent_bytes: u64,
}

impl Backlog {
    /// From the first sample to the last.
    pub fn duration(&self) -> Duration {
        let ends = self.samples.first().zip(self.samples.last());
        ends.map_or(Duration::ZERO, |((first, _), (last, _))| Duration::from_nanos(last.saturating_sub(*first)))
    }

    /// How long a byte waited, in the mean: by Little's law, from what waits and the rate at which it is sent.
    pub fn mean_wait(&self) -> Option<Duration> {
        let waiting_bytes = self.waiting_bytes as f64 / self.samples.len() as f64;
        let wait_s = waiting_bytes * self.duration().as_secs_f64() / self.sent_bytes as f64;
        Duration::try_from_secs_f64(wait_s).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_what_waits_by_the_rate() {
        // 30,000 bytes in the mean, 100,000 bytes a second.
        let samples = vec![(1_000_000_000, 20), (2_000_000_000, 10), (3_000_000_000, 30)];
        let backlog = Backlog { samples, waiting_bytes: 90_000, sent_bytes: 200_000 };
        assert_eq!(backlog.duration(), Duration::from_secs(2));
        assert_eq!(backlog.mean_wait(), Some(Duration::from_millis(300)));
        assert_eq!(Backlog::default().mean_wait(), None, "nothing was seen");
        let silent = Backlog { sent_bytes: 0, ..backlog };
        assert_eq!(silent.mean_wait(), None, "nothing was sent");
    }
}
