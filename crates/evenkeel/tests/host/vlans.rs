//! Networks of one port that only VLAN tags tell apart, with the same addresses and ports at once: each connection has
//! its own state.

use evenkeel_testbed::trunk::Trunk;
use serde_json::{Value, json};

use crate::bed::{Host, METRICS, counter, wait_until};
use crate::netfilter::sysctl;
use crate::upload::{Load, Upload, VSNOOP, add_v6, flows_at, server};

const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;
/// Two VLANs, and three of providers' (QinQ).
const NETWORKS: [&[(u16, u16)]; 5] = [
    &[(CUSTOMER, 100)],
    &[(CUSTOMER, 200)],
    &[(SERVICE, 10), (CUSTOMER, 100)],
    &[(SERVICE, 20), (CUSTOMER, 100)],
    &[(SERVICE, 10), (CUSTOMER, 200)],
];
const WORDS: [&str; 5] = ["100", "200", "s10.100", "s20.100", "s10.200"];

fn tags(flow: &Value) -> Value {
    flow["vlans"].clone()
}

fn expected(stack: &[(u16, u16)]) -> Value {
    let name = |tpid| if tpid == SERVICE { "802.1ad" } else { "802.1q" };
    stack.iter().map(|(tpid, id)| json!({ "protocol": name(*tpid), "id": id })).collect()
}

#[test]
fn the_same_addresses_in_several_vlans() {
    let mut host = Host::new();
    host.configure("enforce", METRICS, VSNOOP);
    let [vm, peer] = [("vp1", "10.9.0.1"), ("vp2", "10.9.0.2")].map(|(port, at)| Trunk::new(port, at, &NETWORKS));
    for (trunk, at) in [(&vm, "fd09::1"), (&peer, "fd09::2")] {
        trunk.networks.iter().for_each(|network| add_v6(network, at));
    }
    for network in vm.networks.iter().chain(&peer.networks) {
        // Every connection of a network has the same ports.
        network.spawn(|| sysctl("ipv4/ip_local_port_range", "40000 40000")).join().unwrap();
    }
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    let ways = [(&vm, &peer, "10.9.0.1"), (&peer, &vm, "10.9.0.2"), (&vm, &peer, "fd09::1"), (&peer, &vm, "fd09::2")];
    for (to, from, address) in ways {
        let at = server(address);
        let uploads: Vec<_> = to
            .networks
            .iter()
            .zip(&from.networks)
            .enumerate()
            .map(|(number, (to, from))| {
                let load = Load { rounds: 40, seed: 1000 * (number + 1), ..Load::USUAL };
                Upload::start(to, at, from, at, load)
            })
            .collect();
        for upload in &uploads {
            upload.wait();
        }
        let flows = flows_at(&host, at);
        assert_eq!(flows.len(), NETWORKS.len(), "{flows:?}");
        for stack in NETWORKS {
            let flow = flows.iter().find(|flow| tags(flow) == expected(stack));
            let flow = flow.unwrap_or_else(|| panic!("no flow of {stack:?} in {flows:?}"));
            assert_eq!(flow["tuple"], flows[0]["tuple"]);
            assert!(flow["vsnoop"]["early_acks"].as_u64().unwrap() > 0, "nothing was acknowledged early: {flow}");
            assert!(flow["peer_has_evenkeel"].as_bool().unwrap(), "{flow}");
        }
        let text = host.evenkeel(&["flows", "--socket", &host.text("host.sock")]);
        let text = String::from_utf8(text.stdout).unwrap();
        let shown = |word: &str| text.lines().filter(|line| line.split_whitespace().nth(1) == Some(word)).count();
        assert_eq!(WORDS.map(shown), [2; 5], "at both ports: {text}");
    }
    let status = host.status();
    for port in ["vp1", "vp2"] {
        assert_eq!(counter(&status, port, "flows"), (ways.len() * NETWORKS.len()) as u64);
        assert_eq!(counter(&status, port, "vsnoop_broken"), 0);
    }
}
