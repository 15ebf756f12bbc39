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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_watched_from_its_first_sample_to_its_last() {
        let samples = vec![(1_000_000_000, 20), (2_000_000_000, 10), (3_000_000_000, 30)];
        let backlog = Backlog { samples, waiting_bytes: 90_000, sent_bytes: 200_000 };
        assert_eq!(backlog.duration(), Duration::from_secs(2));
        assert_eq!(Backlog::default().duration(), Duration::ZERO, "nothing was seen");
    }
}
