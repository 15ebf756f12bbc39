//! A VM that is not the end of a connection: data that it forwards may be lost behind it, and its sender must send that
//! again. None of it is acknowledged early, while data for the VM itself is.

use std::net::SocketAddr;
use std::process::Command;

use evenkeel_testbed::place::ip;
use evenkeel_testbed::tap::TapVm;
use evenkeel_testbed::vm::Vm;

use crate::bed::{Host, METRICS, SERVER, counter, wait_until};
use crate::netfilter::{rules, sysctl};
use crate::upload::{Load, Upload, VSNOOP, add_v6, flows_at, server, upload};

/// What the VM is to the machine behind it, which in each case loses packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A router.
    Route,
    /// A router that translates addresses both ways.
    Nat,
    /// A bridge.
    Bridge,
    /// One device with two addresses.
    Macvlan,
}

fn tc(arguments: &str) {
    let output = Command::new("tc").args(arguments.split_whitespace()).output().expect("iproute2 is installed");
    assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A queue that bursts overflow.
const SHORT_QUEUE: &str = "root tbf rate 50mbit burst 5k limit 10k";

/// Puts a machine behind the VM in this way. Returns it, where its data arrives, and where its clients send it.
fn behind(vm: &Vm, way: Way, is_v6: bool, has_large_packets: bool) -> (Vm, SocketAddr, SocketAddr) {
    let pod = Vm::bare("10.8.0.2");
    let pid = pod.pid();
    let links = vm.spawn(move || {
        match way {
            Way::Macvlan => {
                ip(&format!("link add link eth0 name inner netns {pid} type macvlan mode bridge"));
                return;
            }
            Way::Bridge => {
                ip("link add inside type bridge");
                ip("link set eth0 master inside");
                for address in ["10.9.0.1/24", "fd09::1/64"] {
                    ip(&format!("addr del {address} dev eth0"));
                    ip(&format!("addr add {address} dev inside"));
                }
                ip("link set inside up");
            }
            Way::Route | Way::Nat => {
                sysctl("ipv4/ip_forward", "1");
                sysctl("ipv6/conf/all/forwarding", "1");
            }
        }
        ip(&format!("link add pod type veth peer name inner netns {pid}"));
        tc(&format!("qdisc add dev pod {SHORT_QUEUE}"));
        if way == Way::Bridge {
            ip("link set pod master inside");
        } else {
            ip("addr add 10.8.0.1/24 dev pod");
            ip("addr add fd08::1/64 dev pod nodad");
        }
        ip("link set pod up");
        if way == Way::Nat {
            for (family, at, to) in [("ip", "10.9.0.1", "10.8.0.2"), ("ip6", "fd09::1", "[fd08::2]")] {
                rules(&format!(
                    "table {family} n {{ chain d {{ type nat hook prerouting priority -100; \
                     {family} daddr {at} tcp dport {SERVER} dnat to {to}:{SERVER}; }} \
                     chain s {{ type nat hook postrouting priority 100; oifname \"pod\" masquerade; }} }}"
                ));
            }
        }
    });
    links.join().unwrap();
    let is_bridged = matches!(way, Way::Bridge | Way::Macvlan);
    let inside = pod.spawn(move || {
        ip("link set inner name eth0");
        let net = if is_bridged { "9" } else { "8" };
        let last = if is_bridged { "3" } else { "2" };
        ip(&format!("addr add 10.{net}.0.{last}/24 dev eth0"));
        ip(&format!("addr add fd0{net}::{last}/64 dev eth0 nodad"));
        ip("link set eth0 up");
        if is_bridged {
            // Drops as a full buffer or a policy of the machine's may; of large packets there are too few for a rate.
            let drops =
                if has_large_packets { "numgen inc mod 10 3" } else { "limit rate over 300/second burst 20 packets" };
            rules(&format!(
                "table inet f {{ chain c {{ type filter hook input priority 0; \
                 tcp dport {SERVER} meta length > 1000 {drops} drop; }} }}"
            ));
        } else {
            ip("route add default via 10.8.0.1");
            ip("route add default via fd08::1");
        }
    });
    inside.join().unwrap();
    let ends = match (way, is_v6) {
        (Way::Route, false) => ["10.8.0.2"; 2],
        (Way::Route, true) => ["fd08::2"; 2],
        (Way::Nat, false) => ["10.8.0.2", "10.9.0.1"],
        (Way::Nat, true) => ["fd08::2", "fd09::1"],
        (Way::Bridge | Way::Macvlan, false) => ["10.9.0.3"; 2],
        (Way::Bridge | Way::Macvlan, true) => ["fd09::3"; 2],
    };
    (pod, server(ends[0]), server(ends[1]))
}

fn a_machine_behind(way: Way, is_v6: bool, has_large_packets: bool) {
    let mut host = Host::new();
    host.configure("off", METRICS, VSNOOP);
    let vm = TapVm::new("vp1", has_large_packets, "10.9.0.1");
    let client = Vm::new("plain", "", "10.9.0.2");
    add_v6(&vm.vm, "fd09::1");
    add_v6(&client, "fd09::2");
    let routes = client.spawn(move || {
        if !has_large_packets {
            ip("link set eth0 gso_max_segs 1");
        }
        ip("route add 10.8.0.0/24 via 10.9.0.1");
        ip("route add fd08::/64 via fd09::1");
    });
    routes.join().unwrap();
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    let early = || counter(&host.status(), "vp1", "vsnoop_early_acks");
    // Data for the VM itself, before and beside what it forwards.
    let own = server(if is_v6 { "fd09::1" } else { "10.9.0.1" });
    upload(&vm.vm, &client, own, Load::USUAL);
    assert!(early() > 0, "{way:?}: nothing was acknowledged early");

    let (pod, at, to) = behind(&vm.vm, way, is_v6, has_large_packets);
    let before = early();
    let through = Upload::start(&pod, at, &client, to, Load::USUAL);
    through.wait();
    assert_eq!(early(), before, "{way:?}: acknowledged for somebody else");
    let flows = flows_at(&host, to);
    let vsnoop = host.status()["ports"][0]["vsnoop"].clone();
    if matches!(way, Way::Bridge | Way::Macvlan) {
        assert_eq!(vsnoop["doubt"], "macs", "{vsnoop}");
    } else {
        assert_eq!(flows[0]["vsnoop"]["doubt"], "forwarded", "{flows:?}");
        assert!(vsnoop["doubt"].is_null(), "{vsnoop}");
    }
    drop(through);
    let end = client.spawn(|| evenkeel_testbed::vm::tcp_counter("RetransSegs")).join().unwrap();
    assert!(end > 0, "{way:?}: nothing was lost behind the VM");
    if way == Way::Route {
        let before = early();
        upload(&vm.vm, &client, own, Load::USUAL);
        assert!(early() > before, "the VM's own connections go on");
    }
}

#[test]
fn a_vm_that_routes() {
    for is_v6 in [false, true] {
        for has_large_packets in [false, true] {
            a_machine_behind(Way::Route, is_v6, has_large_packets);
        }
    }
}

#[test]
fn a_vm_that_translates_addresses() {
    for is_v6 in [false, true] {
        for has_large_packets in [false, true] {
            a_machine_behind(Way::Nat, is_v6, has_large_packets);
        }
    }
}

#[test]
fn a_vm_that_bridges() {
    for is_v6 in [false, true] {
        for has_large_packets in [false, true] {
            a_machine_behind(Way::Bridge, is_v6, has_large_packets);
            a_machine_behind(Way::Macvlan, is_v6, has_large_packets);
        }
    }
}
