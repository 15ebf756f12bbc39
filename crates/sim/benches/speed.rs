//! How fast the simulator is, and how large: beside ns-3 on the same case (if `NS3_PEER` names bench/ns3's program), on
//! leaf-spine networks, on hosts whose schedulers decide, and per connection and packet. `make bench` runs it.
//!
//! Absolute figures say something about this machine; the ratios, taken in one run, are what is compared.

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant as Wall;

use evenkeel_scenario::format::Scenario;
use evenkeel_scenario::sweep;
use evenkeel_sim::guest::GuestSpec;
use evenkeel_sim::packet::{GuestId, HostId, Packet};
use evenkeel_sim::run::{Go, run, setup};
use evenkeel_sim::tcp::Connection;
use evenkeel_sim::workload::{FlowId, Side, System};
use evenkeel_sim::world::{Application, NoRecorder, World};

use common::{at_ms, topology, world};

const SEED: u64 = 1;
const ROUNDS: usize = 3;

fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn main() {
    // Runs the parts that are named, or else all: `cargo bench --bench speed -- leaf-spine`.
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_asked = |part: &str| asked.is_empty() || asked.iter().any(|arg| arg == part);
    if is_asked("peer") {
        beside_ns3();
    }
    if is_asked("leaf-spine") {
        leaf_spines();
    }
    if is_asked("hosts") {
        hosts();
    }
    if is_asked("memory") {
        memory();
    }
}

fn beside_ns3() {
    println!("{:<58} {:>14}", "Twenty DCTCP senders, one port of 10 Gbit/s, 100 ms", "packets/s");
    let here = fastest(twenty_senders);
    println!("{:<58} {:>14.0}", "  evenkeel, data packets per second", here);
    match std::env::var_os("NS3_PEER") {
        Some(peer) => {
            let there = fastest(|| ns3(&peer));
            println!("{:<58} {there:>14.0}", "  ns-3");
            println!("{:<58} {:>14.1}", "  ratio", here / there);
        }
        None => println!("  NS3_PEER is not set: not compared with ns-3"),
    }
}

fn leaf_spines() {
    println!("\n{:<58} {:>14} {:>14}", "Leaf-spine, websearch at 50% load, DCTCP", "events/s", "events/hop");
    let mut rates = Vec::new();
    for (hosts, leaves, spines, per_leaf) in [(144, 9, 4, 16), (1024, 32, 16, 32)] {
        let runs: Vec<Speed> = (0..ROUNDS).map(|_| leaf_spine(leaves, spines, per_leaf)).collect();
        let best = runs.iter().map(|run| run.events_per_s).fold(0.0, f64::max);
        println!("  {:<56} {best:>14.0} {:>14.3}", format!("{hosts} hosts"), runs[0].events_per_hop);
        rates.push(best);
    }
    println!("  {:<56} {:>14.2}", "1,024 hosts / 144 hosts", rates[1] / rates[0]);
}

/// Packets cost VMs time, and each computes beside them, so that virtual CPUs wake up, wait and halt all the time.
fn hosts() {
    println!("\n{:<58} {:>14}", "100 hosts of 4 cores, 8 VMs on each, at 10% load", "events/s");
    for (name, scheduler) in [("linux", "kind = \"linux\""), ("credit", "kind = \"credit\"")] {
        let text = format!(
            r#"
schema = 2
name = "hosts"
title = "hosts"
duration_ms = 200
warmup_ms = 0
[network]
rate_mbit = 10000
delay_us = 1
buffer_segments = 250
[hosts.shared]
count = 100
cores = 4
scheduler = {{ {scheduler} }}
[vms.vm]
count = 800
on = "shared"
packet_cost_ns = 500
own_load = {{ load = 0.4 }}
[workloads.w]
kind = "poisson"
from = "vm"
sizes = "websearch"
load = 0.1
[record]
tcp_info_period_ms = 0
"#
        );
        let loaded = Scenario::from_str(&text, "hosts.toml").unwrap_or_else(|e| panic!("{e}"));
        let cells = sweep::cells(&loaded).expect("cells");
        let rate = fastest(|| {
            let wall = Wall::now();
            let finished = run(&cells[0], 0, &mut |_| Go::On).expect("the simulator can run it");
            finished.events as f64 / wall.elapsed().as_secs_f64()
        });
        println!("  {name:<56} {rate:>14.0}");
    }
}

fn memory() {
    println!("\n{:<58} {:>14}", "Memory", "bytes");
    println!("  {:<56} {:>14}", "a packet in flight, in the slab", size_of::<Packet>());
    println!("  {:<56} {:>14}", "one end of a connection, without what it points to", size_of::<Connection>());
    println!("  {:<56} {:>14.0}", "an idle flow, both ends, as the resident set grows", idle_flow());
}

/// The largest of a few measurements: what disturbs a run makes it slower.
fn fastest(mut measure: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| measure()).fold(0.0, f64::max)
}

/// Data packets per second of wall clock.
fn twenty_senders() -> f64 {
    let file = top().join("scenarios/sim/validation/speed.toml");
    let scenario = Scenario::load(&file).unwrap_or_else(|e| panic!("{e}")).scenario;
    let wall = Wall::now();
    let mut world = world(&scenario, SEED);
    world.run(at_ms(scenario.duration_ms), u64::MAX);
    let took = wall.elapsed().as_secs_f64();
    let receiver = HostId(world.core.net.hosts() - 1);
    let port = world.core.net.port_to(receiver);
    world.core.net.stats(port).packets as f64 / took
}

/// The same of ns-3, which is started for it; by its own clock, which does not count the start.
fn ns3(peer: &std::ffi::OsStr) -> f64 {
    let output = Command::new(peer)
        .arg(top().join("bench/ns3/inputs/speed.txt"))
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", peer.to_string_lossy()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the peer prints JSON");
    result["data_packets"].as_f64().expect("a number") / result["wall_s"].as_f64().expect("a number")
}

struct Speed {
    events_per_s: f64,
    events_per_hop: f64,
}

/// Measures 15 ms from 5 ms on, when queues and connections are there.
fn leaf_spine(leaves: u32, spines: u32, per_leaf: u32) -> Speed {
    let uplink_mbit = 10_000 * per_leaf / spines;
    let hosts = leaves * per_leaf;
    let text = format!(
        r#"
schema = 2
name = "speed"
title = "speed"
duration_ms = 100
[network]
topology = "leaf-spine"
leaves = {leaves}
spines = {spines}
hosts_per_leaf = {per_leaf}
rate_mbit = 10000
uplink_rate_mbit = {uplink_mbit}
delay_us = 1
buffer_segments = 250
queue = {{ discipline = "red", ecn_threshold_segments = 65 }}
[vms.host]
count = {hosts}
hypervisor = false
hz = 0
tcp = {{ congestion_control = "dctcp" }}
[workloads.w]
kind = "poisson"
from = "host"
sizes = "websearch"
load = 0.5
[record]
tcp_info_period_ms = 0
"#
    );
    let scenario = Scenario::from_str(&text, "speed.toml").unwrap_or_else(|e| panic!("{e}")).scenario;
    let mut world = world(&scenario, SEED);
    world.run(at_ms(5), u64::MAX);
    let (events, hops) = (world.core.events.handled(), world.core.net.fifo_hops());
    let wall = Wall::now();
    world.run(at_ms(20), u64::MAX);
    let took = wall.elapsed().as_secs_f64();
    let events = (world.core.events.handled() - events) as f64;
    Speed { events_per_s: events / took, events_per_hop: events / (world.core.net.fifo_hops() - hops) as f64 }
}

/// Opens connections, lets each carry one small message, and leaves them open.
struct Idle {
    flows: u32,
}

impl Application for Idle {
    fn start(&mut self, system: &mut impl System) {
        for _ in 0..self.flows {
            let flow = system.open(GuestId(0), GuestId(1));
            system.write(flow, Side::Opener, 1000);
        }
    }
    fn on_established(&mut self, _: &mut impl System, _: FlowId) {}
    fn on_delivered(&mut self, _: &mut impl System, _: FlowId, _: Side) {}
    fn on_call(&mut self, _: &mut impl System, _: u32) {}
    fn on_echo(&mut self, _: &mut impl System, _: GuestId, _: u32) {}
}

/// Bytes that the process grows by per idle flow, over many flows; includes the packets of their beginnings.
fn idle_flow() -> f64 {
    const FEW: u32 = 10_000;
    const MANY: u32 = 110_000;
    let grown = |flows| {
        let before = resident_bytes();
        let text = "schema = 2\nname = \"idle\"\ntitle = \"idle\"\nduration_ms = 1000\n[network]\nrate_mbit = 10000\n\
            buffer_segments = 1000000\n\
                    [vms.a]\nhypervisor = false\nhz = 0\nnic_queue_segments = 1000000\n[vms.b]\nhypervisor = false\n\
                    hz = 0\nnic_queue_segments = 1000000\n\
                    [workloads.w]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n[record]\ntcp_info_period_ms = 0\n";
        let scenario = Scenario::from_str(text, "idle.toml").unwrap_or_else(|e| panic!("{e}")).scenario;
        let places = setup::placed_vms(&scenario);
        let tcp = Arc::new(setup::tcp(&scenario.vms["a"], scenario.network.mtu_bytes));
        let guests: Vec<GuestSpec> =
            places.iter().map(|place| GuestSpec::plain(place.host, Arc::clone(&tcp))).collect();
        let mut world = World::new(&topology(&scenario), &guests, SEED, Idle { flows }, NoRecorder);
        world.run(at_ms(1000), u64::MAX);
        resident_bytes() - before
    };
    (grown(MANY) - grown(FEW)) / f64::from(MANY - FEW)
}

/// Pages of 4 KiB, as on all machines that Debian's amd64 and arm64 kernels run on.
fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(f64::NAN) * 4096.0
}
