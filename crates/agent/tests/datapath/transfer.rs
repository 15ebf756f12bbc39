//! Real TCP between two VMs (network namespaces) behind a bridge, with veth ports that have their offloads: GSO packets
//! and partial checksums. A program of three instructions at the receiver's port stands for a switch that marks all it
//! can.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use evenkeel_agent::datapath::{Datapath, intf};
use evenkeel_testbed::place::{index, leave};
use evenkeel_testbed::program::Program;
use evenkeel_testbed::vm::{Vm, bridge, tcp_counter};

use crate::ports::{A, B, KEY, settings};

const BYTES: usize = 8 << 20;

struct Seen {
    a: intf::ek_counters,
    b: intf::ek_counters,
    flow_a: intf::ek_flow,
    flow_b: intf::ek_flow,
}

/// Moves BYTES from A to B over one connection and takes the state before it is closed.
fn transfer(is_marking: bool) -> Seen {
    let directory = tempfile::tempdir().unwrap();
    leave(directory.path());
    bridge();
    let (vm_a, vm_b) = (Vm::new("pa", "", A), Vm::new("pb", "", B));
    let mut datapath = Datapath::open(&directory.path().join("evenkeel")).unwrap();
    let (pa, pb) = (index("pa"), index("pb"));
    for port in [pa, pb] {
        datapath.attach(port, &settings(intf::EK_MODE_ENFORCE)).unwrap();
    }
    let mut host = intf::ek_host { version: intf::EK_INTF_VERSION, keys: 1, ..Default::default() };
    host.key[0] = KEY;
    datapath.set_host(&host).unwrap();
    let marker = Program::mark_all();
    let _marking = is_marking.then(|| marker.attach(pb, libbpf_sys::BPF_TCX_EGRESS));

    let listener = vm_b.spawn(|| TcpListener::bind((B, 8000)).unwrap()).join().unwrap();
    let receiver = vm_b.spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut data = vec![0; BYTES];
        stream.read_exact(&mut data).unwrap();
        stream.write_all(b"!").unwrap();
        assert!(data.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8), "data arrived changed");
        (stream, tcp_counter("InCsumErrors"), tcp_counter("OutRsts"))
    });
    let sender = vm_a.spawn(|| {
        let mut stream = TcpStream::connect((B, 8000)).unwrap();
        let data: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
        stream.write_all(&data).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        (stream, tcp_counter("InCsumErrors"), tcp_counter("OutRsts"))
    });
    let sender = sender.join().unwrap();
    let receiver = receiver.join().unwrap();
    assert_eq!((sender.1, sender.2, receiver.1, receiver.2), (0, 0, 0, 0), "checksum errors and resets");
    let flow = |port| {
        let flows = datapath.flows().unwrap();
        let found: Vec<_> = flows.iter().filter(|(key, _)| key.ifindex == port).collect();
        assert_eq!(found.len(), 1);
        found[0].1
    };
    Seen { a: datapath.counters(pa).unwrap(), b: datapath.counters(pb).unwrap(), flow_a: flow(pa), flow_b: flow(pb) }
}

fn value(counters: &intf::ek_counters, which: u32) -> u64 {
    counters.value[which as usize]
}

#[test]
fn a_transfer_without_marks() {
    let seen = transfer(false);
    assert_eq!(value(&seen.a, intf::EK_COUNT_PROBES_SENT), 10);
    assert_eq!(value(&seen.b, intf::EK_COUNT_PROBES_SEEN), 10);
    assert_eq!(value(&seen.a, intf::EK_COUNT_REPORTS_SEEN), 1);
    assert_eq!(value(&seen.b, intf::EK_COUNT_SYNACKS_SCALED), 1);
    assert_eq!(seen.flow_b.synack_window_bytes, 10 * 1448);
    assert!(value(&seen.a, intf::EK_COUNT_ECT_SET) > 0);
    assert_eq!(value(&seen.a, intf::EK_COUNT_WINDOWS_LIMITED), 0);
    assert!(seen.flow_a.bytes_from_vm >= BYTES as u64);
}

#[test]
fn a_transfer_with_everything_marked() {
    let seen = transfer(true);
    assert_eq!(value(&seen.b, intf::EK_COUNT_PROBES_MARKED), 10);
    assert_eq!(value(&seen.b, intf::EK_COUNT_SYNACKS_ONE_MSS), 1);
    assert_eq!(seen.flow_b.synack_window_bytes, 1448);
    let hidden = value(&seen.b, intf::EK_COUNT_CE_HIDDEN);
    assert!(hidden > 0 && hidden == value(&seen.b, intf::EK_COUNT_CE_SEEN));
    assert!(value(&seen.b, intf::EK_COUNT_ECE_SET) > 0);
    let hidden = value(&seen.a, intf::EK_COUNT_ECE_HIDDEN);
    assert!(hidden > 0 && hidden == value(&seen.a, intf::EK_COUNT_ECE_SEEN));
    assert!(value(&seen.a, intf::EK_COUNT_WINDOWS_LIMITED) > 0);
    for counters in [&seen.a, &seen.b] {
        assert_eq!(value(counters, intf::EK_COUNT_WRITE_FAILED), 0);
    }
}
