//! Axes: range, ticks and their labels.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::number;

/// Largest number at an end of an axis: twice it is still a number, as is its inverse.
const FARTHEST: f64 = 1e300;
/// How near the ends of an axis may be, as a part of the larger.
const NEAREST: f64 = 1e-12;

/// An axis of a panel. Positions are linear; a logarithmic axis is linear in the decimal logarithm.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    /// What is measured, with its unit.
    pub label: String,
    /// Smallest and largest position.
    pub range: (f64, f64),
    /// Positions and labels of ticks.
    pub ticks: Vec<(f64, String)>,
    /// Whether positions are logarithms.
    log: bool,
}

impl Scale {
    /// From `low` to at least `high`, with about `count` ticks at 1, 2, 5 times a power of ten.
    pub fn linear(label: &str, low: f64, high: f64, count: usize) -> Self {
        let (low, high) = ends(low, high);
        let step = step((high - low) / count as f64);
        let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
        let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
        let ticks = (first..=last).map(|index| index as f64 * step);
        let ticks: Vec<(f64, String)> =
            ticks.map(|at| (at, number::grouped(&format!("{:.decimals$}", at + 0.0)))).collect();
        Self { label: label.to_owned(), range: (first as f64 * step, last as f64 * step), ticks, log: false }
    }

    /// As [`Self::linear`], but ending at `low` and `high` exactly: for time, where room at the ends would mislead.
    pub fn exact(label: &str, low: f64, high: f64, count: usize) -> Self {
        let (low, high) = ends(low, high);
        let mut scale = Self::linear(label, low, high, count);
        scale.ticks.retain(|(at, _)| (low..=high).contains(at));
        scale.range = (low, high);
        scale
    }

    /// Logarithmic, over whole decades; both ends must be positive. Fewer than three decades get ticks at 2 and 5 as
    /// well.
    pub fn log(label: &str, low: f64, high: f64) -> Self {
        let [low, high] = [low, high].map(|end| end.clamp(1.0 / FARTHEST, FARTHEST));
        let first = low.log10().floor() as i32;
        let last = (high.log10().ceil() as i32).max(first + 1);
        let steps: &[f64] = if last - first < 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((last - first) / 8).max(1);
        let mut ticks = Vec::new();
        for decade in (first..=last).step_by(every as usize) {
            for &step in steps {
                let value = step * 10f64.powi(decade);
                if value.log10() <= f64::from(last) + 1e-9 {
                    let decimals = (-decade).max(0) as usize;
                    ticks.push((value.log10(), number::grouped(&format!("{value:.decimals$}"))));
                }
            }
        }
        Self { label: label.to_owned(), range: (f64::from(first), f64::from(last)), ticks, log: true }
    }

    /// One tick per name at 0, 1, 2, ..., with half a step of room at both ends.
    pub fn categories(label: &str, names: &[String]) -> Self {
        let ticks = names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect();
        Self { label: label.to_owned(), range: (-0.5, names.len() as f64 - 0.5), ticks, log: false }
    }

    /// One tick per number and name, with some room at both ends.
    pub fn points(label: &str, points: &[(f64, String)]) -> Self {
        let low = points.iter().map(|(at, _)| *at).fold(f64::INFINITY, f64::min);
        let high = points.iter().map(|(at, _)| *at).fold(f64::NEG_INFINITY, f64::max);
        let room = if high > low { (high - low) * 0.06 } else { 1.0 };
        Self { label: label.to_owned(), range: (low - room, high + room), ticks: points.to_vec(), log: false }
    }

    /// Leaves out ticks that are closer than `part` of the axis to the last one that stays, from the low end. What is
    /// drawn stays where it is.
    pub fn thin(&mut self, part: f64) {
        self.ticks.sort_by(|one, other| one.0.total_cmp(&other.0));
        let closest = (self.range.1 - self.range.0) * part;
        let mut last = f64::NEG_INFINITY;
        self.ticks.retain(|(at, _)| {
            let stays = at - last >= closest;
            if stays {
                last = *at;
            }
            stays
        });
    }

    /// Where a value stands on this axis; nothing for a value that has no logarithm where one is needed.
    pub fn position(&self, value: f64) -> Option<f64> {
        match self.log {
            false => value.is_finite().then_some(value),
            true => (value > 0.0 && value.is_finite()).then(|| value.log10()),
        }
    }
}

impl Ranged for Scale {
    type ValueType = f64;
    type FormatOption = NoDefaultFormatting;

    fn map(&self, at: &f64, (start, end): (i32, i32)) -> i32 {
        let share = (at - self.range.0) / (self.range.1 - self.range.0);
        start + (share * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Plotters asks twice, for heavy and for light grid lines; ticks are heavy.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.iter().map(|(at, _)| *at).collect() }
    }

    fn range(&self) -> Range<f64> {
        self.range.0..self.range.1
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(at: &f64) -> String {
        at.to_string()
    }

    fn format_ext(&self, at: &f64) -> String {
        self.ticks.iter().find(|(tick, _)| tick == at).map_or(String::new(), |(_, label)| label.clone())
    }
}

/// The same ends, if so few steps lie between them that they can be told apart in numbers; else ends that are so far
/// apart.
fn ends(low: f64, high: f64) -> (f64, f64) {
    let [low, high] = [low, high].map(|end| end.clamp(-FARTHEST, FARTHEST));
    let high = if high > low { high } else { low + 1.0 };
    let nearest = (low.abs().max(high.abs()) * NEAREST).max(1.0 / FARTHEST);
    if high - low >= nearest { (low, high) } else { (low, low + nearest) }
}

/// The smallest round number that is not below `rough`: 1, 2, 5 times a power of ten; 25, 250, ... as well.
fn step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let quarters = if power >= 10.0 { 2.5 } else { 5.0 };
    let step = [1.0, 2.0, quarters, 5.0].into_iter().find(|step| step * power >= rough * 0.999).unwrap_or(10.0);
    step * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_cover_the_range() {
        assert_eq!(labels(&Scale::linear("share (%)", 0.0, 100.0, 4)), ["0", "25", "50", "75", "100"]);
        let scale = Scale::linear("goodput (Mbit/s)", 0.0, 941.0, 5);
        assert_eq!(labels(&scale), ["0", "200", "400", "600", "800", "1000"]);
        assert_eq!(labels(&Scale::linear("x", 0.0, 0.9, 4)), ["0.0", "0.5", "1.0"]);
        assert_eq!(labels(&Scale::linear("x", 0.0, 0.0, 4)), ["0.0", "0.5", "1.0"]);
    }

    #[test]
    fn ticks_are_few_whatever_the_ends() {
        let ends = [0.0, 5e-324, 1e-310, 1.0, 1.0 + f64::EPSILON, 1e17, 1e300, f64::MAX, f64::INFINITY];
        let ends: Vec<f64> = ends.into_iter().flat_map(|end| [end, -end]).collect();
        for (low, high) in ends.iter().flat_map(|low| ends.iter().map(move |high| (*low, *high))) {
            let mut scales = vec![Scale::linear("x", low, high, 4), Scale::exact("x", low, high, 5)];
            if low > 0.0 && high >= low {
                scales.push(Scale::log("x", low, high));
            }
            for scale in scales {
                assert!((1..=16).contains(&scale.ticks.len()), "{low:e} to {high:e}: {}", scale.ticks.len());
                assert!(scale.ticks.iter().all(|(at, _)| at.is_finite()), "{low:e} to {high:e}: {:?}", scale.ticks);
                assert!(scale.range.0 < scale.range.1, "{low:e} to {high:e}: {:?}", scale.range);
            }
        }
    }

    #[test]
    fn exact_ends_where_the_data_ends() {
        let scale = Scale::exact("time (ms)", 3.0, 97.0, 5);
        assert_eq!(scale.range, (3.0, 97.0));
        assert_eq!(labels(&scale), ["20", "40", "60", "80"]);
    }

    #[test]
    fn ticks_that_are_too_close_are_left_out() {
        let senders = [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20].map(|n| (f64::from(n), n.to_string()));
        let mut scale = Scale::points("senders", &senders);
        let range = scale.range;
        scale.thin(0.05);
        assert_eq!(labels(&scale), ["1", "3", "6", "8", "10", "12", "14", "16", "18", "20"]);
        scale.thin(0.15);
        assert_eq!(labels(&scale), ["1", "6", "10", "14", "18"]);
        assert_eq!(scale.range, range);
    }

    #[test]
    fn logarithms_take_decades() {
        let scale = Scale::log("RTO (ms)", 0.3, 250.0);
        assert_eq!(scale.range, (-1.0, 3.0));
        assert_eq!(labels(&scale), ["0.1", "1", "10", "100", "1000"]);
        assert_eq!(labels(&Scale::log("RTO (ms)", 2.0, 9.0)), ["1", "2", "5", "10"]);
        assert_eq!(scale.position(0.0), None);
    }
}
