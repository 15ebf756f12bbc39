//! `evenkeel port offline`, as before a live migration, with transfers running: nothing is lost, and when the command
//! comes back nothing is held and nothing is promised that the VM does not have.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_lab::host::vm::Vm as Machine;
use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::KernelSeries;
use evenkeel_testbed::tap::TapVm;
use evenkeel_testbed::vm::Vm;
use serde_json::Value;

use crate::bed::{BYTES, Host, LIMIT, METRICS, SERVER, counter, pattern, wait_until};
use crate::vflood::{self, count, fetch, slow_start, status};

/// What is held leaves as a standard sender sends it, and not in a burst: data beyond the windows would be dropped on
/// the way or by the receiver.
#[test]
fn what_is_held_leaves_under_its_windows_before_a_vm_may_go() {
    let interrupt = Interrupt::install().unwrap();
    let (_host, _directory, machine) = vflood::bed(KernelSeries::Newest, &interrupt);
    machine
        .shell(
            "ip netns exec vm ethtool -K eth1 tso off gso off; \
             tc -n peer qdisc change dev eth1 root netem delay 800ms limit 10000",
        )
        .unwrap();
    assert!(
        (0..5).any(|_| leaves_on_acks(&machine)),
        "what was held left whatever the windows said, or nothing was held"
    );

    machine.shell("tc -n peer qdisc change dev eth1 root netem delay 20ms limit 10000").unwrap();
    let (held, flows) = (count(&machine, "vflood_held"), count(&machine, "vflood_flows"));
    fetch(&machine, "true");
    assert_eq!((count(&machine, "vflood_held"), count(&machine, "vflood_flows")), (held, flows), "offline");
    // The move is called off while a transfer runs that nobody manages.
    fetch(&machine, "evenkeel port online vp0");
    fetch(&machine, "true");
    assert!(count(&machine, "vflood_held") > held, "online again, nothing was held");
}

/// Goes offline while a transfer is held for some round trips. Returns whether that was in time, and no ACK took so
/// long that the host ceased to wait for it; on a busy machine either may fail.
fn leaves_on_acks(machine: &Machine) -> bool {
    let drained = count(machine, "vflood_drained");
    machine
        .shell(
            "evenkeel port online vp0; rm -f /tmp/got /tmp/code; \
             ip netns exec peer tcpdump -s 96 -B 16384 -U -ni eth1 -w /tmp/cap 'tcp port 8001' 2>/dev/null & \
             echo $! >/tmp/tcpdump.pid; sleep 2; \
             (ip netns exec peer wget -q -T 50 -O /tmp/got http://10.8.0.1:8001/small; echo $? >/tmp/code) \
             >/dev/null 2>&1 </dev/null &",
        )
        .unwrap();
    let held = || {
        let port = &status(machine)["ports"][0];
        port["vflood"]["held_segments"].as_u64().unwrap()
    };
    let code = || machine.shell("cat /tmp/code 2>/dev/null || true").unwrap();
    wait_until("what is held", || held() > 10 || !code().is_empty());
    let left = |wait: &str| -> Option<u64> {
        let said = machine.shell(&format!("evenkeel port offline vp0 --wait {wait} --json || true")).unwrap();
        serde_json::from_str::<Value>(&said).ok()?["left"]["held_segments"].as_u64()
    };
    let first = left("0").unwrap();
    wait_until("what is held to leave", || left("10") == Some(0));
    wait_until("the transfer", || !code().is_empty());
    assert_eq!(code().trim(), "0");
    machine.shell("cmp /tmp/got /tmp/small").unwrap();
    let capture = machine.shell("sleep 1; kill $(cat /tmp/tcpdump.pid); tcpdump -nr /tmp/cap 2>/dev/null").unwrap();
    if first == 0 || count(machine, "vflood_drained") > drained {
        return false;
    }
    slow_start(&capture);
    true
}

/// A number that `ss` gives for the connection in this VM, 0 if it says nothing.
fn told(vm: &Vm, name: &'static str) -> u64 {
    vm.spawn(move || {
        let said = Command::new("ss").args(["-tinH", "state", "established"]).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        said.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix(':')?.parse().ok()).unwrap_or(0)
    })
    .join()
    .unwrap()
}

/// Sends until told to end. The other end compares what comes, and all that was sent must come.
fn stream(from: &Vm, to: &Vm, ends: &Arc<AtomicBool>, meanwhile: impl FnOnce()) {
    let address = to.address;
    let listener = to.spawn(move || TcpListener::bind((address, SERVER)).unwrap()).join().unwrap();
    let receiver = to.spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let (mut came, mut data) = (0, vec![0; 1 << 16]);
        loop {
            let read = stream.read(&mut data).expect("data that was acknowledged did not come");
            if read == 0 {
                return came;
            }
            let is_whole = data[..read].iter().enumerate().all(|(i, byte)| *byte == pattern((came + i) % BYTES));
            assert!(is_whole, "a transfer came damaged");
            came += read;
        }
    });
    let is_over = Arc::clone(ends);
    let sender = from.spawn(move || {
        let mut stream = TcpStream::connect((address, SERVER)).unwrap();
        let data: Vec<u8> = (0..BYTES).map(pattern).collect();
        let mut sent = 0;
        while !is_over.load(Ordering::SeqCst) {
            stream.write_all(&data).unwrap();
            sent += data.len();
        }
        sent
    });
    meanwhile();
    ends.store(true, Ordering::SeqCst);
    assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
}

/// The old host's queue is lost when the VM goes: by then the VM must have all that was acknowledged.
#[test]
fn what_was_acknowledged_early_is_in_the_vm_before_it_may_go() {
    let mut host = Host::new();
    host.configure("off", METRICS, "[vsnoop]\nmode = \"enforce\"\nendpoint = \"observed\"");
    let vm = TapVm::new("vp1", false, "10.9.0.1");
    let other = Vm::new("plain", "", "10.9.0.2");
    host.start();
    wait_until("the port's queue", || host.status()["ports"][0]["queue_segments"] == 4000);
    let early_acks = || counter(&host.status(), "vp1", "vsnoop_early_acks");
    let promised = || host.status()["ports"][0]["vsnoop"]["outstanding_segments"].as_u64().unwrap();

    let ends = Arc::new(AtomicBool::new(false));
    let mut at_the_end = 0;
    stream(&other, &vm.vm, &ends, || {
        wait_until("early ACKs", || early_acks() > 100);
        // What the other end sends while the VM stands still is acknowledged before the VM has it, unless something was
        // missing just then.
        wait_until("promises", || {
            vm.run(false);
            let is_promised = |_| {
                std::thread::sleep(Duration::from_millis(20));
                promised() > 20 && told(&other, "bytes_acked") > told(&vm.vm, "bytes_received") + 1
            };
            let is_there = (0..20).any(is_promised);
            vm.run(!is_there);
            is_there
        });
        let refused = host.ask(&["port", "offline", "vp1", "--wait", "0.3"]).unwrap_err();
        assert!(refused.contains("1 connections have data promised by vSnoop"), "{refused}");
        at_the_end = early_acks();

        vm.run(true);
        let said = host.ask(&["port", "offline", "vp1", "--wait", "50"]).unwrap();
        assert_eq!(said["left"]["promised_connections"], 0, "{said}");
        // The VM stands still on its way to another host, and data goes on coming.
        vm.run(false);
        let (acked, received) = (told(&other, "bytes_acked"), told(&vm.vm, "bytes_received"));
        assert!(acked > 0 && acked <= received + 1, "{acked} bytes acknowledged, the VM has {received}");
        assert_eq!(host.status()["ports"][0]["offline"]["promised_connections"], 0);
        vm.run(true);
    });
    assert_eq!(early_acks(), at_the_end, "an ACK of vSnoop's while the port was offline");

    host.ask(&["port", "online", "vp1"]).unwrap();
    ends.store(false, Ordering::SeqCst);
    stream(&other, &vm.vm, &ends, || wait_until("early ACKs again", || early_acks() > at_the_end));
}
