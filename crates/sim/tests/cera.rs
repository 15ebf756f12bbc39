//! CERA on simulated hosts: a short queue at the network card, shares by weight, and what holds without agents in the
//! VMs.

use std::collections::BTreeMap;

use evenkeel_scenario::Scenario;
use evenkeel_scenario::result::RunRecord;
use evenkeel_scenario::sweep::cells;
use evenkeel_sim::run::{Go, run};

/// Four VMs on a host with 1 Gbit/s: one asks a key-value store, three send.
fn host(cera: &str, workload: &str) -> RunRecord {
    host_of(4, cera, workload)
}

fn host_of(vms: u32, cera: &str, workload: &str) -> RunRecord {
    host_at(1000, 400, vms, cera, workload)
}

fn host_at(rate_mbit: u32, duration_ms: u32, vms: u32, cera: &str, workload: &str) -> RunRecord {
    let text = format!(
        r#"
schema = 2
name = "host"
title = "Host"
duration_ms = {duration_ms}
warmup_ms = 200
[network]
rate_mbit = {rate_mbit}
delay_us = 20
[vms.vm]
count = {vms}
per_host = 4
hz = 1000
cera = {cera}
[vms.server]
hypervisor = false
hz = 1000
[workloads.w]
kind = "memcached"
from = "vm"
to = "server"
{workload}
[record]
sender_nic = true
tcp_info_period_ms = 0
queue_period_ms = 1
"#
    );
    let loaded = Scenario::from_str(&text, "host.toml").unwrap_or_else(|e| panic!("{e}"));
    let cell = &cells(&loaded).unwrap()[0];
    run(cell, 0, &mut |_| Go::On).unwrap_or_else(|e| panic!("{e}")).record
}

const OFF: &str = "{ mode = \"off\" }";
const CLIENTS: &str = "{ mode = \"enforce\" }";
const AGENTLESS: &str = "{ mode = \"enforce\", clients = 0 }";
const MIXED: &str = "{ mode = \"enforce\", clients = 2 }";

fn sum(record: &RunRecord, counter: &str) -> i64 {
    record.counters.values().filter_map(|vm: &BTreeMap<String, i64>| vm.get(counter)).sum()
}

#[test]
fn the_queue_is_short_and_the_link_is_full() {
    let plain = host(OFF, "flows = 8");
    assert!(plain.metrics["queue_delay_mean_ms"] > 6.0, "{:?}", plain.metrics);
    for cera in [CLIENTS, AGENTLESS, MIXED] {
        let kept = host(cera, "flows = 8");
        let (waits, goodput) = (kept.metrics["queue_delay_mean_ms"], kept.metrics["goodput_mbit"]);
        assert!(waits < plain.metrics["queue_delay_mean_ms"] / 6.3, "{cera}: {waits} ms");
        assert!(goodput > plain.metrics["goodput_mbit"] * 0.97, "{cera}: {goodput} Mbit/s");
        assert!(kept.metrics["fct_mean_ms"] < plain.metrics["fct_mean_ms"] / 6.3, "{cera}: {:?}", kept.metrics);
        assert_eq!(kept.metrics["port_drops"], 0.0, "{cera}");
        assert_eq!(sum(&kept, "CeraWindowsSet") > 0, cera != AGENTLESS, "{cera}");
        assert!(sum(&kept, "CeraWindowsLimited") > 0, "{cera}");
    }
}

/// vFlood's host holds what its guests flood; CERA limits the receiver's window as that host is told it, like any VM's.
#[test]
fn flows_that_vflood_holds_are_limited_too() {
    // The VMs have their cores.
    let vflood = "vflood = { mode = \"enforce\", off_core_percent = 0 }";
    let with_vflood = |cera: &str| host(&format!("{cera}\n{vflood}"), "flows = 8");
    let (flooded, kept) = (with_vflood(OFF), with_vflood(CLIENTS));
    assert!(
        flooded.metrics["vflood_held"] > 0.0 && flooded.metrics["queue_delay_mean_ms"] > 6.0,
        "{:?}",
        flooded.metrics
    );
    for metric in ["queue_delay_mean_ms", "fct_mean_ms"] {
        assert!(kept.metrics[metric] < flooded.metrics[metric] / 6.3, "{metric}: {:?}", kept.metrics);
    }
    assert!(kept.metrics["goodput_mbit"] > flooded.metrics["goodput_mbit"] * 0.97, "{:?}", kept.metrics);
    assert_eq!((kept.metrics["port_drops"], kept.metrics["timeouts"]), (0.0, 0.0));
    assert!(sum(&kept, "CeraWindowsLimited") > 0);
}

/// Their control loops are as long as they wait for their cores. What their windows are for takes some rounds to learn.
#[test]
fn vms_that_wait_for_their_cores_fill_the_link_and_share_it() {
    let turns = |cera: &str| {
        let core = "core = { vms_per_core = 2, slice_ms = 10, slice_jitter = 0.5 }";
        host_at(1000, 2000, 4, &format!("{cera}\n{core}"), "flows = 4")
    };
    let plain = turns(OFF);
    for cera in [CLIENTS, AGENTLESS] {
        let kept = turns(cera);
        let (of_plain, of_kept) = (plain.metrics["uplink_use"], kept.metrics["uplink_use"]);
        assert!(of_kept > 0.95 * of_plain, "{cera}: {of_kept}% instead of {of_plain}%");
        assert!(kept.metrics["queue_delay_mean_ms"] < 0.8 * plain.metrics["queue_delay_mean_ms"], "{:?}", kept.metrics);
        assert!(kept.metrics["weight_error"] < 5.0, "{cera}: {:?}", kept.metrics);
    }
}

/// A VM has its part in a handshake and none in a flow's round trip, and the queue that a segment meets is not known
/// exactly: neither makes a near flow nearer. On a fast link nothing waits long enough to make up for it.
#[test]
fn near_flows_fill_a_fast_link() {
    for cera in [CLIENTS, AGENTLESS] {
        let record = host_at(10_000, 400, 4, cera, "flows = 8");
        let use_percent = record.metrics["uplink_use"];
        assert!(use_percent > 97.0, "{use_percent}%, {cera}");
        assert!(record.metrics["queue_delay_mean_ms"] < 0.1, "{:?}", record.metrics);
    }
}

/// Each of four VMs sends to a machine beside it and to one that is 20 ms away.
#[test]
fn far_flows_have_their_part() {
    let goodput_mbit = |cera: &str, vflood: &str| {
        let text = format!(
            r#"
schema = 2
name = "far"
title = "Far"
duration_ms = 2000
warmup_ms = 1000
[network]
rate_mbit = 1000
delay_us = 20
[vms.vm]
count = 4
per_host = 4
hz = 1000
cera = {cera}
vflood = {vflood}
[vms.near]
hypervisor = false
[vms.far]
hypervisor = false
far_count = 1
far_delay_us = 20000
[workloads.near]
kind = "bulk"
from = "vm"
to = "near"
flows = 4
[workloads.far]
kind = "bulk"
from = "vm"
to = "far"
[record]
tcp_info_period_ms = 0
"#
        );
        let loaded = Scenario::from_str(&text, "far.toml").unwrap_or_else(|e| panic!("{e}"));
        let record = run(&cells(&loaded).unwrap()[0], 0, &mut |_| Go::On).unwrap_or_else(|e| panic!("{e}")).record;
        let of = |workload: &str| record.metrics[&format!("{workload}.goodput_mbit")];
        (of("near"), of("far"))
    };
    // What vFlood holds is timed from when it leaves.
    let holds = "{ mode = \"enforce\", off_core_percent = 0, congestion_control = \"cubic\" }";
    for (cera, vflood) in [(CLIENTS, OFF), (AGENTLESS, OFF), (CLIENTS, holds)] {
        let (near, far) = goodput_mbit(cera, vflood);
        assert!(near + far > 850.0, "{near} and {far} Mbit/s");
        // A fifth of all flows.
        assert!(far > 0.6 * (near + far) / 5.0, "{near} and {far} Mbit/s, {cera}, {vflood}");
    }
}

/// Little's law: what waits on average is what comes in a second, times how long each waits.
#[test]
fn waiting_times_are_those_of_the_queue() {
    let record = host(OFF, "flows = 8");
    let waits_s = record.metrics["queue_delay_mean_ms"] / 1e3;
    let packets_per_s: i64 =
        ["vm-0", "vm-1", "vm-2", "vm-3"].iter().map(|vm| record.counters[*vm]["EthTxPackets"]).sum();
    let waiting = waits_s * packets_per_s as f64 / 0.4;
    let sampled = record.metrics["queue_mean_segments"];
    assert!((waiting / sampled - 1.0).abs() < 0.05, "{waiting} by Little's law, {sampled} by samples");
    let own = record.metrics["queue_delay_first_mean_ms"] / record.metrics["queue_delay_mean_ms"];
    assert!((0.8..1.2).contains(&own), "a FIFO is the same for all: {own}");
}

#[test]
fn observing_changes_nothing_but_counts() {
    let (off, observed) = (host(OFF, "flows = 8"), host("{ mode = \"observe\", clients = 2 }", "flows = 8"));
    assert_eq!(off.flows, observed.flows);
    for metric in ["fct_mean_ms", "queue_delay_mean_ms", "goodput_mbit"] {
        assert_eq!(off.metrics[metric], observed.metrics[metric], "{metric}");
    }
    assert!(observed.metrics["cera_cuts"] > 100.0 && observed.metrics["cera_windows_limited"] > 0.0);
    assert_eq!(observed.metrics["cera_windows_set"], 0.0);
}

/// The figures are the same on every machine, so that a change of what CERA does shows.
#[test]
fn a_run_in_figures() {
    let text: String = [("clients", CLIENTS), ("agentless", AGENTLESS), ("mixed", MIXED)]
        .iter()
        .map(|(name, cera)| {
            let record = host(cera, "flows = 2");
            let figures = ["cera_cuts", "cera_windows_set", "cera_windows_limited", "queue_delay_mean_ms", "flows"];
            let figures: Vec<String> =
                figures.iter().map(|name| format!("{name} {:.3}", record.metrics[*name])).collect();
            format!("{name}: {}\n", figures.join(", "))
        })
        .collect();
    insta::assert_snapshot!(text);
}

#[test]
fn a_run_twice_is_the_same_to_the_byte() {
    let written = || serde_json::to_string(&host(MIXED, "flows = 3\nlate_start_ms = 100")).expect("JSON");
    assert!(written() == written());
}

/// With and without agents, where W has enough for all flows of the lightest VM: a flow's window does not go below two
/// segments.
#[test]
fn rates_follow_weights() {
    for (clients, flows) in [("", 2), ("", 8), (", clients = 0", 2), (", clients = 2", 2), (", clients = 2", 8)] {
        let cera = format!("{{ mode = \"enforce\", weights = [1, 1, 2, 3], high_segments = 240{clients} }}");
        let record = host(&cera, &format!("flows = {flows}"));
        assert!(record.metrics["weight_error"] < 5.0, "{clients} {flows}: {:?}", record.metrics);
    }
}

/// CERA eq. 2 as printed multiplies shares by weights epoch after epoch.
#[test]
fn printed_shares_do_not_follow_weights() {
    let record = host(
        "{ mode = \"enforce\", weights = [1, 1, 2, 3], high_segments = 240, clients = 0, shares = \"printed\" }",
        "flows = 2",
    );
    assert!(record.metrics["weight_error"] > 30.0, "{:?}", record.metrics);
}

#[test]
fn a_vm_that_wakes_up_has_its_share_within_ten_epochs() {
    // It begins 300 ms after the start, within the millisecond in which VMs start, and 100 ms into the measured time.
    const WAKES_US: i64 = 101_000;
    for cera in [CLIENTS, AGENTLESS] {
        let record = host(cera, "flows = 8\nlate_start_ms = 300");
        let of = |vm: &str| {
            let series = record.series.iter().find(|s| s.name == "share_segments" && s.subject == vm).unwrap();
            series.points.iter().filter(|(at, share)| *at >= WAKES_US + 10_000 && *share > 0.0).map(|p| p.1)
        };
        let (late, other) = (of("vm-3").sum::<f64>(), of("vm-2").sum::<f64>());
        assert!(late > 0.95 * other, "{cera}: {late} and {other}");
        // A third of the rate for 299 of the 400 ms is 0.249 of all that was sent, for ten epochs less 0.241.
        let sent = |vm: &str| record.flows.iter().filter(|f| f.from == vm).map(|f| f.bytes as f64).sum::<f64>();
        let share = sent("vm-3") / (sent("vm-1") + sent("vm-2") + sent("vm-3"));
        assert!((0.241..0.26).contains(&share), "{cera}: {share}");
    }
}

#[test]
fn no_vm_starves() {
    // Many more flows than the window has segments, and a weight of next to nothing.
    let record = host("{ mode = \"enforce\", weights = [1, 1, 1000, 1000], high_segments = 10 }", "flows = 40");
    let mut by_vm: BTreeMap<&str, u64> = BTreeMap::new();
    for flow in &record.flows {
        assert!(flow.bytes > 0, "{flow:?}");
        *by_vm.entry(&flow.from).or_default() += flow.bytes;
    }
    let all: u64 = by_vm.values().sum();
    assert!(by_vm.values().all(|bytes| bytes * 100 > all), "{by_vm:?}");
}

/// Flows that are silent for longer than M epochs are still there: else the others would be given their parts.
#[test]
fn short_epochs_do_not_forget_flows() {
    let record = host("{ mode = \"enforce\", clients = 0, epoch_us = 250, high_segments = 250 }", "flows = 8");
    assert!(record.metrics["queue_delay_mean_ms"] < 3.5, "{:?}", record.metrics);
}

#[test]
fn without_congestion_nothing_is_limited() {
    let record = host_of(1, "{ mode = \"enforce\", clients = 0 }", "");
    assert_eq!((record.metrics["cera_cuts"], record.metrics["cera_windows_limited"]), (0.0, 0.0));
    assert!(record.metrics["flows"] > 1000.0, "{:?}", record.metrics);
}
