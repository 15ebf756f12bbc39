//! Others' programs, ahead of evenkeel's and behind them, write into all that stays with a packet beside its bytes.
//! Connections work, no packet is taken for one of evenkeel's own or makes more than its share of packets, and others'
//! marks stay.

use evenkeel_testbed::place::{index, ip};
use evenkeel_testbed::program::{Link, Order, Program};
use evenkeel_testbed::tap::TapVm;
use evenkeel_testbed::vm::{Vm, tcp_counter};
use serde_json::{Value, json};

use crate::bed::{Host, METRICS, counter, wait_until};
use crate::clsact::filter;
use crate::upload::{Load, VSNOOP, add_v6, server, upload};

const HOOKS: [u32; 2] = [libbpf_sys::BPF_TCX_INGRESS, libbpf_sys::BPF_TCX_EGRESS];
/// Probes before a SYN.
const PROBES: u64 = 10;

/// Ports of the bridge where the MAC of a VM's device was seen.
fn learned_at(vm: &Vm) -> Vec<String> {
    let links: Value = serde_json::from_str(&vm.spawn(|| ip("-j link show eth0")).join().unwrap()).unwrap();
    let mac = &links[0]["address"];
    let output = std::process::Command::new("bridge").args(["-j", "fdb", "show", "br", "br0"]).output();
    let entries: Value = serde_json::from_slice(&output.expect("iproute2 is installed").stdout).unwrap();
    let here = entries.as_array().unwrap().iter().filter(|entry| entry["mac"] == *mac);
    here.map(|entry| entry["ifname"].as_str().unwrap().to_owned()).collect()
}

/// What a VM's TCP has sent: connections, segments sent again, and other segments.
fn sent(vm: &Vm) -> (u64, u64, u64) {
    vm.spawn(|| (tcp_counter("ActiveOpens"), tcp_counter("RetransSegs"), tcp_counter("OutSegs"))).join().unwrap()
}

/// Attaches a program to both ports, at both sides.
fn at_tcx(program: &Program, order: Order) -> Vec<Link> {
    ["vp1", "vp2"].into_iter().flat_map(|port| HOOKS.map(|hook| program.attach_at(index(port), hook, order))).collect()
}

/// The same by filters of tc's.
fn at_clsact(host: &Host, program: &Program, order: Order) -> Vec<Link> {
    for port in ["vp1", "vp2"] {
        for side in ["ingress", "egress"] {
            filter(host, program, port, side, order);
        }
    }
    Vec::new()
}

fn beside_a_program_that_writes(attach: &'static str, value: i32, order: Order, has_offloads: bool) {
    let mut host = Host::by(attach);
    host.configure("enforce", METRICS, VSNOOP);
    let vm = TapVm::new("vp1", has_offloads, "10.9.0.1");
    let client = host.add_vm(2);
    add_v6(&vm.vm, "fd09::1");
    add_v6(&client, "fd09::2");
    if !has_offloads {
        client.spawn(|| ip("link set eth0 gso_max_segs 1")).join().unwrap();
    }
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    let program = Program::scribble(value);
    let _links: Vec<_> = if attach == "tcx" { at_tcx(&program, order) } else { at_clsact(&host, &program, order) };
    // Sees what has come through the client's port, before anybody else at the VM's.
    let judge = Program::want_mark(value);
    let _judge = judge.attach_at(index("vp1"), libbpf_sys::BPF_TCX_EGRESS, Order::Before);

    for (number, [at, back]) in [["10.9.0.1", "10.9.0.2"], ["fd09::1", "fd09::2"]].into_iter().enumerate() {
        upload(&vm.vm, &client, server(at), Load::USUAL);
        upload(&client, &vm.vm, server(back), Load::USUAL);
        let status = host.status();
        let connections = number as u64 + 1;
        for (port, vm) in [("vp1", &vm.vm), ("vp2", &client)] {
            let (opened, again, segments) = sent(vm);
            assert_eq!(opened, connections);
            let count = |name| counter(&status, port, name);
            assert!((opened..=opened + again).contains(&count("syns_from_vm")), "{port}: {status}");
            let most = segments + again + count("not_tcp");
            assert!(count("packets_from_vm") <= most, "{port}, {most}: {status}");
            assert_eq!((count("probes_sent"), count("probes_seen")), (PROBES * opened, PROBES * opened), "{port}");
            assert_eq!(count("reports_sent"), connections, "{port}");
        }
        assert!(counter(&status, "vp1", "vsnoop_early_acks") > 0, "nothing was acknowledged early");
        assert_eq!(learned_at(&vm.vm), ["vp1"]);
        assert_eq!(learned_at(&client), ["vp2"]);
    }
}

/// At each hook one program is there when the agent begins, and one comes later.
#[test]
fn status_lists_programs_of_others_in_their_order() {
    let mut host = Host::new();
    host.configure("enforce", METRICS, "");
    let _vms = [host.add_vm(1), host.add_vm(2)];
    let (first, second) = (Program::scribble(1), Program::empty());
    let port = index("vp1");
    let mut links: Vec<_> = HOOKS.iter().map(|hook| first.attach_at(port, *hook, Order::After)).collect();
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    let others = || host.status()["ports"][0]["others"].clone();
    let text = || String::from_utf8(host.evenkeel(&["status", "--socket", &host.text("host.sock")]).stdout).unwrap();
    let beside = json!({ "before": [first.id()], "after": [] });
    assert_eq!(others(), json!({ "to_vm": beside, "from_vm": beside }));
    links.push(second.attach_at(port, HOOKS[0], Order::After));
    links.push(second.attach_at(port, HOOKS[1], Order::Before));
    let from_vm = json!({ "before": [first.id()], "after": [second.id()] });
    let to_vm = json!({ "before": [second.id(), first.id()], "after": [] });
    assert_eq!(others(), json!({ "to_vm": to_vm, "from_vm": from_vm }));
    let line = format!(
        "other programs on vp1: {second}, {first} before evenkeel's to the VM; {first} before evenkeel's from the VM; \
         {second} after evenkeel's from the VM\n",
        first = first.id(),
        second = second.id(),
    );
    assert!(text().contains(&line), "{}", text());
    assert!(!text().contains("on vp2"), "{}", text());
    links.clear();
    assert_eq!(others(), json!({ "to_vm": { "before": [], "after": [] }, "from_vm": { "before": [], "after": [] } }));
}

#[test]
fn ahead_of_ours() {
    for (value, has_offloads) in [(0, true), (0xa00, true), (0xa00, false), (-1, true)] {
        beside_a_program_that_writes("tcx", value, Order::Before, has_offloads);
    }
}

#[test]
fn behind_ours() {
    for (value, has_offloads) in [(0, true), (0xa00, true), (0xa00, false), (-1, true)] {
        beside_a_program_that_writes("tcx", value, Order::After, has_offloads);
    }
}

#[test]
fn ahead_of_ours_at_clsact() {
    for (value, has_offloads) in [(0, true), (0xa00, true), (-1, false)] {
        beside_a_program_that_writes("clsact", value, Order::Before, has_offloads);
    }
}

#[test]
fn behind_ours_at_clsact() {
    for (value, has_offloads) in [(0, true), (0xa00, true), (-1, false)] {
        beside_a_program_that_writes("clsact", value, Order::After, has_offloads);
    }
}
