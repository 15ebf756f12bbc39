//! Whole runs of small scenarios.

use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::sweep;
use evenkeel_scenario::{RunRecord, Scenario};
use evenkeel_sim::run::{Go, RunError, run};
use proptest::prelude::*;

fn cell(text: &str) -> Cell {
    let loaded = Scenario::from_str(text, "t.toml").unwrap_or_else(|e| panic!("{e}\n{text}"));
    sweep::cells(&loaded).expect("cells").swap_remove(0)
}

fn scenario(network: &str, groups: &str, workload: &str) -> String {
    format!(
        "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 200\nwarmup_ms = 50\n[network]\nrate_mbit = 100\n\
         {network}\n{groups}\n[workloads.w]\n{workload}\n"
    )
}

fn simulated(text: &str) -> RunRecord {
    run(&cell(text), 0, &mut |_| Go::On).unwrap_or_else(|e| panic!("{e}")).record
}

const PAIR: &str = "[vms.a]\n[vms.b]";
const SHARED: &str = "[vms.a]\ncount = 3\ncore = { vms_per_core = 2, slice_ms = 10, slice_jitter = 0.5 }\n\
    tcp = { era = \"paper\", rto_min_us = \"smallest\" }\npvtcp = { mode = \"enforce\" }\n[vms.b]\n\
    tcp = { era = \"paper\" }";

#[test]
fn a_ping_crosses_both_hosts_twice() {
    let record =
        simulated(&scenario("delay_us = 10", PAIR, "kind = \"ping\"\nfrom = \"a\"\nto = \"b\"\ninterval_ms = 5"));
    // Four crossings of 50 us, four links of 10 us, four times 122 bytes at 100 Mbit/s.
    let rtt_ms = record.metrics["rtt_p50_ms"];
    assert!((rtt_ms - 0.27904).abs() < 1e-3, "{rtt_ms}");
    assert_eq!(record.series[0].points.len(), 40);
}

#[test]
fn bulk_fills_the_link() {
    let record = simulated(&scenario("buffer_segments = 50", PAIR, "kind = \"bulk\"\nfrom = \"a\"\nto = \"b\""));
    let goodput = record.metrics["goodput_mbit"];
    assert!((85.0..95.0).contains(&goodput), "{goodput}");
    assert_eq!(record.metrics["time_s"], 0.2);
    assert_eq!(record.flows.len(), 1);
    assert!((record.flows[0].bytes as f64 * 8.0 / 0.2e6 - goodput).abs() < 1e-9);
    assert!(record.counters["a-0"]["TcpOutSegs"] > 1000);
    assert!(record.series.iter().any(|s| s.name == "cwnd_segments" && s.points.len() == 5));
}

#[test]
fn a_strobe_ends_after_its_requests() {
    let workload = "kind = \"strobe\"\nfrom = \"a\"\nto = \"b\"\nblock_kib = 12\nrequests = 10";
    let record = simulated(&scenario("", SHARED, workload));
    assert_eq!(record.metrics["blocks"], 10.0);
    assert!(record.metrics["pvtcp_wakeups"] > 0.0);
    // Requests under way at the mark are received in part.
    assert!(record.flows.iter().all(|f| (40_960..=45_056).contains(&f.bytes)), "{:?}", record.flows);
}

#[test]
fn poisson_flows_end() {
    let groups = "[vms.a]\ncount = 4\nhypervisor = false\nhz = 0\ntcp = { congestion_control = \"dctcp\" }";
    let network =
        "topology = \"leaf-spine\"\nhosts_per_leaf = 2\nqueue = { discipline = \"red\", ecn_threshold_segments = 5 }";
    let workload = "kind = \"poisson\"\nfrom = \"a\"\nload = 0.4\nsizes = 20000\nflows = 100\ndeadline_ms = 20";
    let record = simulated(&scenario(network, groups, workload).replace("duration_ms = 200", "duration_ms = 20000"));
    assert_eq!((record.metrics["flows"], record.metrics["flows_unfinished"]), (100.0, 0.0));
    assert!(record.metrics["time_s"] < 1.0);
    // 14 segments at 100 Mbit/s take 1.7 ms, and the handshake a little more.
    assert!(
        record.metrics["fct_small_p50_ms"] > 1.6 && record.metrics["fct_small_p50_ms"] < 10.0,
        "{:?}",
        record.metrics
    );
    assert!(record.metrics.contains_key("missed_deadlines") && record.metrics["ecn_marks"] > 0.0);
}

#[test]
fn requests_and_responses_go_round() {
    let workload = "kind = \"request-response\"\nfrom = \"a\"\nto = \"b\"\nrequest_bytes = 100\n\
        response_bytes = 5000\noutstanding = 2\nthink_time_us = 100";
    let record = simulated(&scenario("topology = \"dumbbell\"\nedge_rate_mbit = 1000", PAIR, workload));
    assert!(record.metrics["flows"] > 200.0, "{:?}", record.metrics);
    assert_eq!(record.flows.len() as f64, record.metrics["flows"]);
}

#[test]
fn a_capture_shows_a_wake_up() {
    let groups = SHARED.replace("count = 3", "count = 1");
    let text = scenario(
        "",
        &groups,
        "kind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n[record]\ncapture = true\nqueue_period_ms = 10",
    );
    let record = simulated(&text);
    assert!(record.packets.iter().any(|p| p.descheduled), "{} packets", record.packets.len());
    for name in ["meas_rtt_ms", "queue_segments"] {
        assert!(record.series.iter().any(|s| s.name == name), "{name}");
    }
    assert!(record.metrics.contains_key("rto_runs_1") && record.metrics.contains_key("duplicate_acks"));
}

#[test]
fn a_run_twice_is_the_same_to_the_byte() {
    let texts = [
        scenario(
            "buffer_segments = 8",
            SHARED,
            "kind = \"strobe\"\nfrom = \"a\"\nto = \"b\"\nblock_kib = 96\n[record]\ncapture = true",
        ),
        scenario(
            "buffer_segments = 20",
            "[vms.a]\ncount = 6",
            "kind = \"poisson\"\nfrom = \"a\"\nload = 0.6\nsizes = \"fb-hadoop-bytes\"\npersistent = true",
        ),
    ];
    for text in texts {
        let written = || serde_json::to_string(&simulated(&text)).expect("JSON");
        let (first, second) = (written(), written());
        assert!(first == second);
        let cell = cell(&text);
        let other = run(&cell, 1, &mut |_| Go::On).expect("it runs").record;
        assert_ne!(
            serde_json::to_string(&other.metrics).expect("JSON"),
            serde_json::to_string(&simulated(&text).metrics).expect("JSON")
        );
    }
}

#[test]
fn a_setting_it_cannot_honour_ends_it() {
    let cell = cell(&scenario("", "[vms.a]\nvcpus = 2\n[vms.b]", "kind = \"bulk\"\nfrom = \"a\"\nto = \"b\""));
    let error = run(&cell, 0, &mut |_| Go::On).expect_err("refused");
    assert!(error.to_string().starts_with("vms.a.vcpus: "), "{error}");
}

#[test]
fn the_callback_can_end_it() {
    let text = scenario("", PAIR, "kind = \"bulk\"\nfrom = \"a\"\nto = \"b\"")
        .replace("duration_ms = 200", "duration_ms = 3600000");
    let mut calls = 0;
    let ended = run(&cell(&text), 0, &mut |progress| {
        calls += 1;
        assert!(progress.now < progress.end && progress.events > 0);
        if calls == 2 { Go::Stop } else { Go::On }
    });
    assert_eq!(ended, Err(RunError::Interrupted));
}

/// Pieces that a scenario is put together from; many combinations are refused or not valid.
fn mutated() -> impl Strategy<Value = String> {
    let network = prop::sample::subsequence(
        vec![
            "buffer_segments = 1",
            "shared_buffer_kib = 16",
            "buffer_alpha = 0.01",
            "delay_us = 1000",
            "mtu_bytes = 576",
            "topology = \"dumbbell\"",
            "topology = \"leaf-spine\"\nhosts_per_leaf = 3",
            "topology = \"fat-tree\"\npods = 3\nhosts_per_leaf = 2",
            "queue = { discipline = \"codel\", codel_target_us = 1, codel_interval_us = 1 }",
            "queue = { discipline = \"fq-codel\" }",
            "queue = { discipline = \"priority\", thresholds_bytes = [1, 5000], ecn_threshold_segments = 1 }",
            "queue = { discipline = \"pfabric\" }",
            "queue = { discipline = \"red\", red_min_segments = 1, red_max_segments = 3, red_max_probability = 1.0 }",
        ],
        0..4,
    );
    let group = || {
        prop::sample::subsequence(
            vec![
                "count = 3",
                "hz = 0",
                "hz = 10000",
                "hypervisor = false",
                "host_delay_us = 0",
                "packet_cost_ns = 200000",
                "read_cost_ns = 200000",
                "nic_queue_segments = 1",
                "port_queue_segments = 1",
                "per_host = 2",
                "core = { vms_per_core = 16, slice_ms = 1, slice_jitter = 1.0, load = 0.5 }",
                "tcp = { era = \"paper\", rto_min_us = \"smallest\", sack = false }",
                "tcp = { congestion_control = \"lldct\", delayed_ack = \"off\", initial_window_segments = 1000 }",
                "tcp = { congestion_control = \"dctcp\", receive_buffer_bytes = 4608, send_buffer_bytes = 4608 }",
                "pvtcp = { mode = \"enforce\", jit_segments = 3, hold_max_us = 0 }",
                "pvtcp = { mode = \"observe\" }",
                "proboscis = { mode = \"enforce\", b1_us = 1000, elephant_bytes = 20000 }",
                "proboscis = { mode = \"observe\", g_probes = 64 }",
                "cera = { mode = \"enforce\", high_segments = 3, clients = 1, epochs = 16 }",
                "cera = { mode = \"enforce\", epoch_us = 100, client_delay_us = 0, shares = \"printed\" }",
                "nic_queue = { discipline = \"fq-codel\" }",
            ],
            0..5,
        )
    };
    let workload = prop::sample::select(vec![
        "kind = \"ping\"\nto = \"b\"\ninterval_ms = 1",
        "kind = \"bulk\"\nto = \"b\"\nflows = 3",
        "kind = \"strobe\"\nto = \"b\"\nblock_kib = 1",
        "kind = \"strobe\"\nto = \"b\"\nblock_kib = 1000\nrequests = 2",
        "kind = \"poisson\"\nto = \"b\"\nload = 2\nsizes = 1000\nflows = 20",
        "kind = \"poisson\"\nload = 0.9\nsizes = \"datamining\"\npersistent = true\ndeadline_ms = 1",
        "kind = \"request-response\"\nto = \"b\"\nrequest_bytes = 1\nresponse_bytes = 1000000\noutstanding = 3",
        "kind = \"memcached\"\nto = \"b\"\nvalue_bytes = 20000\ngets_permille = 300\nlate_start_ms = 7",
    ]);
    let record = prop::sample::select(vec![
        "",
        "[record]\ncapture = true\ntcp_info_period_ms = 1\nqueue_period_ms = 1\nsender_nic = true",
    ]);
    (network, group(), group(), workload, record, 0..3_u64).prop_map(|(network, a, b, workload, record, seed)| {
        let receivers = if workload.contains("to =") { format!("[vms.b]\n{}", b.join("\n")) } else { String::new() };
        format!(
            "schema = 2\nname = \"t\"\ntitle = \"t\"\nseed = {seed}\nduration_ms = 100\nwarmup_ms = 20\n[network]\n\
             rate_mbit = 50\n{}\n[vms.a]\n{}\n{receivers}\n[workloads.w]\nfrom = \"a\"\n{workload}\n{record}\n",
            network.join("\n"),
            a.join("\n"),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_scenarios_never_panic(text in mutated()) {
        if let Ok(loaded) = Scenario::from_str(&text, "t.toml") {
            for cell in sweep::cells(&loaded).expect("cells") {
                if let Ok(finished) = run(&cell, 0, &mut |_| Go::On) {
                    prop_assert!(finished.record.metrics.values().all(|v| v.is_finite()));
                }
            }
        }
    }
}

/// Workloads of all kinds, each with its name.
const ALL_KINDS: &[(&str, &str)] = &[
    ("bulk", "kind = \"bulk\"\nfrom = \"s\"\nto = \"c\""),
    ("flows", "kind = \"poisson\"\nfrom = \"s\"\nto = \"c\"\nload = 0.05\nsizes = 5000\nbackground_flows = 1"),
    ("ping", "kind = \"ping\"\nfrom = \"s\"\nto = \"c\"\ninterval_ms = 5"),
    ("requests", "kind = \"request-response\"\nfrom = \"s\"\nto = \"c\"\nrequest_bytes = 100\nresponse_bytes = 9000"),
    ("store", "kind = \"memcached\"\nfrom = \"s\"\nto = \"c\"\noutstanding = 2"),
    ("strobe", "kind = \"strobe\"\nfrom = \"s\"\nto = \"c\"\nblock_kib = 8"),
    ("transfers", "kind = \"transfers\"\nfrom = \"s\"\nto = \"c\"\nbytes = 20000"),
    (
        "web",
        "kind = \"three-tier\"\nfrom = \"s\"\nto = \"c\"\nusers = 3\nthink_time_ms = 5\n\
         operations = [{ name = \"home\", weight = 1, request_bytes = 400, response_bytes = 9000, \
         calls = [{ store = \"cache\", request_bytes = 100, response_bytes = 1000 }] }]",
    ),
];

fn of_kinds(groups: &str, kinds: &[(&str, &str)]) -> String {
    let tables = kinds.iter().map(|(name, text)| format!("[workloads.{name}]\n{text}\n"));
    scenario("buffer_segments = 100", groups, "").replace("[workloads.w]\n", &tables.collect::<String>())
}

#[test]
fn workloads_of_all_kinds_run_at_once_and_each_has_its_metrics() {
    let record = simulated(&of_kinds("[vms.s]\ncount = 4\n[vms.c]", ALL_KINDS));
    for metric in [
        "bulk.goodput_mbit",
        "flows.fct_p50_ms",
        "flows.background_goodput_mbit",
        "ping.rtt_p50_ms",
        "requests.fct_p50_ms",
        "store.fct_p99_ms",
        "strobe.blocks",
        "transfers.fct_connected_p50_ms",
        "web.operations_per_s",
    ] {
        assert!(record.metrics.get(metric).is_some_and(|value| *value > 0.0), "{metric}: {:?}", record.metrics);
    }
    let own = record.metrics.iter().filter(|(name, _)| name.ends_with(".goodput_mbit"));
    let sum: f64 = own.map(|(_, mbit)| mbit).sum();
    assert!((record.metrics["goodput_mbit"] - sum).abs() < 1e-9, "{sum}");
    // The goodputs are what all applications read, no byte twice. Senders read requests of a few bytes.
    let reads = |group: &str| {
        let own = record.counters.iter().filter(|(name, _)| name.starts_with(group));
        own.filter_map(|(_, counters)| counters.get("SimDeliveredBytes")).sum::<i64>() as f64 * 8.0 / 0.2e6
    };
    assert!(sum <= reads("s") + reads("c") + 1e-9 && sum >= reads("c") - 1e-9, "{sum}, {}, {}", reads("s"), reads("c"));
}

#[test]
fn where_nothing_is_shared_a_workload_brings_what_it_brings_alone() {
    for (name, text) in ALL_KINDS.iter().filter(|(name, _)| *name != "ping") {
        let alone = simulated(&of_kinds("[vms.s]\ncount = 4\n[vms.c]", &[(*name, *text)]));
        let ping = ("zz", "kind = \"ping\"\nfrom = \"a\"\nto = \"b\"\ninterval_ms = 5");
        let beside = simulated(&of_kinds("[vms.s]\ncount = 4\n[vms.c]\n[vms.a]\n[vms.b]", &[(*name, *text), ping]));
        let own = beside
            .metrics
            .iter()
            .filter_map(|(metric, value)| Some((metric.strip_prefix(&format!("{name}."))?, value)));
        let mut compared = 0;
        for (metric, value) in own.filter(|(metric, _)| *metric != "goodput_mbit") {
            assert_eq!(alone.metrics.get(metric), Some(value), "{name}: {metric}");
            compared += 1;
        }
        assert!(compared > 0 || *name == "bulk", "{name}: {:?}", beside.metrics);
        let (goodput, beside_mbit) =
            (alone.metrics.get("goodput_mbit"), beside.metrics.get(&format!("{name}.goodput_mbit")));
        if *name == "bulk" {
            assert_eq!(goodput, beside_mbit);
        }
        assert!(beside.metrics["zz.rtt_p50_ms"] > 0.0);
    }
}
