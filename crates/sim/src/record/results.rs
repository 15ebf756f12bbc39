//! Makes the record of a run from what was measured.

use std::collections::BTreeMap;

use evenkeel_scenario::format::{Scenario, Workload};
use evenkeel_scenario::metric::{self, LongLived, Measurements, PS_PER_US, Vm};
use evenkeel_scenario::result::{FlowRecord, RunRecord, Series};

use super::measured::Measured;
use super::wakeup;
use crate::packet::GuestId;
use crate::tcp::Info;
use crate::time::Instant;
use crate::workload::{Recording, Timed};

/// The record of a run. `labels` are the cell's.
pub fn record(
    labels: &[(String, String)],
    scenario: &Scenario,
    repetition: u32,
    seed: u64,
    mut measured: Measured,
) -> RunRecord {
    let measurements = measured.take_measurements(scenario);
    RunRecord {
        cell: labels.to_vec(),
        repetition,
        seed,
        duration_us: measured.duration.us(),
        metrics: metric::metrics(scenario, &measurements),
        counters: measurements.vms.iter().map(|vm| (vm.name.clone(), moved(vm))).collect(),
        flows: flows(scenario, &measurements),
        series: series(&measured, &measurements.vms),
        packets: wakeup::pick(&measured.recorder.packets, &measured.off),
        remarks: measured.recorder.remark().into_iter().collect(),
    }
}

/// Counters that are not 0.
fn moved(vm: &Vm) -> BTreeMap<String, i64> {
    vm.counters.iter().filter(|(_, value)| **value != 0).map(|(name, value)| (name.clone(), *value)).collect()
}

fn name(vms: &[Vm], guest: u32) -> String {
    vms.get(guest as usize).map_or_else(String::new, |vm| vm.name.clone())
}

fn flows(scenario: &Scenario, measured: &Measurements) -> Vec<FlowRecord> {
    let name = |guest| name(&measured.vms, guest);
    let long_lived = |flow: &LongLived| FlowRecord {
        from: flow.from.map_or_else(String::new, name),
        to: name(flow.to),
        bytes: flow.bytes,
        start_us: 0,
        duration_us: measured.duration_ps / PS_PER_US,
    };
    // A store's requests are far too many to write out.
    let written = |workload: &Workload| !matches!(workload, Workload::Memcached { .. });
    let of_each = scenario.workloads.values().zip(&measured.traffic);
    of_each
        .flat_map(|(workload, traffic)| {
            let ended = traffic.ended.iter().filter(|_| written(workload)).map(|flow| FlowRecord::of(flow, name));
            traffic.long_lived.iter().map(long_lived).chain(ended).collect::<Vec<_>>()
        })
        .collect()
}

/// Name of a series, and its value in a sample.
type SocketSeries = (&'static str, fn(&Info) -> f64);

const SOCKET_SERIES: [SocketSeries; 3] =
    [("srtt_ms", srtt_ms), ("rto_ms", rto_ms), ("cwnd_segments", |info| f64::from(info.cwnd))];

fn rto_ms(info: &Info) -> f64 {
    info.rto.as_ms_f64()
}

fn srtt_ms(info: &Info) -> f64 {
    f64::from(info.srtt_us) / 1e3
}

fn series(measured: &Measured, vms: &[Vm]) -> Vec<Series> {
    let mut all = Vec::new();
    let since_mark = |at: Instant| at.since(measured.mark).us() as i64;
    let mut push = |name: &str, subject: String, points: Vec<(i64, f64)>| {
        if !points.is_empty() {
            all.push(Series { name: name.to_owned(), subject, points });
        }
    };
    for (index, vm) in vms.iter().enumerate() {
        let guest = GuestId(index as u32);
        // As in the lab, a block is plotted at its request, a ping at its reply.
        let own = |times: fn(&Recording) -> &[Timed], at: fn(&Timed) -> Instant| -> Vec<(i64, f64)> {
            let all = measured.traffic.iter().flat_map(|traffic| times(&traffic.recording));
            let own = all.filter(|t| t.guest == guest);
            own.map(|t| (since_mark(at(t)), t.took.as_ms_f64())).collect()
        };
        push("rtt_ms", vm.name.clone(), own(|recording| &recording.pings, |t| t.start + t.took));
        push("block_ms", vm.name.clone(), own(|recording| &recording.blocks, |t| t.start));
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
        let subject = name(vms, index as u32);
        push("share_segments", subject, points.iter().map(|(t, n)| (since_mark(*t), f64::from(*n))).collect());
    }
    let meas_rtt = measured.recorder.meas_rtt.iter().map(|(t, us)| (since_mark(*t), f64::from(*us) / 1e3)).collect();
    push("meas_rtt_ms", name(vms, 0), meas_rtt);
    all
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::format::Record;
    use evenkeel_scenario::metric::Metric;
    use evenkeel_scenario::sweep::run_seed;

    use super::super::measured::{Traffic, VmMeasured};
    use super::super::recorder::{Plan, Recorder, Traits};
    use super::*;
    use crate::time::Duration;
    use crate::workload::{FlowDone, FlowId, FlowUnderWay, Side};

    fn scenario(workload: &str) -> Scenario {
        let text = format!(
            "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 1000\n[network]\nrate_mbit = 100\n[vms.a]\n\
             count = 2\n[vms.b]\n[workloads.w]\nfrom = \"a\"\nto = \"b\"\n{workload}"
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
        let plan = Plan {
            record,
            workloads: vec![Traits { sockets: true, data_side: Side::Opener }],
            first_sender: ends.0,
            waiting: 0..0,
            shown: None,
        };
        let mut recorder = Recorder::new(plan);
        let mark = Instant::START + Duration::from_ms(500);
        recorder.opened(FlowId(0), 0, [ends.0, ends.1]);
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
            traffic: vec![Traffic { long_lived: vec![(ends.0, ends.1, 25_000_000)], ..Traffic::default() }],
            recorder,
            off: Vec::new(),
        }
    }

    #[test]
    fn metrics_mean_what_the_labs_mean() {
        let labels = [("x".to_owned(), "1".to_owned())];
        let record = record(&labels, &scenario("kind = \"bulk\""), 1, run_seed(1, 1), measured());
        for (metric, value) in [
            (Metric::GoodputMbit, 100.0),
            (Metric::TimeS, 2.0),
            (Metric::Timeouts, 4.0),
            (Metric::TimeoutsPerS, 2.0),
            (Metric::Retransmitted, 10.0),
            (Metric::NeedlessRetransmissions, 6.0),
            (Metric::NeedlessPerS, 3.0),
            (Metric::SegmentsSent, 100.0),
            (Metric::AcksSent, 40.0),
            (Metric::DetectedShare, 50.0),
            (Metric::DuplicateAcks, 3.0),
            (Metric::PortDrops, 4.0),
            (Metric::EcnMarks, 11.0),
            (Metric::RtoMs, 210.0),
            (Metric::RtoP90Ms, 250.0),
            (Metric::SrttMs, 1.5),
            (Metric::QueueMeanSegments, 10.0),
            (Metric::QueueMaxSegments, 20.0),
            (Metric::PvtcpWakeups, 5.0),
            (Metric::PvtcpLongestUs, 60_000.0),
            (Metric::PvtcpHeld, 2.0),
            (Metric::RtoRuns1, 0.0),
        ] {
            assert_eq!(record.metrics.get(metric.name()), Some(&value), "{metric}");
        }
        assert!(
            !record.metrics.contains_key(Metric::Blocks.name())
                && !record.metrics.contains_key(Metric::SenderCpu.name())
        );
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
        measured.traffic[0].recording.flows =
            vec![flow(100_000, 1), flow(2000, 3), flow(100_001, 20), flow(10_000_000, 400)];
        let under_way = |bytes, ms| FlowUnderWay { bytes, waited: Duration::from_ms(ms) };
        measured.traffic[0].recording.unfinished = vec![under_way(2000, 1), under_way(200_000, 9)];
        let record = record(
            &[],
            &scenario("kind = \"poisson\"\nload = 0.5\nsizes = \"websearch\"\ndeadline_ms = 2"),
            0,
            1,
            measured,
        );
        for (metric, value) in [
            (Metric::Flows, 4.0),
            (Metric::FlowsUnfinished, 2.0),
            (Metric::MissedDeadlines, 1.0),
            (Metric::FctMeanMs, 106.0),
            (Metric::FctP50Ms, 11.5),
            (Metric::FctMaxMs, 400.0),
            (Metric::FctSmallMeanMs, 2.0),
            (Metric::FctSmallP50Ms, 2.0),
            (Metric::FctSmallMaxMs, 3.0),
            (Metric::FctMediumP999Ms, 20.0),
            (Metric::FctLargeP90Ms, 400.0),
        ] {
            assert_eq!(record.metrics.get(metric.name()), Some(&value), "{metric}");
        }
        assert_eq!(record.flows[1].start_us, 1000);
        assert!(!record.metrics.contains_key(Metric::FctConnectedP50Ms.name()));
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
        measured.traffic[0].recording.flows = vec![flow(50, 20), flow(20, 10), flow(25, 16)];
        let record = record(&[], &scenario("kind = \"transfers\"\nbytes = 100000"), 0, 1, measured);
        for (metric, value) in [
            (Metric::FctP50Ms, 25.0),
            (Metric::FctConnectedP50Ms, 16.0),
            (Metric::ThroughputP50Mbit, 32.0),
            (Metric::ThroughputConnectedP50Mbit, 50.0),
        ] {
            assert_eq!(record.metrics.get(metric.name()), Some(&value), "{metric}");
        }
    }

    #[test]
    fn a_ping_has_no_tcp() {
        let mut measured = measured();
        let (guest, start) = (GuestId(0), measured.mark);
        measured.traffic[0].recording.pings = vec![Timed { guest, start, took: Duration::from_ms(4) }];
        let record = record(&[], &scenario("kind = \"ping\"\ninterval_ms = 10"), 0, 1, measured);
        assert_eq!(record.metrics[Metric::RttP50Ms.name()], 4.0);
        assert!(
            !record.metrics.contains_key(Metric::Timeouts.name())
                && !record.metrics.contains_key(Metric::GoodputMbit.name())
        );
        assert_eq!(record.series[0].points, [(4000, 4.0)]);
    }
}
