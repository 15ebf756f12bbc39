//! Axes, their points, and the cells that these make.

use std::collections::BTreeMap;

use toml::Value;

use crate::check::segment;
use crate::error::Problem;
use crate::format::{Axis, Scenario};

/// Most cells that a scenario may have.
pub const MAX_CELLS: usize = 4096;

/// Most runs of a scenario: what is summarized is in memory together.
pub const MAX_RUNS: u64 = 100_000;

/// Keys that an axis can vary, and everything below them. The seed is not among them: cells are compared under the same
/// draws.
pub const VARIABLE: &[&str] =
    &["duration_ms", "warmup_ms", "network", "hosts", "vms", "mechanisms", "workloads", "record"];

/// One point of the sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Axis name and label, in the scenario's order of axes.
    pub labels: Vec<(String, String)>,
    /// The scenario with the axes applied.
    pub scenario: Scenario,
}

/// One label of an axis, with the keys it sets.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// How it is called.
    pub label: String,
    /// Dotted key to value.
    pub set: BTreeMap<String, Value>,
}

impl Axis {
    /// Labels in their order, with what each sets.
    pub fn points(&self) -> Vec<Point> {
        let of_value = |(index, value): (usize, &Value)| Point {
            label: self.labels.get(index).cloned().unwrap_or_else(|| as_label(value)),
            set: self.key.iter().map(|key| (key.clone(), value.clone())).collect(),
        };
        if self.variants.is_empty() {
            self.values.iter().enumerate().map(of_value).collect()
        } else {
            self.variants.iter().map(|v| Point { label: v.label.clone(), set: v.set.clone() }).collect()
        }
    }

    /// Where the file has the value that a point gives to a key.
    pub(crate) fn place(&self, axis: usize, point: usize, key: &str) -> String {
        if self.variants.is_empty() {
            format!("axes[{axis}].values[{point}]")
        } else {
            format!("axes[{axis}].variants[{point}].set.{}", segment(key))
        }
    }
}

/// A value as a label: text without its quotes.
fn as_label(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether `outer` is `inner` or a table around it.
pub(crate) fn covers(outer: &str, inner: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The problem, if this many repetitions of this many cells are beyond the bound.
pub(crate) fn too_many_runs(cells: usize, repetitions: u32) -> Option<Problem> {
    let runs = cells as u64 * u64::from(repetitions);
    let message = || format!("{runs} runs of {cells} cells; at most {MAX_RUNS} are allowed");
    (runs > MAX_RUNS).then(|| Problem::at("repetitions", message()))
}
