//! Checks that span several keys: what the schema cannot say.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_quote::quoted;

use crate::cell::{MAX_CELLS, covers, too_many_runs};
use crate::check::{join, or_list, segment};
use crate::error::Problem;
use crate::format::{Axis, Plot, Scenario, Store, Workload};

mod combination;
mod effect;
mod extent;
mod paper;

pub(crate) use effect::{empty_results, idle};

/// Most VMs in all groups together.
pub const MAX_VMS: u32 = 16_384;

/// What must hold in the scenario as written and in every cell.
pub(crate) fn scenario(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = Vec::new();
    let vms: u64 = scenario.vms.values().map(|g| u64::from(g.count)).sum();
    if vms > u64::from(MAX_VMS) {
        problems.push(Problem::at("vms", format!("{vms} VMs in all groups together; at most {MAX_VMS} are allowed")));
    }
    let used = scenario.groups_in_order();
    for (_, one) in scenario.alone() {
        problems.extend(workload(&one));
    }
    if scenario.workloads.len() > 1 {
        for (_, one) in scenario.alone() {
            let ends_after = match one.workload() {
                Workload::Strobe { requests: 1.., .. } => "requests",
                Workload::Transfers { transfers: 1.., .. } => "transfers",
                Workload::Poisson { flows: 1.., .. } => "flows",
                _ => continue,
            };
            let message = "must be 0 beside other workloads, which would end with it";
            problems.push(Problem::at(one.workload_key(ends_after), message));
        }
    }
    if problems.is_empty() {
        for group in scenario.vms.keys().filter(|group| !used.contains(&group.as_str())) {
            problems.push(Problem::at(join("vms", group), "no workload uses this group: its VMs would do nothing"));
        }
    }
    problems.extend(combination::problems(scenario));
    problems
}

/// What must hold for the only workload of a scenario.
fn workload(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |key: &str, message: String| problems.push(Problem::at(scenario.workload_key(key), message));
    let groups: Vec<&str> = scenario.vms.keys().map(String::as_str).collect();
    let (from, to) = scenario.workload().roles();
    for (key, group) in [("from", from), ("to", to)] {
        if !groups.contains(&group) {
            problem(key, format!("no group of VMs is called {}; must be {}", quoted(group), or_list(&groups)));
        }
    }
    let all_to_all = matches!(scenario.workload(), Workload::Poisson { to: None, .. });
    if from == to && !all_to_all {
        problem("to", "must be another group than `from`".to_owned());
    }
    let (kind, senders) = (kind(scenario.workload()), scenario.vms.get(from).map_or(1, |g| g.count));
    match scenario.workload() {
        Workload::Ping { interval_ms, .. } if u64::from(*interval_ms) >= scenario.duration_ms => {
            problem("interval_ms", format!("must be shorter than duration_ms, which is {}", scenario.duration_ms));
        }
        Workload::Strobe { block_kib, .. } if u64::from(*block_kib) * 1024 < u64::from(senders) => {
            problem("block_kib", format!("too small to give each of {senders} senders a byte"));
        }
        Workload::ThreeTier { .. } if senders != Store::SERVERS => {
            let message =
                format!("must be {}, not {senders}: web front, database, cache and file store", Store::SERVERS);
            problems.push(Problem::at(format!("{}.count", join("vms", from)), message));
        }
        _ => {}
    }
    if let Workload::Ping { .. } | Workload::Strobe { .. } = scenario.workload() {
        let count = scenario.vms.get(to).map_or(1, |g| g.count);
        if count > 1 {
            let message = format!("must be 1, not {count}: a {kind} uses only the first VM of its group `to`");
            problems.push(Problem::at(format!("{}.count", join("vms", to)), message));
        }
    }
    problems.extend(combination::of_workload(scenario));
    problems.extend(extent::problems(scenario));
    problems
}

/// Checks that `[mechanisms]` names groups or hosts that exist, and that nothing else says which mechanisms act in
/// them.
pub(crate) fn mechanisms(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, preset) in &scenario.mechanisms {
        let path = join("mechanisms", name);
        if !scenario.vms.contains_key(name) && !scenario.hosts.contains_key(name) {
            let names: Vec<&String> = scenario.vms.keys().chain(scenario.hosts.keys()).collect();
            let message = format!("no group and no hosts are called {}; must be {}", quoted(name), or_list(&names));
            problems.push(Problem::at(&path, message));
        }
        if scenario.vms.contains_key(name) && scenario.hosts.contains_key(name) {
            problems.push(Problem::at(&path, "both a group and hosts have this name: one of them needs another"));
        }
        for (group, vms) in &scenario.vms {
            if group != name && vms.on.as_ref() != Some(name) {
                continue;
            }
            let mut vms = vms.clone();
            for (mechanism, _) in preset.modes(&mut vms).into_iter().filter(|(_, mode)| mode.is_some()) {
                let message = format!("says what `{}` says, too", join(&join(&join("vms", group), mechanism), "mode"));
                problems.push(Problem::at(&path, message));
            }
            if group != name && scenario.mechanisms.contains_key(group) {
                let message =
                    format!("says of the group {} what `{}` says, too", quoted(group), join("mechanisms", group));
                problems.push(Problem::at(&path, message));
            }
        }
    }
    problems
}

/// Whether the axes can be expanded.
pub(crate) fn axes(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut cells: usize = 1;
    for (index, axis) in scenario.axes.iter().enumerate() {
        let (path, name) = (format!("axes[{index}]"), quoted(&axis.name));
        let mut problem = |key: &str, message: String| problems.push(Problem::at(format!("{path}{key}"), message));
        if scenario.axes[..index].iter().any(|other| other.name == axis.name) {
            problem(".name", format!("another axis is called {} already", quoted(&axis.name)));
        }
        match (&axis.key, axis.values.is_empty(), axis.variants.is_empty()) {
            (Some(_), false, true) => {
                if !axis.labels.is_empty() && axis.labels.len() != axis.values.len() {
                    let (labels, values) = (axis.labels.len(), axis.values.len());
                    problem(".labels", format!("must have one label for each of the {values} values, not {labels}"));
                }
            }
            (None, true, false) => {
                if !axis.labels.is_empty() {
                    problem(".labels", "has no use here: each variant has its `label`".to_owned());
                }
            }
            (Some(_), true, true) => problem("", format!("axis {name} has a `key` but no `values`")),
            (None, false, true) => problem("", format!("axis {name} has `values` but no `key` that takes them")),
            (None, true, true) => problem("", format!("axis {name} needs either `key` and `values`, or `variants`")),
            (_, _, false) => problem(
                "",
                format!("axis {name} has both `variants` and `key` or `values`; only one of them is allowed"),
            ),
        }
        let points = axis.points();
        for (position, point) in points.iter().enumerate() {
            if points[..position].iter().any(|other| other.label == point.label) {
                problem("", format!("two points of axis {name} are labelled {}", quoted(&point.label)));
            }
        }
        // One variant may change nothing: the scenario as written is a point like others.
        if axis.variants.iter().filter(|v| v.set.is_empty()).count() > 1 {
            problem("", format!("more than one variant of axis {name} sets nothing"));
        }
        let keys = |axis: &Axis| axis.points().into_iter().flat_map(|p| p.set.into_keys()).collect::<BTreeSet<_>>();
        for other in &scenario.axes[..index] {
            let others = keys(other);
            for key in keys(axis).iter().filter(|key| others.iter().any(|o| covers(o, key) || covers(key, o))) {
                problem("", format!("axis {name} sets {}, which axis {} sets too", quoted(key), quoted(&other.name)));
            }
        }
        cells = cells.saturating_mul(points.len().max(1));
    }
    if cells > MAX_CELLS {
        problems.push(Problem::at("axes", format!("{cells} cells; at most {MAX_CELLS} are allowed")));
    } else {
        problems.extend(too_many_runs(cells, scenario.repetitions));
    }
    problems
}

/// Whether plots and paper figures refer to axes and labels that exist.
pub(crate) fn report(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = Vec::new();
    let names: Vec<&str> = scenario.axes.iter().map(|a| a.name.as_str()).collect();
    let no_axis = |name: &str| no_axis(scenario, name);
    for (index, plot) in scenario.report.plots.iter().enumerate() {
        let path = format!("report.plots[{index}]");
        let [one, other] = match plot {
            Plot::Bars { x, series, .. } | Plot::Lines { x, series, .. } => {
                [("x", Some(x)), ("series", series.as_ref())]
            }
            Plot::Plane { series, along, .. } => [("series", Some(series)), ("along", along.as_ref())],
            Plot::Heat { x, y, series, baseline, .. } => {
                if x == series || y == series {
                    let message = "must be another axis than `x` and `y`".to_owned();
                    problems.push(Problem::at(format!("{path}.series"), message));
                }
                match scenario.axes.iter().find(|axis| axis.name == *series) {
                    None => problems.push(Problem::at(format!("{path}.series"), no_axis(series))),
                    Some(axis) => {
                        let labels: Vec<String> = axis.points().into_iter().map(|point| point.label).collect();
                        if !labels.contains(baseline) {
                            let message = format!("must be a label of `series`: {}", or_list(&labels));
                            problems.push(Problem::at(format!("{path}.baseline"), message));
                        }
                    }
                }
                [("x", Some(x)), ("y", Some(y))]
            }
            Plot::Factors { y, baseline, metrics, .. } => {
                if metrics.is_empty() {
                    problems.push(Problem::at(format!("{path}.metrics"), "must not be empty"));
                }
                if baseline.is_empty() {
                    problems.push(Problem::at(format!("{path}.baseline"), "must name a label of an axis at least"));
                }
                problems.extend(labels(scenario, &format!("{path}.baseline"), baseline));
                if !names.contains(&y.as_str()) {
                    problems.push(Problem::at(format!("{path}.y"), no_axis(y)));
                }
                continue;
            }
            Plot::Series { .. } | Plot::Cdf { .. } | Plot::Sequence { .. } => continue,
        };
        for (key, axis) in [one, other] {
            if let Some(axis) = axis.filter(|axis| !names.contains(&axis.as_str())) {
                problems.push(Problem::at(format!("{path}.{key}"), no_axis(axis)));
            }
        }
        if one.1 == other.1 {
            problems.push(Problem::at(format!("{path}.{}", other.0), format!("must be another axis than `{}`", one.0)));
        }
    }
    for (index, figures) in scenario.paper.iter().enumerate() {
        problems.extend(paper::problems(scenario, &format!("paper[{index}]"), figures));
    }
    problems
}

/// Checks that these axes have these labels.
fn labels(scenario: &Scenario, path: &str, cell: &BTreeMap<String, String>) -> Vec<Problem> {
    let problem = |(name, label): (&String, &String)| {
        let path = format!("{path}.{}", segment(name));
        let Some(axis) = scenario.axes.iter().find(|a| a.name == *name) else {
            return Some(Problem::at(path, no_axis(scenario, name)));
        };
        let labels: Vec<String> = axis.points().into_iter().map(|p| p.label).collect();
        let message = || format!("axis {} has no label {}; must be {}", quoted(name), quoted(label), or_list(&labels));
        (!labels.contains(label)).then(|| Problem::at(path, message()))
    };
    cell.iter().filter_map(problem).collect()
}

fn no_axis(scenario: &Scenario, name: &str) -> String {
    let names: Vec<&str> = scenario.axes.iter().map(|a| a.name.as_str()).collect();
    match names[..] {
        [] => format!("no axis is called {}: the scenario has none", quoted(name)),
        _ => format!("no axis is called {}; must be {}", quoted(name), or_list(&names)),
    }
}

fn kind(workload: &Workload) -> &'static str {
    match workload {
        Workload::Ping { .. } => "ping",
        Workload::Bulk { .. } => "bulk transfer",
        Workload::Strobe { .. } => "strobe",
        Workload::Iperf3 { .. } => "transfer by iperf3",
        Workload::Poisson { .. } => "Poisson process",
        Workload::RequestResponse { .. } => "request and response",
        Workload::Memcached { .. } => "key-value store",
        Workload::Transfers { .. } => "series of transfers",
        Workload::ThreeTier { .. } => "web application",
    }
}
