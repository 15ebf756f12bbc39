//! vFlood and vSnoop on one port of a kernel that holds packets: a VM behind a tap loses its core in the middle of a
//! connection with data in both directions. Its host goes on sending what it holds, acknowledges what comes, and one
//! packet does both.

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

/// Data in both directions at once until each end has all; `meanwhile` happens once the VM's is held. Both are
/// compared.
fn exchange(machine: &Machine, meanwhile: impl FnOnce()) {
    machine
        .shell(
            "rm -f /tmp/at_vm /tmp/at_peer; \
             (cat /tmp/data; sleep 600) | ip netns exec both nc -l -p 9000 >/tmp/at_vm 2>/dev/null & echo $! \
             >/tmp/nc_vm.pid; \
             sleep 1; \
             (cat /tmp/part; sleep 600) | ip netns exec peer nc 10.8.0.3 9000 >/tmp/at_peer 2>/dev/null & echo $! \
             >/tmp/nc_peer.pid",
        )
        .unwrap();
    let is_over =
        || machine.shell("cmp /tmp/part /tmp/at_vm && cmp /tmp/data /tmp/at_peer && echo same || true").unwrap();
    wait_until("what is held", || held(machine) > 50 || is_over().contains("same"));
    meanwhile();
    wait_until("all data at both ends", || is_over().contains("same"));
    machine.shell("kill $(cat /tmp/nc_vm.pid /tmp/nc_peer.pid); sleep 0.5").unwrap();
}

/// Acknowledgements on data of the VM's that rise, in a capture.
fn risen(capture: &str) -> usize {
    let word = |line: &str, name: &str| -> Option<u32> {
        line.split_once(name)?.1.split([',', ' ']).next().and_then(|word| word.parse().ok())
    };
    let data = capture.lines().filter(|line| line.contains("9000 > ") && word(line, "length ").is_some_and(|l| l > 0));
    let acks: Vec<u32> = data.filter_map(|line| word(line, "ack ")).collect();
    acks.windows(2).filter(|pair| pair[1].wrapping_sub(pair[0]) as i32 > 0).count()
}

/// What leaves while the VM stands still is its host's doing.
fn early_acks_ride(machine: &Machine) -> bool {
    let (mut rode, mut capture) = (0, String::new());
    exchange(machine, || {
        signal(machine, "STOP");
        let before = count(machine, "vsnoop_on_data");
        machine
            .shell(
                "ip netns exec peer tcpdump -S -s 96 -B 16384 -U -ni eth1 -w /tmp/cap 'tcp port 9000' 2>/dev/null & \
                 echo $! >/tmp/tcpdump.pid; sleep 4; kill $(cat /tmp/tcpdump.pid); sleep 0.5",
            )
            .unwrap();
        rode = count(machine, "vsnoop_on_data") - before;
        capture = machine.shell("tcpdump -Snr /tmp/cap 2>/dev/null").unwrap();
        signal(machine, "CONT");
    });
    rode > 0 && risen(&capture) > 0
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

    assert!((0..5).any(|_| early_acks_ride(&machine)), "no early ACK rode on what was held");
    let early = count(&machine, "vsnoop_early_acks");
    assert!(early > 0 && count(&machine, "vflood_held") > 100, "{early} early ACKs");

    assert!((0..5).any(|_| acks_are_kept_from_it(&machine)), "its port was left to fill");
}

/// What it has handed over leaves on ACKs, most of which it need not have.
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
