//! From what was measured to the record of a run.

use std::collections::BTreeMap;

use evenkeel_scenario::format::{Scenario, Workload};
use evenkeel_scenario::metric::SizeClass;
use evenkeel_scenario::result::{FlowRecord, RunRecord, Series};
use evenkeel_scenario::stats::quantile;
use evenkeel_settings::Mode;

use super::recorder::Recorder;
use super::wakeup;
use crate::packet::GuestId;
use crate::tcp::Info;
use crate::time::{Duration, Instant};
use crate::workload::{Recording, Timed};

/// What a VM counted in the measured time.
#[derive(Clone, Debug)]
pub struct VmMeasured {
    /// As in `sender-0`.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its counters' increase.
    pub counters: BTreeMap<String, i64>,
}

/// All that was measured in a run.
#[derive(Debug)]
pub struct Measured {
    /// When the measured time began.
    pub mark: Instant,
    /// Measured time.
    pub duration: Duration,
    /// By number of the guest.
    pub vms: Vec<VmMeasured>,
    /// Packets dropped at ports: of the network, of network cards, of VMs.
    pub dropped: u64,
    /// Packets marked at ports.
    pub marked: u64,
    /// Epochs at whose end CERA cut windows.
    pub cuts: u64,
    /// Bytes on the wire that the first sender's network card sent.
    pub uplink_bytes: u64,
    /// Long-lived flows: sender, receiver, and the bytes that the receiver read.
    pub transfers: Vec<(GuestId, GuestId, u64)>,
    /// What the receivers of background flows read.
    pub background_bytes: u64,
    /// What the processes recorded.
    pub recording: Recording,
    /// Series and packets.
    pub recorder: Recorder,
    /// When the VM whose wake-up is shown was off its core.
    pub off: Vec<(Instant, Instant)>,
}

/// Metrics by name; those without a finite value are left out.
#[derive(Debug, Default)]
struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn set(&mut self, name: &str, value: Option<f64>) {
        debug_assert!(evenkeel_scenario::metric::find(name).is_some(), "{name} is not in the list of metrics");
        if let Some(value) = value.filter(|v| v.is_finite()) {
            self.0.insert(name.to_owned(), value);
        }
    }
}

/// The record of a run. `labels` are the cell's.
pub fn record(
    labels: &[(String, String)],
    scenario: &Scenario,
    repetition: u32,
    seed: u64,
    mut measured: Measured,
) -> RunRecord {
    let mut metrics = Metrics::default();
    metrics.set("time_s", Some(measured.duration.as_s_f64()));
    of_processes(&mut metrics, scenario, &measured);
    if !matches!(scenario.workload, Workload::Ping { .. }) {
        of_tcp(&mut metrics, scenario, &mut measured);
    }
    of_machines(&mut metrics, scenario, &measured);
    of_hosts(&mut metrics, scenario, &measured);
    of_vflood(&mut metrics, &measured);
    let packets = wakeup::pick(&measured.recorder.packets, &measured.off);
    RunRecord {
        cell: labels.to_vec(),
        repetition,
        seed,
        duration_us: measured.duration.us(),
        metrics: metrics.0,
        counters: counters(&measured),
        flows: flows(scenario, &measured),
        series: series(&measured),
        packets,
        remarks: measured.recorder.remark().into_iter().collect(),
    }
}

/// VMs whose data it is: where requests are as good as responses, or all send to each other, these are both groups.
fn group<'a>(measured: &'a Measured, scenario: &Scenario, sends: bool) -> Vec<&'a VmMeasured> {
    let (from, to) = scenario.workload.roles();
    let both = matches!(scenario.workload, Workload::RequestResponse { .. } | Workload::ThreeTier { .. });
    let wanted = if sends { from } else { to };
    measured.vms.iter().filter(|vm| both || vm.group == wanted).collect()
}

fn sum(vms: &[&VmMeasured], counter: &str) -> f64 {
    vms.iter().map(|vm| vm.counters.get(counter).copied().unwrap_or(0)).sum::<i64>() as f64
}

fn milliseconds(times: &[Timed]) -> Vec<f64> {
    times.iter().map(|t| t.took.as_ms_f64()).collect()
}

fn of_processes(metrics: &mut Metrics, scenario: &Scenario, measured: &Measured) {
    let recording = &measured.recording;
    let blocks = milliseconds(&recording.blocks);
    if !blocks.is_empty() {
        metrics.set("blocks", Some(blocks.len() as f64));
        metrics.set("block_p50_ms", quantile(&blocks, 0.5));
        metrics.set("block_p99_ms", quantile(&blocks, 0.99));
    }
    let pings = milliseconds(&recording.pings);
    if !pings.is_empty() {
        metrics.set("rtt_p50_ms", quantile(&pings, 0.5));
        metrics.set("rtt_p90_ms", quantile(&pings, 0.9));
        metrics.set("rtt_mean_ms", Some(pings.iter().sum::<f64>() / pings.len() as f64));
        metrics.set("rtt_max_ms", pings.iter().copied().reduce(f64::max));
    }
    if matches!(
        scenario.workload,
        Workload::Poisson { .. }
            | Workload::RequestResponse { .. }
            | Workload::Memcached { .. }
            | Workload::Transfers { .. }
            | Workload::ThreeTier { .. }
    ) {
        if let Workload::ThreeTier { .. } = scenario.workload {
            metrics.set("operations_per_s", Some(recording.flows.len() as f64 / measured.duration.as_s_f64()));
        }
        metrics.set("flows", Some(recording.flows.len() as f64));
        metrics.set("flows_unfinished", Some(recording.flows_unfinished as f64));
        metrics.set("missed_deadlines", recording.missed_deadlines.map(|n| n as f64));
        let times = |class: Option<SizeClass>| -> Vec<f64> {
            let flows = recording.flows.iter().filter(|f| class.is_none_or(|class| SizeClass::of(f.bytes) == class));
            flows.map(|f| f.took.as_ms_f64()).collect()
        };
        throughputs(metrics, scenario, measured);
        completion_times(metrics, "fct", times(None));
        for class in SizeClass::ALL {
            completion_times(metrics, &format!("fct_{}", class.name()), times(Some(class)));
        }
    }
}

fn throughputs(metrics: &mut Metrics, scenario: &Scenario, measured: &Measured) {
    let (_, to) = scenario.workload.roles();
    let group = scenario.vms.get(to).filter(|group| group.far_count > 0);
    let mbit = |far: Option<bool>| -> Vec<f64> {
        let flows = measured.recording.flows.iter().filter(|flow| {
            let is_far = || group.is_some_and(|group| group.is_far(&name(measured, flow.to)));
            far.is_none_or(|far| far == is_far())
        });
        flows.map(|flow| flow.bytes as f64 * 8.0 / 1e6 / flow.took.as_s_f64()).collect()
    };
    metrics.set("throughput_p50_mbit", quantile(&mbit(None), 0.5));
    let connected = || measured.recording.flows.iter().filter_map(|flow| Some((flow.bytes, flow.connected_took?)));
    let times_ms: Vec<f64> = connected().map(|(_, took)| took.as_ms_f64()).collect();
    let connected_mbit: Vec<f64> =
        connected().map(|(bytes, took)| bytes as f64 * 8.0 / 1e6 / took.as_s_f64()).collect();
    metrics.set("fct_connected_p50_ms", quantile(&times_ms, 0.5));
    metrics.set("throughput_connected_p50_mbit", quantile(&connected_mbit, 0.5));
    if group.is_some() {
        metrics.set("throughput_near_p50_mbit", quantile(&mbit(Some(false)), 0.5));
        metrics.set("throughput_far_p50_mbit", quantile(&mbit(Some(true)), 0.5));
    }
}

fn completion_times(metrics: &mut Metrics, prefix: &str, mut times_ms: Vec<f64>) {
    if times_ms.is_empty() {
        return;
    }
    // Sorted once, so that quantiles find their work done.
    times_ms.sort_unstable_by(f64::total_cmp);
    metrics.set(&format!("{prefix}_mean_ms"), Some(times_ms.iter().sum::<f64>() / times_ms.len() as f64));
    for (name, q) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
        metrics.set(&format!("{prefix}_{name}_ms"), quantile(&times_ms, q));
    }
}

fn of_tcp(metrics: &mut Metrics, scenario: &Scenario, measured: &mut Measured) {
    let runs = measured.recorder.rto_runs();
    let (senders, receivers) = (group(measured, scenario, true), group(measured, scenario, false));
    let seconds = measured.duration.as_s_f64();
    let sent = |counter: &str| sum(&senders, counter);
    let (timeouts, probes) = (sent("TcpExtTCPTimeouts"), sent("TcpExtTCPLossProbes"));
    let undone_timeouts = sent("TcpExtTCPLossUndo") + sent("TcpExtTCPDSACKUndo");
    let retransmitted = sent("TcpRetransSegs");
    let needless = (retransmitted - measured.dropped as f64).max(0.0);
    metrics.set("goodput_mbit", Some(sum(&receivers, "SimDeliveredBytes") * 8.0 / 1e6 / seconds));
    let has_background = matches!(
        scenario.workload,
        Workload::Poisson { background_flows: 1.., .. } | Workload::Poisson { background_mesh_flows: 1.., .. }
    );
    let background_mbit = measured.background_bytes as f64 * 8.0 / 1e6 / seconds;
    metrics.set("background_goodput_mbit", has_background.then_some(background_mbit));
    metrics.set("timeouts", Some(timeouts));
    metrics.set("timeouts_per_s", Some(timeouts / seconds));
    metrics.set("tail_loss_probes", Some(probes));
    metrics.set("tail_loss_probes_per_s", Some(probes / seconds));
    metrics.set("tlp_recoveries", Some(sent("TcpExtTCPLossProbeRecovery")));
    metrics.set("undone", Some(undone_timeouts));
    metrics.set("spurious_frto", Some(sent("TcpExtTCPSpuriousRTOs")));
    // Linux undoes what F-RTO finds; rate halving does not.
    let detected = undone_timeouts.max(sent("TcpExtTCPSpuriousRTOs"));
    metrics.set("detected_share", (timeouts > 0.0).then(|| (100.0 * detected / timeouts).min(100.0)));
    metrics.set("segments_sent", Some(sent("TcpOutSegs") + retransmitted));
    metrics.set("retransmitted", Some(retransmitted));
    metrics.set("needless_retransmissions", Some(needless));
    metrics.set("needless_per_s", Some(needless / seconds));
    metrics.set("dsacks", Some(sent("TcpExtTCPDSACKRecv")));
    metrics.set("port_drops", Some(measured.dropped as f64));
    metrics.set("ecn_marks", Some(measured.marked as f64));
    metrics.set("acks_sent", Some(sum(&receivers, "TcpOutSegs")));
    if let Some(runs) = runs {
        let first = senders.first().and_then(|vm| vm.counters.get("SimDupAcksReceived"));
        metrics.set("duplicate_acks", first.map(|n| *n as f64));
        for (name, count) in ["rto_runs_1", "rto_runs_2", "rto_runs_3", "rto_runs_4"].iter().zip(runs) {
            metrics.set(name, Some(count as f64));
        }
    }
    let samples = |value: fn(&Info) -> f64| -> Vec<f64> {
        measured.recorder.sockets.iter().flat_map(|s| &s.samples).map(|(_, info)| value(info)).collect()
    };
    let rto_ms = samples(rto_ms);
    metrics.set("rto_ms", quantile(&rto_ms, 0.5));
    metrics.set("rto_p90_ms", quantile(&rto_ms, 0.9));
    metrics.set("srtt_ms", quantile(&samples(srtt_ms), 0.5));
}

fn rto_ms(info: &Info) -> f64 {
    info.rto.as_ms_f64()
}

fn srtt_ms(info: &Info) -> f64 {
    f64::from(info.srtt_us) / 1e3
}

fn of_machines(metrics: &mut Metrics, scenario: &Scenario, measured: &Measured) {
    let (from, to) = scenario.workload.roles();
    for (name, group) in [("sender_cpu", from), ("receiver_cpu", to)] {
        let vms: Vec<&VmMeasured> = measured.vms.iter().filter(|vm| vm.group == group).collect();
        let costs = scenario.vms.get(group).is_some_and(|g| g.packet_cost_ns > 0);
        let (busy, idle) = (sum(&vms, "CpuBusyUs"), sum(&vms, "CpuIdleUs"));
        metrics.set(name, (costs && busy + idle > 0.0).then(|| 100.0 * busy / (busy + idle)));
    }
    let queue: Vec<f64> = measured.recorder.queue.iter().map(|(_, segments)| f64::from(*segments)).collect();
    if !queue.is_empty() {
        metrics.set("queue_mean_segments", Some(queue.iter().sum::<f64>() / queue.len() as f64));
        metrics.set("queue_max_segments", queue.iter().copied().reduce(f64::max));
    }
    let everyone: Vec<&VmMeasured> = measured.vms.iter().collect();
    if everyone.iter().any(|vm| vm.counters.contains_key("PvtcpWakeups")) {
        let longest = everyone.iter().filter_map(|vm| vm.counters.get("PvtcpWakeupMaxUs")).max();
        let held = ["PvtcpHeldRto", "PvtcpHeldTlp", "PvtcpHeldReo"].iter().map(|name| sum(&everyone, name)).sum();
        metrics.set("pvtcp_wakeups", Some(sum(&everyone, "PvtcpWakeups")));
        metrics.set("pvtcp_longest_us", longest.map(|us| *us as f64));
        metrics.set("pvtcp_held", Some(held));
        metrics.set("pvtcp_filtered", Some(sum(&everyone, "PvtcpRttFiltered")));
        metrics.set("pvtcp_quick_acks", Some(sum(&everyone, "PvtcpJitAcks")));
    }
    if everyone.iter().any(|vm| vm.counters.contains_key("ProboscisProbesSent")) {
        for (metric, counter) in [
            ("probes_sent", "ProboscisProbesSent"),
            ("probes_marked", "ProboscisProbesMarked"),
            ("syns_repeated", "ProboscisSynsRepeated"),
            ("first_windows_scaled", "ProboscisSynAcksScaled"),
            ("first_windows_one_mss", "ProboscisSynAcksOneMss"),
            ("windows_limited", "ProboscisWindowsLimited"),
        ] {
            metrics.set(metric, Some(sum(&everyone, counter)));
        }
    }
}

/// CERA, and the queue that it keeps short.
fn of_hosts(metrics: &mut Metrics, scenario: &Scenario, measured: &Measured) {
    let everyone: Vec<&VmMeasured> = measured.vms.iter().collect();
    for (prefix, waits, has_median) in
        [("queue_delay", &measured.recorder.waits, true), ("queue_delay_first", &measured.recorder.first_waits, false)]
    {
        let mut waits_ms: Vec<f64> = waits.iter().map(|wait| wait.as_ms_f64()).collect();
        if waits_ms.is_empty() {
            continue;
        }
        waits_ms.sort_unstable_by(f64::total_cmp);
        metrics.set(&format!("{prefix}_mean_ms"), Some(waits_ms.iter().sum::<f64>() / waits_ms.len() as f64));
        if has_median {
            metrics.set(&format!("{prefix}_p50_ms"), quantile(&waits_ms, 0.5));
        }
        metrics.set(&format!("{prefix}_p99_ms"), quantile(&waits_ms, 0.99));
    }
    if scenario.record.sender_nic {
        let bits = f64::from(scenario.network.host_rate_mbit()) * 1e6 * measured.duration.as_s_f64();
        metrics.set("uplink_use", Some(100.0 * measured.uplink_bytes as f64 * 8.0 / bits));
    }
    if scenario.vms.values().any(|group| group.cera.mode() != Mode::Off) {
        metrics.set("cera_cuts", Some(measured.cuts as f64));
        metrics.set("cera_windows_set", Some(sum(&everyone, "CeraWindowsSet")));
        metrics.set("cera_windows_limited", Some(sum(&everyone, "CeraWindowsLimited")));
        metrics.set("weight_error", weight_error(scenario, measured));
    }
}

/// How far the VM that is farthest off its weight is off it, in percent of its share.
fn weight_error(scenario: &Scenario, measured: &Measured) -> Option<f64> {
    let mut bytes: BTreeMap<GuestId, u64> = BTreeMap::new();
    for (from, _, sent) in &measured.transfers {
        *bytes.entry(*from).or_default() += sent;
    }
    let (group, _) = scenario.workload.roles();
    let cera = &scenario.vms.get(group)?.cera;
    let weight = |guest: GuestId| f64::from(cera.weight_of(guest.0).get());
    let all_bytes = bytes.values().sum::<u64>() as f64;
    let all_weights: f64 = bytes.keys().map(|guest| weight(*guest)).sum();
    let error = |(guest, sent): (&GuestId, &u64)| {
        let share = weight(*guest) / all_weights;
        100.0 * (*sent as f64 / all_bytes - share).abs() / share
    };
    bytes.iter().map(error).reduce(f64::max)
}

fn of_vflood(metrics: &mut Metrics, measured: &Measured) {
    let everyone: Vec<&VmMeasured> = measured.vms.iter().collect();
    let count = |metrics: &mut Metrics, names: &[(&str, &str)]| {
        for (metric, counter) in names {
            metrics.set(metric, Some(sum(&everyone, counter)));
        }
    };
    if everyone.iter().any(|vm| vm.counters.contains_key("VfloodHeld")) {
        count(
            metrics,
            &[
                ("vflood_held", "VfloodHeld"),
                ("vflood_grants", "VfloodGrants"),
                ("vflood_losses", "VfloodLosses"),
                ("vflood_no_buffer", "VfloodNoBuffer"),
                ("vflood_refused", "VfloodRefused"),
            ],
        );
        metrics.set("vflood_held_mean_us", Some(sum(&everyone, "VfloodHeldUs") / sum(&everyone, "VfloodHeld")));
        let us = measured.duration.as_s_f64() * 1e6;
        metrics.set("vflood_low_rtt_segments", Some(sum(&everyone, "VfloodLowRttSegmentUs") / us));
        metrics.set("vflood_high_rtt_segments", Some(sum(&everyone, "VfloodHighRttSegmentUs") / us));
    }
    if everyone.iter().any(|vm| vm.counters.contains_key("VsnoopEarlyAcks")) {
        count(
            metrics,
            &[
                ("vsnoop_early_acks", "VsnoopEarlyAcks"),
                ("vsnoop_on_data", "VsnoopOnData"),
                ("vsnoop_dropped", "VsnoopDropped"),
            ],
        );
    }
}

fn counters(measured: &Measured) -> BTreeMap<String, BTreeMap<String, i64>> {
    let moved = |vm: &VmMeasured| vm.counters.iter().filter(|(_, v)| **v != 0).map(|(k, v)| (k.clone(), *v)).collect();
    measured.vms.iter().map(|vm| (vm.name.clone(), moved(vm))).collect()
}

fn name(measured: &Measured, guest: GuestId) -> String {
    measured.vms.get(guest.0 as usize).map_or_else(String::new, |vm| vm.name.clone())
}

fn flows(scenario: &Scenario, measured: &Measured) -> Vec<FlowRecord> {
    let name = |guest| name(measured, guest);
    let long_lived = measured.transfers.iter().map(|(from, to, bytes)| FlowRecord {
        from: name(*from),
        to: name(*to),
        bytes: *bytes,
        start_us: 0,
        duration_us: measured.duration.us(),
    });
    // A store's requests are far too many to be written down.
    let written = !matches!(scenario.workload, Workload::Memcached { .. });
    let ended = measured.recording.flows.iter().filter(|_| written).map(|flow| FlowRecord {
        from: name(flow.from),
        to: name(flow.to),
        bytes: flow.bytes,
        start_us: flow.start.since(measured.mark).us(),
        duration_us: flow.took.us(),
    });
    long_lived.chain(ended).collect()
}

/// Name of a series, and its value in a sample.
type SocketSeries = (&'static str, fn(&Info) -> f64);

const SOCKET_SERIES: [SocketSeries; 3] =
    [("srtt_ms", srtt_ms), ("rto_ms", rto_ms), ("cwnd_segments", |info| f64::from(info.cwnd))];

fn series(measured: &Measured) -> Vec<Series> {
    let mut all = Vec::new();
    let since_mark = |at: Instant| at.since(measured.mark).us() as i64;
    let mut push = |name: &str, subject: String, points: Vec<(i64, f64)>| {
        if !points.is_empty() {
            all.push(Series { name: name.to_owned(), subject, points });
        }
    };
    for (index, vm) in measured.vms.iter().enumerate() {
        let guest = GuestId(index as u32);
        // As in the lab: a block stands at its request, a ping at its reply.
        let own = |times: &[Timed], at: fn(&Timed) -> Instant| -> Vec<(i64, f64)> {
            let own = times.iter().filter(|t| t.guest == guest);
            own.map(|t| (since_mark(at(t)), t.took.as_ms_f64())).collect()
        };
        push("rtt_ms", vm.name.clone(), own(&measured.recording.pings, |t| t.start + t.took));
        push("block_ms", vm.name.clone(), own(&measured.recording.blocks, |t| t.start));
        let sockets: Vec<_> = measured.recorder.sockets.iter().filter(|s| s.guest == guest).collect();
        for (index, socket) in sockets.iter().enumerate() {
            let subject = if sockets.len() == 1 { vm.name.clone() } else { format!("{} flow {index}", vm.name) };
            for (name, value) in SOCKET_SERIES {
                let points = socket.samples.iter().map(|(at, info)| (since_mark(*at), value(info))).collect();
                push(name, subject.clone(), points);
            }
        }
    }
    let queue = &measured.recorder.queue;
    push(
        "queue_segments",
        "bottleneck".to_owned(),
        queue.iter().map(|(t, n)| (since_mark(*t), f64::from(*n))).collect(),
    );
    for (index, points) in measured.recorder.shares.iter().enumerate() {
        let subject = name(measured, GuestId(index as u32));
        push("share_segments", subject, points.iter().map(|(t, n)| (since_mark(*t), f64::from(*n))).collect());
    }
    let meas_rtt = measured.recorder.meas_rtt.iter().map(|(t, us)| (since_mark(*t), f64::from(*us) / 1e3)).collect();
    push("meas_rtt_ms", name(measured, GuestId(0)), meas_rtt);
    all
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::format::Record;
    use evenkeel_scenario::sweep::run_seed;

    use super::super::recorder::Plan;
    use super::*;
    use crate::workload::{FlowDone, FlowId, Side};

    fn scenario(workload: &str) -> Scenario {
        let text = format!(
            "schema = 1\nname = \"t\"\ntitle = \"t\"\nduration_ms = 1000\n[network]\nrate_mbit = 100\n[vms.a]\n\
             count = 2\n[vms.b]\n[workload]\nfrom = \"a\"\nto = \"b\"\n{workload}"
        );
        Scenario::from_str(&text, "t.toml").unwrap_or_else(|e| panic!("{e}")).scenario
    }

    fn measured() -> Measured {
        let vm = |name: &str, group: &str, counters: &[(&str, i64)]| VmMeasured {
            name: name.to_owned(),
            group: group.to_owned(),
            counters: counters.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect(),
        };
        let record = Record { capture: true, tcp_info_period_ms: 10, queue_period_ms: 10, ..Record::default() };
        let ends = (GuestId(0), GuestId(2));
        let plan = Plan { record, sockets: true, data_side: Side::Opener, first_sender: ends.0 };
        let mut recorder = Recorder::new(plan);
        let mark = Instant::START + Duration::from_ms(500);
        recorder.opened(FlowId(0), [ends.0, ends.1]);
        recorder.mark(mark);
        let info = |rto, srtt_us| Info {
            srtt_us,
            rttvar_us: 0,
            rto: Duration::from_ms(rto),
            cwnd: 7,
            ssthresh: 9,
            in_flight: 1,
        };
        for (step, rto) in [(0_u64, 200), (10, 210), (20, 260)] {
            recorder.socket(mark + Duration::from_ms(step), GuestId(0), FlowId(0), info(rto, 1500));
            recorder.queue(mark + Duration::from_ms(step), step as u32);
        }
        Measured {
            mark,
            duration: Duration::from_s(2),
            vms: vec![
                vm(
                    "a-0",
                    "a",
                    &[
                        ("TcpRetransSegs", 7),
                        ("TcpOutSegs", 90),
                        ("TcpExtTCPTimeouts", 4),
                        ("SimDupAcksReceived", 3),
                        ("PvtcpWakeups", 5),
                        ("PvtcpWakeupMaxUs", 60_000),
                        ("PvtcpHeldRto", 2),
                    ],
                ),
                vm("a-1", "a", &[("TcpRetransSegs", 3), ("TcpExtTCPSpuriousRTOs", 2), ("TcpExtTCPLossUndo", 1)]),
                vm("b-0", "b", &[("TcpOutSegs", 40), ("SimDeliveredBytes", 25_000_000), ("TcpRetransSegs", 1000)]),
            ],
            dropped: 4,
            marked: 11,
            cuts: 0,
            uplink_bytes: 0,
            transfers: vec![(ends.0, ends.1, 25_000_000)],
            background_bytes: 0,
            recording: Recording::default(),
            recorder,
            off: Vec::new(),
        }
    }

    #[test]
    fn metrics_mean_what_the_labs_mean() {
        let labels = [("x".to_owned(), "1".to_owned())];
        let record = record(&labels, &scenario("kind = \"bulk\""), 1, run_seed(1, 1), measured());
        for (name, value) in [
            ("goodput_mbit", 100.0),
            ("time_s", 2.0),
            ("timeouts", 4.0),
            ("timeouts_per_s", 2.0),
            ("retransmitted", 10.0),
            ("needless_retransmissions", 6.0),
            ("needless_per_s", 3.0),
            ("segments_sent", 100.0),
            ("acks_sent", 40.0),
            ("detected_share", 50.0),
            ("duplicate_acks", 3.0),
            ("port_drops", 4.0),
            ("ecn_marks", 11.0),
            ("rto_ms", 210.0),
            ("rto_p90_ms", 250.0),
            ("srtt_ms", 1.5),
            ("queue_mean_segments", 10.0),
            ("queue_max_segments", 20.0),
            ("pvtcp_wakeups", 5.0),
            ("pvtcp_longest_us", 60_000.0),
            ("pvtcp_held", 2.0),
            ("rto_runs_1", 0.0),
        ] {
            assert_eq!(record.metrics.get(name), Some(&value), "{name}");
        }
        assert!(!record.metrics.contains_key("blocks") && !record.metrics.contains_key("sender_cpu"));
        assert_eq!(record.flows.len(), 1);
        assert_eq!((record.flows[0].from.as_str(), record.flows[0].to.as_str()), ("a-0", "b-0"));
        let names: Vec<&str> = record.series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["srtt_ms", "rto_ms", "cwnd_segments", "queue_segments"]);
        assert_eq!(record.series[1].points, [(0, 200.0), (10_000, 210.0), (20_000, 260.0)]);
    }

    #[test]
    fn completion_times_are_told_by_size() {
        let mut measured = measured();
        let flow = |bytes, ms| FlowDone {
            from: GuestId(1),
            to: GuestId(2),
            bytes,
            start: measured.mark + Duration::from_ms(ms),
            took: Duration::from_ms(ms),
            connected_took: None,
        };
        measured.recording.flows = vec![flow(100_000, 1), flow(2000, 3), flow(100_001, 20), flow(10_000_000, 400)];
        measured.recording.flows_unfinished = 2;
        measured.recording.missed_deadlines = Some(1);
        let record = record(
            &[],
            &scenario("kind = \"poisson\"\nload = 0.5\nsizes = \"websearch\"\ndeadline_ms = 2"),
            0,
            1,
            measured,
        );
        for (name, value) in [
            ("flows", 4.0),
            ("flows_unfinished", 2.0),
            ("missed_deadlines", 1.0),
            ("fct_mean_ms", 106.0),
            ("fct_p50_ms", 11.5),
            ("fct_max_ms", 400.0),
            ("fct_small_mean_ms", 2.0),
            ("fct_small_p50_ms", 2.0),
            ("fct_small_max_ms", 3.0),
            ("fct_medium_p999_ms", 20.0),
            ("fct_large_p90_ms", 400.0),
        ] {
            assert_eq!(record.metrics.get(name), Some(&value), "{name}");
        }
        assert_eq!(record.flows[1].start_us, 1000);
        assert!(!record.metrics.contains_key("fct_connected_p50_ms"));
    }

    #[test]
    fn transfers_have_a_time_with_the_handshake_and_one_without() {
        let mut measured = measured();
        let flow = |ms, connected_ms| FlowDone {
            from: GuestId(0),
            to: GuestId(2),
            bytes: 100_000,
            start: measured.mark,
            took: Duration::from_ms(ms),
            connected_took: Some(Duration::from_ms(connected_ms)),
        };
        measured.recording.flows = vec![flow(50, 20), flow(20, 10), flow(25, 16)];
        let record = record(&[], &scenario("kind = \"transfers\"\nbytes = 100000"), 0, 1, measured);
        for (name, value) in [
            ("fct_p50_ms", 25.0),
            ("fct_connected_p50_ms", 16.0),
            ("throughput_p50_mbit", 32.0),
            ("throughput_connected_p50_mbit", 50.0),
        ] {
            assert_eq!(record.metrics.get(name), Some(&value), "{name}");
        }
    }

    #[test]
    fn a_ping_has_no_tcp() {
        let mut measured = measured();
        let (guest, start) = (GuestId(0), measured.mark);
        measured.recording.pings = vec![Timed { guest, start, took: Duration::from_ms(4) }];
        let record = record(&[], &scenario("kind = \"ping\"\ninterval_ms = 10"), 0, 1, measured);
        assert_eq!(record.metrics["rtt_p50_ms"], 4.0);
        assert!(!record.metrics.contains_key("timeouts") && !record.metrics.contains_key("goodput_mbit"));
        assert_eq!(record.series[0].points, [(4000, 4.0)]);
    }
}
