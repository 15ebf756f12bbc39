//! Retransmissions that nobody needed.

use super::clock::ClockMap;
use super::flow::Flow;
use super::intervals::Intervals;

/// Bytes of a flow that were sent more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retransmitted {
    /// All.
    pub bytes: u64,
    /// Those that had arrived when they were sent again.
    pub had_arrived: u64,
    /// Those that arrived again, as the receiver's DSACKs count them: also where the first copy was still in flight
    /// when the second was sent. A needless copy that is dropped on its way is not counted.
    pub arrived_again: u64,
}

/// Compares what the sending VM sent with what arrived. `arrived` is a capture on the host behind the bottleneck, at
/// the receiver's port: one at the sender's port would only tell what left the VM.
#[must_use]
pub fn compare(sent: &Flow, clock: &ClockMap, arrived: &Flow) -> Retransmitted {
    let mut found = Retransmitted {
        arrived_again: arrived.segments_seen_before().map(|(_, before)| before).sum(),
        ..Retransmitted::default()
    };
    let mut arrivals = arrived.segments().peekable();
    let mut there = Intervals::default();
    let mut sent_before = Intervals::default();
    for segment in sent.segments() {
        let again = sent_before.insert(segment.seq, segment.end());
        if again == 0 {
            continue;
        }
        found.bytes += again;
        let sent_ns = clock.to_host(segment.t_ns);
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.t_ns <= sent_ns) {
            there.insert(arrival.seq, arrival.end());
        }
        found.had_arrived += there.overlap(segment.seq, segment.end());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::analyze::build::{MS, data, flow};

    const CLOCK: ClockMap = ClockMap { origin_ns: 0, offset_ns: 1000 * MS, drift: 0.0, error_ns: Some(0), segments: 1 };

    #[test]
    fn lost_arrived_and_late_originals_are_told_apart() {
        // The first is lost, the second arrives at once, the third after it was sent again.
        let sent = flow([
            data(0, 0, 100),
            data(0, 100, 100),
            data(0, 200, 100),
            data(50, 0, 100),
            data(50, 100, 100),
            data(50, 200, 100),
        ]);
        let arrived = flow([
            data(1001, 100, 100),
            data(1052, 200, 100),
            data(1053, 0, 100),
            data(1053, 100, 100),
            data(1054, 200, 100),
        ]);
        assert_eq!(
            compare(&sent, &CLOCK, &arrived),
            Retransmitted { bytes: 300, had_arrived: 100, arrived_again: 200 }
        );
    }

    #[test]
    fn a_flow_without_retransmissions_has_none() {
        let sent = flow([data(0, 0, 100), data(0, 100, 100)]);
        assert_eq!(compare(&sent, &CLOCK, &sent), Retransmitted::default());
    }
}
