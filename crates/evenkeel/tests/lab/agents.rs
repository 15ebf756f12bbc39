//! The host's agent and the guest's, on ports of the lab.

use evenkeel_scenario::result::FlowRecord;

use crate::{NAMESPACE, agents_below, assert_left_clean, lab, labelled, machine, run};

pub const AGENT: &str = r#"
schema = 2
name = "agent"
title = "HTTP requests between hosts with the agent"
duration_ms = 4000
warmup_ms = 1000
repetitions = 1
[network]
rate_mbit = 20
buffer_segments = 100
[vms.client]
count = 2
[vms.server]
[workloads.w]
kind = "poisson"
from = "client"
to = "server"
sizes = 15000
load = 0.2
burst_flows = 4
[record]
tcp_info_period_ms = 0
[[axes]]
name = "host"
[[axes.variants]]
label = "plain"
set = {}
[[axes.variants]]
label = "agent"
[axes.variants.set]
"network.queue" = { discipline = "red", ecn_threshold_segments = 5 }
"vms.client.proboscis.mode" = "enforce"
"vms.server.proboscis.mode" = "enforce"
[[axes.variants]]
label = "answers"
[axes.variants.set]
"workloads.w.request_bytes" = 200
"vms.client.proboscis" = { mode = "enforce", answers = true }
"vms.server.proboscis" = { mode = "enforce", answers = true }
"#;

/// The host agent probes for real requests over a port that marks, and the lab, which fails if the agent leaves
/// anything on its ports, ends well.
#[test]
fn the_host_agent_acts_on_real_requests() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let scenario = scratch.path().join("agent.toml");
    std::fs::write(&scenario, AGENT).unwrap();
    let out = scratch.path().join("out");
    let output = lab(&scenario, &out, &[]).env("TMPDIR", scratch.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (_, records) = evenkeel_scenario::io::read_results(&out).unwrap();
    for record in &records {
        assert!(record.remarks.is_empty(), "{:?}", record.remarks);
        assert!(record.metrics["flows"] > 0.0 && record.metrics["fct_small_mean_ms"] > 0.0, "{:?}", record.metrics);
        let bytes: Vec<u64> = record.flows.iter().map(|flow| flow.bytes).collect();
        assert!(bytes.iter().all(|b| *b == 15_000) && bytes.len() as f64 == record.metrics["flows"]);
    }
    let plain = labelled(&records, "host", "plain")[0];
    assert!(!plain.metrics.contains_key("probes_sent") && !plain.metrics.contains_key("ecn_marks"));
    let agent = labelled(&records, "host", "agent")[0];
    let opened: i64 = ["client-0", "client-1"].iter().map(|vm| agent.counters[*vm]["ProboscisSynsFromVm"]).sum();
    assert!(opened >= agent.metrics["flows"] as i64, "{opened} SYNs for {} flows", agent.metrics["flows"]);
    assert!(agent.metrics["probes_sent"] >= 10.0, "{:?}", agent.metrics);
    assert!(agent.counters["server-0"]["ProboscisProbesSeen"] > 0, "{:?}", agent.counters);
    assert!(agent.counters["server-0"]["ProboscisReportsSent"] > 0, "{:?}", agent.counters);
    assert!(agent.counters["client-0"]["ProboscisEctSet"] > 0, "{:?}", agent.counters);
    assert!(agent.metrics["ecn_marks"] > 0.0, "{:?}", agent.metrics);
    // Clients answer, so the server's host has the probes of their SYN-ACKs.
    let answers = labelled(&records, "host", "answers")[0];
    let is_answer = |flow: &FlowRecord| flow.from.starts_with("client-") && flow.to == "server-0";
    assert!(answers.flows.iter().all(is_answer), "{:?}", answers.flows);
    assert!(answers.metrics["answer_probes_sent"] >= 10.0, "{:?}", answers.metrics);
    assert!(answers.metrics["answers_scaled"] > 0.0, "{:?}", answers.metrics);
    assert_eq!(agents_below(scratch.path()), 0);
    assert_left_clean(scratch.path());
}

const DOMAIN: &str = r#"
schema = 2
name = "domain"
title = "Transfers of two VMs whose host is a VM"
duration_ms = 3000
[vms.sender]
count = 2
per_host = 2
host = "vm"
proboscis = { mode = "enforce" }
[vms.receiver]
proboscis = { mode = "enforce" }
[workloads.w]
kind = "transfers"
from = "sender"
to = "receiver"
bytes = 100000
[record]
tcp_info_period_ms = 0
"#;

/// A driver domain has two VMs' ports and the real agent on them; what they send passes to a VM whose host is this
/// machine, and its agent.
#[test]
fn a_driver_domain_carries_its_vms_traffic_and_runs_the_agent() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let scenario = scratch.path().join("domain.toml");
    std::fs::write(&scenario, DOMAIN).unwrap();
    let records = run(&scenario, &[]);
    let [record] = &records[..] else { panic!("one run, not {}", records.len()) };
    assert!(record.remarks.is_empty(), "{:?}", record.remarks);
    for sender in ["sender-0", "sender-1"] {
        let arrived: Vec<_> = record.flows.iter().filter(|flow| flow.from == sender).collect();
        assert!(!arrived.is_empty(), "{sender}: {:?}", record.metrics);
        assert!(arrived.iter().all(|flow| flow.bytes == 100_000 && flow.duration_us > 0), "{arrived:?}");
        let syns = record.counters[sender]["ProboscisSynsFromVm"];
        assert!(syns >= arrived.len() as i64, "{syns} SYNs for {} transfers", arrived.len());
    }
    assert!(record.counters["receiver-0"]["ProboscisProbesSeen"] > 0, "{:?}", record.counters);
    assert!(
        record.metrics["probes_sent"] >= 10.0 && record.metrics["throughput_p50_mbit"] > 0.1,
        "{:?}",
        record.metrics
    );
}

/// The guest's agent floods, the driver domain's holds, and transfers arrive whole in a network namespace.
#[test]
fn vflood_holds_what_a_guest_floods() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let scenario = scratch.path().join("vflood.toml");
    let text = DOMAIN
        .replace("count = 2\nper_host = 2\n", "")
        .replacen("proboscis = { mode = \"enforce\" }", "vflood = { mode = \"enforce\", off_core_percent = 0 }", 1)
        .replacen("proboscis = { mode = \"enforce\" }", NAMESPACE, 1);
    std::fs::write(&scenario, text).unwrap();
    let record = &run(&scenario, &[])[0];
    assert!(record.remarks.is_empty(), "{:?}", record.remarks);
    assert!(record.metrics["flows"] > 0.0 && record.metrics["vflood_held"] > 0.0, "{:?}", record.metrics);
    assert!(record.flows.iter().all(|flow| flow.bytes == 100_000), "{:?}", record.flows);
    assert_eq!(record.metrics["damaged"], 0.0);
    // The receiver has its own counters, and none of this machine's; on its port packets are segments.
    let receiver = &record.counters["receiver-0"];
    let (packets, bytes) = (receiver["EthRxPackets"], receiver["EthRxBytes"]);
    assert!(packets > 0 && bytes / packets <= 1514, "{bytes} bytes in {packets} packets");
    assert!(!receiver.contains_key("CpuBusyUs") && !record.metrics.contains_key("receiver_cpu"), "{receiver:?}");
    let counted = &record.counters["sender-0"];
    assert!(counted["VfloodGrants"] > 0 && counted["VfloodUpdates"] > 0, "{counted:?}");
}
