//! Real applications between machines of the lab.

use crate::{NAMESPACE, machine, run};

pub const MEMCACHED: &str = r#"
schema = 2
name = "memcached"
title = "memcached beside bulk flows, one network card"
duration_ms = 3000
warmup_ms = 1000
[network]
rate_mbit = 20
[vms.client]
count = 2
per_host = 2
nic_queue_segments = 20
[vms.server]
hypervisor = false
[workloads.w]
kind = "memcached"
from = "client"
to = "server"
outstanding = 4
flows = 2
[record]
tcp_info_period_ms = 0
queue_period_ms = 10
sender_nic = true
"#;

/// The real memcached answers, and the network card that a host's VMs share is the bottleneck.
#[test]
fn memcached_shares_a_network_card_with_bulk_flows() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let scenario = scratch.path().join("memcached.toml");
    // The server's programs are those that guests have.
    std::fs::write(&scenario, MEMCACHED.replace("hypervisor = false", NAMESPACE)).unwrap();
    let records = run(&scenario, &[]);
    let record = &records[0];
    assert!(record.remarks.is_empty(), "{:?}", record.remarks);
    let metric = |name: &str| record.metrics[name];
    assert!(metric("flows") > 10.0 && metric("fct_p50_ms") > 0.0, "{:?}", record.metrics);
    assert!(metric("goodput_mbit") > 5.0 && metric("goodput_mbit") < 20.0, "{:?}", record.metrics);
    assert!(metric("queue_max_segments") > 10.0 && metric("queue_max_segments") <= 20.0, "{:?}", record.metrics);
    assert!(metric("port_drops") > 0.0, "{:?}", record.metrics);
    // Twenty packets at the least goodput that is allowed above.
    assert!(metric("queue_delay_mean_ms") > 0.0 && metric("queue_delay_mean_ms") < 60.0, "{:?}", record.metrics);
    assert!(metric("uplink_use") > 25.0 && metric("uplink_use") < 110.0, "{:?}", record.metrics);
}

const FILES: &str = r#"
schema = 2
name = "files"
title = "Files of nginx on connections that are kept"
duration_ms = 2000
warmup_ms = 500
[network]
rate_mbit = 50
[vms.server]
count = 2
hypervisor = false
[vms.client]
hypervisor = false
[workloads.w]
kind = "request-response"
from = "server"
to = "client"
request_bytes = 200
response_bytes = 50000
outstanding = 3
think_time_us = 50000
[record]
tcp_info_period_ms = 0
"#;

/// The real nginx is asked for files, on connections that stay.
#[test]
fn files_are_asked_for_on_connections_that_are_kept() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let scenario = scratch.path().join("files.toml");
    std::fs::write(&scenario, FILES.replace("hypervisor = false", NAMESPACE)).unwrap();
    let records = run(&scenario, &[]);
    let record = &records[0];
    assert!(record.remarks.is_empty(), "{:?}", record.remarks);
    let flows = record.metrics["flows"];
    // Three loops, each with 8 ms on the wire and 50 ms in which it says nothing.
    let last_ms = record.flows.iter().map(|flow| flow.start_us + flow.duration_us).max().unwrap() as f64 / 1e3;
    assert!(flows > 15.0 && flows <= 3.0 * (last_ms / 58.0 + 1.0), "{last_ms}: {:?}", record.metrics);
    // Goodput counts requests as well as responses.
    let goodput_mbit = flows * 50_200.0 * 8e-6 / record.metrics["time_s"];
    assert!((record.metrics["goodput_mbit"] - goodput_mbit).abs() < 0.01, "{:?}", record.metrics);
    for server in ["server-0", "server-1"] {
        let answered = record.flows.iter().filter(|flow| flow.from == server && flow.bytes == 50_000).count();
        assert!(
            answered > 0 && !record.counters[server].contains_key("TcpPassiveOpens"),
            "{server}: {answered} answers"
        );
    }
}

const AT_ONCE: &str = r#"
schema = 2
name = "at-once"
title = "Several workloads between two machines at once"
duration_ms = 3000
warmup_ms = 500
[network]
rate_mbit = 50
buffer_segments = 400
[vms.near]
hypervisor = false
tcp.receive_buffer_bytes = 131072
[vms.far]
hypervisor = false
tcp.receive_buffer_bytes = 131072
[workloads.backup]
kind = "bulk"
from = "near"
to = "far"
flows = 2
[workloads.ping]
kind = "ping"
from = "near"
to = "far"
interval_ms = 20
[workloads.posts]
kind = "transfers"
from = "far"
to = "near"
bytes = 20000
pause_ms = 10
[workloads.requests]
kind = "request-response"
from = "far"
to = "near"
request_bytes = 200
response_bytes = 50000
outstanding = 2
think_time_us = 20000
[workloads.requests-too]
kind = "request-response"
from = "far"
to = "near"
request_bytes = 200
response_bytes = 30000
think_time_us = 20000
[workloads.store]
kind = "memcached"
from = "near"
to = "far"
outstanding = 1
[workloads.stream]
kind = "iperf3"
from = "far"
to = "near"
"#;

/// Workloads that run at once, two of them of the same kind, have metrics of their own, and their bytes are those that
/// came. Every program has the receive buffer that is set, so that all windows together fit into the queue and no
/// handshake or first window is lost, after which a transfer can take longer than the run (RFC 6298 5.7).
#[test]
fn workloads_run_at_once() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let scenario = scratch.path().join("at-once.toml");
    std::fs::write(&scenario, AT_ONCE.replace("hypervisor = false", NAMESPACE)).unwrap();
    let records = run(&scenario, &[]);
    let record = &records[0];
    assert!(record.remarks.is_empty(), "{:?}", record.remarks);
    let metric = |name: &str| *record.metrics.get(name).unwrap_or_else(|| panic!("no {name}: {:?}", record.metrics));
    for name in ["ping.rtt_p50_ms", "posts.fct_p50_ms", "requests.fct_p50_ms", "store.fct_p50_ms", "srtt_ms"] {
        assert!(metric(name) > 0.0, "{name}: {:?}", record.metrics);
    }
    assert_eq!((metric("posts.damaged"), metric("port_drops")), (0.0, 0.0));
    let goodputs = ["backup", "requests", "requests-too", "stream"].map(|name| metric(&format!("{name}.goodput_mbit")));
    assert!(goodputs[0] > 30.0 && goodputs[0] < 50.0 && goodputs[3] > 5.0, "{goodputs:?}");
    assert!((metric("goodput_mbit") - goodputs.iter().sum::<f64>()).abs() < 0.01, "{:?}", record.metrics);
    for (name, bytes) in [("posts", 20_000), ("requests", 50_000), ("requests-too", 30_000)] {
        let ended = record.flows.iter().filter(|flow| flow.bytes == bytes && flow.to == "near-0").count();
        assert!(ended > 5 && ended as f64 == metric(&format!("{name}.flows")), "{name}: {ended}, {:?}", record.metrics);
    }
    // The flows' payload is most of what came, and not more; what iperf3 brought is in no flow.
    let came = |machine: &str| -> u64 { record.flows.iter().filter(|f| f.to == machine).map(|f| f.bytes).sum() };
    let streamed = (goodputs[3] * metric("time_s") * 1e6 / 8.0) as u64;
    for (machine, payload) in [("far-0", came("far-0")), ("near-0", came("near-0") + streamed)] {
        let wire = record.counters[machine]["EthRxBytes"] as u64;
        assert!(payload < wire && payload > wire * 4 / 5, "{machine}: {payload} of {wire} bytes");
    }
}
