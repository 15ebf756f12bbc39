//! Bootstrap over pairs of slots: what a figure might have been, had the trial met other stretches of the same traffic.
//! Exchanges of one slot have much in common, so pairs are drawn, and never single exchanges.

use evenkeel_scenario::random::Random;
use evenkeel_scenario::stats::quantile;
use serde::Serialize;

/// Draws of a bootstrap.
pub(super) const DRAWS: usize = 2000;
/// The stream of a trial's seed that draws are from.
const STREAM: u64 = 2;
/// Of the normal distribution: 97.5 %.
const NORMAL: f64 = 1.959_964;

/// A figure with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Estimate {
    pub(super) fn exp(self) -> Self {
        Self { value: self.value.exp(), low: self.low.exp(), high: self.high.exp() }
    }

    /// Whether the interval is on one side of a value.
    pub fn excludes(&self, value: f64) -> bool {
        self.low > value || self.high < value
    }
}

/// How often each draw has each pair.
pub(super) struct Draws(Vec<Vec<u32>>);

impl Draws {
    pub fn new(pairs: usize, seed: u64) -> Self {
        let mut random = Random::new(seed, STREAM);
        let mut draw = || {
            let mut times = vec![0; pairs];
            (0..pairs).for_each(|_| times[random.below(pairs)] += 1);
            times
        };
        Self((0..DRAWS).map(|_| draw()).collect())
    }

    /// A figure and its interval; `figure` takes how often each pair counts. `effective` is how many pairs it is made
    /// of: from few, a plain percentile interval would be too narrow, because it has the normal distribution's tails
    /// and a spread that is too small (Hesterberg, What Teachers Should Know About the Bootstrap, 2015, section 5.3.1).
    pub fn estimate(&self, effective: f64, figure: impl Fn(&[u32]) -> Option<f64>) -> Option<Estimate> {
        let pairs = self.0.first()?.len();
        let value = figure(&vec![1; pairs]).filter(|value| value.is_finite())?;
        let drawn: Vec<f64> = self.0.iter().filter_map(|times| figure(times)).filter(|v| v.is_finite()).collect();
        let free = (effective - 1.0).max(1.0);
        let wider = student(free) / NORMAL * (effective / free).sqrt();
        let end = |q| Some(value + wider * (quantile(&drawn, q)? - value));
        Some(Estimate { value, low: end(0.025)?, high: end(0.975)? })
    }
}

/// The 97.5 % quantile of Student's distribution with `free` degrees of freedom, within 2 % from three on (Abramowitz
/// and Stegun, 26.7.5).
fn student(free: f64) -> f64 {
    let z = NORMAL;
    let odd = |powers: &[(i32, f64)]| powers.iter().map(|(power, factor)| factor * z.powi(*power)).sum::<f64>();
    z + odd(&[(3, 1.0), (1, 1.0)]) / (4.0 * free)
        + odd(&[(5, 5.0), (3, 16.0), (1, 3.0)]) / (96.0 * free.powi(2))
        + odd(&[(7, 3.0), (5, 19.0), (3, 17.0), (1, -15.0)]) / (384.0 * free.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_quantiles_are_those_of_tables() {
        for (free, table) in [(3.0, 3.182), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (1e6, 1.960)] {
            let here = student(free);
            assert!((here / table - 1.0).abs() < 0.02, "{free}: {here}");
        }
    }

    /// For means of few normal values, about 95 in 100 intervals hold the true mean.
    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let (mut random, trials, n) = (Random::new(5, 9), 400, 8);
        let normal = |random: &mut Random| (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        let mut held = 0;
        for seed in 0..trials {
            let values: Vec<f64> = (0..n).map(|_| normal(&mut random)).collect();
            let mean = |times: &[u32]| {
                let sum: f64 = times.iter().zip(&values).map(|(times, value)| f64::from(*times) * value).sum();
                Some(sum / n as f64)
            };
            let estimate = Draws::new(n, seed).estimate(n as f64, mean).unwrap();
            held += u32::from(!estimate.excludes(0.0));
        }
        let share = f64::from(held) / trials as f64;
        assert!((0.92..0.985).contains(&share), "{share}");
    }
}
