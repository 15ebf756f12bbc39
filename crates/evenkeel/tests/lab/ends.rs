//! How labs end, and what they leave: interrupted, killed, with a network or a VM that dies.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::agents::AGENT;
use crate::workloads::MEMCACHED;
use crate::{
    NAMESPACE, agents_below, assert_left_clean, interrupt, lab, machine, processes_below, start, vms_below, wait_until,
    workspace,
};

const MACHINES_WITHOUT_A_KERNEL: &str = r#"
schema = 2
name = "passage"
title = "A network that dies"
duration_ms = 1000
warmup_ms = 100
repetitions = 1
[network]
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
[[axes]]
name = "rate"
key = "network.rate_mbit"
values = [20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39]
"#;

/// A dead network ends a lab, which leaves what devices have counted: its runs would be empty, and look like results.
/// Most of the time the lab waits for echoes, and leaves the machine to others.
#[test]
fn a_dead_network_ends_the_lab() {
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

/// What a boot decides is part of the spread: cells share machines within a repetition alone.
#[test]
fn each_repetition_boots_anew() {
    let scratch = tempfile::tempdir().unwrap();
    let scenario = scratch.path().join("anew.toml");
    std::fs::write(&scenario, MACHINES_WITHOUT_A_KERNEL).unwrap();
    let arguments = ["--repetitions", "2", "--only", "rate=20", "--only", "rate=21"];
    let output = start(&scenario, scratch.path(), &arguments).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let runs = std::fs::read_to_string(scratch.path().join("out/runs.jsonl")).unwrap();
    assert_eq!((runs.lines().count(), said.matches("booting vms=").count()), (4, 2), "{said}");
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
    // Either all runs of a set have captures, or none.
    let refused = lab(&scenario, &out, &["--resume"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("with other options (`--keep-capture`)"), "{said}");

    let output = start(&scenario, scratch.path(), &["--keep-capture", "--resume"]).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (set, records) = evenkeel_scenario::io::read_results(&out).unwrap();
    assert!(!set.command.contains("--resume") && !out.join("unfinished").exists(), "{}", set.command);
    // Runs of the earlier sessions are as they were.
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
    // Of the lab that was killed, too.
    assert_left_clean(scratch.path());
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
/// many threads it has. While they are open, no other namespace gets their numbers.
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
