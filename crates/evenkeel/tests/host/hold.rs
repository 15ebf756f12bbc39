//! vFlood's queue, on kernels that have qdiscs in BPF: in a guest of its own, with namespaces for VMs. What a VM floods leaves as a
//! standard TCP sender's, and all of it arrives, whatever happens to the agent meanwhile.

use std::path::Path;

use evenkeel_lab::host::vm::Vm as Machine;
use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::{self, KernelSeries};
use tempfile::TempDir;

use crate::bed::Host;
use crate::others::boot;

const BED: &str = include_str!("hold.sh");
/// What a segment carries, with timestamps.
const MSS_BYTES: u64 = 1448;
/// RFC 6928
const INITIAL_WINDOW_SEGMENTS: u64 = 10;

fn configure(machine: &Machine, mode: &str, more: &str) {
    let text = format!(
        "ports = [\"vp*\"]\nport_queue_segments = 0\n[proboscis]\nmode = \"off\"\n[vflood]\nmode = \"{mode}\"\n{more}\n[metrics]\nenabled = false"
    );
    machine.shell(&format!("cat >/tmp/host.toml <<'END'\n{text}\nEND")).unwrap();
}

fn start(machine: &Machine) {
    machine
        .shell(
            "setsid evenkeel host --config /tmp/host.toml >/tmp/host.log 2>&1 </dev/null & echo $! >/tmp/agent.pid; \
             for i in $(seq 40); do evenkeel status --json 2>/dev/null | grep -q vp0 && exit 0; sleep 0.5; done; \
             cat /tmp/host.log; exit 1",
        )
        .unwrap();
}

fn count(machine: &Machine, name: &str) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&machine.shell("evenkeel status --json").unwrap()).unwrap();
    status["counters"][name].as_u64().unwrap_or_else(|| panic!("no counter {name}"))
}

/// A guest with a VM in it, whose agent has vFlood on.
fn bed(series: KernelSeries, interrupt: &Interrupt) -> (Host, TempDir, Machine) {
    let binary = Path::new(env!("CARGO_BIN_EXE_evenkeel"));
    let images = prepare::prepare(&[series], binary, &|line| println!("{line}")).unwrap();
    let host = Host::new();
    let directory = tempfile::tempdir().unwrap();
    let machine = boot(&images[0], "hold", 40, directory.path(), interrupt);
    machine.shell(BED).unwrap();
    configure(&machine, "enforce", "");
    start(&machine);
    (host, directory, machine)
}

/// The other end fetches from the VM and compares; `meanwhile` happens while it does.
fn fetch(machine: &Machine, meanwhile: &str) {
    machine
        .shell(&format!(
            "rm -f /tmp/got; ip netns exec peer wget -q -T 50 -O /tmp/got http://10.8.0.1:8001/data & pid=$!; \
             sleep 0.3; {meanwhile}; wait $pid; cmp /tmp/got /tmp/data"
        ))
        .unwrap();
}

/// Slow start at the other end: beyond what is acknowledged never more than the initial window and a segment for each that was acknowledged,
/// however short (as Linux counts; RFC 5681, section 3.1 lets no ACK add more). How many segments came.
fn slow_start(capture: &str) -> u64 {
    let (mut acked, mut sent, mut ends) = (0, 0, Vec::new());
    for line in capture.lines() {
        let word =
            |name: &str| line.split_once(name).map(|(_, rest)| rest.split([',', ' ']).next().unwrap_or_default());
        if line.contains("8001 > ") {
            let Some((_, end)) = word("seq ").and_then(|range| range.split_once(':')) else { continue };
            let end = end.parse::<u64>().unwrap();
            sent = sent.max(end);
            ends.push(end);
            let acked_segments = ends.iter().filter(|end| **end <= acked).count() as u64;
            let window = acked + (INITIAL_WINDOW_SEGMENTS + 1 + acked_segments) * MSS_BYTES;
            assert!(
                sent <= window,
                "{sent} bytes after {acked} in {acked_segments} segments were acknowledged:\n{capture}"
            );
            assert!(word("length ").unwrap().parse::<u64>().unwrap() <= MSS_BYTES, "{line}");
        } else if let Some(ack) = word("ack ") {
            acked = acked.max(ack.parse().unwrap());
        }
    }
    ends.len() as u64
}

#[test]
fn what_a_vm_floods_leaves_as_a_standard_sender_sends_and_all_of_it_arrives() {
    let interrupt = Interrupt::install().unwrap();
    let (_host, _directory, machine) = bed(KernelSeries::Newest, &interrupt);

    for offload in ["on", "off"] {
        machine
            .shell(&format!(
                "ip netns exec vm ethtool -K eth1 tso {offload} gso {offload}; \
                 ip netns exec peer tcpdump -s 96 -U -ni eth1 -w /tmp/cap 'tcp port 8001' 2>/dev/null & echo $! >/tmp/tcpdump.pid; sleep 2"
            ))
            .unwrap();
        fetch(&machine, "true");
        let capture = machine.shell("sleep 1; kill $(cat /tmp/tcpdump.pid); tcpdump -nr /tmp/cap 2>/dev/null").unwrap();
        let segments = slow_start(&capture);
        assert!(segments >= 2_000_000 / MSS_BYTES, "{segments} segments");
    }
    assert!(count(&machine, "vflood_held") > 100 && count(&machine, "vflood_split") > 0);

    let reload = "kill -HUP $(cat /tmp/agent.pid)";
    for (mode, more) in [
        ("enforce", "policy = \"none\""),
        ("enforce", "policy = \"priority\"\ncongestion_control = \"cubic\"\nbuffer_segments = 100"),
        ("observe", ""),
        ("enforce", "congestion_control = \"vegas\""),
        ("off", ""),
        ("enforce", ""),
    ] {
        configure(&machine, mode, more);
        fetch(&machine, reload);
    }
    // Losses on the way: the guest repairs them, the host's window halves.
    machine.shell("tc qdisc add dev up0 root netem loss 1% limit 10000").unwrap();
    fetch(&machine, "true");
    machine.shell("tc qdisc del dev up0 root").unwrap();
    assert!(count(&machine, "vflood_losses") > 0);

    fetch(&machine, "kill -9 $(cat /tmp/agent.pid)");
    start(&machine);
    fetch(&machine, "evenkeel host --stop >/tmp/stopped");
    let left =
        machine.shell("ip -br link | grep ek || true; tc qdisc | grep evenkeel || true; ls /sys/fs/bpf").unwrap();
    assert_eq!(left.trim(), "", "left: {left}");
}

#[test]
fn a_kernel_that_cannot_hold_is_told_in_one_line_and_the_rest_runs() {
    let interrupt = Interrupt::install().unwrap();
    let (_host, _directory, machine) = bed(KernelSeries::V6_12, &interrupt);
    let log = machine.shell("grep -c 'vFlood is off on this port.*6.16.*CONFIG_NET_SCH_BPF' /tmp/host.log").unwrap();
    assert_eq!(log.trim(), "1");
    fetch(&machine, "true");
    assert_eq!(count(&machine, "vflood_flows"), 0);
    // ProBoSCIS beside it: `off` stands only there.
    machine.shell("sed -i 's/\"off\"/\"observe\"/' /tmp/host.toml && kill -HUP $(cat /tmp/agent.pid)").unwrap();
    machine
        .shell("for i in $(seq 40); do evenkeel status | grep -q 'vp0.*observe' && exit 0; sleep 0.5; done; evenkeel status; exit 1")
        .unwrap();
    fetch(&machine, "true");
    assert!(count(&machine, "flows") > 0);
}
