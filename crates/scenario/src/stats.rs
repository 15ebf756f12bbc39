//! Medians, quantiles, and the summary of a cell's repetitions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::result::RunRecord;

/// The quantile `q` (0 to 1) of values in any order: linear between order statistics, Hyndman and Fan's type 7, as R
/// and NumPy have it.
///
/// None without values or when one is not a number.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    if values.is_empty() || values.iter().any(|v| v.is_nan()) || !(0.0..=1.0).contains(&q) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let position = q * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    // Equal neighbours may be infinite, and infinity less infinity is not a number.
    Some(if below == above { below } else { below + (above - below) * position.fract() })
}

/// The median: [`quantile`] at one half.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// One metric over the repetitions of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median of the repetitions.
    pub median: f64,
    /// Smallest repetition.
    pub min: f64,
    /// Largest repetition.
    pub max: f64,
    /// Repetitions that have the metric.
    pub n: usize,
}

impl Summary {
    /// Of values in any order; None without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values)?,
            min: quantile(values, 0.0)?,
            max: quantile(values, 1.0)?,
            n: values.len(),
        })
    }
}

/// All metrics of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellSummary {
    /// Axis name and label, in the scenario's order of axes.
    pub cell: Vec<(String, String)>,
    /// Metric name to its summary.
    pub metrics: BTreeMap<String, Summary>,
}

/// Summarizes records by cell, in the order in which cells first appear.
pub fn summarize(records: &[RunRecord]) -> Vec<CellSummary> {
    type Values<'a> = BTreeMap<&'a str, Vec<f64>>;
    let mut cells: Vec<(&Vec<(String, String)>, Values)> = Vec::new();
    let mut positions: BTreeMap<&Vec<(String, String)>, usize> = BTreeMap::new();
    for record in records {
        let position = *positions.entry(&record.cell).or_insert_with(|| {
            cells.push((&record.cell, Values::new()));
            cells.len() - 1
        });
        for (name, value) in &record.metrics {
            cells[position].1.entry(name).or_default().push(*value);
        }
    }
    let summary = |(cell, values): (&Vec<(String, String)>, Values)| CellSummary {
        cell: cell.clone(),
        metrics: values.iter().filter_map(|(name, v)| Some(((*name).to_owned(), Summary::of(v)?))).collect(),
    };
    cells.into_iter().map(summary).collect()
}
