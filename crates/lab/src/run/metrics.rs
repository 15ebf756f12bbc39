//! Turns what was measured into a record: counters and samples to the metrics that scenarios name.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::Workload;
use evenkeel_scenario::metric::SizeClass;
use evenkeel_scenario::result::{FlowRecord, RunRecord, Series};
use evenkeel_scenario::stats::quantile;

use super::measured::{Measured, VmMeasured};
use super::roles::Roles;
use crate::host::agent::{Counted, Counts};
use crate::proto::RequestTime;

/// Prefix of PVTCP's counters among a VM's.
const PVTCP: &str = "Pvtcp";

/// Reads PVTCP's counters from `name:value` lines.
pub fn parse_pvtcp_counters(text: &str) -> impl Iterator<Item = (String, i64)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((camel(PVTCP, name), value.trim().parse().ok()?))
    })
}

/// Lines of a kernel log that report a bug, a stall or a corrupted list.
pub fn complaints(log: &str) -> impl Iterator<Item = &str> {
    const SIGNS: [&str; 10] = [
        "WARNING:",
        "BUG:",
        "Oops",
        "general protection",
        "kernel panic",
        "rcu_sched",
        "soft lockup",
        "hung_task",
        "refcount_t:",
        "NETDEV WATCHDOG",
    ];
    log.lines().filter(|line| SIGNS.iter().any(|sign| line.contains(sign)))
}

/// The record of a run.
pub fn record(cell: &Cell, repetition: u32, seed: u64, roles: &Roles, measured: Measured) -> RunRecord {
    let mut metrics = BTreeMap::new();
    let mut set = |name: &str, value: Option<f64>| {
        debug_assert!(evenkeel_scenario::metric::find(name).is_some(), "{name} is not in the list of metrics");
        if let Some(value) = value.filter(|v| v.is_finite()) {
            metrics.insert(name.to_owned(), value);
        }
    };
    let senders: Vec<&VmMeasured> = measured.vms.iter().filter(|vm| vm.group == roles.from).collect();
    let receivers: Vec<&VmMeasured> = measured.vms.iter().filter(|vm| vm.group == roles.to).collect();
    let seconds = measured.duration.as_secs_f64();
    let sum = |vms: &[&VmMeasured], counter: &str| vms.iter().map(|vm| vm.counters.get(counter)).sum::<f64>();
    let sent = |counter: &str| sum(&senders, counter);

    let mbit = |vm: &&VmMeasured| {
        let bytes: u64 = vm.recorded.received.iter().map(|(_, bytes)| bytes).sum();
        bytes as f64 * 8.0 / vm.recorded.measured_us.max(1) as f64
    };
    let transfers = receivers.iter().any(|vm| !vm.recorded.received.is_empty());
    let open_loop = matches!(cell.scenario.workload, Workload::Poisson { .. });
    let iperf3_mbit = measured.iperf3.map(|bits| bits / 1e6);
    if matches!(
        cell.scenario.workload,
        Workload::Transfers { .. }
            | Workload::Memcached { .. }
            | Workload::RequestResponse { .. }
            | Workload::ThreeTier { .. }
    ) {
        of_requests(&cell.scenario.workload, &measured.vms, &mut set);
    }
    let answered =
        || measured.vms.iter().flat_map(|vm| &vm.recorded.requests).filter(|request| request.took_us.is_some());
    match cell.scenario.workload {
        Workload::ThreeTier { .. } => set("operations_per_s", Some(answered().count() as f64 / seconds)),
        Workload::RequestResponse { .. } => {
            set("goodput_mbit", Some(answered().map(|request| request.bytes).sum::<u64>() as f64 * 8e-6 / seconds));
        }
        _ => {}
    }
    if open_loop {
        set("background_goodput_mbit", iperf3_mbit);
        of_requests(&cell.scenario.workload, &measured.vms, &mut set);
    } else if !matches!(cell.scenario.workload, Workload::Transfers { .. } | Workload::ThreeTier { .. }) {
        set("goodput_mbit", iperf3_mbit.or_else(|| transfers.then(|| receivers.iter().map(mbit).sum())));
    }
    set("vflood_share", share_of_clients(cell, roles, &senders, &receivers));
    set("time_s", Some(seconds));

    let blocks_ms: Vec<f64> =
        receivers.iter().flat_map(|vm| &vm.recorded.blocks).map(|(_, us)| *us as f64 / 1e3).collect();
    if !blocks_ms.is_empty() {
        set("blocks", Some(blocks_ms.len() as f64));
        set("block_p50_ms", quantile(&blocks_ms, 0.5));
        set("block_p99_ms", quantile(&blocks_ms, 0.99));
    }
    let pings_ms: Vec<f64> = senders.iter().flat_map(|vm| &vm.recorded.pings).map(|(_, us)| *us as f64 / 1e3).collect();
    if !pings_ms.is_empty() {
        set("rtt_p50_ms", quantile(&pings_ms, 0.5));
        set("rtt_p90_ms", quantile(&pings_ms, 0.9));
        set("rtt_mean_ms", Some(pings_ms.iter().sum::<f64>() / pings_ms.len() as f64));
        set("rtt_max_ms", pings_ms.iter().copied().reduce(f64::max));
    } else {
        let timeouts = sent("TcpExtTCPTimeouts");
        let probes = sent("TcpExtTCPLossProbes");
        let undone_timeouts = sent("TcpExtTCPLossUndo") + sent("TcpExtTCPDSACKUndo");
        let retransmitted = sent("TcpRetransSegs");
        let dropped = measured.dropped + measured.marks.map_or(0, |marks| marks.dropped);
        let needless = (retransmitted - dropped as f64).max(0.0);
        set("timeouts", Some(timeouts));
        set("timeouts_per_s", Some(timeouts / seconds));
        set("tail_loss_probes", Some(probes));
        set("tail_loss_probes_per_s", Some(probes / seconds));
        set("tlp_recoveries", Some(sent("TcpExtTCPLossProbeRecovery")));
        set("undone", Some(undone_timeouts + sent("TcpExtTCPFullUndo") + sent("TcpExtTCPPartialUndo")));
        set("spurious_frto", Some(sent("TcpExtTCPSpuriousRTOs")));
        set("detected_share", (timeouts > 0.0).then(|| (100.0 * undone_timeouts / timeouts).min(100.0)));
        set("segments_sent", Some(sent("TcpOutSegs") + retransmitted));
        set("retransmitted", Some(retransmitted));
        set("needless_retransmissions", Some(needless));
        set("needless_per_s", Some(needless / seconds));
        set("dsacks", Some(sent("TcpExtTCPDSACKRecv")));
        set("port_drops", Some(dropped as f64));
        set("ecn_marks", measured.marks.map(|marks| marks.marked as f64));
        set("acks_sent", Some(sum(&receivers, "TcpOutSegs")));
        set("duplicate_acks", measured.trace.duplicate_acks.map(|n| n as f64));
        if let Some(bursts) = measured.trace.bursts {
            set("wire_first_segments", Some(bursts.first_segments as f64));
            set("wire_burst_segments", Some(bursts.longest_segments as f64));
            set("wire_beyond_segments", Some(bursts.beyond_segments as f64));
        }
        let samples = || senders.iter().flat_map(|vm| &vm.recorded.sockets).flat_map(|s| &s.samples);
        let rto_ms: Vec<f64> = samples().map(|s| f64::from(s.rto_us) / 1e3).collect();
        let srtt_ms: Vec<f64> = samples().map(|s| f64::from(s.srtt_us) / 1e3).collect();
        set("rto_ms", quantile(&rto_ms, 0.5));
        set("rto_p90_ms", quantile(&rto_ms, 0.9));
        set("srtt_ms", quantile(&srtt_ms, 0.5));
        if let Some(runs) = measured.trace.rto_runs {
            for (name, count) in ["rto_runs_1", "rto_runs_2", "rto_runs_3", "rto_runs_4"].iter().zip(runs) {
                set(name, Some(count as f64));
            }
        }
    }
    let busy = |vms: &[&VmMeasured]| {
        let (busy, idle) = (sum(vms, "CpuBusyUs"), sum(vms, "CpuIdleUs"));
        (busy + idle > 0.0).then(|| 100.0 * busy / (busy + idle))
    };
    set("sender_cpu", busy(&senders));
    set("receiver_cpu", busy(&receivers));
    let of_domains = |name: &str| measured.domains.iter().map(|(_, counters)| counters.get(name)).sum::<f64>();
    let (busy_us, idle_us) = (of_domains("CpuBusyUs"), of_domains("CpuIdleUs"));
    set("domain_cpu", (busy_us + idle_us > 0.0).then(|| 100.0 * busy_us / (busy_us + idle_us)));
    if !measured.backlog.samples.is_empty() {
        let segments: Vec<f64> = measured.backlog.samples.iter().map(|(_, segments)| f64::from(*segments)).collect();
        set("queue_mean_segments", Some(segments.iter().sum::<f64>() / segments.len() as f64));
        set("queue_max_segments", segments.iter().copied().reduce(f64::max));
        if cell.scenario.record.sender_nic {
            let (backlog, rate_mbit) = (&measured.backlog, cell.scenario.network.rate_mbit);
            let could_bits = f64::from(rate_mbit) * 1e6 * backlog.duration().as_secs_f64();
            set("queue_delay_mean_ms", backlog.mean_wait().map(|wait| wait.as_secs_f64() * 1e3));
            set("uplink_use", Some(100.0 * backlog.sent_bytes as f64 * 8.0 / could_bits));
        }
    }
    let everyone: Vec<&VmMeasured> = measured.vms.iter().collect();
    if everyone.iter().any(|vm| vm.counters.0.contains_key("PvtcpWakeups")) {
        set("pvtcp_wakeups", Some(sum(&everyone, "PvtcpWakeups")));
        set("pvtcp_longest_us", everyone.iter().map(|vm| vm.counters.get("PvtcpWakeupMaxUs")).reduce(f64::max));
        set(
            "pvtcp_held",
            Some(["PvtcpHeldRto", "PvtcpHeldTlp", "PvtcpHeldReo"].iter().map(|name| sum(&everyone, name)).sum()),
        );
        set("pvtcp_filtered", Some(sum(&everyone, "PvtcpRttFiltered")));
        set("pvtcp_quick_acks", Some(sum(&everyone, "PvtcpJitAcks")));
    }

    let arrived = || everyone.iter().flat_map(|vm| &vm.recorded.arrived);
    if arrived().next().is_some() {
        set("longest_stall_ms", arrived().map(|transfer| transfer.longest_stall_ns).max().map(|ns| ns as f64 / 1e6));
        set("damaged", Some(arrived().filter(|transfer| transfer.is_damaged).count() as f64));
    }
    set("resets", Some(sum(&everyone, "TcpOutRsts") + sum(&everyone, "TcpEstabResets")));
    for moved in &measured.moved {
        let ms = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e3);
        set("migration_offline_ms", ms(moved.offline));
        set("migration_ms", Some(moved.migrated.total_ms as f64));
        set("migration_downtime_ms", Some(moved.migrated.downtime_ms as f64));
        set("migration_online_ms", ms(moved.online));
    }
    if let Some(agent) = &measured.agent {
        of_agent(agent, &mut set);
    }
    if measured.reloaded > 0 {
        set("pvtcp_reloads", Some(f64::from(measured.reloaded)));
    }
    set("kernel_complaints", Some(measured.complaints.len() as f64));
    let flows = flows(&measured, roles);
    let series = series(&measured);
    let remarks = measured
        .vms
        .iter()
        .flat_map(|vm| vm.recorded.errors.iter().map(|e| format!("{}: {e}", vm.name)))
        .chain(measured.trace.remarks.iter().chain(&measured.complaints).cloned())
        .collect();
    let counters = counters(&measured);
    RunRecord {
        cell: cell.labels.clone(),
        repetition,
        seed,
        duration_us: measured.duration.as_micros() as u64,
        metrics,
        counters,
        flows,
        series,
        packets: measured.trace.packets,
        remarks,
    }
}

/// What the senders with vFlood have of the goodput, in percent of an equal share.
fn share_of_clients(cell: &Cell, roles: &Roles, senders: &[&VmMeasured], receivers: &[&VmMeasured]) -> Option<f64> {
    let group = &cell.scenario.vms[roles.from];
    let clients = group.vflood.clients? as usize;
    let bytes = |of: &[&VmMeasured]| -> u64 {
        let is_of = |peer: &str| {
            let address = peer.parse::<SocketAddr>().ok().map(|peer| peer.ip());
            of.iter().any(|vm| address == Some(vm.address.into()))
        };
        let received = receivers.iter().flat_map(|vm| &vm.recorded.received);
        received.filter(|(peer, _)| is_of(peer)).map(|(_, bytes)| bytes).sum()
    };
    let (own, all) = (bytes(&senders[..clients.min(senders.len())]), bytes(senders));
    (all > 0).then(|| 100.0 * own as f64 / all as f64 * f64::from(group.count) / clients as f64)
}

/// Completion times by size, and how many flows were too slow.
fn of_requests(workload: &Workload, vms: &[VmMeasured], set: &mut impl FnMut(&str, Option<f64>)) {
    let requests: Vec<_> = vms.iter().flat_map(|vm| vm.recorded.requests.iter().map(move |r| (vm, r))).collect();
    let ended = |class: Option<SizeClass>| -> Vec<f64> {
        let own = requests.iter().filter(|(_, r)| class.is_none_or(|class| SizeClass::of(r.bytes) == class));
        own.filter_map(|(_, r)| r.took_us).map(|us| us as f64 / 1e3).collect()
    };
    let mut times = |prefix: &str, times_ms: &[f64]| {
        if times_ms.is_empty() {
            return;
        }
        set(&format!("{prefix}_mean_ms"), Some(times_ms.iter().sum::<f64>() / times_ms.len() as f64));
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
            set(&format!("{prefix}_{name}_ms"), quantile(times_ms, share));
        }
    };
    times("fct", &ended(None));
    for class in SizeClass::ALL {
        times(&format!("fct_{}", class.name()), &ended(Some(class)));
    }
    let throughput = requests.iter().filter_map(|(_, r)| Some(r.bytes as f64 * 8.0 / r.took_us?.max(1) as f64));
    set("throughput_p50_mbit", quantile(&throughput.collect::<Vec<_>>(), 0.5));
    let connected = || requests.iter().filter_map(|(_, r)| Some((r.bytes, r.connected_took_us?)));
    let times_ms: Vec<f64> = connected().map(|(_, us)| us as f64 / 1e3).collect();
    let mbit: Vec<f64> = connected().map(|(bytes, us)| bytes as f64 * 8.0 / us.max(1) as f64).collect();
    set("fct_connected_p50_ms", quantile(&times_ms, 0.5));
    set("throughput_connected_p50_mbit", quantile(&mbit, 0.5));
    let unfinished = requests.iter().filter(|(_, r)| r.took_us.is_none()).count();
    set("flows", Some((requests.len() - unfinished) as f64));
    set("flows_unfinished", Some(unfinished as f64));
    if let Workload::Poisson { deadline_ms: deadline @ 1.., .. } = workload {
        let late = |(vm, r): &&(&VmMeasured, &RequestTime)| {
            let took_us = r.took_us.unwrap_or(vm.recorded.measured_us.saturating_sub(r.start_us));
            SizeClass::of(r.bytes) == SizeClass::Small && took_us > u64::from(*deadline) * 1000
        };
        set("missed_deadlines", Some(requests.iter().filter(late).count() as f64));
    }
}

fn of_agent(agent: &Counted, set: &mut impl FnMut(&str, Option<f64>)) {
    let ports = |name: &str| agent.ports.values().filter_map(|port| port.get(name)).sum::<i64>() as f64;
    for (metric, counter) in [
        ("probes_sent", "probes_sent"),
        ("probes_marked", "probes_marked"),
        ("first_windows_scaled", "synacks_scaled"),
        ("first_windows_one_mss", "synacks_one_mss"),
        ("windows_limited", "windows_limited"),
        ("vsnoop_early_acks", "vsnoop_early_acks"),
        ("vsnoop_on_data", "vsnoop_on_data"),
        ("vsnoop_dropped", "vsnoop_dropped"),
        ("cera_windows_limited", "cera_windows_limited"),
        ("vflood_held", "vflood_held"),
        ("vflood_grants", "vflood_grants"),
        ("vflood_losses", "vflood_losses"),
        ("vflood_no_buffer", "vflood_no_buffer"),
        ("vflood_refused", "vflood_refused"),
    ] {
        set(metric, Some(ports(counter)));
    }
    set("vflood_held_mean_us", Some(ports("vflood_held_us") / ports("vflood_held")));
    set("syns_repeated", agent.agent.get("syns_resent").map(|n| *n as f64));
}

/// Counters that moved: of each VM, its port's with it; of the ports and the agent under `host`.
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

/// The lab's own name of a port's counter. Those of mechanisms other than ProBoSCIS begin with the mechanism's name.
fn of_port(name: &str) -> String {
    let mechanism = ["vsnoop_", "vflood_", "cera_"].iter().any(|prefix| name.starts_with(prefix));
    camel(if mechanism { "" } else { "Proboscis" }, name)
}

/// The lab's own name of a counter: `probes_sent` is `ProboscisProbesSent`.
fn camel(prefix: &str, name: &str) -> String {
    let word = |word: &str| word.get(..1).unwrap_or_default().to_uppercase() + word.get(1..).unwrap_or_default();
    std::iter::once(prefix.to_owned()).chain(name.split('_').map(word)).collect()
}

fn flows(measured: &Measured, roles: &Roles) -> Vec<FlowRecord> {
    let name_of = |peer: &str| {
        let address = peer.parse::<SocketAddr>().ok().map(|peer| peer.ip());
        let vm = measured.vms.iter().find(|vm| address == Some(vm.address.into()));
        vm.map_or_else(|| peer.to_owned(), |vm| vm.name.clone())
    };
    let requests = measured.vms.iter().flat_map(|vm| {
        vm.recorded.requests.iter().filter_map(|request| {
            let to = measured.vms.iter().find(|other| other.address.to_string() == request.to);
            Some(FlowRecord {
                from: vm.name.clone(),
                to: to.map_or_else(|| request.to.clone(), |to| to.name.clone()),
                bytes: request.bytes,
                start_us: request.start_us,
                duration_us: request.took_us?,
            })
        })
    });
    let receivers = measured.vms.iter().filter(|vm| vm.group == roles.to);
    receivers
        .flat_map(|vm| {
            let record = |(peer, bytes): &(String, u64)| FlowRecord {
                from: name_of(peer),
                to: vm.name.clone(),
                bytes: *bytes,
                start_us: 0,
                duration_us: vm.recorded.measured_us,
            };
            vm.recorded.received.iter().map(record).collect::<Vec<_>>()
        })
        .chain(requests)
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
        let times_ms = |times: &[(u64, u64)]| times.iter().map(|(t, us)| (*t as i64, *us as f64 / 1e3)).collect();
        push("rtt_ms", &vm.name, times_ms(&vm.recorded.pings));
        push("block_ms", &vm.name, times_ms(&vm.recorded.blocks));
        for (index, socket) in vm.recorded.sockets.iter().enumerate() {
            let subject =
                if vm.recorded.sockets.len() == 1 { vm.name.clone() } else { format!("{} flow {index}", vm.name) };
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::proto::Recorded;
    use crate::run::measured::Counters;

    #[test]
    fn pvtcp_counters_become_names() {
        let parsed: Vec<_> = parse_pvtcp_counters("wakeups:12\nheld_rto:3\nnonsense\nwakeup_max_us:x\n").collect();
        assert_eq!(parsed, [("PvtcpWakeups".to_owned(), 12), ("PvtcpHeldRto".to_owned(), 3)]);
    }

    fn metrics_of_requests(workload: &str, recorded: Recorded) -> BTreeMap<String, Option<f64>> {
        let vm = VmMeasured {
            name: "a-0".into(),
            group: "a".into(),
            address: Ipv4Addr::new(10, 0, 0, 1),
            port: "vm1".into(),
            recorded,
            counters: Counters::default(),
        };
        let workload: Workload = toml::from_str(workload).expect("a workload");
        let mut found = BTreeMap::new();
        of_requests(&workload, &[vm], &mut |name, value| {
            found.insert(name.to_owned(), value);
        });
        found
    }

    #[test]
    fn completion_times_are_by_size_and_unfinished_flows_miss_their_deadline() {
        let request = |bytes, start_us, took_us| RequestTime {
            to: "10.0.0.2".into(),
            bytes,
            start_us,
            took_us,
            connected_took_us: None,
        };
        let requests = vec![
            request(1_000, 0, Some(10_000)),
            request(2_000, 5, Some(300_000)),
            request(2_000, 5, None),
            request(2_000, 900_000, None),
            request(5_000_000, 5, Some(700_000)),
        ];
        let recorded = Recorded { measured_us: 1_000_000, requests, ..Recorded::default() };
        let found = metrics_of_requests(
            "kind = \"poisson\"\nfrom = \"a\"\nload = 0.5\nsizes = 1000\ndeadline_ms = 200",
            recorded,
        );
        let metric = |name: &str| found.get(name).copied().flatten();
        assert_eq!((metric("flows"), metric("flows_unfinished")), (Some(3.0), Some(2.0)));
        assert_eq!((metric("fct_small_mean_ms"), metric("fct_small_max_ms")), (Some(155.0), Some(300.0)));
        assert_eq!((metric("fct_medium_mean_ms"), metric("fct_large_mean_ms")), (Some(700.0), None));
        assert_eq!(metric("missed_deadlines"), Some(2.0), "the slow one, and one that has waited for longer");
        assert_eq!((metric("fct_connected_p50_ms"), metric("throughput_connected_p50_mbit")), (None, None));
    }

    #[test]
    fn transfers_have_a_time_with_the_handshake_and_one_without() {
        let request = |took_us, connected_took_us| RequestTime {
            to: "10.0.0.2".into(),
            bytes: 100_000,
            start_us: 0,
            took_us,
            connected_took_us,
        };
        let requests =
            vec![request(Some(50_000), Some(20_000)), request(Some(40_000), Some(10_000)), request(None, None)];
        let found = metrics_of_requests(
            "kind = \"transfers\"\nfrom = \"a\"\nto = \"b\"\nbytes = 100000",
            Recorded { measured_us: 1_000_000, requests, ..Recorded::default() },
        );
        let metric = |name: &str| found.get(name).copied().flatten();
        assert_eq!((metric("fct_p50_ms"), metric("throughput_p50_mbit")), (Some(45.0), Some(18.0)));
        assert_eq!((metric("fct_connected_p50_ms"), metric("throughput_connected_p50_mbit")), (Some(15.0), Some(60.0)));
    }

    #[test]
    fn the_labs_names_of_counters() {
        assert_eq!(of_port("probes_sent"), "ProboscisProbesSent");
        assert_eq!(of_port("vsnoop_early_acks"), "VsnoopEarlyAcks");
    }
}
