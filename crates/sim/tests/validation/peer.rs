//! Against ns-3: the same senders, bottleneck, TCP settings and flows. `make validate` writes bench/ns3/inputs from the
//! scenarios and computes bench/ns3/outputs again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::{Scenario, Workload};
use evenkeel_scenario::stats::median;
use evenkeel_scenario::sweep::{cells, run_seed};
use evenkeel_sim::export;
use evenkeel_sim::guest::GuestSpec;
use evenkeel_sim::net::{PortStats, TopologySpec};
use evenkeel_sim::run::setup;
use evenkeel_sim::time::{Duration, Instant};
use evenkeel_sim::workload::{FlowDone, Recording, Side, System, Workload as Application};
use evenkeel_sim::world::{Core, NoRecorder, World};
use serde_json::Value;

use crate::{loaded, top};

/// A case of the comparison: a cell of one of scenarios/sim/validation, and the name of its input and output.
struct Case {
    name: String,
    cell: Cell,
}

fn cases(file: &str) -> Vec<Case> {
    let loaded = loaded(&format!("scenarios/sim/validation/{file}.toml"));
    let cells = cells(&loaded).unwrap_or_else(|e| panic!("{e}"));
    let name = |cell: &Cell| cell.labels.iter().fold(file.to_owned(), |name, (_, label)| format!("{name}-{label}"));
    cells.into_iter().map(|cell| Case { name: name(&cell), cell }).collect()
}

fn path(directory: &str, name: &str, extension: &str) -> PathBuf {
    top().join("bench/ns3").join(directory).join(format!("{name}.{extension}"))
}

/// What the simulator makes of a case.
struct Outcome {
    goodput_mbit: f64,
    ports: PortStats,
    recording: Recording,
}

fn simulate(scenario: &Scenario) -> Outcome {
    let seed = run_seed(scenario.seed, 0);
    let places = setup::placed_vms(scenario);
    let members = setup::members(scenario, scenario.workload(), &places, 0, seed);
    let guests: Vec<GuestSpec> = places
        .iter()
        .map(|place| {
            GuestSpec::plain(place.host, Arc::new(setup::tcp(&scenario.vms[&place.group], scenario.network.mtu_bytes)))
        })
        .collect();
    let network = setup::topology(scenario);
    let nic =
        scenario.vms.values().find_map(|group| setup::nic(scenario, group)).unwrap_or_else(|| network.nic.clone());
    let workload = Application::new(scenario.workload(), members).expect("the simulator has this workload");
    let mut world = World::new(&TopologySpec { nic, ..network }, &guests, seed, workload, NoRecorder);
    let warm = Instant::START + Duration::from_ms(scenario.warmup_ms);
    world.run(warm, u64::MAX);
    let before = delivered(&world.core);
    world.with(|workload, system| workload.mark(system));
    world.run(warm + Duration::from_ms(scenario.duration_ms), u64::MAX);
    let now = world.core.now();
    let bits = 8 * (delivered(&world.core) - before);
    Outcome {
        goodput_mbit: bits as f64 / now.since(warm).as_s_f64() / 1e6,
        ports: world.core.net.totals(),
        recording: world.application.collect(now),
    }
}

/// Bytes that the open flows have delivered.
fn delivered(core: &Core<NoRecorder>) -> u64 {
    core.flows().filter_map(|(flow, _)| core.connection(flow, Side::Acceptor)).map(|end| end.delivered()).sum()
}

/// A flow as the peer has it, and how long it took here.
struct Flow {
    start_us: u64,
    from: u32,
    to: u32,
    bytes: u64,
    took_ms: f64,
}

/// A flow is small up to here (as in the `fct_small` metrics).
const SMALL_BYTES: u64 = 100_000;
/// A flow that takes longer has waited for a timeout of 200 ms, or is large.
const SLOW_MS: f64 = 150.0;

/// The flows that ended, as they stand in the peer's input.
fn in_order(scenario: &Scenario, outcome: &Outcome) -> Vec<Flow> {
    let receivers_from = scenario.vms[scenario.workload().roles().0].count;
    let flow = |f: &FlowDone| Flow {
        start_us: f.start.us(),
        from: f.from.0,
        to: f.to.0 - receivers_from,
        bytes: f.bytes,
        took_ms: f.took.as_ms_f64(),
    };
    let mut flows: Vec<Flow> = outcome.recording.flows.iter().map(flow).collect();
    flows.sort_by_key(|f| (f.start_us, f.from, f.to, f.bytes));
    flows
}

/// The peer's input for a cell. Flows that end are those that the simulator's workload drew.
fn input(scenario: &Scenario, outcome: &Outcome) -> String {
    let input = export::ns3(scenario).unwrap_or_else(|e| panic!("{e}"));
    if !matches!(scenario.workload(), Workload::Bulk { .. }) {
        assert_eq!(outcome.recording.unfinished.len(), 0, "the peer runs the flows that ended");
        let flow = |f: Flow| format!("flow {} {} {} {}", f.start_us, f.from, f.to, f.bytes);
        let ended: Vec<String> = in_order(scenario, outcome).into_iter().map(flow).collect();
        let drawn: Vec<&str> = input.lines().filter(|line| line.starts_with("flow ")).collect();
        assert_eq!(ended, drawn, "flows that are drawn are those that run");
    }
    format!("# Written by `make validate` from scenarios/{}.toml.\n{input}", scenario.name)
}

/// Writes the input, or holds the one that is there against the scenario.
fn check_input(case: &Case, outcome: &Outcome) {
    let file = path("inputs", &case.name, "txt");
    let text = input(&case.cell.scenario, outcome);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::create_dir_all(file.parent().expect("a file is in a directory")).expect("bench/ns3 is writable");
        std::fs::write(&file, text).expect("bench/ns3/inputs is writable");
    } else {
        let there = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert!(there == text, "{} is not what the scenario gives: run `make validate`", file.display());
    }
}

fn output(name: &str) -> Value {
    let file = path("outputs", name, "json");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// How far a figure may be off.
enum Bound {
    /// A share of the peer's figure.
    Share(f64),
    /// The same order of magnitude: within a factor of ten, small counts aside.
    Magnitude,
}

/// Figures that differ by more, and why: case, figure, bound. docs/validation.md has the reasons.
const EXCEPTIONS: &[(&str, &str, f64)] = &[
    // ns-3 3.37's CUBIC has no Reno-friendly region, which is all that counts at such short RTTs.
    ("star-bulk-cubic", "drops", 15.0),
    // The median lies where the next percent of the flows takes a tenth longer; flow by flow the two agree.
    ("star-flows-reno", "median FCT", 0.25),
    ("star-flows-cubic", "median FCT", 0.25),
    ("dumbbell-flows-cubic", "median FCT", 0.35),
];

/// A line about a figure, and whether it is within its bound.
fn compare(case: &str, figure: &str, here: f64, there: f64, bound: Bound) -> (String, bool) {
    let exception = EXCEPTIONS.iter().find(|(c, f, _)| *c == case && *f == figure).map(|(_, _, bound)| *bound);
    let good = match (bound, exception) {
        (_, Some(share)) | (Bound::Share(share), None) => (here - there).abs() <= share * there,
        (Bound::Magnitude, None) => {
            let (small, large) = (here.min(there), here.max(there));
            large < 50.0 || small * 10.0 >= large
        }
    };
    (format!("{case} | {figure} | {here:.3} | {there:.3} | {:.3}", here / there), good)
}

fn against_peer(file: &str) {
    let mut bad = Vec::new();
    for case in cases(file) {
        let outcome = simulate(&case.cell.scenario);
        check_input(&case, &outcome);
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            continue;
        }
        let peer = output(&case.name);
        let there = |key: &str| peer[key].as_f64().unwrap_or_else(|| panic!("{}: no {key}", case.name));
        let mut judge = |figure: &str, here: f64, there: f64, bound: Bound| {
            let (line, good) = compare(&case.name, figure, here, there, bound);
            println!("{line}{}", if good { "" } else { " <- off" });
            if !good {
                bad.push(line);
            }
        };
        let peer_flows: Vec<f64> = peer["fct_ms"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        if let Some(peer_median) = median(&peer_flows) {
            let flows = in_order(&case.cell.scenario, &outcome);
            assert_eq!(flows.len(), peer_flows.len(), "{}: flows that ended", case.name);
            let middle = |values: Vec<f64>| median(&values).expect("there are flows");
            let took: Vec<f64> = flows.iter().map(|flow| flow.took_ms).collect();
            judge("median FCT", middle(took.clone()), peer_median, Bound::Share(0.10));
            let small = |all: &[f64]| {
                flows.iter().zip(all).filter(|(flow, _)| flow.bytes <= SMALL_BYTES).map(|(_, ms)| *ms).collect()
            };
            judge("median FCT, small", middle(small(&took)), middle(small(&peer_flows)), Bound::Share(0.10));
            let ratios = took.iter().zip(&peer_flows).map(|(here, there)| here / there).collect();
            judge("flow by flow", middle(ratios), 1.0, Bound::Share(0.05));
            let slow = |all: &[f64]| all.iter().filter(|ms| **ms > SLOW_MS).count() as f64;
            judge("flows beyond 150 ms", slow(&took), slow(&peer_flows), Bound::Magnitude);
        } else {
            judge("goodput", outcome.goodput_mbit, there("goodput_mbit"), Bound::Share(0.05));
        }
        judge("drops", outcome.ports.drops as f64, there("drops"), Bound::Magnitude);
        judge("marks", outcome.ports.marks as f64, there("marks"), Bound::Magnitude);
    }
    assert!(bad.is_empty(), "case | figure | evenkeel | ns-3 | ratio\n{}", bad.join("\n"));
}

#[test]
fn bulk_through_a_star() {
    against_peer("star-bulk");
}

#[test]
fn bulk_through_a_dumbbell() {
    against_peer("dumbbell-bulk");
}

#[test]
fn flows_through_a_star() {
    against_peer("star-flows");
}

#[test]
fn flows_through_a_dumbbell() {
    against_peer("dumbbell-flows");
}

#[test]
fn the_case_that_speeds_are_compared_on() {
    against_peer("speed");
}

#[test]
fn no_input_without_a_case() {
    let names: Vec<String> = ["star-bulk", "dumbbell-bulk", "star-flows", "dumbbell-flows", "speed"]
        .iter()
        .flat_map(|file| cases(file))
        .map(|c| c.name)
        .collect();
    for directory in [Path::new("inputs"), Path::new("outputs")] {
        let directory = top().join("bench/ns3").join(directory);
        for entry in std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display())) {
            let file = entry.expect("a directory can be read to its end").path();
            let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
            assert!(names.contains(&stem), "{} belongs to no case", file.display());
        }
    }
}
