//! Formulas by cases small enough for the head.

use super::*;
use crate::metric::measurements::{
    Arrival, Bursts, CpuTime, Ended, LongLived, Migration, Read, SocketSample, Trace, Traffic, Unfinished, Uplink,
    Waits,
};

const PS_PER_MS: u64 = 1_000_000_000;
const BULK: &str = "kind = \"bulk\"\nfrom = \"a\"\nto = \"b\"";
const PING: &str = "kind = \"ping\"\nfrom = \"a\"\nto = \"b\"\ninterval_ms = 10";
const ASKED: &str =
    "kind = \"request-response\"\nfrom = \"a\"\nto = \"b\"\nrequest_bytes = 100\nresponse_bytes = 100000";
const POISSON: &str = "kind = \"poisson\"\nfrom = \"a\"\nto = \"b\"\nload = 0.5\nsizes = 1000";

fn scenario(head: &str, groups: &str, workload: &str) -> Scenario {
    let text = format!(
        "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 2000\n{head}[network]\nrate_mbit = 100\n{groups}\n\
         [workloads.w]\n{workload}"
    );
    Scenario::from_str(&text, "t.toml").unwrap_or_else(|e| panic!("{e}\n{text}")).scenario
}

fn pair(workload: &str) -> Scenario {
    scenario("", "[vms.a]\ncount = 2\n[vms.b]", workload)
}

fn vm(name: &str, counters: &[(&str, i64)]) -> Vm {
    let counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Vm { name: name.to_owned(), group: name[..1].to_owned(), counters, ..Vm::default() }
}

/// Two seconds with these VMs.
fn measured(vms: Vec<Vm>) -> Measurements {
    Measurements { duration_ps: 2000 * PS_PER_MS, vms, traffic: vec![Traffic::default()], ..Measurements::default() }
}

fn ended(bytes: u64, took_ms: u64) -> Ended {
    let took_ps = took_ms * PS_PER_MS;
    Ended { from: 0, to: 2, bytes, start_ps: 0, took_ps, connected_took_ps: None }
}

#[track_caller]
fn check(scenario: &Scenario, measured: &Measurements, expected: &[(Metric, f64)]) {
    let found = metrics(scenario, measured);
    for (metric, value) in expected {
        let found = found.get(metric.name()).copied();
        assert!(found.is_some_and(|found| (found - value).abs() < 1e-9), "{metric}: {found:?}, not {value}");
    }
}

#[track_caller]
fn check_absent(scenario: &Scenario, measured: &Measurements, absent: &[Metric]) {
    let found = metrics(scenario, measured);
    for metric in absent {
        assert_eq!(found.get(metric.name()), None, "{metric}");
    }
}

#[test]
fn nothing_measured_is_no_figure_but_the_time_and_counters_that_did_not_move() {
    let found = metrics(&pair(PING), &measured(Vec::new()));
    assert_eq!(found, BTreeMap::from([("time_s".to_owned(), 2.0)]));
    let found = metrics(&pair(BULK), &measured(Vec::new()));
    assert_eq!((found.get("timeouts"), found.get("port_drops")), (Some(&0.0), Some(&0.0)));
    assert!(!found.contains_key("goodput_mbit") && !found.contains_key("detected_share"), "{found:?}");
}

#[test]
fn goodput_is_what_receivers_read_each_by_its_own_clock() {
    let mut own = measured(vec![vm("a-0", &[]), vm("b-0", &[]), vm("b-1", &[])]);
    // 100 and 40 Mbit/s. What a sender reads is not the workload's.
    own.vms[0].read = Some(Read { bytes: 7, during_ps: 1 });
    own.vms[1].read = Some(Read { bytes: 25_000_000, during_ps: 2000 * PS_PER_MS });
    own.vms[2].read = Some(Read { bytes: 20_000_000, during_ps: 4000 * PS_PER_MS });
    check(&pair(BULK), &own, &[(Metric::GoodputMbit, 140.0)]);
    own.traffic[0].iperf3_bits_per_s = Some(3e6);
    check(&pair(&BULK.replace("bulk", "iperf3")), &own, &[(Metric::GoodputMbit, 3.0)]);
    check_absent(&pair(PING), &own, &[Metric::GoodputMbit]);
}

#[test]
fn the_background_is_counted_or_iperf3s() {
    let background = format!("{POISSON}\nbackground_flows = 1");
    let mut own = Measurements {
        traffic: vec![Traffic { background_bytes: Some(500_000), ..Traffic::default() }],
        ..measured(Vec::new())
    };
    check(&pair(&background), &own, &[(Metric::BackgroundGoodputMbit, 2.0)]);
    check_absent(&pair(POISSON), &own, &[Metric::BackgroundGoodputMbit]);
    own.traffic[0].iperf3_bits_per_s = Some(5e6);
    check(&pair(&background), &own, &[(Metric::BackgroundGoodputMbit, 5.0)]);
}

#[test]
fn where_requests_are_as_good_as_responses_all_vms_send_and_receive() {
    let vms = || {
        let mut vms = vec![
            vm("a-0", &[("TcpExtTCPTimeouts", 4), ("TcpOutSegs", 90)]),
            vm("b-0", &[("TcpExtTCPTimeouts", 3), ("TcpOutSegs", 40)]),
        ];
        vms.iter_mut().for_each(|vm| vm.read = Some(Read { bytes: 250_000, during_ps: 2000 * PS_PER_MS }));
        vms
    };
    let expected = |goodput, timeouts, acks| {
        [(Metric::GoodputMbit, goodput), (Metric::Timeouts, timeouts), (Metric::AcksSent, acks)]
    };
    check(&pair(ASKED), &measured(vms()), &expected(2.0, 7.0, 130.0));
    check(&pair(BULK), &measured(vms()), &expected(1.0, 4.0, 40.0));
}

#[test]
fn tcp_is_the_senders_counters() {
    let mut own = measured(vec![
        vm("a-0", &[("TcpRetransSegs", 7), ("TcpOutSegs", 90), ("TcpExtTCPTimeouts", 6), ("TcpExtTCPLossProbes", 8)]),
        vm(
            "a-1",
            &[
                ("TcpRetransSegs", 3),
                ("TcpExtTCPSpuriousRTOs", 2),
                ("TcpExtTCPLossUndo", 2),
                ("TcpExtTCPDSACKUndo", 1),
                ("TcpExtTCPFullUndo", 10),
                ("TcpExtTCPPartialUndo", 100),
                ("TcpExtTCPDSACKRecv", 5),
                ("TcpExtTCPLossProbeRecovery", 9),
            ],
        ),
        vm("b-0", &[("TcpOutSegs", 40), ("TcpRetransSegs", 1000)]),
    ]);
    (own.dropped, own.marked) = (4, Some(11));
    let expected = [
        (Metric::Timeouts, 6.0),
        (Metric::TimeoutsPerS, 3.0),
        (Metric::TailLossProbes, 8.0),
        (Metric::TailLossProbesPerS, 4.0),
        (Metric::TlpRecoveries, 9.0),
        (Metric::Undone, 113.0),
        (Metric::SpuriousFrto, 2.0),
        (Metric::DetectedShare, 50.0),
        (Metric::SegmentsSent, 100.0),
        (Metric::Retransmitted, 10.0),
        (Metric::NeedlessRetransmissions, 6.0),
        (Metric::NeedlessPerS, 3.0),
        (Metric::Dsacks, 5.0),
        (Metric::PortDrops, 4.0),
        (Metric::EcnMarks, 11.0),
        (Metric::AcksSent, 40.0),
    ];
    check(&pair(BULK), &own, &expected);
    check_absent(&pair(PING), &own, &expected.map(|(metric, _)| metric));
    // A timeout that F-RTO finds need not be undone; more than all is all; what was dropped need not be sent again yet.
    own.vms[0].counters.insert("TcpExtTCPSpuriousRTOs".to_owned(), 9);
    own.dropped = 40;
    own.marked = None;
    check(&pair(BULK), &own, &[(Metric::DetectedShare, 100.0), (Metric::NeedlessRetransmissions, 0.0)]);
    check_absent(&pair(BULK), &own, &[Metric::EcnMarks]);
}

#[test]
fn captures_and_samples_are_the_senders() {
    let sample = |rto_ms: u64, srtt_us| SocketSample { rto_ps: rto_ms * PS_PER_MS, srtt_us };
    let bursts = Bursts { first_segments: 10, longest_segments: 12, beyond_segments: 3 };
    let own = Measurements {
        sockets: vec![sample(260, 2500), sample(200, 1500), sample(210, 500)],
        trace: Trace { duplicate_acks: Some(3), rto_runs: Some([5, 4, 0, 1]), bursts: Some(bursts) },
        ..measured(Vec::new())
    };
    let expected = [
        (Metric::RtoMs, 210.0),
        (Metric::RtoP90Ms, 250.0),
        (Metric::SrttMs, 1.5),
        (Metric::DuplicateAcks, 3.0),
        (Metric::RtoRuns1, 5.0),
        (Metric::RtoRuns2, 4.0),
        (Metric::RtoRuns3, 0.0),
        (Metric::RtoRuns4, 1.0),
        (Metric::WireFirstSegments, 10.0),
        (Metric::WireBurstSegments, 12.0),
        (Metric::WireBeyondSegments, 3.0),
    ];
    check(&pair(BULK), &own, &expected);
    check_absent(&pair(BULK), &measured(Vec::new()), &expected.map(|(metric, _)| metric));
}

#[test]
fn waits_for_a_core_and_for_quotas_are_in_milliseconds() {
    let own = Measurements {
        vcpu_waits_ps: vec![9 * PS_PER_MS, PS_PER_MS, 4 * PS_PER_MS],
        ..measured(vec![vm("a-0", &[("CpuThrottledUs", 70_000)]), vm("b-0", &[("CpuThrottledUs", 5_500)])])
    };
    let expected = [
        (Metric::VcpuWaitP50Ms, 4.0),
        (Metric::VcpuWaitP90Ms, 8.0),
        (Metric::VcpuWaitMaxMs, 9.0),
        (Metric::ThrottledMs, 75.5),
    ];
    check(&pair(BULK), &own, &expected);
    check_absent(&pair(BULK), &measured(vec![vm("a-0", &[])]), &expected.map(|(metric, _)| metric));
}

#[test]
fn completion_times_are_told_by_size() {
    let own = Measurements {
        traffic: vec![Traffic {
            ended: vec![ended(100_000, 1), ended(2000, 3), ended(100_001, 20), ended(10_000_000, 400)],
            unfinished: vec![Unfinished { bytes: 1, waited_ps: 0 }],
            ..Traffic::default()
        }],
        ..measured(Vec::new())
    };
    let expected = [
        (Metric::Flows, 4.0),
        (Metric::FlowsUnfinished, 1.0),
        (Metric::FctMeanMs, 106.0),
        (Metric::FctP50Ms, 11.5),
        (Metric::FctMaxMs, 400.0),
        (Metric::FctSmallMeanMs, 2.0),
        (Metric::FctSmallP50Ms, 2.0),
        (Metric::FctSmallP90Ms, 2.8),
        (Metric::FctSmallMaxMs, 3.0),
        (Metric::FctMediumP99Ms, 20.0),
        (Metric::FctMediumP999Ms, 20.0),
        (Metric::FctLargeP90Ms, 400.0),
    ];
    check(&pair(POISSON), &own, &expected);
    check_absent(&pair(POISSON), &own, &[Metric::MissedDeadlines, Metric::OperationsPerS, Metric::FctConnectedP50Ms]);
    check_absent(&pair(BULK), &own, &expected.map(|(metric, _)| metric));
}

#[test]
fn a_small_flow_misses_its_deadline_whether_it_has_ended_or_not() {
    let waits = |bytes, waited_ms: u64| Unfinished { bytes, waited_ps: waited_ms * PS_PER_MS };
    let own = Measurements {
        traffic: vec![Traffic {
            ended: vec![ended(1000, 10), ended(1000, 200), ended(1000, 201), ended(5_000_000, 700)],
            unfinished: vec![waits(1000, 900), waits(1000, 100), waits(5_000_000, 900)],
            ..Traffic::default()
        }],
        ..measured(Vec::new())
    };
    check(&pair(&format!("{POISSON}\ndeadline_ms = 200")), &own, &[(Metric::MissedDeadlines, 2.0)]);
}

#[test]
fn a_transfer_has_a_time_with_the_handshake_and_one_without() {
    let transfer = |took_ms, connected_ms: u64| Ended {
        connected_took_ps: Some(connected_ms * PS_PER_MS),
        ..ended(100_000, took_ms)
    };
    let own = Measurements {
        traffic: vec![Traffic {
            ended: vec![transfer(50, 20), transfer(20, 10), transfer(25, 16)],
            ..Traffic::default()
        }],
        ..measured(Vec::new())
    };
    let expected = [
        (Metric::FctP50Ms, 25.0),
        (Metric::ThroughputP50Mbit, 32.0),
        (Metric::FctConnectedP50Ms, 16.0),
        (Metric::ThroughputConnectedP50Mbit, 50.0),
    ];
    check(&pair("kind = \"transfers\"\nfrom = \"a\"\nto = \"b\"\nbytes = 100000"), &own, &expected);
    check_absent(&pair(POISSON), &own, &[Metric::ThroughputNearP50Mbit]);
    let far = scenario("", "[vms.a]\n[vms.b]\ncount = 2\nfar_count = 1\nfar_delay_us = 9", POISSON);
    let to = |to, took_ms| Ended { to, ..ended(100_000, took_ms) };
    let vms = vec![vm("a-0", &[]), vm("b-0", &[]), vm("b-1", &[])];
    let own = Measurements {
        traffic: vec![Traffic { ended: vec![to(1, 20), to(2, 80)], ..Traffic::default() }],
        ..measured(vms)
    };
    check(&far, &own, &[(Metric::ThroughputNearP50Mbit, 40.0), (Metric::ThroughputFarP50Mbit, 10.0)]);
}

#[test]
fn blocks_and_round_trips() {
    let strobe = "kind = \"strobe\"\nfrom = \"a\"\nto = \"b\"\nblock_kib = 12";
    let blocks_ps = (0..=100).map(|block| block * PS_PER_MS).collect();
    let own = Measurements { traffic: vec![Traffic { blocks_ps, ..Traffic::default() }], ..measured(Vec::new()) };
    check(&pair(strobe), &own, &[(Metric::Blocks, 101.0), (Metric::BlockP50Ms, 50.0), (Metric::BlockP99Ms, 99.0)]);
    let rtts_ps = [4, 1, 2, 3, 10].map(|ms| ms * PS_PER_MS).to_vec();
    let own = Measurements { traffic: vec![Traffic { rtts_ps, ..Traffic::default() }], ..measured(Vec::new()) };
    let expected =
        [(Metric::RttP50Ms, 3.0), (Metric::RttP90Ms, 7.6), (Metric::RttMeanMs, 4.0), (Metric::RttMaxMs, 10.0)];
    check(&pair(PING), &own, &expected);
}

#[test]
fn virtual_cpus_are_busy_by_their_own_clocks() {
    let mut own = measured(vec![vm("a-0", &[]), vm("a-1", &[]), vm("b-0", &[])]);
    own.vms[0].cpu = Some(CpuTime { busy_us: 10, idle_us: 30 });
    own.vms[1].cpu = Some(CpuTime { busy_us: 50, idle_us: 10 });
    own.vms[2].cpu = Some(CpuTime::default());
    own.domains = vec![CpuTime { busy_us: 1, idle_us: 3 }];
    check(&pair(ASKED), &own, &[(Metric::SenderCpu, 60.0), (Metric::DomainCpu, 25.0)]);
    check_absent(&pair(ASKED), &own, &[Metric::ReceiverCpu]);
}

#[test]
fn a_wait_is_each_packets_or_what_waits_by_the_rate() {
    let recorded = "[record]\nsender_nic = true\n";
    let scenario = scenario(recorded, "[vms.a]\n[vms.b]", BULK);
    let uplink = |waits| Uplink { sent_bytes: 200_000, watched_ps: 2000 * PS_PER_MS, waits };
    let with = |waits| Measurements {
        uplink: Some(uplink(waits)),
        backlog_segments: vec![20, 10, 30],
        ..measured(Vec::new())
    };
    // 30,000 bytes in the mean, 100,000 bytes a second.
    let backlog = with(Waits::Backlog { mean_bytes: 30_000.0 });
    let queue = [(Metric::QueueMeanSegments, 20.0), (Metric::QueueMaxSegments, 30.0), (Metric::UplinkUse, 0.8)];
    check(&scenario, &backlog, &queue);
    check(&scenario, &backlog, &[(Metric::QueueDelayMeanMs, 300.0)]);
    check_absent(&scenario, &backlog, &[Metric::QueueDelayP50Ms, Metric::QueueDelayFirstMeanMs]);
    let silent = Measurements {
        uplink: Some(Uplink { sent_bytes: 0, ..uplink(Waits::Backlog { mean_bytes: 1.0 }) }),
        ..backlog
    };
    check_absent(&scenario, &silent, &[Metric::QueueDelayMeanMs]);
    let ps = |times_ms: &[u64]| times_ms.iter().map(|ms| ms * PS_PER_MS).collect();
    let packets = with(Waits::Packets { all_ps: ps(&[3, 1, 2, 6]), first_ps: ps(&[6, 2]) });
    check(&scenario, &packets, &queue);
    let expected = [
        (Metric::QueueDelayMeanMs, 3.0),
        (Metric::QueueDelayP50Ms, 2.5),
        (Metric::QueueDelayP99Ms, 5.91),
        (Metric::QueueDelayFirstMeanMs, 4.0),
        (Metric::QueueDelayFirstP99Ms, 5.96),
    ];
    check(&scenario, &packets, &expected);
}

#[test]
fn mechanisms_count_in_all_vms_and_on_all_hosts() {
    let mut own = measured(vec![
        vm("a-0", &[("PvtcpWakeups", 5), ("PvtcpWakeupMaxUs", 600), ("PvtcpHeldRto", 2), ("PvtcpHeldTlp", 1)]),
        vm("a-1", &[("VfloodHeld", 3), ("VfloodHeldUs", 90), ("VfloodLowRttSegmentUs", 4_000_000)]),
        vm("b-0", &[("PvtcpWakeups", 7), ("PvtcpWakeupMaxUs", 900), ("VsnoopEarlyAcks", 4)]),
    ]);
    own.hosts = BTreeMap::from([("VsnoopEarlyAcks".to_owned(), 8), ("VfloodHeld".to_owned(), 6)]);
    (own.cera_cuts, own.pvtcp_reloads, own.kernel_complaints) = (Some(12), Some(2), Some(0));
    let expected = [
        (Metric::PvtcpWakeups, 12.0),
        (Metric::PvtcpLongestUs, 900.0),
        (Metric::PvtcpHeld, 3.0),
        (Metric::VfloodHeld, 9.0),
        (Metric::VfloodHeldMeanUs, 10.0),
        (Metric::VfloodLowRttSegments, 2.0),
        (Metric::VsnoopEarlyAcks, 12.0),
        (Metric::CeraCuts, 12.0),
        (Metric::PvtcpReloads, 2.0),
        (Metric::KernelComplaints, 0.0),
    ];
    check(&pair(BULK), &own, &expected);
    check_absent(&pair(BULK), &own, &[Metric::ProbesSent, Metric::VfloodHighRttSegments, Metric::CeraWindowsSet]);
}

#[test]
fn shares_are_those_of_long_lived_flows() {
    let flow = |from, bytes| LongLived { from: Some(from), to: 3, bytes };
    let vms = || vec![vm("a-0", &[]), vm("a-1", &[]), vm("a-2", &[]), vm("b-0", &[])];
    let own = Measurements {
        traffic: vec![Traffic {
            long_lived: vec![
                flow(0, 10),
                flow(1, 10),
                flow(1, 5),
                flow(2, 75),
                LongLived { from: None, to: 3, bytes: 9 },
            ],
            ..Traffic::default()
        }],
        ..measured(vms())
    };
    // By weight they had 25, 25 and 50 percent, and have 10, 15 and 75.
    let cera = "[vms.a]\ncount = 3\ncera = { mode = \"enforce\", weights = [1, 1, 2] }\n[vms.b]";
    check(&scenario("", cera, BULK), &own, &[(Metric::WeightError, 60.0)]);
    // Equal shares of 100 bytes are 33 each; two of the three have 25.
    let vflood = "[vms.a]\ncount = 3\nvflood = { mode = \"enforce\", clients = 2 }\n[vms.b]";
    check(&scenario("", vflood, BULK), &own, &[(Metric::VfloodShare, 37.5)]);
    check_absent(&pair(BULK), &own, &[Metric::WeightError, Metric::VfloodShare]);
}

#[test]
fn connections_and_transfers_come_to_harm() {
    let mut own =
        measured(vec![vm("a-0", &[("TcpOutRsts", 2), ("TcpEstabResets", 1)]), vm("b-0", &[("TcpOutRsts", 4)])]);
    let arrival = |stall_ms, is_damaged| Arrival { longest_stall_ps: stall_ms * PS_PER_MS, is_damaged };
    own.traffic[0].arrived = vec![arrival(3, false), arrival(40, true), arrival(5, true)];
    let expected = [(Metric::Resets, 7.0), (Metric::LongestStallMs, 40.0), (Metric::Damaged, 2.0)];
    check(&pair(BULK), &own, &expected);
    check_absent(&pair(BULK), &measured(vec![vm("a-0", &[])]), &expected.map(|(metric, _)| metric));
}

#[test]
fn of_several_migrations_the_last_counts() {
    let migration = |offline_ms: Option<u64>, total_ms, downtime_ms| Migration {
        offline_ps: offline_ms.map(|ms| ms * PS_PER_MS),
        total_ms,
        downtime_ms,
        online_ps: None,
    };
    let migrations = vec![migration(Some(9), 100, 20), migration(None, 300, 40)];
    let own = Measurements { migrations, ..measured(Vec::new()) };
    let expected =
        [(Metric::MigrationOfflineMs, 9.0), (Metric::MigrationMs, 300.0), (Metric::MigrationDowntimeMs, 40.0)];
    check(&pair(BULK), &own, &expected);
    check_absent(&pair(BULK), &own, &[Metric::MigrationOnlineMs]);
}

#[test]
fn each_of_several_workloads_has_metrics_of_its_own() {
    let text = "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 2000\n[vms.a]\ncount = 2\n[vms.b]\n\
        [workloads.bulk]\nkind = \"bulk\"\nfrom = \"b\"\nto = \"a\"\n\
        [workloads.ping]\nkind = \"ping\"\nfrom = \"a\"\nto = \"b\"\ninterval_ms = 10\n\
        [workloads.posts]\nkind = \"transfers\"\nfrom = \"a\"\nto = \"b\"\nbytes = 1000\n";
    let scenario = Scenario::from_str(text, "t.toml").unwrap_or_else(|error| panic!("{error}")).scenario;
    let read = |bytes, during_ms| Read { bytes, during_ps: during_ms * PS_PER_MS };
    let own = Measurements {
        traffic: vec![
            // By two clocks.
            Traffic { read: vec![read(20_000_000, 2000), read(1_250_000, 500)], ..Traffic::default() },
            Traffic { rtts_ps: vec![4 * PS_PER_MS], ..Traffic::default() },
            Traffic { ended: vec![ended(1000, 10)], read: vec![read(1000, 2000)], ..Traffic::default() },
        ],
        ..measured(vec![vm("b-0", &[("TcpExtTCPTimeouts", 4)]), vm("a-0", &[("TcpExtTCPTimeouts", 2)])])
    };
    let found = metrics(&scenario, &own);
    for (name, value) in [
        ("bulk.goodput_mbit", 100.0),
        ("posts.goodput_mbit", 0.004),
        ("goodput_mbit", 100.004),
        ("ping.rtt_p50_ms", 4.0),
        ("posts.fct_p50_ms", 10.0),
        ("posts.flows", 1.0),
        // Of the whole run: all groups that send.
        ("timeouts", 6.0),
        ("time_s", 2.0),
    ] {
        assert_eq!(found.get(name), Some(&value), "{name}: {found:?}");
    }
    for absent in ["fct_p50_ms", "flows", "bulk.timeouts", "bulk.flows", "ping.goodput_mbit"] {
        assert_eq!(found.get(absent), None, "{absent}");
    }
}
