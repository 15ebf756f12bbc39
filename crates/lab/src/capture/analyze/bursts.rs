//! How a flow fills the wire: whether it begins and grows as a standard sender does, and how much it sends at once.

use super::flow::{Event, Flow};

/// The initial window of RFC 6928.
pub const INITIAL_WINDOW_SEGMENTS: u64 = 10;

/// What a capture beyond the sender's host shows of a flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bursts {
    /// Segments before the first ACK of data.
    pub first_segments: u64,
    /// Most segments between two ACKs.
    pub longest_segments: u64,
    /// Most segments beyond what slow start allows: the initial window, and two segments for each one acknowledged.
    pub beyond_segments: u64,
}

impl Bursts {
    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            first_segments: self.first_segments.max(other.first_segments),
            longest_segments: self.longest_segments.max(other.longest_segments),
            beyond_segments: self.beyond_segments.max(other.beyond_segments),
        }
    }
}

/// The bursts of a flow. Segments are as long as its longest packet, but no longer than `mss_bytes`: with segmentation
/// offload, packets are.
#[must_use]
pub fn of(flow: &Flow, mss_bytes: u32) -> Bursts {
    let data = flow.events.iter().filter_map(|event| match event {
        Event::Data(segment) => Some(segment.len),
        Event::Ack(_) => None,
    });
    let mss = i64::from(data.max().unwrap_or(1).min(mss_bytes).max(1));
    let segments = |bytes: i64| u64::try_from(bytes.max(0)).unwrap_or(0).div_ceil(mss.unsigned_abs());
    let mut bursts = Bursts::default();
    let (mut acked, mut since_ack) = (0, 0);
    for event in &flow.events {
        match event {
            Event::Ack(ack) => {
                acked = acked.max(ack.ack);
                since_ack = 0;
            }
            Event::Data(segment) => {
                since_ack += segments(i64::from(segment.len));
                bursts.longest_segments = bursts.longest_segments.max(since_ack);
                if acked == 0 {
                    bursts.first_segments = bursts.first_segments.max(segments(segment.end()));
                }
                let allowed = INITIAL_WINDOW_SEGMENTS as i64 * mss + 2 * acked;
                bursts.beyond_segments = bursts.beyond_segments.max(segments(segment.end() - allowed));
            }
        }
    }
    bursts
}

#[cfg(test)]
mod tests {
    use super::super::build::{ack, data, flow};
    use super::*;

    #[test]
    fn slow_start_is_not_beyond_itself() {
        let window = |t_ms, from: i64, n: i64| (from..from + n).map(move |i| data(t_ms, i * 1000, 1000));
        let mut events: Vec<_> = window(0, 0, 10).collect();
        events.extend((1..=10).flat_map(|n| {
            let next = 10 + 2 * (n - 1);
            std::iter::once(ack(10 + n, n * 1000)).chain(window(10 + n, next, 2))
        }));
        let found = of(&flow(events), 1460);
        assert_eq!(found, Bursts { first_segments: 10, longest_segments: 10, beyond_segments: 0 });
    }

    #[test]
    fn a_flood_is() {
        let mut events: Vec<_> = (0..100).map(|i| data(0, i * 1000, 1000)).collect();
        events.push(ack(5, 100_000));
        events.push(data(6, 100_000, 400));
        let found = of(&flow(events), 1460);
        assert_eq!(found, Bursts { first_segments: 100, longest_segments: 100, beyond_segments: 90 });
    }

    #[test]
    fn a_packet_of_many_segments_is_many() {
        let found = of(&flow([data(0, 0, 14_000), ack(5, 14_000)]), 1400);
        assert_eq!(found.first_segments, 10);
    }
}
