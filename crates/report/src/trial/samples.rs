//! What a trial has timed: exchanges by slot, by whose data most of them is, and by size.

use std::collections::BTreeMap;

use serde::Serialize;

use super::slots::Slot;

/// An exchange of a connection, as the datapath times it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exchange {
    /// When it began, in ns of any clock.
    pub begin_ns: u64,
    /// When the last of it was acknowledged; 0: the connection ended before that.
    pub end_ns: u64,
    /// Bytes that the VM sent.
    pub bytes_from_vm: u64,
    /// Bytes that it was sent.
    pub bytes_to_vm: u64,
    /// How long the handshake took, in microseconds, if it began with one; 0 otherwise.
    pub handshake_us: u32,
    /// Segments that were sent before.
    pub again: u32,
    /// Those of them that a timer sent.
    pub timeouts: u32,
}

/// Whose data most of an exchange is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The VM's.
    Sends,
    /// The other end's.
    Receives,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sends, Self::Receives];

    /// In words of what the VM does.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sends => "sends",
            Self::Receives => "receives",
        }
    }
}

/// Classes of size: the largest, in bytes of both ends, and what they are called.
pub const CLASSES: [(u64, &str); 4] =
    [(10_000, "to 10 KB"), (100_000, "to 100 KB"), (1_000_000, "to 1 MB"), (u64::MAX, "above 1 MB")];

/// Steps of histograms in a doubling: each is 2.2 % longer than the one before.
const STEPS: f64 = 32.0;
/// Shorter times are in the first step.
const LEAST_S: f64 = 1e-6;

/// Times of exchanges of one kind in one slot.
#[derive(Debug, Clone, Default)]
pub(super) struct Times {
    pub n: u64,
    pub sum_ln: f64,
    pub sum_s: f64,
    /// How many there are in each step of the logarithm.
    pub steps: BTreeMap<u16, u32>,
}

impl Times {
    pub fn add(&mut self, seconds: f64) {
        let seconds = seconds.max(LEAST_S);
        self.n += 1;
        self.sum_ln += seconds.ln();
        self.sum_s += seconds;
        *self.steps.entry(((seconds / LEAST_S).log2() * STEPS) as u16).or_default() += 1;
    }

    pub fn mean_ln(&self) -> f64 {
        self.sum_ln / self.n as f64
    }
}

/// The time in the middle of a step, or between it and the next.
pub(super) fn seconds_at(step: f64) -> f64 {
    LEAST_S * ((step + 0.5) / STEPS).exp2()
}

/// What is counted in a slot, whatever the size.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub exchanges: u64,
    pub again: u64,
    pub timeouts: u64,
    pub handshakes: Times,
}

/// A slot, with what began in it.
#[derive(Debug, Clone)]
pub(super) struct Timed {
    pub enforces: bool,
    from_ns: u64,
    until_ns: u64,
    intake_ns: (u64, u64),
    /// By direction and class.
    pub times: [[Times; CLASSES.len()]; 2],
    pub counts: Counts,
}

/// Exchanges that do not count, by mode where that is known: observe, enforce.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Began while the mode changed, just after, or too late in a slot.
    pub between: u64,
    /// Began in a slot and ended in another.
    pub straddled: [u64; 2],
    /// Ended before all had arrived.
    pub cut: [u64; 2],
}

/// All that was timed.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    pub(super) slots: Vec<Timed>,
    pub(super) left_out: LeftOut,
}

impl Samples {
    /// A slot begins: at `from_ns` its mode holds on all ports. Slots come in the order of time.
    pub fn begin(&mut self, slot: &Slot, from_ns: u64) {
        let (from, until) = slot.intake();
        let at = |after: std::time::Duration| from_ns.saturating_add(after.as_nanos() as u64);
        self.slots.push(Timed {
            enforces: slot.enforces,
            from_ns,
            until_ns: u64::MAX,
            intake_ns: (at(from), at(until)),
            times: Default::default(),
            counts: Counts::default(),
        });
    }

    /// The slot ends: from `until_ns` on its mode may no longer hold.
    pub fn end(&mut self, until_ns: u64) {
        if let Some(slot) = self.slots.last_mut() {
            slot.until_ns = until_ns;
        }
    }

    /// Keeps the first `slots` only: those behind them were cut short.
    pub fn keep(&mut self, slots: usize) {
        self.slots.truncate(slots);
    }

    /// Adds an exchange that is over, in a slot that has begun.
    pub fn add(&mut self, exchange: &Exchange) {
        let behind = self.slots.partition_point(|slot| slot.from_ns <= exchange.begin_ns);
        let slot = behind.checked_sub(1).map(|position| &mut self.slots[position]);
        let takes = |slot: &&mut Timed| {
            (slot.intake_ns.0..slot.intake_ns.1).contains(&exchange.begin_ns) && exchange.begin_ns < slot.until_ns
        };
        let Some(slot) = slot.filter(takes) else {
            self.left_out.between += 1;
            return;
        };
        let mode = usize::from(slot.enforces);
        if exchange.end_ns == 0 {
            self.left_out.cut[mode] += 1;
            return;
        }
        if exchange.end_ns > slot.until_ns {
            self.left_out.straddled[mode] += 1;
            return;
        }
        slot.counts.exchanges += 1;
        slot.counts.again += u64::from(exchange.again);
        slot.counts.timeouts += u64::from(exchange.timeouts);
        if exchange.handshake_us > 0 {
            slot.counts.handshakes.add(f64::from(exchange.handshake_us) / 1e6);
        }
        let direction = usize::from(exchange.bytes_to_vm > exchange.bytes_from_vm);
        let bytes = exchange.bytes_from_vm.saturating_add(exchange.bytes_to_vm);
        let class = CLASSES.iter().position(|(largest, _)| bytes <= *largest).unwrap_or(CLASSES.len() - 1);
        slot.times[direction][class].add(exchange.end_ns.saturating_sub(exchange.begin_ns) as f64 / 1e9);
    }

    /// Pairs of slots, observe first.
    pub(super) fn pairs(&self) -> Vec<[&Timed; 2]> {
        let pair = |two: &'_ [Timed]| -> bool { two.len() == 2 && two[0].enforces != two[1].enforces };
        let ordered = self.slots.chunks(2).filter(|two| pair(two));
        ordered.map(|two| if two[0].enforces { [&two[1], &two[0]] } else { [&two[0], &two[1]] }).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: u64 = 1_000_000;

    fn exchange(begin_ms: u64, end_ms: u64) -> Exchange {
        Exchange { begin_ns: begin_ms * MS, end_ns: end_ms * MS, bytes_from_vm: 20_000, ..Exchange::default() }
    }

    /// Observe from 1000 to 2000 ms, enforce from 2100 to 3100.
    fn samples() -> Samples {
        let mut samples = Samples::default();
        let slot = |enforces| Slot { enforces, length: Duration::from_secs(1) };
        samples.begin(&slot(false), 1000 * MS);
        samples.end(2000 * MS);
        samples.begin(&slot(true), 2100 * MS);
        samples.end(3100 * MS);
        samples
    }

    #[test]
    fn an_exchange_belongs_to_the_slot_in_which_it_began_or_to_none() {
        let mut samples = samples();
        for (begin, end) in [(900, 950), (1199, 1250), (1750, 1760), (2050, 2060), (3200, 3300)] {
            samples.add(&exchange(begin, end));
        }
        assert_eq!(samples.left_out.between, 5, "before, settling, running off, changing, after");
        samples.add(&exchange(1200, 2000));
        samples.add(&exchange(1700, 2001));
        samples.add(&exchange(2400, 3000));
        samples.add(&Exchange { end_ns: 0, ..exchange(2400, 0) });
        assert_eq!((samples.left_out.straddled, samples.left_out.cut), ([1, 0], [0, 1]));
        let pairs = samples.pairs();
        let [observe, enforce] = pairs[0];
        assert_eq!((pairs.len(), observe.counts.exchanges, enforce.counts.exchanges), (1, 1, 1));
        assert!((observe.times[0][1].sum_s - 0.8).abs() < 1e-9 && enforce.times[0][1].n == 1);
    }

    #[test]
    fn directions_and_classes_are_by_bytes() {
        let mut samples = samples();
        for (from_vm, to_vm) in [(10_000, 0), (10_000, 1), (1, 100_000), (100, 2_000_000)] {
            samples.add(&Exchange { bytes_from_vm: from_vm, bytes_to_vm: to_vm, ..exchange(1300, 1400) });
        }
        let counts = samples.slots[0].times.each_ref().map(|classes| classes.each_ref().map(|times| times.n));
        assert_eq!(counts, [[1, 1, 0, 0], [0, 0, 1, 1]]);
    }

    #[test]
    fn steps_are_as_fine_as_they_say() {
        for seconds in [3e-6, 0.0004, 0.03, 2.0, 500.0] {
            let mut times = Times::default();
            times.add(seconds);
            let step = *times.steps.keys().next().unwrap();
            assert!((seconds_at(f64::from(step)) / seconds - 1.0).abs() < 0.012, "{seconds}");
        }
    }
}
