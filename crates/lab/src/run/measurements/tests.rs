use evenkeel_scenario::metric::{Metric, metrics};

use super::*;
use crate::backlog::Backlog;
use crate::host::marking::Marks;
use crate::proto::{Arrived, Recorded, SocketSamples, TcpInfoSample};
use crate::run::trace::Traced;

fn scenario(groups: &str, workload: &str) -> Scenario {
    let text = format!(
        "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 1000\n[network]\nrate_mbit = 100\n{groups}\n\
         [workloads.w]\nfrom = \"a\"\n{workload}"
    );
    Scenario::from_str(&text, "t.toml").unwrap_or_else(|e| panic!("{e}\n{text}")).scenario
}

const PAIR: &str = "[vms.a]\n[vms.b]";
const BULK: &str = "to = \"b\"\nkind = \"bulk\"";
const TRANSFERS: &str = "to = \"b\"\nkind = \"transfers\"\nbytes = 100000";

/// A VM of this group; `number` is the last of its address.
fn vm(group: &str, number: u8, recorded: Recorded) -> VmMeasured {
    VmMeasured {
        name: format!("{group}-0"),
        group: group.to_owned(),
        address: Ipv4Addr::new(10, 0, 0, number),
        port: format!("vm{number}"),
        recorded: vec![Recorded { measured_us: 1_000_000, ..recorded }],
        counters: Counters::default(),
        waits: Vec::new(),
    }
}

fn measured(vms: Vec<VmMeasured>) -> Measured {
    Measured {
        duration: Duration::from_secs(1),
        vms,
        domains: Vec::new(),
        dropped: 0,
        marks: None,
        agent: None,
        backlog: Backlog::default(),
        iperf3: vec![None],
        mark_monotonic_ns: 0,
        mark_realtime_ns: 0,
        reloaded: 0,
        complaints: Vec::new(),
        trace: Traced::default(),
        moved: Vec::new(),
    }
}

fn request(bytes: u64, start_us: u64, took_us: Option<u64>, connected_took_us: Option<u64>) -> RequestTime {
    RequestTime { to: "10.0.0.2".into(), bytes, start_us, took_us, connected_took_us }
}

fn requests(requests: Vec<RequestTime>) -> Vec<VmMeasured> {
    vec![vm("a", 1, Recorded { requests, ..Recorded::default() }), vm("b", 2, Recorded::default())]
}

fn metrics_of(scenario: &Scenario, measured: &Measured) -> impl Fn(Metric) -> Option<f64> + use<> {
    let metrics = metrics(scenario, &of(scenario, measured));
    move |metric| metrics.get(metric.name()).copied()
}

#[test]
fn completion_times_are_by_size_and_unfinished_flows_miss_their_deadline() {
    let scenario = scenario(PAIR, "to = \"b\"\nkind = \"poisson\"\nload = 0.5\nsizes = 1000\ndeadline_ms = 200");
    let metric = metrics_of(
        &scenario,
        &measured(requests(vec![
            request(1_000, 0, Some(10_000), None),
            request(2_000, 5, Some(300_000), None),
            request(2_000, 5, None, None),
            request(2_000, 900_000, None, None),
            request(5_000_000, 5, Some(700_000), None),
        ])),
    );
    assert_eq!((metric(Metric::Flows), metric(Metric::FlowsUnfinished)), (Some(3.0), Some(2.0)));
    assert_eq!((metric(Metric::FctSmallMeanMs), metric(Metric::FctSmallMaxMs)), (Some(155.0), Some(300.0)));
    assert_eq!((metric(Metric::FctMediumMeanMs), metric(Metric::FctLargeMeanMs)), (Some(700.0), None));
    assert_eq!(metric(Metric::MissedDeadlines), Some(2.0), "the slow one, and one that has waited for longer");
    assert_eq!((metric(Metric::FctConnectedP50Ms), metric(Metric::ThroughputConnectedP50Mbit)), (None, None));
    assert_eq!((metric(Metric::GoodputMbit), metric(Metric::KernelComplaints)), (None, Some(0.0)));
}

#[test]
fn transfers_have_a_time_with_the_handshake_and_one_without() {
    let metric = metrics_of(
        &scenario(PAIR, TRANSFERS),
        &measured(requests(vec![
            request(100_000, 0, Some(50_000), Some(20_000)),
            request(100_000, 0, Some(40_000), Some(10_000)),
            request(100_000, 0, None, None),
        ])),
    );
    assert_eq!((metric(Metric::FctP50Ms), metric(Metric::ThroughputP50Mbit)), (Some(45.0), Some(18.0)));
    assert_eq!(
        (metric(Metric::FctConnectedP50Ms), metric(Metric::ThroughputConnectedP50Mbit)),
        (Some(15.0), Some(60.0))
    );
}

#[test]
fn payload_goes_from_who_answers_to_who_asks_and_both_read() {
    let workload =
        "to = \"b\"\nkind = \"request-response\"\nrequest_bytes = 25000\nresponse_bytes = 100000\nthink_time_us = 9";
    let scenario = scenario(PAIR, workload);
    let asked = RequestTime { to: "10.0.0.1".into(), ..request(100_000, 5, Some(7_000), None) };
    let recorded =
        Recorded { requests: vec![asked.clone(), RequestTime { took_us: None, ..asked }], ..Recorded::default() };
    let own = measured(vec![vm("a", 1, Recorded::default()), vm("b", 2, recorded)]);
    let measurements = of(&scenario, &own);
    let [flow] = measurements.traffic[0].ended[..] else { panic!("{:?}", measurements.traffic[0].ended) };
    assert_eq!((flow.from, flow.to, flow.start_ps, flow.took_ps), (0, 1, 5 * PS_PER_US, 7_000 * PS_PER_US));
    let read: Vec<_> = measurements.vms.iter().map(|vm| vm.read.map(|read| read.bytes)).collect();
    assert_eq!(read, [Some(25_000), Some(100_000)]);
    assert_eq!(metrics_of(&scenario, &own)(Metric::GoodputMbit), Some(1.0));
    // For flows that the opener sends, it is the other way round.
    let opened = of(&self::scenario(PAIR, TRANSFERS), &measured(requests(vec![request(1, 0, Some(0), Some(0))])));
    let flow = opened.traffic[0].ended[0];
    assert_eq!((flow.from, flow.to), (0, 1));
    assert_eq!((flow.took_ps, flow.connected_took_ps), (PS_PER_US, Some(PS_PER_US)), "less than guests can count");
}

#[test]
fn sinks_count_by_their_vms_own_clock_and_know_who_sent() {
    let received = vec![("10.0.0.1:5".to_owned(), 1_000_000), ("10.9.9.9:5".to_owned(), 250_000)];
    let mut sink = vm("b", 2, Recorded { received, ..Recorded::default() });
    sink.recorded[0].measured_us = 500_000;
    let own = measured(vec![vm("a", 1, Recorded::default()), sink]);
    let measurements = of(&scenario(PAIR, BULK), &own);
    assert_eq!(measurements.vms[0].read, None);
    assert_eq!(measurements.traffic[0].long_lived[0], LongLived { from: Some(0), to: 1, bytes: 1_000_000 });
    assert_eq!(measurements.traffic[0].long_lived[1].from, None);
    assert_eq!(metrics_of(&scenario(PAIR, BULK), &own)(Metric::GoodputMbit), Some(20.0));
}

#[test]
fn each_of_several_workloads_has_its_own() {
    let asks = "to = \"b\"\nkind = \"request-response\"\nrequest_bytes = 25000\nresponse_bytes = 100000\n\
        [workloads.x]\nfrom = \"b\"\nto = \"a\"\nkind = \"bulk\"\n\
        [workloads.y]\nfrom = \"a\"\nto = \"b\"\nkind = \"ping\"\ninterval_ms = 10";
    let scenario = scenario(PAIR, asks);
    let asked = RequestTime { to: "10.0.0.1".into(), ..request(100_000, 5, Some(7_000), None) };
    let received = vec![("10.0.0.2:5".to_owned(), 1_000_000)];
    let (mut a, mut b) = (vm("a", 1, Recorded::default()), vm("b", 2, Recorded::default()));
    // The sink counts by its VM's own clock.
    let sink = Recorded { measured_us: 500_000, received, ..Recorded::default() };
    a.recorded.extend([sink, Recorded { pings: vec![(9, 4_000)], ..Recorded::default() }]);
    b.recorded[0].requests = vec![asked];
    b.recorded.extend([Recorded::default(), Recorded::default()]);
    let own = Measured { iperf3: vec![None; 3], ..measured(vec![a, b]) };
    let measurements = of(&scenario, &own);
    assert!(measurements.vms.iter().all(|vm| vm.read.is_none()), "{:?}", measurements.vms);
    let read: Vec<u64> = measurements.traffic.iter().map(|own| own.read.iter().map(|r| r.bytes).sum()).collect();
    assert_eq!(read, [125_000, 1_000_000, 0]);
    let metrics = metrics(&scenario, &measurements);
    for (name, value) in [
        ("w.fct_p50_ms", 7.0),
        ("w.goodput_mbit", 1.0),
        ("x.goodput_mbit", 16.0),
        ("y.rtt_p50_ms", 4.0),
        ("goodput_mbit", 17.0),
    ] {
        assert_eq!(metrics.get(name), Some(&value), "{name}: {metrics:?}");
    }
    assert!(!metrics.contains_key("y.goodput_mbit") && !metrics.contains_key("x.flows"), "{metrics:?}");
}

#[test]
fn a_mechanism_that_is_off_counts_nothing() {
    let port = |counts: &[(&str, i64)]| counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let counted = Counted {
        ports: BTreeMap::from([
            ("vm1".to_owned(), port(&[("probes_sent", 3), ("synacks_scaled", 4), ("vflood_held", 0)])),
            // Of a VM that was moved.
            ("vm9".to_owned(), port(&[("probes_sent", 4), ("cera_windows_limited", 9)])),
        ]),
        agent: port(&[("syns_resent", 2), ("cera_cuts", 8)]),
    };
    let own = Measured { agent: Some(counted), ..measured(vec![vm("a", 1, Recorded::default())]) };
    let probes = metrics_of(&scenario("[vms.a]\nproboscis = { mode = \"observe\" }\n[vms.b]", TRANSFERS), &own);
    assert_eq!((probes(Metric::ProbesSent), probes(Metric::SynsRepeated)), (Some(7.0), Some(2.0)));
    assert_eq!(
        (probes(Metric::FirstWindowsScaled), probes(Metric::VfloodHeld), probes(Metric::CeraCuts)),
        (Some(4.0), None, None)
    );
    let cera = metrics_of(&scenario("[vms.a]\ncera = { mode = \"enforce\" }\n[vms.b]", BULK), &own);
    assert_eq!((cera(Metric::CeraCuts), cera(Metric::CeraWindowsLimited)), (Some(8.0), Some(9.0)));
    assert_eq!(
        (cera(Metric::ProbesSent), cera(Metric::SynsRepeated), cera(Metric::CeraWindowsSet)),
        (None, None, None)
    );
}

#[test]
fn what_ports_sockets_and_machines_say() {
    let sample = TcpInfoSample { srtt_us: 1500, rto_us: 210_000, ..TcpInfoSample::default() };
    let sockets = vec![SocketSamples { peer: String::new(), samples: vec![sample] }];
    let mut sender = vm("a", 1, Recorded { sockets, ..Recorded::default() });
    sender.counters.0 = BTreeMap::from([("CpuBusyUs".to_owned(), 30), ("CpuIdleUs".to_owned(), 10)]);
    let arrived =
        Arrived { from: String::new(), port: 1, bytes: 1, end_ns: 0, longest_stall_ns: 5_000_000, is_damaged: true };
    let receiver = vm("b", 2, Recorded { arrived: vec![arrived], ..Recorded::default() });
    let own = Measured {
        dropped: 3,
        marks: Some(Marks { marked: 5, dropped: 1 }),
        backlog: Backlog { samples: vec![(0, 20), (2_000_000_000, 10)], waiting_bytes: 60_000, sent_bytes: 200_000 },
        reloaded: 2,
        ..measured(vec![sender, receiver])
    };
    let scenario = Scenario {
        record: evenkeel_scenario::format::Record { sender_nic: true, ..Default::default() },
        ..scenario(PAIR, BULK)
    };
    let metric = metrics_of(&scenario, &own);
    assert_eq!((metric(Metric::RtoMs), metric(Metric::SrttMs)), (Some(210.0), Some(1.5)));
    assert_eq!(
        (metric(Metric::SenderCpu), metric(Metric::ReceiverCpu)),
        (Some(75.0), None),
        "a namespace has no clock of its own"
    );
    assert_eq!((metric(Metric::PortDrops), metric(Metric::EcnMarks)), (Some(4.0), Some(5.0)));
    assert_eq!((metric(Metric::QueueMeanSegments), metric(Metric::UplinkUse)), (Some(15.0), Some(0.8)));
    assert_eq!((metric(Metric::QueueDelayMeanMs), metric(Metric::QueueDelayP50Ms)), (Some(300.0), None));
    assert_eq!((metric(Metric::LongestStallMs), metric(Metric::Damaged)), (Some(5.0), Some(1.0)));
    assert_eq!((metric(Metric::PvtcpReloads), metric(Metric::Resets)), (Some(2.0), None));
}
