//! vFlood and vSnoop on one port of a kernel that holds packets: a VM behind a tap loses its core in the middle of a
//! connection with data in both directions. Its host goes on sending what it holds, acknowledges what comes, and one
//! packet does both. Where the tap's send buffer is small, what is held leaves room in it.

use std::process::Command;
use std::time::Duration;

use evenkeel_lab::host::vm::Vm as Machine;
use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::KernelSeries;
use evenkeel_lab::proto::Op;
use serde_json::Value;

use crate::bed::wait_until;
use crate::vflood;

const BED: &str = include_str!("both.sh");

/// Compiles the VM for the guest, and puts it there.
fn bring_tap_vm(machine: &Machine, directory: &std::path::Path) {
    let program = directory.join("tap_vm");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host/tap_vm.c");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
    let made = Command::new(&clang).args(["-O2", "-s", "-static", "-o"]).arg(&program).arg(source).output().unwrap();
    assert!(made.status.success(), "{clang}: {}", String::from_utf8_lossy(&made.stderr));
    let packed = Command::new("sh").args(["-c", "gzip -9 <\"$0\" | base64"]).arg(&program).output().unwrap();
    let text = String::from_utf8(packed.stdout).unwrap();
    machine.call(Op::WriteFile { path: "/tmp/tap_vm.txt".into(), text }).unwrap();
    machine.shell("base64 -d /tmp/tap_vm.txt | gunzip >/tmp/tap_vm && chmod +x /tmp/tap_vm").unwrap();
}

fn port(machine: &Machine) -> Value {
    let status: Value = serde_json::from_str(&machine.shell("evenkeel status --json").unwrap()).unwrap();
    let ports = status["ports"].as_array().unwrap();
    ports.iter().find(|port| port["name"] == "vp1").cloned().unwrap_or_default()
}

fn count(machine: &Machine, name: &str) -> u64 {
    port(machine)["counters"][name].as_u64().unwrap_or_else(|| panic!("no counter {name}"))
}

fn held(machine: &Machine) -> u64 {
    port(machine)["vflood"]["held_segments"].as_u64().unwrap_or_default()
}

fn signal(machine: &Machine, name: &str) {
    machine.shell(&format!("kill -{name} $(cat /tmp/tap_vm.pid)")).unwrap();
}

/// Sends data in both directions at once until each end has all, and compares both. The VM loses its core
/// `stop_after_s` seconds after the start, for four seconds; the other end's capture from then on is returned. The
/// guest does all of this in one script: it is over in seconds, and a busy machine takes as long for each call.
fn exchange(machine: &Machine, stop_after_s: f64) -> String {
    machine
        .shell(&format!(
            "rm -f /tmp/at_vm /tmp/at_peer; \
             (cat /tmp/data; sleep 600) | ip netns exec both nc -l -p 9000 >/tmp/at_vm 2>/dev/null & echo $! \
             >/tmp/nc_vm.pid; \
             ip netns exec peer tcpdump -S -s 96 -B 16384 -U -ni eth1 -w /tmp/cap 'tcp port 9000' 2>/dev/null & \
             echo $! >/tmp/tcpdump.pid; sleep 2; \
             (cat /tmp/part; sleep 600) | ip netns exec peer nc 10.8.0.3 9000 >/tmp/at_peer 2>/dev/null & echo $! \
             >/tmp/nc_peer.pid; \
             sleep {stop_after_s}; kill -STOP $(cat /tmp/tap_vm.pid); date +%s >/tmp/stopped; sleep 4; \
             kill $(cat /tmp/tcpdump.pid); kill -CONT $(cat /tmp/tap_vm.pid)"
        ))
        .unwrap();
    wait_until("all data at both ends", || {
        machine.shell("cmp /tmp/part /tmp/at_vm && cmp /tmp/data /tmp/at_peer && echo same || true").unwrap() != ""
    });
    machine.shell("kill $(cat /tmp/nc_vm.pid /tmp/nc_peer.pid); sleep 0.5").unwrap();
    let stopped: u64 = machine.shell("cat /tmp/stopped").unwrap().trim().parse().unwrap();
    let capture = machine.shell("tcpdump -ttSnr /tmp/cap 2>/dev/null").unwrap();
    let is_since =
        |line: &&str| line.split('.').next().and_then(|at| at.parse::<u64>().ok()).is_some_and(|at| at > stopped);
    capture.lines().filter(is_since).collect::<Vec<_>>().join("\n")
}

/// How often the acknowledgement on the VM's data rises in a capture.
fn risen(capture: &str) -> usize {
    let word = |line: &str, name: &str| -> Option<u32> {
        line.split_once(name)?.1.split([',', ' ']).next().and_then(|word| word.parse().ok())
    };
    let data = capture.lines().filter(|line| line.contains("9000 > ") && word(line, "length ").is_some_and(|l| l > 0));
    let acks: Vec<u32> = data.filter_map(|line| word(line, "ack ")).collect();
    acks.windows(2).filter(|pair| pair[1].wrapping_sub(pair[0]) as i32 > 0).count()
}

#[test]
fn one_packet_of_a_vm_without_its_core_sends_what_is_held_and_acknowledges_what_comes() {
    let interrupt = Interrupt::install().unwrap();
    let (_host, directory, machine) = vflood::bed(KernelSeries::Newest, &interrupt);
    bring_tap_vm(&machine, directory.path());
    machine.shell(BED).unwrap();
    vflood::configure(
        &machine,
        "enforce",
        "congestion_control = \"cubic\"\n[vsnoop]\nmode = \"enforce\"\nendpoint = \"observed\"",
    );
    machine.shell("kill -HUP $(cat /tmp/agent.pid)").unwrap();
    wait_until("the tap's port", || port(&machine)["vsnoop"]["mode"] == "enforce");

    // After some round trips each end has taken data of the other's while the host still holds some; the slower the
    // machine, the later that is.
    let mut stops = [2.0, 3.0, 4.5, 6.5, 9.0, 13.0].into_iter();
    assert!(stops.any(|after_s| risen(&exchange(&machine, after_s)) > 0), "no early ACK rode on what was held");
    assert!(count(&machine, "vsnoop_on_data") > 0, "none was counted");
    let early = count(&machine, "vsnoop_early_acks");
    assert!(early > 0 && count(&machine, "vflood_held") > 100, "{early} early ACKs");

    assert!((0..5).any(|_| acks_are_kept_from_it(&machine)), "its port was left to fill");

    what_is_held_leaves_room(&machine);
}

/// What the VM has handed over leaves on ACKs, most of which it does not need. Returns whether any were kept from it.
fn acks_are_kept_from_it(machine: &Machine) -> bool {
    let before = count(machine, "vflood_filtered_acks");
    machine
        .shell(
            "rm -f /tmp/got /tmp/code; \
             (ip netns exec peer wget -q -T 50 -O /tmp/got http://10.8.0.3:8001/data; echo $? >/tmp/code) \
             >/dev/null 2>&1 </dev/null &",
        )
        .unwrap();
    let code = || machine.shell("cat /tmp/code 2>/dev/null || true").unwrap();
    wait_until("what is held", || held(machine) > 50 || !code().is_empty());
    signal(machine, "STOP");
    wait_until("what is held to leave", || held(machine) == 0);
    std::thread::sleep(Duration::from_millis(500));
    let filtered = count(machine, "vflood_filtered_acks") - before;
    signal(machine, "CONT");
    wait_until("the transfer", || !code().is_empty());
    assert_eq!(code().trim(), "0");
    machine.shell("cmp /tmp/got /tmp/data").unwrap();
    filtered > 0
}

/// A tap takes 60 packets at once (`TUNSETSNDBUF`) and a queue on the way only 5, so data is sent again: it must come
/// in behind what is held. All of it arrives.
fn what_is_held_leaves_room(machine: &Machine) {
    machine
        .shell(
            "ip netns pids both | xargs kill; while ip link show vp1 >/dev/null 2>&1; do sleep 0.1; done; \
             ip netns del both",
        )
        .unwrap();
    machine.shell(&format!("SEND_BYTES=150000\n{BED}")).unwrap();
    machine
        .shell(
            "tc -n peer qdisc change dev eth1 root netem delay 20ms limit 10000; \
             tc qdisc replace dev up0 root netem rate 10mbit limit 5",
        )
        .unwrap();
    wait_until("the tap's port again", || port(machine)["vflood"]["mode"] == "enforce");
    vflood::fetch_from(machine, "10.8.0.3", "data", "true");
    let (held, losses) = (count(machine, "vflood_held"), count(machine, "vflood_losses"));
    assert!(held > 100 && losses > 0, "{held} packets were held, {losses} losses");
}
