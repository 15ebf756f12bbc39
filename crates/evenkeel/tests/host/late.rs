//! Late SYN-ACKs: they wait for late probes (b3), and probes are sent again meanwhile.

use std::process::Command;

use evenkeel_testbed::program::Program;
use evenkeel_testbed::vm::Vm;
use nix::net::if_::if_nametoindex;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bed::{Host, METRICS, connect, counter, receive, wait_until};
use crate::netfilter::rules;

fn agents(status: &Value, name: &str) -> u64 {
    status["agent"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {status}"))
}

#[test]
fn a_synack_waits_for_late_probes_but_not_for_ever() {
    let (host, server, client) = Host::with_server_and_client("enforce");
    let address = server.address;
    let transfer = || client.spawn(move || receive(&mut connect(address))).join().unwrap();
    // The fourth probe of every first train is lost on its way to the server's port.
    let program = Program::drop_probe(0, 3);
    let _lossy = program.attach(if_nametoindex("vp1").unwrap(), libbpf_sys::BPF_TCX_EGRESS);

    // Nobody knows yet that this host answers probes, so none is sent again: the SYN-ACK leaves after b3.
    transfer();
    let status = host.status();
    assert_eq!(counter(&status, "vp1", "probes_seen"), 9, "{status}");
    assert_eq!(counter(&status, "vp1", "synacks_held"), 1, "{status}");
    assert_eq!((agents(&status, "synacks_late"), agents(&status, "synacks_in_time")), (1, 0), "{status}");
    assert_eq!(counter(&status, "vp1", "synacks_scaled"), 1, "{status}");

    // Now the opener's agent sends probes again after b1, long before b3: they are what the SYN-ACK waits for.
    host.configure("enforce", METRICS, "[[port]]\nmatch = \"vp*\"\n[port.proboscis]\nb3_us = 100000\n");
    host.signal(Signal::SIGHUP);
    wait_until("a SYN-ACK whose probes came late", || {
        transfer();
        agents(&host.status(), "synacks_in_time") > 0
    });
    let status = host.status();
    assert!(agents(&status, "probes_resent") > 0, "{status}");
    assert_eq!((agents(&status, "sends_failed"), agents(&status, "timers_refused")), (0, 0), "{status}");
    assert_eq!(status["synacks_held"], 0, "{status}");
}

/// Where no host takes the probes that are sent again, the other end's TCP has them while it waits for the
/// handshake's end. A bare ACK from it would do harm: MPTCP falls back at one end only.
#[test]
fn probes_that_no_host_takes_draw_no_answer() {
    let (host, server, client) = Host::with_server_and_client("enforce");
    let address = server.address;
    let transfer = move || receive(&mut connect(address));
    client.spawn(transfer).join().unwrap();
    // The opener's host has heard of the other one, which looks at nothing any more.
    host.configure("enforce", METRICS, "[[port]]\nmatch = \"vp1\"\n[port.proboscis]\nmode = \"off\"\n");
    host.signal(Signal::SIGHUP);
    wait_until("a port that is off", || host.status()["ports"][0]["mode"] == "off");
    let at_server = |text: &'static str| server.spawn(move || rules(text)).join().unwrap();
    at_server(
        "table inet f { counter later { } counter drawn { } \
         chain i { type filter hook input priority 0; tcp flags == 0x0 counter name later; } \
         chain o { type filter hook output priority 0; tcp flags == ack counter name drawn; \
         tcp flags & (syn | ack) == (syn | ack) drop; } }",
    );
    let transfers = client.spawn(transfer);
    wait_until("probes sent again", || packets(&server, "later") > 0);
    at_server("flush chain inet f o");
    transfers.join().unwrap();
    assert_eq!(packets(&server, "drawn"), 0);
    assert!(agents(&host.status(), "probes_resent") > 0);
}

/// What a counter of nftables has counted in a VM.
fn packets(vm: &Vm, counter: &'static str) -> u64 {
    let list =
        move || Command::new("nft").args(["-j", "list", "counter", "inet", "f", counter]).output().unwrap().stdout;
    let listed: Value = serde_json::from_slice(&vm.spawn(list).join().unwrap()).unwrap();
    let found = listed["nftables"].as_array().unwrap().iter().find_map(|item| item["counter"]["packets"].as_u64());
    found.unwrap_or_else(|| panic!("no counter {counter} in {listed}"))
}
