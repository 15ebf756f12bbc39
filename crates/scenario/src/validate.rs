//! Checks that span several keys: what the schema cannot say.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::check::{join, or_list, segment};
use crate::error::Problem;
use crate::format::{Axis, Mode, Network, Plot, Record, Scenario, VmGroup, Workload};
use crate::sweep::{Cell, MAX_CELLS, Point, VARIABLE, covers};

/// Most VMs in all groups together.
pub const MAX_VMS: u32 = 64;

/// What must hold in the scenario as written and in every cell.
pub(crate) fn scenario(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = Vec::new();
    let vms: u32 = scenario.vms.values().map(|g| g.count).sum();
    if vms > MAX_VMS {
        problems.push(Problem::at("vms", format!("{vms} VMs in all groups together; at most {MAX_VMS} are allowed")));
    }
    let groups: Vec<&str> = scenario.vms.keys().map(String::as_str).collect();
    let (from, to) = roles(&scenario.workload);
    let unknown: Vec<_> =
        [("workload.from", from), ("workload.to", to)].into_iter().filter(|(_, g)| !groups.contains(g)).collect();
    for (key, group) in &unknown {
        problems.push(Problem::at(*key, format!("no group of VMs is called `{group}`; must be {}", or_list(&groups))));
    }
    if from == to {
        problems.push(Problem::at("workload.to", "must be another group than `workload.from`"));
    } else if unknown.is_empty() {
        for group in groups.iter().filter(|g| **g != from && **g != to) {
            problems.push(Problem::at(
                join("vms", group),
                "the workload does not use this group: its VMs would do nothing",
            ));
        }
    }
    let (kind, senders) = (kind(&scenario.workload), scenario.vms.get(from).map_or(1, |g| g.count));
    if let Workload::Ping { .. } | Workload::Strobe { .. } = scenario.workload {
        let count = scenario.vms.get(to).map_or(1, |g| g.count);
        if count > 1 {
            let message = format!("must be 1, not {count}: a {kind} uses only the first VM of `workload.to`");
            problems.push(Problem::at(format!("vms.{to}.count"), message));
        }
    }
    match scenario.workload {
        Workload::Ping { interval_ms, .. } if u64::from(interval_ms) >= scenario.duration_ms => {
            let message = format!("must be shorter than duration_ms, which is {}", scenario.duration_ms);
            problems.push(Problem::at("workload.interval_ms", message));
        }
        Workload::Strobe { block_kib, .. } if u64::from(block_kib) * 1024 < u64::from(senders) => {
            problems
                .push(Problem::at("workload.block_kib", format!("too small to give each of {senders} senders a byte")));
        }
        _ => {}
    }
    problems
}

/// Whether the axes can be expanded.
pub(crate) fn axes(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut cells: usize = 1;
    for (index, axis) in scenario.axes.iter().enumerate() {
        let path = format!("axes[{index}]");
        let mut problem = |key: &str, message: String| problems.push(Problem::at(format!("{path}{key}"), message));
        if scenario.axes[..index].iter().any(|other| other.name == axis.name) {
            problem(".name", format!("another axis is called `{}` already", axis.name));
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
            (Some(_), true, true) => problem("", format!("axis `{}` has a `key` but no `values`", axis.name)),
            (None, false, true) => {
                problem("", format!("axis `{}` has `values` but no `key` that takes them", axis.name))
            }
            (None, true, true) => {
                problem("", format!("axis `{}` needs either `key` and `values`, or `variants`", axis.name))
            }
            (_, _, false) => problem(
                "",
                format!("axis `{}` has both `variants` and `key` or `values`; only one of them is allowed", axis.name),
            ),
        }
        let points = axis.points();
        for (position, point) in points.iter().enumerate() {
            if points[..position].iter().any(|other| other.label == point.label) {
                problem("", format!("two points of axis `{}` are labelled `{}`", axis.name, point.label));
            }
        }
        // One variant may change nothing: the scenario as written is a point like others.
        if axis.variants.iter().filter(|v| v.set.is_empty()).count() > 1 {
            problem("", format!("more than one variant of axis `{}` sets nothing", axis.name));
        }
        let keys = |axis: &Axis| axis.points().into_iter().flat_map(|p| p.set.into_keys()).collect::<BTreeSet<_>>();
        for other in &scenario.axes[..index] {
            let others = keys(other);
            for key in keys(axis).iter().filter(|key| others.iter().any(|o| covers(o, key) || covers(key, o))) {
                problem("", format!("axis `{}` sets `{key}`, which axis `{}` sets too", axis.name, other.name));
            }
        }
        cells = cells.saturating_mul(points.len().max(1));
    }
    if cells > MAX_CELLS {
        problems.push(Problem::at("axes", format!("{cells} cells; at most {MAX_CELLS} are allowed")));
    }
    problems
}

/// Whether plots and paper figures refer to axes and labels that exist.
pub(crate) fn report(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = Vec::new();
    let names: Vec<&str> = scenario.axes.iter().map(|a| a.name.as_str()).collect();
    let no_axis = |name: &str| match names[..] {
        [] => format!("no axis is called `{name}`: the scenario has none"),
        _ => format!("no axis is called `{name}`; must be {}", or_list(&names)),
    };
    for (index, plot) in scenario.report.plots.iter().enumerate() {
        let (Plot::Bars { x, series, .. } | Plot::Lines { x, series, .. }) = plot else { continue };
        let path = format!("report.plots[{index}]");
        for (key, axis) in [("x", Some(x)), ("series", series.as_ref())] {
            if let Some(axis) = axis.filter(|axis| !names.contains(&axis.as_str())) {
                problems.push(Problem::at(format!("{path}.{key}"), no_axis(axis)));
            }
        }
        if series.as_ref() == Some(x) {
            problems.push(Problem::at(format!("{path}.series"), "must be another axis than `x`"));
        }
    }
    for (index, figures) in scenario.paper.iter().enumerate() {
        for (name, label) in &figures.cell {
            let path = format!("paper[{index}].cell.{}", segment(name));
            let Some(axis) = scenario.axes.iter().find(|a| a.name == *name) else {
                problems.push(Problem::at(path, no_axis(name)));
                continue;
            };
            let labels: Vec<String> = axis.points().into_iter().map(|p| p.label).collect();
            if !labels.contains(label) {
                problems.push(Problem::at(
                    path,
                    format!("axis `{name}` has no label `{label}`; must be {}", or_list(&labels)),
                ));
            }
        }
    }
    problems
}

/// Settings that are written down, differ from their default, and act in no cell.
pub(crate) fn idle(scenario: &Scenario, tree: &Table, cells: &[Cell]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut judge = |(key, value): &(String, Value), place: &str, cells: &mut dyn Iterator<Item = &Cell>| {
        let reasons: Option<Vec<_>> = cells.map(|cell| why_idle(key, &cell.scenario)).collect();
        if let Some(why) = reasons.and_then(|all| all.first().copied()).filter(|_| !is_default(key, value)) {
            let of_axis = if place == key { String::new() } else { format!("`{key}` ") };
            problems.push(Problem::at(place, format!("{of_axis}has no effect: {why}")));
        }
    };
    let axes: Vec<Vec<Point>> = scenario.axes.iter().map(Axis::points).collect();
    let overridden = |cell: &Cell, key: &str| {
        let chosen =
            axes.iter().zip(&cell.labels).filter_map(|(points, (_, label))| points.iter().find(|p| p.label == *label));
        chosen.flat_map(|p| p.set.keys()).any(|set| covers(set, key))
    };
    for root in VARIABLE {
        for leaf in tree.get(*root).map(|value| leaves(root, value)).unwrap_or_default() {
            judge(&leaf, &leaf.0, &mut cells.iter().filter(|cell| !overridden(cell, &leaf.0)));
        }
    }
    for (index, (axis, points)) in scenario.axes.iter().zip(&axes).enumerate() {
        for (position, point) in points.iter().enumerate() {
            for (key, value) in &point.set {
                for leaf in leaves(key, value) {
                    let place = axis.place(index, position, key);
                    judge(&leaf, &place, &mut cells.iter().filter(|cell| cell.labels[index].1 == point.label));
                }
            }
        }
    }
    problems
}

/// Columns and plots that would be empty in every cell.
pub(crate) fn empty_results(scenario: &Scenario, cells: &[Cell]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut judge = |path: String, what: &str, why: &dyn Fn(&Scenario) -> Option<&'static str>| {
        if let Some(reason) = cells
            .iter()
            .map(|cell| why(&cell.scenario))
            .collect::<Option<Vec<_>>>()
            .and_then(|all| all.first().copied())
        {
            problems.push(Problem::at(path, format!("{what} would be empty: {reason}")));
        }
    };
    for (index, metric) in scenario.report.columns.iter().enumerate() {
        judge(format!("report.columns[{index}]"), &format!("column `{metric}`"), &|s| why_no_metric(metric, s));
    }
    for (index, plot) in scenario.report.plots.iter().enumerate() {
        let path = format!("report.plots[{index}]");
        match plot {
            Plot::Bars { metric, .. } | Plot::Lines { metric, .. } => {
                judge(format!("{path}.metric"), &format!("the plot of `{metric}`"), &|s| why_no_metric(metric, s));
            }
            Plot::Series { series, .. } => {
                for name in series {
                    judge(format!("{path}.series"), &format!("series `{name}`"), &|s| why_no_series(name, s));
                }
            }
            Plot::Cdf { series, .. } => {
                judge(format!("{path}.series"), &format!("series `{series}`"), &|s| why_no_series(series, s))
            }
            Plot::Sequence { .. } => judge(path, "the plot", &|s| why_no_series("meas_rtt_ms", s)),
        }
    }
    problems
}

/// Group that sends, group that receives.
fn roles(workload: &Workload) -> (&str, &str) {
    match workload {
        Workload::Ping { from, to, .. }
        | Workload::Bulk { from, to, .. }
        | Workload::Strobe { from, to, .. }
        | Workload::Iperf3 { from, to, .. } => (from, to),
    }
}

fn kind(workload: &Workload) -> &'static str {
    match workload {
        Workload::Ping { .. } => "ping",
        Workload::Bulk { .. } => "bulk transfer",
        Workload::Strobe { .. } => "strobe",
        Workload::Iperf3 { .. } => "transfer by iperf3",
    }
}

/// Every dotted key at and below `key` that is no table.
fn leaves(key: &str, value: &Value) -> Vec<(String, Value)> {
    match value {
        Value::Table(table) => table.iter().flat_map(|(below, value)| leaves(&join(key, below), value)).collect(),
        leaf => vec![(key.to_owned(), leaf.clone())],
    }
}

/// Whether a value is what holds without it.
fn is_default(key: &str, value: &Value) -> bool {
    let (table, rest) = match key.split('.').collect::<Vec<_>>()[..] {
        ["network", ref rest @ ..] => (Value::try_from(Network::default()), rest.to_vec()),
        ["record", ref rest @ ..] => (Value::try_from(Record::default()), rest.to_vec()),
        ["vms", _, ref rest @ ..] => (Value::try_from(VmGroup::default()), rest.to_vec()),
        _ => return false,
    };
    let default = rest.iter().try_fold(table.unwrap_or(Value::Boolean(false)), |at, key| at.get(key).cloned());
    match (default, value) {
        (Some(Value::Float(default)), Value::Integer(value)) => default == *value as f64,
        (default, value) => default.as_ref() == Some(value),
    }
}

/// Why a setting does nothing in a cell; None if it does something, or may.
fn why_idle(key: &str, scenario: &Scenario) -> Option<&'static str> {
    let ping = matches!(scenario.workload, Workload::Ping { .. });
    match key.split('.').collect::<Vec<_>>()[..] {
        ["network", "buffer_segments"] if scenario.network.rate_mbit == 0 => {
            Some("the port is not shaped (network.rate_mbit = 0)")
        }
        ["record", "queue_period_ms"] if scenario.network.rate_mbit == 0 && scenario.record.queue_period_ms > 0 => {
            Some("the port is not shaped (network.rate_mbit = 0), so it has no queue to record")
        }
        ["record", "tcp_info_period_ms"] if ping && scenario.record.tcp_info_period_ms > 0 => {
            Some("a ping has no TCP sockets")
        }
        ["vms", _, "tcp", ..] if ping => Some("a ping does not use TCP"),
        ["vms", group, ref rest @ ..] => why_idle_in_group(group, rest, scenario.vms.get(group)?, scenario),
        _ => None,
    }
}

fn why_idle_in_group(name: &str, key: &[&str], group: &VmGroup, scenario: &Scenario) -> Option<&'static str> {
    let (from, to) = roles(&scenario.workload);
    let (sends, receives) = (name == from, name == to);
    let sack_off = group.tcp.sack == Some(false);
    // The receiver of a strobe sends 8 bytes per request, so that what acts on ACKs or on windows of data acts on next to nothing there,
    // but not on nothing: only the one-way workloads are clear.
    let one_way = matches!(scenario.workload, Workload::Bulk { .. } | Workload::Iperf3 { .. });
    match *key {
        ["core", "slice_ms" | "slice_jitter" | "load"] if group.core.vms_per_core == 1 => {
            Some("the VMs have their core to themselves (core.vms_per_core = 1)")
        }
        ["pvtcp", switch] if switch != "mode" && group.pvtcp.mode == Mode::Off => {
            Some("PVTCP is off (pvtcp.mode = \"off\")")
        }
        ["tcp", "dsack"] if sack_off && group.tcp.dsack == Some(true) => Some("DSACK needs SACK, which is off"),
        ["tcp", "tail_loss_probe"] if sack_off && group.tcp.tail_loss_probe == Some(true) => {
            Some("tail-loss probes need SACK, which is off")
        }
        ["tcp", "receive_buffer_bytes"] if sends => {
            Some("this group sends; the receiving group's receive buffer counts")
        }
        ["tcp", "send_buffer_bytes"] if receives => Some("this group receives; the sending group's send buffer counts"),
        ["tcp", "delayed_ack"] if sends && one_way => Some("this group only sends; the receiving group acknowledges"),
        ["tcp", "initial_window_segments"] if receives => {
            Some("this group receives; the sending group's initial window counts")
        }
        _ => None,
    }
}

fn why_no_metric(metric: &str, scenario: &Scenario) -> Option<&'static str> {
    let ping = matches!(scenario.workload, Workload::Ping { .. });
    let strobe = matches!(scenario.workload, Workload::Strobe { .. });
    match metric {
        "rtt_p50_ms" | "rtt_p90_ms" | "rtt_mean_ms" | "rtt_max_ms" => (!ping).then_some("only a ping measures it"),
        "block_p50_ms" | "block_p99_ms" | "blocks" => (!strobe).then_some("only a strobe has blocks"),
        "rto_ms" | "rto_p90_ms" => why_no_series("rto_ms", scenario),
        "srtt_ms" => why_no_series("srtt_ms", scenario),
        "rto_runs_1" | "rto_runs_2" | "rto_runs_3" | "rto_runs_4" | "duplicate_acks" => {
            why_no_series("meas_rtt_ms", scenario)
        }
        "queue_mean_segments" | "queue_max_segments" => why_no_series("queue_segments", scenario),
        "time_s" | "sender_cpu" | "receiver_cpu" | "kernel_complaints" => None,
        pvtcp if pvtcp.starts_with("pvtcp_") => {
            scenario.vms.values().all(|g| g.pvtcp.mode == Mode::Off).then_some("PVTCP is off in all groups")
        }
        _ => ping.then_some("a ping does not use TCP"),
    }
}

fn why_no_series(series: &str, scenario: &Scenario) -> Option<&'static str> {
    let record = &scenario.record;
    match (series, &scenario.workload) {
        ("rtt_ms", workload) => (!matches!(workload, Workload::Ping { .. })).then_some("only a ping records it"),
        (_, Workload::Ping { .. }) if series != "queue_segments" => Some("a ping does not use TCP"),
        ("block_ms", workload) => (!matches!(workload, Workload::Strobe { .. })).then_some("only a strobe has blocks"),
        ("srtt_ms" | "rto_ms" | "cwnd_segments", Workload::Iperf3 { .. }) => Some("iperf3's sockets are not sampled"),
        ("srtt_ms" | "rto_ms" | "cwnd_segments", _) => {
            (record.tcp_info_period_ms == 0).then_some("record.tcp_info_period_ms is 0")
        }
        ("meas_rtt_ms", _) => (!record.capture).then_some("it needs record.capture = true"),
        ("queue_segments", _) if scenario.network.rate_mbit == 0 => {
            Some("the port is not shaped (network.rate_mbit = 0)")
        }
        ("queue_segments", _) => (record.queue_period_ms == 0).then_some("record.queue_period_ms is 0"),
        _ => None,
    }
}
