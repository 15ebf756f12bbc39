//! When flows of an open-loop workload begin, between whom, and how large they are: drawn ahead of a run, so that all
//! of its cells see the same.

use crate::format::FlowSizes;
use crate::random::Random;
use crate::sizes::SizeDistribution;

/// The stream of arrivals among those of a seed.
const STREAM: u64 = 1;

/// Who sends to whom, and how much.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    /// VMs that send.
    pub senders: usize,
    /// VMs that receive; `None`: each sender sends to all others.
    pub receivers: Option<usize>,
    /// Payload as a share of `capacity_bps`.
    pub load: f64,
    /// Capacity of the links on the side with fewer VMs.
    pub capacity_bps: f64,
    /// How large flows are.
    pub sizes: FlowSizes,
    /// Flows that begin at once, towards one receiver.
    pub burst_flows: u32,
}

/// A planned flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When it begins.
    pub at_us: u64,
    /// Position among the senders.
    pub from: usize,
    /// Position among the receivers (all-to-all: among the senders).
    pub to: usize,
    /// Its payload.
    pub bytes: u64,
}

/// All flows that begin before `until_us`, in their order; empty if nobody could send to anybody.
pub fn poisson(pattern: &Pattern, seed: u64, until_us: u64) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    let sizes = SizeDistribution::new(pattern.sizes);
    let bursts_per_s =
        pattern.load * pattern.capacity_bps / 8.0 / sizes.mean_bytes() / f64::from(pattern.burst_flows.max(1));
    let others = pattern.receivers.unwrap_or(pattern.senders.saturating_sub(1));
    if pattern.senders == 0 || others == 0 || !bursts_per_s.is_finite() || bursts_per_s <= 0.0 {
        return arrivals;
    }
    let mut random = Random::new(seed, STREAM);
    let mut at_us = 0.0;
    loop {
        at_us += random.exponential(1e6 / bursts_per_s);
        if at_us >= until_us as f64 {
            return arrivals;
        }
        let first = random.below(pattern.senders);
        let (to, senders) = match pattern.receivers {
            Some(receivers) => (random.below(receivers), pattern.senders),
            // The receiver is no sender of its burst.
            None => ((first + 1 + random.below(others)) % pattern.senders, others),
        };
        // A burst goes round all senders before one of them has a second flow in it.
        let mut from = first;
        for number in 0..pattern.burst_flows.max(1) as usize {
            let bytes = sizes.quantile_bytes(random.unit());
            arrivals.push(Arrival { at_us: at_us as u64, from, to, bytes });
            if number + 1 < pattern.burst_flows as usize {
                from = next_sender(from, to, senders, pattern);
            }
        }
    }
}

/// Who sends after `from` in a burst for `to`.
fn next_sender(from: usize, to: usize, senders: usize, pattern: &Pattern) -> usize {
    let next = (from + 1) % pattern.senders;
    // All-to-all: the receiver is passed over; with one other sender left, that one sends all.
    let meets_receiver = pattern.receivers.is_none() && next == to;
    match (meets_receiver, senders) {
        (true, 1) => from,
        (true, _) => (next + 1) % pattern.senders,
        (false, _) => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FlowSizesWord;

    const PATTERN: Pattern = Pattern {
        senders: 3,
        receivers: Some(2),
        load: 0.5,
        capacity_bps: 200e6,
        sizes: FlowSizes::Bytes(12_500),
        burst_flows: 1,
    };

    #[test]
    fn flows_bring_the_load() {
        let arrivals = poisson(&PATTERN, 7, 100_000_000);
        let bits = arrivals.iter().map(|a| a.bytes as f64 * 8.0).sum::<f64>();
        assert!((bits / 100.0 / 100e6 - 1.0).abs() < 0.02, "{bits}");
        assert!(arrivals.is_sorted_by_key(|a| a.at_us));
        assert!(arrivals.iter().all(|a| a.from < 3 && a.to < 2));
        for from in 0..3 {
            let share = arrivals.iter().filter(|a| a.from == from).count() as f64 / arrivals.len() as f64;
            assert!((share - 1.0 / 3.0).abs() < 0.02, "{from}: {share}");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_and_another_does_not() {
        let draw = |seed| poisson(&PATTERN, seed, 1_000_000);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn a_burst_is_for_one_receiver_and_of_all_senders_in_turn() {
        let arrivals = poisson(&Pattern { burst_flows: 6, ..PATTERN }, 3, 10_000_000);
        assert!(arrivals.len() > 60 && arrivals.len() % 6 == 0);
        for burst in arrivals.chunks(6) {
            assert!(burst.iter().all(|a| (a.at_us, a.to) == (burst[0].at_us, burst[0].to)));
            for from in 0..3 {
                assert_eq!(burst.iter().filter(|a| a.from == from).count(), 2);
            }
        }
        let bits = arrivals.iter().map(|a| a.bytes as f64 * 8.0).sum::<f64>();
        assert!((bits / 10.0 / 100e6 - 1.0).abs() < 0.2, "{bits}");
    }

    #[test]
    fn nobody_sends_to_itself() {
        for (senders, burst_flows) in [(2, 1), (2, 5), (4, 1), (4, 7)] {
            let sizes = FlowSizes::Word(FlowSizesWord::Websearch);
            let pattern = Pattern { senders, receivers: None, burst_flows, sizes, ..PATTERN };
            let arrivals = poisson(&pattern, 5, 100_000_000);
            assert!(!arrivals.is_empty());
            assert!(arrivals.iter().all(|a| a.from != a.to && a.from < senders && a.to < senders), "{senders}");
        }
        assert!(poisson(&Pattern { senders: 1, receivers: None, ..PATTERN }, 5, 1_000_000).is_empty());
    }
}
