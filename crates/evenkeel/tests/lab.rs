//! The lab as a user meets it: the real binary boots real VMs. Needs root and what `make deps` installs.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_scenario::result::{FlowRecord, RunRecord};

/// The machine: two tests that boot VMs at the same time would only take each other's time.
static MACHINE: Mutex<()> = Mutex::new(());

fn machine() -> MutexGuard<'static, ()> {
    // A test that failed has said so itself.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn lab(scenario: &Path, out: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("lab").arg(scenario).arg("--out").arg(out).args(arguments).stdin(Stdio::null());
    command
}

/// A lab that runs, its results and temporary files below `scratch`.
fn start(scenario: &Path, scratch: &Path, arguments: &[&str]) -> Child {
    let mut command = lab(scenario, &scratch.join("out"), arguments);
    command.env("TMPDIR", scratch).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Ctrl-C, and the end with its exit code.
fn interrupt(lab: Child) {
    // SAFETY: kill takes plain numbers; the process is our child and not yet waited for.
    assert_eq!(unsafe { libc::kill(lab.id() as i32, libc::SIGINT) }, 0);
    let output = lab.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a scenario; its records.
fn run(scenario: &Path, arguments: &[&str]) -> Vec<RunRecord> {
    let out = tempfile::tempdir().unwrap();
    let output = lab(scenario, out.path(), arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    evenkeel_scenario::io::read_results(out.path()).unwrap().1
}

fn labelled<'a>(records: &'a [RunRecord], axis: &str, label: &str) -> Vec<&'a RunRecord> {
    let found: Vec<_> = records.iter().filter(|r| r.cell.iter().any(|(a, l)| a == axis && l == label)).collect();
    assert!(!found.is_empty(), "no run with {axis} = {label}");
    found
}

/// Such processes with a path below `directory` on their command lines, whose arguments end in zeros.
fn processes_below(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> usize {
    let directory = directory.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|p| std::fs::read(p.path().join("cmdline")).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .filter(|line| is_wanted(line) && line.contains(directory))
        .count()
}

/// VMs of labs whose temporary directory is below `directory`.
fn vms_below(directory: &Path) -> usize {
    processes_below(directory, |line| line.starts_with("qemu-system"))
}

fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Every kernel boots, TCP flows, the module loads, sees the core being shared and holds timers off.
#[test]
fn pvtcp_acts_on_every_kernel() {
    let _machine = machine();
    let records = run(&workspace().join("scenarios/pvtcp/reload.toml"), &[]);
    for kernel in ["6.1", "6.12", "newest"] {
        for record in labelled(&records, "kernel", kernel) {
            let metric =
                |name: &str| *record.metrics.get(name).unwrap_or_else(|| panic!("{kernel}: no {name}: {record:#?}"));
            assert_eq!(metric("kernel_complaints"), 0.0, "{kernel}: {:?}", record.remarks);
            assert_eq!(metric("pvtcp_reloads"), 100.0, "{kernel}");
            assert!(metric("goodput_mbit") > 1.0, "{kernel}: {}", metric("goodput_mbit"));
            // The barrier of the strobe stands still if a single connection does.
            let blocks = record.series.iter().find(|s| s.name == "block_ms").expect("blocks");
            let (start_us, block_ms) = *blocks.points.last().expect("at least one block");
            let end_us = start_us + (block_ms * 1e3) as i64;
            assert!(
                end_us + 1_500_000 > record.duration_us as i64,
                "{kernel}: the last block ended {end_us} us into {} us",
                record.duration_us
            );
        }
    }
}

const AGENT: &str = r#"
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

/// Agents of labs whose temporary directory is below `directory`.
fn agents_below(directory: &Path) -> usize {
    processes_below(directory, |line| line.contains("\0host\0"))
}

const MACHINES_WITHOUT_A_KERNEL: &str = r#"
schema = 2
name = "passage"
title = "A network that dies"
duration_ms = 1000
warmup_ms = 100
repetitions = 20
[network]
rate_mbit = 20
buffer_segments = 100
[vms.sender]
hypervisor = false
machine = "namespace"
tcp = { congestion_control = "reno" }
[vms.receiver]
hypervisor = false
machine = "namespace"
tcp = { congestion_control = "reno" }
[workloads.w]
kind = "transfers"
from = "sender"
to = "receiver"
bytes = 10000
[record]
tcp_info_period_ms = 0
"#;

/// A network that is dead ends a lab, with what devices have counted: its runs would be empty, and look like results.
#[test]
fn a_dead_network_ends_the_lab() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let scenario = scratch.path().join("passage.toml");
    std::fs::write(&scenario, MACHINES_WITHOUT_A_KERNEL).unwrap();
    let (runs, file) = ["runs.jsonl", "nothing-passes.txt"].map(|name| scratch.path().join("out").join(name)).into();
    std::fs::create_dir(scratch.path().join("out")).unwrap();
    std::fs::write(&file, "of an earlier lab").unwrap();
    let lab = start(&scenario, scratch.path(), &[]);
    wait_until("a run", Duration::from_secs(120), || {
        std::fs::read_to_string(&runs).is_ok_and(|text| text.lines().count() >= 1)
    });
    assert!(!file.exists(), "it is an earlier lab's");
    let down = |network: &File| {
        let network = format!("--net=/proc/{}/fd/{}", std::process::id(), network.as_raw_fd());
        let line = [&network, "ip", "link", "set", "vm1", "down"];
        Command::new("nsenter").args(line).stderr(Stdio::null()).status().unwrap().success()
    };
    let taken_down = networks_below(scratch.path()).values().filter(|network| down(network)).count();
    assert_eq!(taken_down, 1, "the lab's own network has the ports");
    let output = lab.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("nothing passes from sender-0 to receiver-0"), "{said}");
    let counts = std::fs::read_to_string(&file).unwrap();
    assert!(counts.contains("vm1") && counts.contains("state DOWN") && counts.contains("== sender-0"), "{counts}");
    assert_left_clean(scratch.path());
}

const CAPTURED: &str = r#"
schema = 2
name = "captured"
title = "Captures of a lab that is killed"
duration_ms = 1000
warmup_ms = 100
repetitions = 2
[vms.sender]
[vms.receiver]
hypervisor = false
machine = "namespace"
tcp = { congestion_control = "reno" }
[workloads.w]
kind = "transfers"
from = "sender"
to = "receiver"
bytes = 10000
[record]
tcp_info_period_ms = 0
capture = true
[[axes]]
name = "rate"
key = "network.rate_mbit"
values = [10, 20, 30]
"#;

/// A lab that was killed, and then interrupted, goes on with what is missing. What is finished can be read at any time.
#[test]
fn a_killed_lab_goes_on_with_what_is_missing() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let (scenario, out) = (scratch.path().join("captured.toml"), scratch.path().join("out"));
    std::fs::write(&scenario, CAPTURED).unwrap();
    let lines = || std::fs::read_to_string(out.join("runs.jsonl")).unwrap_or_default();
    let runs = |wanted: usize| {
        wait_until("runs", Duration::from_secs(300), || lines().lines().count() >= wanted);
    };
    let mut killed = start(&scenario, scratch.path(), &["--keep-capture"]);
    runs(2);
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_until("machines to end", Duration::from_secs(5), || {
        (vms_below(scratch.path()), namespaces_below(scratch.path())) == (0, 0)
    });
    let (_, first) = evenkeel_scenario::io::read_results(&out).unwrap();
    let resumed = start(&scenario, scratch.path(), &["--keep-capture", "--resume"]);
    runs(first.len() + 1);
    interrupt(resumed);
    let (_, second) = evenkeel_scenario::io::read_results(&out).unwrap();
    assert!((3..6).contains(&second.len()), "{} runs", second.len());
    // All runs of a set have their captures, or none.
    let refused = lab(&scenario, &out, &["--resume"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("with other options (`--keep-capture`)"), "{said}");

    let output = start(&scenario, scratch.path(), &["--keep-capture", "--resume"]).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (set, records) = evenkeel_scenario::io::read_results(&out).unwrap();
    assert!(!set.command.contains("--resume") && !out.join("unfinished").exists(), "{}", set.command);
    // Those of the earlier sessions as they were.
    assert_eq!((&records[..first.len()], &records[..second.len()]), (&first[..], &second[..]));
    let order: Vec<(u32, &str)> = records.iter().map(|r| (r.repetition, r.cell[0].1.as_str())).collect();
    assert_eq!(order, [(0, "10"), (0, "20"), (0, "30"), (1, "10"), (1, "20"), (1, "30")]);
    let mut captures: Vec<String> = std::fs::read_dir(out.join("captures"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    captures.sort_unstable();
    let expected = ["10", "20", "30"].map(|rate| [0, 1].map(|n| format!("{rate}.{n}.wire.pcap"))).concat();
    assert_eq!(captures, expected);
    // It is complete: shown again, without machines.
    let shown = lab(&scenario, &out, &["--keep-capture", "--resume"]).output().unwrap();
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(
        shown.status.success() && said.contains("all 6 runs are there already; the same without --resume"),
        "{said}"
    );
    assert!(!scratch.path().join("out/nothing-passes.txt").exists());
}

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
    // Its own counters, and none of this machine's; on its port packets are segments.
    let receiver = &record.counters["receiver-0"];
    let (packets, bytes) = (receiver["EthRxPackets"], receiver["EthRxBytes"]);
    assert!(packets > 0 && bytes / packets <= 1514, "{bytes} bytes in {packets} packets");
    assert!(!receiver.contains_key("CpuBusyUs") && !record.metrics.contains_key("receiver_cpu"), "{receiver:?}");
    let counted = &record.counters["sender-0"];
    assert!(counted["VfloodGrants"] > 0 && counted["VfloodUpdates"] > 0, "{counted:?}");
}

/// Makes a group a machine of its own, under this machine's kernel.
const NAMESPACE: &str = "hypervisor = false\nmachine = \"namespace\"\ntcp.congestion_control = \"reno\"";

const MEMCACHED: &str = r#"
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
    // Twenty packets at the rate of the goodput that there was at least.
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
    // Requests are as good as responses.
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
buffer_segments = 50
[vms.near]
hypervisor = false
[vms.far]
hypervisor = false
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
/// came.
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
    assert_eq!(metric("posts.damaged"), 0.0);
    let goodputs = ["backup", "requests", "requests-too", "stream"].map(|name| metric(&format!("{name}.goodput_mbit")));
    assert!(goodputs[0] > 30.0 && goodputs[0] < 50.0 && goodputs[3] > 5.0, "{goodputs:?}");
    assert!((metric("goodput_mbit") - goodputs.iter().sum::<f64>()).abs() < 0.01, "{:?}", record.metrics);
    for (name, bytes) in [("posts", 20_000), ("requests", 50_000), ("requests-too", 30_000)] {
        let ended = record.flows.iter().filter(|flow| flow.bytes == bytes && flow.to == "near-0").count();
        assert!(ended > 5 && ended as f64 == metric(&format!("{name}.flows")), "{name}: {ended}, {:?}", record.metrics);
    }
    // Payload on flows is most of what came, and no more; what iperf3 brought is in none.
    let came = |machine: &str| -> u64 { record.flows.iter().filter(|f| f.to == machine).map(|f| f.bytes).sum() };
    let streamed = (goodputs[3] * metric("time_s") * 1e6 / 8.0) as u64;
    for (machine, payload) in [("far-0", came("far-0")), ("near-0", came("near-0") + streamed)] {
        let wire = record.counters[machine]["EthRxBytes"] as u64;
        assert!(payload < wire && payload > wire * 4 / 5, "{machine}: {payload} of {wire} bytes");
    }
}

/// Ctrl-C while the agent runs takes it along.
#[test]
fn an_interrupted_lab_takes_its_agent_along() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let scenario = scratch.path().join("agent.toml");
    std::fs::write(&scenario, AGENT.replace("duration_ms = 4000", "duration_ms = 60000")).unwrap();
    let child = start(&scenario, scratch.path(), &["--only", "host=agent"]);
    wait_until("the agent to start", Duration::from_secs(300), || agents_below(scratch.path()) == 1);
    interrupt(child);
    assert_eq!((agents_below(scratch.path()), vms_below(scratch.path())), (0, 0));
    assert_left_clean(scratch.path());
}

/// A VM that is killed ends the run with its name, and nothing is left behind.
#[test]
fn a_killed_vm_ends_the_run_cleanly() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let child = start(&workspace().join("scenarios/smoke.toml"), scratch.path(), &[]);
    wait_until("VMs to start", Duration::from_secs(300), || vms_below(scratch.path()) >= 2);
    std::thread::sleep(Duration::from_secs(1));
    let killed = Command::new("pkill")
        .args(["-KILL", "-f", &format!("qemu-system.*{}.*sender", scratch.path().display())])
        .status()
        .unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("sender-0") && stderr.contains("signal 9"), "{stderr}");
    assert_eq!(vms_below(scratch.path()), 0);
    assert_left_clean(scratch.path());
}

/// Ctrl-C ends a run within seconds with exit code 130, and nothing is left behind. A second lab beside it goes on.
#[test]
fn an_interrupted_lab_leaves_nothing_and_another_goes_on() {
    let _machine = machine();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let smoke = workspace().join("scenarios/smoke.toml");
    let interrupted = start(&smoke, first.path(), &[]);
    let other = start(&smoke, second.path(), &[]);
    wait_until("both labs to boot", Duration::from_secs(300), || {
        vms_below(first.path()) >= 2 && vms_below(second.path()) >= 2
    });
    let began = Instant::now();
    interrupt(interrupted);
    assert!(began.elapsed() < Duration::from_secs(15), "took {:?}", began.elapsed());
    assert_eq!(vms_below(first.path()), 0);
    assert_left_clean(first.path());
    let output = other.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (_, records) = evenkeel_scenario::io::read_results(&second.path().join("out")).unwrap();
    assert!(records.iter().all(|r| r.metrics["goodput_mbit"] > 1.0));
}

/// Runners of network namespaces of labs whose temporary directory is below `directory`.
fn namespaces_below(directory: &Path) -> usize {
    processes_below(directory, |line| line.contains("\0lab-guest\0"))
}

/// All threads' entries in /proc, each with its network namespace.
fn threads() -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let entries = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path());
    entries(Path::new("/proc"))
        .flat_map(move |process| entries(&process.join("task")))
        .filter_map(|thread| std::fs::read_link(thread.join("ns/net")).ok().map(|network| (thread, network)))
}

/// Network namespaces of labs whose temporary directory is below `directory`, and of their machines, each once however
/// many threads it has. As long as they are open nobody else's has their numbers.
fn networks_below(directory: &Path) -> BTreeMap<PathBuf, File> {
    let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let is_below = |thread: &Path| {
        let line = std::fs::read(thread.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(directory.to_str().unwrap())
    };
    // By the open file's own name: a thread may have moved on since it was listed.
    let opened = |thread: PathBuf| {
        let network = File::open(thread.join("ns/net")).ok()?;
        let name = std::fs::read_link(format!("/proc/self/fd/{}", network.as_raw_fd())).unwrap();
        Some((name, network))
    };
    let below = threads().filter(|(thread, _)| is_below(thread)).filter_map(|(thread, _)| opened(thread));
    below.filter(|(name, _)| *name != own).collect()
}

/// Names of the threads in these network namespaces.
fn threads_in(networks: &BTreeMap<PathBuf, File>) -> Vec<String> {
    threads()
        .filter(|(_, network)| networks.contains_key(network))
        .filter_map(|(thread, _)| std::fs::read_to_string(thread.join("comm")).ok())
        .collect()
}

/// Ctrl-C ends machines that are namespaces with all that runs in them.
#[test]
fn an_interrupted_lab_takes_its_namespaces_along() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let scenario = scratch.path().join("memcached.toml");
    let text = MEMCACHED.replace("hypervisor = false", NAMESPACE).replace("duration_ms = 3000", "duration_ms = 60000");
    std::fs::write(&scenario, text).unwrap();
    let child = start(&scenario, scratch.path(), &[]);
    let mut networks = BTreeMap::new();
    wait_until("memcached in its namespace", Duration::from_secs(300), || {
        networks = networks_below(scratch.path());
        threads_in(&networks).iter().any(|name| name.trim() == "memcached")
    });
    interrupt(child);
    assert_eq!(threads_in(&networks), Vec::<String>::new());
    assert_eq!((namespaces_below(scratch.path()), vms_below(scratch.path())), (0, 0));
    assert_left_clean(scratch.path());
}

/// A lab that is killed outright takes its VMs and namespaces along.
#[test]
fn a_killed_lab_takes_its_machines_along() {
    let _machine = machine();
    let scratch = tempfile::tempdir().unwrap();
    let smoke = std::fs::read_to_string(workspace().join("scenarios/smoke.toml")).unwrap();
    let scenario = scratch.path().join("smoke.toml");
    std::fs::write(&scenario, smoke.replace("tcp = { receive_buffer_bytes = 131072 }", NAMESPACE)).unwrap();
    let mut child = lab(&scenario, &scratch.path().join("out"), &[])
        .env("TMPDIR", scratch.path())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("machines to start", Duration::from_secs(300), || {
        (vms_below(scratch.path()), namespaces_below(scratch.path())) == (1, 1)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("machines to end", Duration::from_secs(5), || {
        (vms_below(scratch.path()), namespaces_below(scratch.path())) == (0, 0)
    });
}

const QUOTA: &str = r#"
schema = 2
name = "quota"
title = "A VM with a quota beside a neighbour"
duration_ms = 2000
warmup_ms = 300
repetitions = 1
[hosts.h]
neighbours = { per_core = 1, load = 0.5 }
[vms.sender]
on = "h"
quota = { us = 30000 }
own_load = { load = 1 }
[vms.receiver]
[workloads.w]
kind = "bulk"
from = "sender"
to = "receiver"
"#;

/// The cgroups of a lab, by its process, in either version's hierarchies.
fn cgroups_of(lab: u32) -> Vec<PathBuf> {
    let below = |directory: &Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let root = Path::new("/sys/fs/cgroup");
    let groups = below(root).into_iter().flat_map(|hierarchy| below(&hierarchy)).chain(below(root));
    let prefix = format!("evenkeel-lab-{lab}-");
    groups.filter(|group| group.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))).collect()
}

/// A quota of this machine's scheduler throttles a VM. No cgroup is left of it, nor of a lab before it that was killed.
#[test]
fn a_vm_with_a_quota_is_throttled_and_no_cgroup_is_left() {
    let _machine = machine();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let scenario = first.path().join("quota.toml");
    std::fs::write(&scenario, QUOTA).unwrap();
    let mut killed = start(&scenario, first.path(), &[]);
    wait_until("the VM to be in its cgroup", Duration::from_secs(300), || !cgroups_of(killed.id()).is_empty());
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_until("the VMs to end", Duration::from_secs(5), || vms_below(first.path()) == 0);
    let other = start(&scenario, second.path(), &[]);
    let labs = [killed.id(), other.id()];
    let output = other.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<PathBuf> = labs.into_iter().flat_map(cgroups_of).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    let (_, records) = evenkeel_scenario::io::read_results(&second.path().join("out")).unwrap();
    let counters = &records[0].counters["sender-0"];
    let count = |name: &str| counters.get(name).copied().unwrap_or(0);
    // 20 periods: it uses each up, and has nothing for about 70 ms of it.
    assert!(count("CpuThrottledPeriods") >= 15, "{counters:?}");
    assert!((1_000_000..1_700_000).contains(&count("CpuThrottledUs")), "{counters:?}");
    assert!(count("CpuWaitedUs") >= 1_000_000, "{counters:?}");
    assert_eq!(records[0].metrics["throttled_ms"], count("CpuThrottledUs") as f64 / 1e3);
    assert!(records[0].metrics["vcpu_wait_max_ms"] > 40.0, "{:?}", records[0].metrics);
    let waits = records[0].series.iter().find(|s| s.name == "vcpu_wait_ms" && s.subject == "sender-0").expect("waits");
    assert!(waits.points.iter().any(|(_, ms)| *ms > 40.0), "{waits:?}");
}

fn assert_left_clean(scratch: &Path) {
    let left: Vec<_> = std::fs::read_dir(scratch)
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .filter(|name| name.to_string_lossy().starts_with("evenkeel-lab-"))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}
