//! What formulas say of many values.

use crate::stats::quantile;

/// Which statistic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statistic {
    /// The arithmetic mean.
    Mean,
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 99th.
    P99,
    /// The 99.9th.
    P999,
    /// The largest.
    Max,
}

impl Statistic {
    /// Of values in any order, though a mean adds them up in theirs; `None` without values.
    pub fn of(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Mean if values.is_empty() => None,
            Self::Mean => Some(values.iter().sum::<f64>() / values.len() as f64),
            Self::P50 => quantile(values, 0.5),
            Self::P90 => quantile(values, 0.9),
            Self::P99 => quantile(values, 0.99),
            Self::P999 => quantile(values, 0.999),
            Self::Max => quantile(values, 1.0),
        }
    }
}

/// Values that many statistics are made of, sorted once for all quantiles.
#[derive(Debug, Default)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    /// A statistic of them.
    pub fn say(&self, statistic: Statistic) -> Option<f64> {
        statistic.of(&self.0)
    }
}

impl FromIterator<f64> for Sorted {
    fn from_iter<T: IntoIterator<Item = f64>>(values: T) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        Self(values)
    }
}
