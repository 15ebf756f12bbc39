//! What a hop costs, and where memory is, with 144, 1,024 and 10,000 hosts: the cells of
//! `scenarios/sim/scale/fat-tree.toml`. `cargo bench -p evenkeel-sim --bench scale` runs them by turns, each in a
//! process of its own, for a few milliseconds of simulated time; `-- whole 10,000` runs a cell to its end and records
//! it, as `evenkeel sim` does.
//!
//! Absolute figures say something about this machine; the ratios, taken in one run, are what is compared.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Instant as Wall;

use evenkeel_scenario::Scenario;
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::sweep;
use evenkeel_sim::footprint::Footprint;
use evenkeel_sim::run::{Go, run};

use common::{at_ms, world};

/// Labels of the cells, and how many worlds are run to measure each for some seconds.
const SIZES: [(&str, u64); 3] = [("144", 24), ("1,024", 4), ("10,000", 1)];
const ROUNDS: usize = 3;
/// The measured part of simulated time: connections and queues are there when it begins.
const FROM_MS: u64 = 4;
const TO_MS: u64 = 8;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    match asked.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => by_turns(),
        ["part", hosts] => println!("{}", part(hosts).line()),
        ["memory", hosts] => memory(hosts),
        ["whole", hosts] => whole(hosts),
        _ => panic!("allowed: nothing; or `memory` or `whole`, and `144`, `1,024` or `10,000`"),
    }
}

/// What was measured of some events.
#[derive(Clone, Copy)]
struct Cost {
    events: f64,
    hops: f64,
    seconds: f64,
    peak_bytes: f64,
}

impl Cost {
    fn line(self) -> String {
        format!("{} {} {} {}", self.events, self.hops, self.seconds, self.peak_bytes)
    }

    fn of_line(line: &str) -> Self {
        let figures: Vec<f64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [events, hops, seconds, peak_bytes] = figures[..] else { panic!("four numbers, not {line}") };
        Self { events, hops, seconds, peak_bytes }
    }
}

/// All sizes in each round, so that what disturbs the machine is spread over them.
fn by_turns() {
    let mut costs = SIZES.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((hosts, _), costs) in SIZES.iter().zip(&mut costs) {
            let own = std::env::current_exe().expect("this program has a path");
            let output = Command::new(own).args(["part", hosts]).output().expect("this program can be run");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            costs.push(Cost::of_line(&String::from_utf8_lossy(&output.stdout)));
        }
    }
    println!("Fat tree, websearch at 30% load, DCTCP; medians of {ROUNDS}, smallest and largest");
    println!(
        "{:>8} {:>26} {:>20} {:>20} {:>11} {:>9}",
        "hosts", "M events/s", "ns per event", "ns per hop", "hops/event", "peak MiB"
    );
    for ((hosts, _), costs) in SIZES.iter().zip(&costs) {
        let of = |figure: &dyn Fn(&Cost) -> f64, digits| spread(costs.iter().map(figure).collect(), digits);
        println!(
            "{hosts:>8} {:>26} {:>20} {:>20} {:>11.3} {:>9.1}",
            of(&|cost| cost.events / cost.seconds / 1e6, 2),
            of(&|cost| cost.seconds / cost.events * 1e9, 1),
            of(&|cost| cost.seconds / cost.hops * 1e9, 1),
            costs[0].hops / costs[0].events,
            costs[0].peak_bytes / f64::from(1 << 20)
        );
    }
}

fn spread(mut figures: Vec<f64>, digits: usize) -> String {
    figures.sort_by(f64::total_cmp);
    let [least, median, most] = [0, figures.len() / 2, figures.len() - 1].map(|place| figures[place]);
    format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
}

fn cell(hosts: &str) -> Cell {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/sim/scale/fat-tree.toml");
    let loaded = Scenario::load(&file).unwrap_or_else(|e| panic!("{e}"));
    let cells = sweep::cells(&loaded).expect("cells");
    cells.into_iter().find(|cell| cell.labels[0].1 == hosts).unwrap_or_else(|| panic!("no cell has {hosts} hosts"))
}

/// Some worlds of a size, one after the other.
fn part(hosts: &str) -> Cost {
    let scenario = cell(hosts).scenario;
    let worlds = SIZES.iter().find(|(label, _)| *label == hosts).map_or(1, |size| size.1);
    let mut cost = Cost { events: 0.0, hops: 0.0, seconds: 0.0, peak_bytes: 0.0 };
    for seed in 0..worlds {
        let mut world = world(&scenario, seed);
        world.run(at_ms(FROM_MS), u64::MAX);
        let (events, hops) = (world.core.events.handled(), world.core.net.fifo_hops());
        let wall = Wall::now();
        world.run(at_ms(TO_MS), u64::MAX);
        cost.seconds += wall.elapsed().as_secs_f64();
        cost.events += (world.core.events.handled() - events) as f64;
        cost.hops += (world.core.net.fifo_hops() - hops) as f64;
    }
    Cost { peak_bytes: peak_bytes(), ..cost }
}

fn memory(hosts: &str) {
    let mut world = world(&cell(hosts).scenario, 0);
    print_memory("at the beginning", &world.footprint());
    world.run(at_ms(TO_MS), u64::MAX);
    print_memory(&format!("after {TO_MS} ms"), &world.footprint());
}

fn whole(hosts: &str) {
    let cell = cell(hosts);
    let wall = Wall::now();
    let finished = run(&cell, 0, &mut |_| Go::On).unwrap_or_else(|e| panic!("{e}"));
    let seconds = wall.elapsed().as_secs_f64();
    let (events, hops) = (finished.events as f64, finished.port_packets as f64);
    println!("{hosts} hosts: {events} events in {seconds:.1} s, {:.2} M events/s", events / seconds / 1e6);
    println!("{:.1} ns per event, {:.1} ns per hop", seconds / events * 1e9, seconds / hops * 1e9);
    println!("at most {} packets under way, {} flows recorded", finished.peak_packets, finished.record.flows.len());
    print_memory("at the end", &finished.footprint);
}

fn print_memory(when: &str, footprint: &Footprint) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("Memory {when}, MiB");
    for (part, bytes) in footprint.parts() {
        println!("  {part:<24} {:>10.1}", mib(bytes));
    }
    println!("  {:<24} {:>10.1}", "together", mib(footprint.total()));
    println!("  {:<24} {:>10.1}", "peak of the process", peak_bytes() / f64::from(1 << 20));
}

/// The largest resident set of this process so far (`VmHWM`).
fn peak_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kib = line.trim().trim_end_matches(" kB").parse::<f64>();
    kib.map_or(f64::NAN, |kib| kib * 1024.0)
}
