//! Expands a scenario's axes into cells.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::check::{check, descend, show, unknown_key};
use crate::error::{Invalid, Problem, ScenarioError};
use crate::format::{Axis, Scenario};
use crate::load::{LoadedScenario, deserialize, tree};
use crate::schema::SCHEMA;
use crate::validate;

/// Most cells that a scenario may have.
pub const MAX_CELLS: usize = 4096;

/// Keys that an axis can vary, and everything below them. The seed is not among them: cells are compared under the same draws.
pub const VARIABLE: &[&str] = &["duration_ms", "warmup_ms", "network", "vms", "workload", "record"];

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
    /// Where the label's values stand, for errors: dotted key to path in the file.
    pub(crate) paths: BTreeMap<String, String>,
}

/// All cells, the last axis fastest.
///
/// # Errors
/// None for a scenario that was loaded from its file; [`ScenarioError::Invalid`] if the text was changed since.
pub fn cells(loaded: &LoadedScenario) -> Result<Vec<Cell>, ScenarioError> {
    let expanded = tree(&loaded.text).and_then(|tree| expand(&loaded.scenario, &tree));
    expanded.map_err(|problems| Invalid { file: loaded.file.clone(), problems }.into())
}

/// The seed of a repetition's random draws: splitmix64's output for the state `seed + repetition * golden gamma`.
///
/// The cell does not enter, so that all cells of a repetition see the same slices and are compared like with like.
pub fn run_seed(scenario_seed: u64, repetition: u32) -> u64 {
    const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
    let state = scenario_seed.wrapping_add((u64::from(repetition) + 1).wrapping_mul(GOLDEN_GAMMA));
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Axis {
    /// Labels in their order, with what each sets.
    pub fn points(&self) -> Vec<Point> {
        self.points_at("axes[?]")
    }

    /// As [`Axis::points`]; `path` is where the axis stands.
    pub(crate) fn points_at(&self, path: &str) -> Vec<Point> {
        let of_value = |(index, value): (usize, &Value)| {
            let label = self.labels.get(index).cloned().unwrap_or_else(|| as_label(value));
            let key = self.key.clone().unwrap_or_default();
            Point {
                label,
                set: [(key.clone(), value.clone())].into(),
                paths: [(key, format!("{path}.values[{index}]"))].into(),
            }
        };
        let of_variant = |(index, variant): (usize, &crate::format::Variant)| {
            let at =
                |key: &String| (key.clone(), format!("{path}.variants[{index}].set.{}", crate::check::segment(key)));
            Point {
                label: variant.label.clone(),
                set: variant.set.clone(),
                paths: variant.set.keys().map(at).collect(),
            }
        };
        if self.variants.is_empty() {
            self.values.iter().enumerate().map(of_value).collect()
        } else {
            self.variants.iter().enumerate().map(of_variant).collect()
        }
    }
}

/// A value as a label: text without its quotes.
fn as_label(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Expands and checks every cell. The axes themselves have passed [`validate::axes`].
pub(crate) fn expand(scenario: &Scenario, tree: &Table) -> Result<Vec<Cell>, Vec<Problem>> {
    let axes: Vec<Vec<Point>> =
        scenario.axes.iter().enumerate().map(|(index, axis)| axis.points_at(&format!("axes[{index}]"))).collect();
    check_points(scenario, &axes)?;
    let mut base = tree.clone();
    // What shows and compares cells is no part of a cell.
    for key in ["axes", "paper", "report"] {
        base.remove(key);
    }
    let mut cells = Vec::new();
    let mut problems: Vec<Problem> = Vec::new();
    let count = axes.iter().map(Vec::len).product();
    for number in 0..count {
        let points = points_of(number, &axes);
        let mut tree = base.clone();
        for (key, value) in points.iter().flat_map(|p| &p.set) {
            set(&mut tree, key, value.clone());
        }
        let labels: Vec<(String, String)> =
            scenario.axes.iter().zip(&points).map(|(axis, point)| (axis.name.clone(), point.label.clone())).collect();
        match check_cell(&tree) {
            Ok(scenario) => cells.push(Cell { labels, scenario }),
            Err(found) => {
                for problem in found {
                    // Many cells share a fault: say it once, with the first cell that has it.
                    let same = |known: &Problem| known.message.starts_with(&problem.message);
                    if !problems.iter().any(same) {
                        problems.push(in_cell(problem, &labels, &points));
                    }
                }
            }
        }
    }
    if problems.is_empty() { Ok(cells) } else { Err(problems) }
}

fn check_cell(tree: &Table) -> Result<Scenario, Vec<Problem>> {
    let mut problems = Vec::new();
    check(&SCHEMA, &Value::Table(tree.clone()), "", &mut problems);
    if problems.is_empty() {
        let scenario = deserialize(tree)?;
        problems = validate::scenario(&scenario);
        if problems.is_empty() {
            return Ok(scenario);
        }
    }
    Err(problems)
}

fn in_cell(problem: Problem, labels: &[(String, String)], points: &[&Point]) -> Problem {
    let cell: Vec<String> = labels.iter().map(|(axis, label)| format!("{axis} = {label}")).collect();
    let message = format!("{} (key `{}` in the cell {})", problem.message, problem.key, cell.join(", "));
    // Placed where an axis sets the key, if one does.
    let place =
        points.iter().flat_map(|p| &p.paths).find(|(key, _)| covers(key, &problem.key) || covers(&problem.key, key));
    Problem::at(place.map_or(problem.key.clone(), |(_, path)| path.clone()), message)
}

/// Whether `outer` is `inner` or a table around it.
pub(crate) fn covers(outer: &str, inner: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn points_of(number: usize, axes: &[Vec<Point>]) -> Vec<&Point> {
    let mut rest = number;
    let mut points: Vec<&Point> = axes
        .iter()
        .rev()
        .map(|axis| {
            let point = &axis[rest % axis.len()];
            rest /= axis.len();
            point
        })
        .collect();
    points.reverse();
    points
}

/// Checks each point's keys and values by themselves, so that an error names axis, key and value.
fn check_points(scenario: &Scenario, axes: &[Vec<Point>]) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    for (axis, points) in scenario.axes.iter().zip(axes) {
        for point in points {
            for (key, value) in &point.set {
                let path = &point.paths[key];
                if let Err(why) = check_override(scenario, key, value) {
                    // An unknown key is unknown for all values of an axis.
                    let path = if axis.key.is_some() && why.about_key {
                        path.replace(&path[path.rfind(".values").unwrap_or(path.len())..], ".key")
                    } else {
                        path.clone()
                    };
                    let label = if why.about_key { String::new() } else { format!(", value {}", show(value)) };
                    problems
                        .push(Problem::at(path, format!("axis `{}`, key `{key}`{label}: {}", axis.name, why.message)));
                }
            }
        }
    }
    problems.dedup();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

struct BadOverride {
    about_key: bool,
    message: String,
}

fn check_override(scenario: &Scenario, key: &str, value: &Value) -> Result<(), BadOverride> {
    let about_key = |message: String| BadOverride { about_key: true, message };
    let segments: Vec<&str> = key.split('.').collect();
    if !VARIABLE.contains(&segments[0]) {
        return Err(about_key(unknown_key(segments[0], VARIABLE)));
    }
    if let ["vms", group, ..] = segments[..] {
        let groups: Vec<&str> = scenario.vms.keys().map(String::as_str).collect();
        if !groups.contains(&group) {
            return Err(about_key(format!("no group of VMs is called `{group}`; groups are: {}", groups.join(", "))));
        }
    }
    let schema = descend(&SCHEMA, &segments).map_err(|(depth, allowed)| {
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        about_key(match &allowed[..] {
            [] => format!("`{}` is no table", segments[..depth].join(".")),
            allowed => format!("`{}`: {}", segments[depth], unknown_key(segments[depth], allowed)),
        })
    })?;
    let mut problems = Vec::new();
    check(schema, value, "", &mut problems);
    match problems.into_iter().next() {
        None => Ok(()),
        Some(problem) if problem.key.is_empty() => Err(BadOverride { about_key: false, message: problem.message }),
        Some(problem) => {
            Err(BadOverride { about_key: false, message: format!("`{}` {}", problem.key, problem.message) })
        }
    }
}

/// Sets a key, making the tables on its way; a table replaces a table.
fn set(tree: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            tree.insert(key.to_owned(), value);
        }
        Some((first, rest)) => {
            let below = tree.entry(first).or_insert_with(|| Value::Table(Table::new()));
            // Anything but a table is the check's to report.
            if let Value::Table(table) = below {
                set(table, rest, value);
            }
        }
    }
}
