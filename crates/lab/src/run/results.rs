//! Turns what was measured into a record.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::Scenario;
use evenkeel_scenario::metric::{self, Measurements};
use evenkeel_scenario::result::{FlowRecord, RunRecord, Series};

use super::counters::{camel, of_port};
use super::measured::Measured;
use super::measurements;
use crate::host::agent::Counts;

/// The record of a run.
pub fn record(cell: &Cell, repetition: u32, seed: u64, measured: Measured) -> RunRecord {
    let scenario = &cell.scenario;
    let measurements = measurements::of(scenario, &measured);
    let remarks = measured
        .vms
        .iter()
        .flat_map(|vm| vm.recorded.iter().flat_map(|own| &own.errors).map(|e| format!("{}: {e}", vm.name)))
        .chain(measured.trace.remarks.iter().chain(&measured.complaints).cloned())
        .collect();
    RunRecord {
        cell: cell.labels.clone(),
        repetition,
        seed,
        duration_us: measured.duration.as_micros() as u64,
        metrics: metric::metrics(scenario, &measurements),
        counters: counters(&measured),
        flows: flows(scenario, &measured, &measurements),
        series: series(&measured),
        packets: measured.trace.packets,
        remarks,
    }
}

/// Counters that are not zero: each VM's, with its port's; the agent's and those of marking ports under `host`.
fn counters(measured: &Measured) -> BTreeMap<String, BTreeMap<String, i64>> {
    let named = |prefix: &str, counts: &Counts| -> BTreeMap<String, i64> {
        counts.iter().map(|(name, value)| (camel(prefix, name), *value)).collect()
    };
    let mut all: BTreeMap<String, BTreeMap<String, i64>> =
        measured.vms.iter().map(|vm| (vm.name.clone(), vm.counters.0.clone())).collect();
    all.extend(measured.domains.iter().map(|(name, counters)| (name.clone(), counters.0.clone())));
    if let Some(agent) = &measured.agent {
        for vm in &measured.vms {
            if let (Some(counters), Some(port)) = (all.get_mut(&vm.name), agent.ports.get(&vm.port)) {
                counters.extend(port.iter().map(|(name, value)| (of_port(name), *value)));
            }
        }
        for moved in &measured.moved {
            if let Some(port) = agent.ports.get(&moved.port) {
                let counters = port.iter().map(|(name, value)| (of_port(name), *value)).collect();
                all.insert(format!("{}, moved", moved.name), counters);
            }
        }
        all.entry("host".to_owned()).or_default().extend(named("Agent", &agent.agent));
    }
    if let Some(marks) = measured.marks {
        let counts =
            [("PortsMarked".to_owned(), marks.marked as i64), ("PortsDroppedNotEct".to_owned(), marks.dropped as i64)];
        all.entry("host".to_owned()).or_default().extend(counts);
    }
    for counters in all.values_mut() {
        counters.retain(|_, value| *value != 0);
    }
    all
}

/// The flows of each workload: those that lasted, and those that ended.
fn flows(scenario: &Scenario, measured: &Measured, measurements: &Measurements) -> Vec<FlowRecord> {
    let name = |number: u32| measured.vms.get(number as usize).map_or_else(String::new, |vm| vm.name.clone());
    let of_each = scenario.workloads.values().zip(&measurements.traffic).enumerate();
    of_each
        .flat_map(|(place, (workload, traffic))| {
            let (_, to) = workload.roles();
            long_lived(measured, place, to)
                .into_iter()
                .chain(traffic.ended.iter().map(|flow| FlowRecord::of(flow, name)))
        })
        .collect()
}

/// What a group received on flows that lasted, in the workload at this place.
fn long_lived(measured: &Measured, place: usize, group: &str) -> Vec<FlowRecord> {
    let name_of = |peer: &str| {
        let address = peer.parse::<SocketAddr>().ok().map(|peer| peer.ip());
        let vm = measured.vms.iter().find(|vm| address == Some(vm.address.into()));
        vm.map_or_else(|| peer.to_owned(), |vm| vm.name.clone())
    };
    let receivers = measured.vms.iter().filter(|vm| vm.group == group);
    let recorded = receivers.filter_map(|vm| Some((vm, vm.recorded.get(place)?)));
    recorded
        .flat_map(|(vm, recorded)| {
            recorded.received.iter().map(|(peer, bytes)| FlowRecord {
                from: name_of(peer),
                to: vm.name.clone(),
                bytes: *bytes,
                start_us: 0,
                duration_us: recorded.measured_us,
            })
        })
        .collect()
}

fn series(measured: &Measured) -> Vec<Series> {
    let mut all = Vec::new();
    let mut push = |name: &str, subject: &str, points: Vec<(i64, f64)>| {
        if !points.is_empty() {
            all.push(Series { name: name.to_owned(), subject: subject.to_owned(), points });
        }
    };
    for vm in &measured.vms {
        let since_mark_us = |at_ns: u64| (at_ns as i64 - measured.mark_monotonic_ns as i64) / 1000;
        let waits = vm.waits.iter().map(|wait| (since_mark_us(wait.end_ns), wait.waited_ns as f64 / 1e6));
        push("vcpu_wait_ms", &vm.name, waits.collect());
        let times_ms = |times: &[(u64, u64)]| -> Vec<(i64, f64)> {
            times.iter().map(|(t, us)| (*t as i64, *us as f64 / 1e3)).collect()
        };
        push("rtt_ms", &vm.name, vm.recorded.iter().flat_map(|own| times_ms(&own.pings)).collect());
        push("block_ms", &vm.name, vm.recorded.iter().flat_map(|own| times_ms(&own.blocks)).collect());
        let sockets = vm.recorded.first().map_or(&[][..], |first| &first.sockets);
        for (index, socket) in sockets.iter().enumerate() {
            let subject = if sockets.len() == 1 { vm.name.clone() } else { format!("{} flow {index}", vm.name) };
            push(
                "srtt_ms",
                &subject,
                socket.samples.iter().map(|s| (s.t_us as i64, f64::from(s.srtt_us) / 1e3)).collect(),
            );
            push(
                "rto_ms",
                &subject,
                socket.samples.iter().map(|s| (s.t_us as i64, f64::from(s.rto_us) / 1e3)).collect(),
            );
            push(
                "cwnd_segments",
                &subject,
                socket.samples.iter().map(|s| (s.t_us as i64, f64::from(s.snd_cwnd))).collect(),
            );
        }
    }
    push(
        "queue_segments",
        "bottleneck",
        measured
            .backlog
            .samples
            .iter()
            .map(|(t, n)| ((*t as i64 - measured.mark_monotonic_ns as i64) / 1000, f64::from(*n)))
            .collect(),
    );
    let since_mark_us = |t_ns: i64| (t_ns - measured.mark_realtime_ns as i64) / 1000;
    push(
        "meas_rtt_ms",
        "sender-0",
        measured.trace.meas_rtt.iter().map(|(t, rtt_ns)| (since_mark_us(*t), *rtt_ns as f64 / 1e6)).collect(),
    );
    all
}
