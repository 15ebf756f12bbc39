//! From what was timed to a verdict, by a rule that was written down before.

use serde::Serialize;

use super::bootstrap::{Draws, Estimate};
use super::samples::{CLASSES, Direction, LeftOut, Samples, Timed, Times, seconds_at};

/// The smallest change that anybody would act on, as a part of the time.
pub const LEAST_CHANGE: f64 = 0.05;
/// How many exchanges of a class and direction a slot must have to count.
const LEAST_IN_SLOT: u64 = 3;
/// Pairs of slots that a class must have to count.
const LEAST_PAIRS: usize = 6;
/// How many exchanges in each mode a class must have to count.
const LEAST_EXCHANGES: u64 = 50;
/// How many exchanges in each mode a 99th percentile needs.
const LEAST_FOR_P99: u64 = 500;

/// What a trial says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It takes less time with the mechanism.
    Gain,
    /// It takes more.
    Harm,
    /// Neither is shown.
    NoDifference,
    /// Too little was timed to say.
    TooLittle,
}

/// A figure in both modes, and how they compare.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Compared {
    /// In observe.
    pub observe: f64,
    /// In enforce.
    pub enforce: f64,
    /// Enforce by observe for times, enforce less observe for rates.
    pub change: Option<Estimate>,
}

/// Times of one direction and class, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Whose data most of each is.
    pub direction: Direction,
    /// How large they are.
    pub class: &'static str,
    /// Exchanges in observe, and in enforce.
    pub exchanges: [u64; 2],
    /// Whether the verdict is made of it.
    pub in_primary: bool,
    /// Geometric means, and their ratio: a class's part of the verdict.
    pub geometric: Option<Compared>,
    /// Medians.
    pub median: Option<Compared>,
    /// Means.
    pub mean: Option<Compared>,
    /// 99th percentiles.
    pub p99: Option<Compared>,
}

/// What a trial has shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// What it is made of: the geometric mean over classes of the ratio of times, enforce by observe.
    pub primary: Option<Estimate>,
    /// Pairs of slots.
    pub pairs: usize,
    /// By direction and class: those that have any exchanges.
    pub rows: Vec<Row>,
    /// Of handshakes, in seconds: geometric means and their ratio.
    pub handshakes: Option<Compared>,
    /// Segments that were sent again, per 1000 exchanges.
    pub again: Option<Compared>,
    /// Of these, those that a timer sent.
    pub timeouts: Option<Compared>,
    /// What does not count.
    pub left_out: LeftOut,
}

/// Compares; `directions` are those that the mechanism is about.
pub fn judge(samples: &Samples, directions: &[Direction], seed: u64) -> Judgement {
    let pairs = samples.pairs();
    let draws = Draws::new(pairs.len(), seed);
    let kinds = kinds(&pairs);
    let primary = primary(&kinds, directions, &draws);
    let handshakes = Kind::new(&pairs, |slot| &slot.counts.handshakes);
    Judgement {
        verdict: verdict(primary.as_ref()),
        primary,
        pairs: pairs.len(),
        rows: kinds.iter().map(|named| named.row(&draws, directions)).collect(),
        handshakes: handshakes.geometric(&draws),
        again: rate(&pairs, &draws, |slot| slot.counts.again),
        timeouts: rate(&pairs, &draws, |slot| slot.counts.timeouts),
        left_out: samples.left_out,
    }
}

/// The figure that the verdict is of.
pub(super) fn primary(kinds: &[Named<'_>], directions: &[Direction], draws: &Draws) -> Option<Estimate> {
    let counts = kinds.iter().filter(|named| named.counts(directions));
    let parts: Vec<Paired> = counts.map(|named| Paired::new(&named.kind)).collect();
    let effective = parts.iter().map(Paired::effective).fold(f64::INFINITY, f64::min);
    let ratio = draws.estimate(effective, |times| mean(parts.iter().filter_map(|part| part.ln_ratio(times))));
    ratio.map(Estimate::exp)
}

pub(super) fn verdict(primary: Option<&Estimate>) -> Verdict {
    match primary {
        None => Verdict::TooLittle,
        Some(e) if e.high < 1.0 && e.value <= 1.0 / (1.0 + LEAST_CHANGE) => Verdict::Gain,
        Some(e) if e.low > 1.0 && e.value >= 1.0 + LEAST_CHANGE => Verdict::Harm,
        Some(_) => Verdict::NoDifference,
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

/// Times of one direction and class.
pub(super) struct Named<'s> {
    direction: Direction,
    class: &'static str,
    kind: Kind<'s>,
}

/// The kinds that have any exchanges.
pub(super) fn kinds<'s>(pairs: &[[&'s Timed; 2]]) -> Vec<Named<'s>> {
    let mut kinds = Vec::new();
    for direction in Direction::ALL {
        for (position, (_, class)) in CLASSES.into_iter().enumerate() {
            let kind = Kind::new(pairs, |slot| &slot.times[direction as usize][position]);
            if kind.exchanges() != [0, 0] {
                kinds.push(Named { direction, class, kind });
            }
        }
    }
    kinds
}

impl Named<'_> {
    /// Whether the verdict is made of it.
    fn counts(&self, directions: &[Direction]) -> bool {
        directions.contains(&self.direction) && Paired::new(&self.kind).is_enough()
    }

    fn row(&self, draws: &Draws, directions: &[Direction]) -> Row {
        let Self { direction, class, kind } = self;
        let exchanges = kind.exchanges();
        let has_p99 = exchanges.iter().all(|n| *n >= LEAST_FOR_P99);
        let quantile =
            |q| kind.compared(draws, move |kind: &Kind<'_>, mode, times: &[u32]| kind.quantile(mode, times, q));
        Row {
            direction: *direction,
            class,
            exchanges,
            in_primary: self.counts(directions),
            geometric: kind.geometric(draws),
            median: quantile(0.5),
            mean: kind.compared(draws, Kind::mean),
            p99: has_p99.then(|| quantile(0.99)).flatten(),
        }
    }
}

/// Times of one kind in all pairs, observe first.
struct Kind<'s> {
    pairs: Vec<[&'s Times; 2]>,
    /// The lowest step of all, and how many there are from it to the highest.
    steps: (u16, usize),
}

impl<'s> Kind<'s> {
    fn new(pairs: &[[&'s Timed; 2]], of: impl Fn(&'s Timed) -> &'s Times) -> Self {
        let pairs: Vec<_> = pairs.iter().map(|pair| pair.map(&of)).collect();
        let all = || pairs.iter().flatten().flat_map(|times| times.steps.keys().copied());
        let low = all().min().unwrap_or_default();
        let steps = (low, usize::from(all().max().unwrap_or_default() - low) + 1);
        Self { pairs, steps }
    }

    fn exchanges(&self) -> [u64; 2] {
        [0, 1].map(|mode| self.pairs.iter().map(|pair| pair[mode].n).sum())
    }

    /// The sum over all exchanges of a mode, with each pair counted as often as `times` says.
    fn sum(&self, mode: usize, times: &[u32], of: impl Fn(&Times) -> f64) -> f64 {
        self.pairs.iter().zip(times).map(|(pair, times)| of(pair[mode]) * f64::from(*times)).sum()
    }

    fn mean(&self, mode: usize, times: &[u32]) -> Option<f64> {
        let n = self.sum(mode, times, |times| times.n as f64);
        (n > 0.0).then(|| self.sum(mode, times, |times| times.sum_s) / n)
    }

    fn quantile(&self, mode: usize, times: &[u32], q: f64) -> Option<f64> {
        let mut steps = vec![0u64; self.steps.1];
        for (pair, times) in self.pairs.iter().zip(times).filter(|(_, times)| **times > 0) {
            for (step, n) in &pair[mode].steps {
                steps[usize::from(step - self.steps.0)] += u64::from(n * times);
            }
        }
        let wanted = q * steps.iter().sum::<u64>() as f64;
        let mut before = 0.0;
        for (step, n) in steps.iter().enumerate().filter(|(_, n)| **n > 0) {
            let within = (wanted - before) / *n as f64;
            if within <= 1.0 {
                return Some(seconds_at(f64::from(self.steps.0) + step as f64 + within - 0.5));
            }
            before += *n as f64;
        }
        None
    }

    /// A figure of both modes, and its ratio.
    fn compared(&self, draws: &Draws, figure: impl Fn(&Self, usize, &[u32]) -> Option<f64>) -> Option<Compared> {
        let once = vec![1; self.pairs.len()];
        let (observe, enforce) = (figure(self, 0, &once)?, figure(self, 1, &once)?);
        let ratio = |times: &[u32]| Some((figure(self, 1, times)? / figure(self, 0, times)?).ln());
        let change = draws.estimate(Paired::new(self).effective(), ratio).map(Estimate::exp);
        Some(Compared { observe, enforce, change: change.filter(|_| self.pairs.len() >= LEAST_PAIRS) })
    }

    /// Geometric means over all, and the ratio within pairs.
    fn geometric(&self, draws: &Draws) -> Option<Compared> {
        let paired = Paired::new(self);
        let once = vec![1; self.pairs.len()];
        let [observe, enforce] = [0, 1].map(|mode| {
            let n = self.sum(mode, &once, |times| times.n as f64);
            (n > 0.0).then(|| (self.sum(mode, &once, |times| times.sum_ln) / n).exp())
        });
        let change = draws.estimate(paired.effective(), |times| paired.ln_ratio(times)).map(Estimate::exp);
        Some(Compared { observe: observe?, enforce: enforce?, change: change.filter(|_| paired.is_enough()) })
    }
}

/// The difference of the logarithms' means within each pair, and its weight: what both slots of a pair have in common,
/// as the time of day, cancels out.
struct Paired {
    pairs: Vec<(f64, f64)>,
    exchanges: [u64; 2],
}

impl Paired {
    fn new(kind: &Kind<'_>) -> Self {
        let mut exchanges = [0; 2];
        let pair = |[observe, enforce]: &[&Times; 2]| {
            if observe.n.min(enforce.n) < LEAST_IN_SLOT {
                return (0.0, 0.0);
            }
            exchanges = [exchanges[0] + observe.n, exchanges[1] + enforce.n];
            let (o, e) = (observe.n as f64, enforce.n as f64);
            (enforce.mean_ln() - observe.mean_ln(), o * e / (o + e))
        };
        let pairs = kind.pairs.iter().map(pair).collect();
        Self { pairs, exchanges }
    }

    fn is_enough(&self) -> bool {
        let pairs = self.pairs.iter().filter(|(_, weight)| *weight > 0.0).count();
        pairs >= LEAST_PAIRS && self.exchanges.iter().all(|n| *n >= LEAST_EXCHANGES)
    }

    /// How many pairs of the same weight would be as good.
    fn effective(&self) -> f64 {
        let sum = |power| self.pairs.iter().map(|(_, weight)| weight.powi(power)).sum::<f64>();
        if sum(2) > 0.0 { sum(1).powi(2) / sum(2) } else { 1.0 }
    }

    fn ln_ratio(&self, times: &[u32]) -> Option<f64> {
        let weighed = self.pairs.iter().zip(times).map(|((difference, weight), times)| {
            let weight = weight * f64::from(*times);
            (weight * difference, weight)
        });
        let (sum, weight) = weighed.fold((0.0, 0.0), |(sum, all), (one, weight)| (sum + one, all + weight));
        (weight > 0.0).then(|| sum / weight)
    }
}

/// Something per 1000 exchanges.
fn rate(pairs: &[[&Timed; 2]], draws: &Draws, of: impl Fn(&Timed) -> u64) -> Option<Compared> {
    let figure = |mode: usize, times: &[u32]| {
        let sum = |of: &dyn Fn(&Timed) -> u64| {
            pairs.iter().zip(times).map(|(pair, times)| of(pair[mode]) * u64::from(*times)).sum::<u64>() as f64
        };
        let exchanges = sum(&|slot| slot.counts.exchanges);
        (exchanges > 0.0).then(|| 1000.0 * sum(&of) / exchanges)
    };
    let once = vec![1; pairs.len()];
    let (observe, enforce) = (figure(0, &once)?, figure(1, &once)?);
    let change = draws.estimate(pairs.len() as f64, |times| Some(figure(1, times)? - figure(0, times)?));
    Some(Compared { observe, enforce, change: change.filter(|_| pairs.len() >= LEAST_PAIRS) })
}
