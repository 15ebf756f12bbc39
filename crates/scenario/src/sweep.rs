//! Expands a scenario's axes into cells.

use std::collections::BTreeMap;

use evenkeel_quote::quoted;
use toml::{Table, Value};

use crate::cell::{Cell, Point, VARIABLE, covers, too_many_runs};
use crate::check::{check, descend, or_list, show, unknown_key};
use crate::error::{Invalid, Problem, ScenarioError};
use crate::format::{Axis, Scenario};
use crate::loaded::LoadedScenario;
use crate::schema::SCHEMA;
use crate::tree::{deserialize, parse};
use crate::validate;

/// Checks that this many repetitions of these cells can be run.
///
/// # Errors
/// [`ScenarioError::Invalid`] with the bound.
pub fn check_runs(loaded: &LoadedScenario, cells: &[Cell], repetitions: u32) -> Result<(), ScenarioError> {
    let problem = too_many_runs(cells.len(), repetitions);
    problem.map_or(Ok(()), |problem| Err(Invalid { file: loaded.file.clone(), problems: vec![problem] }.into()))
}

/// All cells, the last axis fastest.
///
/// # Errors
/// None for a scenario that was loaded from its file; [`ScenarioError::Invalid`] if the text was changed since.
pub fn cells(loaded: &LoadedScenario) -> Result<Vec<Cell>, ScenarioError> {
    let expanded = parse(&loaded.text).and_then(|tree| expand(&loaded.scenario, &tree));
    expanded.map_err(|problems| Invalid { file: loaded.file.clone(), problems }.into())
}

/// The seed of a repetition's random draws: splitmix64's output for the state `seed + repetition * golden gamma`.
///
/// The cell does not enter, so that all cells of a repetition see the same slices and are compared like with like.
pub fn run_seed(scenario_seed: u64, repetition: u32) -> u64 {
    splitmix64(scenario_seed.wrapping_add(u64::from(repetition).wrapping_mul(GOLDEN_GAMMA)))
}

/// The seed of a workload's draws, by its place among those of a run: the first draws as if it were alone, and no two
/// the same.
pub fn workload_seed(run_seed: u64, place: usize) -> u64 {
    run_seed.wrapping_add((place as u64).wrapping_mul(GOLDEN_GAMMA))
}

/// By how much splitmix64's state grows from one output to the next.
pub const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// splitmix64's output after this state (Steele, Lea and Flood, 2014).
pub fn splitmix64(state: u64) -> u64 {
    let z = state.wrapping_add(GOLDEN_GAMMA);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Expands and checks every cell. The axes themselves have passed [`validate::axes`].
pub(crate) fn expand(scenario: &Scenario, tree: &Table) -> Result<Vec<Cell>, Vec<Problem>> {
    let axes: Vec<Vec<Point>> = scenario.axes.iter().map(Axis::points).collect();
    check_points(scenario, &axes)?;
    let mut base = tree.clone();
    // Keys that show and compare cells are no part of a cell.
    for key in ["axes", "paper", "report"] {
        base.remove(key);
    }
    let mut cells = Vec::new();
    let mut problems = BTreeMap::new();
    let count = axes.iter().map(Vec::len).product();
    for number in 0..count {
        let positions = positions(number, &axes);
        let points = || axes.iter().zip(&positions).map(|(points, position)| &points[*position]);
        let mut tree = base.clone();
        for (key, value) in points().flat_map(|p| &p.set) {
            set(&mut tree, key, value.clone());
        }
        let labels: Vec<_> =
            scenario.axes.iter().zip(points()).map(|(axis, p)| (axis.name.clone(), p.label.clone())).collect();
        match check_cell(&tree) {
            Ok(scenario) => cells.push(Cell { labels, scenario }),
            Err(found) => {
                for problem in found {
                    // Many cells share a fault: say it once, with the first cell that has it.
                    let same = (problem.key.clone(), problem.message.clone());
                    problems.entry(same).or_insert_with(|| in_cell(&problem, scenario, &labels, &positions));
                }
            }
        }
    }
    if problems.is_empty() { Ok(cells) } else { Err(problems.into_values().collect()) }
}

fn check_cell(tree: &Table) -> Result<Scenario, Vec<Problem>> {
    let mut problems = Vec::new();
    check(&SCHEMA, &Value::Table(tree.clone()), "", &mut problems);
    if problems.is_empty() {
        let mut scenario = deserialize(tree)?;
        problems = validate::mechanisms(&scenario);
        scenario.apply_mechanisms();
        problems.extend(validate::scenario(&scenario));
        if problems.is_empty() {
            return Ok(scenario);
        }
    }
    Err(problems)
}

/// A cell's problem, placed where an axis sets the key, if one does.
fn in_cell(problem: &Problem, scenario: &Scenario, labels: &[(String, String)], positions: &[usize]) -> Problem {
    let cell: Vec<String> = labels.iter().map(|(axis, label)| format!("{axis} = {label}")).collect();
    let message = format!("{} {} (in the cell {})", quoted(&problem.key), problem.message, cell.join(", "));
    let related = |key: &str| covers(key, &problem.key) || covers(&problem.key, key);
    let place = scenario.axes.iter().enumerate().zip(positions).find_map(|((index, axis), position)| {
        let key = axis.points().swap_remove(*position).set.into_keys().find(|key| related(key))?;
        Some(axis.place(index, *position, &key))
    });
    Problem::at(place.unwrap_or_else(|| problem.key.clone()), message)
}

/// Position on each axis of the cell with this number, the last axis fastest.
fn positions(number: usize, axes: &[Vec<Point>]) -> Vec<usize> {
    let mut rest = number;
    let mut positions: Vec<usize> = Vec::with_capacity(axes.len());
    for points in axes.iter().rev() {
        positions.push(rest % points.len());
        rest /= points.len();
    }
    positions.reverse();
    positions
}

/// Checks each point's keys and values by themselves, so that an error names axis, key and value.
fn check_points(scenario: &Scenario, axes: &[Vec<Point>]) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    for (index, (axis, points)) in scenario.axes.iter().zip(axes).enumerate() {
        for (position, point) in points.iter().enumerate() {
            for (key, value) in &point.set {
                let problem = match check_override(scenario, key, value) {
                    Ok(()) => continue,
                    Err(BadOverride::Key(why)) => {
                        // One key for all values of an axis: its values all give the same problem, which stands at the
                        // key.
                        let place = if axis.key.is_some() {
                            format!("axes[{index}].key")
                        } else {
                            axis.place(index, position, key)
                        };
                        Problem::at(place, format!("axis {}, key {}: {why}", quoted(&axis.name), quoted(key)))
                    }
                    Err(BadOverride::Value(why)) => {
                        let message =
                            format!("axis {}, key {}, value {}: {why}", quoted(&axis.name), quoted(key), show(value));
                        Problem::at(axis.place(index, position, key), message)
                    }
                };
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// What is wrong with an override.
enum BadOverride {
    /// There is no such key, or it cannot be varied.
    Key(String),
    /// The key does not take this value.
    Value(String),
}

fn check_override(scenario: &Scenario, key: &str, value: &Value) -> Result<(), BadOverride> {
    let segments: Vec<&str> = key.split('.').collect();
    if !VARIABLE.contains(&segments[0]) {
        let message = match SCHEMA["properties"].get(segments[0]) {
            Some(_) => format!("cannot be varied; can be: {}", VARIABLE.join(", ")),
            None => unknown_key(segments[0], VARIABLE),
        };
        return Err(BadOverride::Key(message));
    }
    if let ["vms", group, ..] = segments[..] {
        if !scenario.vms.contains_key(group) {
            let groups: Vec<&String> = scenario.vms.keys().collect();
            return Err(BadOverride::Key(format!(
                "no group of VMs is called {}; must be {}",
                quoted(group),
                or_list(&groups)
            )));
        }
    }
    let schema = descend(&SCHEMA, &segments).map_err(|(depth, allowed)| {
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        BadOverride::Key(match &allowed[..] {
            [] => format!("{} is no table", quoted(&segments[..depth].join("."))),
            allowed => format!("{}: {}", quoted(segments[depth]), unknown_key(segments[depth], allowed)),
        })
    })?;
    let mut problems = Vec::new();
    check(schema, value, "", &mut problems);
    match problems.into_iter().next() {
        None => Ok(()),
        Some(problem) if problem.key.is_empty() => Err(BadOverride::Value(problem.message)),
        Some(problem) => Err(BadOverride::Value(format!("{}: {}", quoted(&problem.key), problem.message))),
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
            // The check reports anything but a table.
            if let Value::Table(table) = below {
                set(table, rest, value);
            }
        }
    }
}
