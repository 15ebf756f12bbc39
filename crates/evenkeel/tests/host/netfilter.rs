//! Beside netfilter: a firewall that lets only answers pass, and a host that translates its VMs' addresses (NAT).

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use evenkeel_algo::packet::{self, Kind};
use evenkeel_testbed::place::{Tap, index, ip};
use evenkeel_testbed::vm::Vm;

use crate::bed::{BYTES, Host, LIMIT, METRICS, SERVER, counter, pattern, receive, wait_until};

/// Rules for this thread's namespace.
pub fn rules(text: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nftables is installed");
    // A chain ends on a line of its own.
    nft.stdin.take().unwrap().write_all(text.replace(" }", "\n}\n").as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{text}");
}

pub fn sysctl(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// Gives [`BYTES`] to the first that connects.
fn serve(vm: &Vm, address: IpAddr) {
    let (ready, is_ready) = mpsc::channel();
    vm.spawn(move || {
        let listener = TcpListener::bind((address, SERVER)).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(&(0..BYTES).map(pattern).collect::<Vec<u8>>());
        let _ = std::io::Read::read(&mut stream, &mut [0]);
    });
    is_ready.recv().unwrap();
}

fn fetch(vm: &Vm, server: IpAddr) {
    vm.spawn(move || {
        let mut stream =
            TcpStream::connect_timeout(&SocketAddr::new(server, SERVER), LIMIT).expect("a connection failed");
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        receive(&mut stream);
    })
    .join()
    .unwrap();
}

/// The firewall's rules hold for bridged packets, too. Probes pass like all that the client sends; an answer passes
/// only if it is one.
#[test]
fn a_firewall_that_lets_only_answers_pass() {
    let mut host = Host::new();
    host.configure("enforce", METRICS, "");
    let (server, client) = (host.add_vm(1), host.add_vm(2));
    for (vm, address) in [(&server, "fd09::1"), (&client, "fd09::2")] {
        vm.spawn(move || ip(&format!("addr add {address}/64 dev eth0 nodad"))).join().unwrap();
    }
    sysctl("bridge/bridge-nf-call-iptables", "1");
    sysctl("bridge/bridge-nf-call-ip6tables", "1");
    rules(
        "table inet f { chain c { type filter hook forward priority 0; policy drop; meta l4proto ipv6-icmp accept; \
         ct state established,related accept; ip saddr 10.9.0.2 accept; ip6 saddr fd09::2 accept; } }",
    );
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    for (number, address) in ["10.9.0.1", "fd09::1"].map(|address| address.parse().unwrap()).into_iter().enumerate() {
        serve(&server, address);
        fetch(&client, address);
        let status = host.status();
        assert_eq!(
            counter(&status, "vp2", "probes_sent"),
            10 * (number as u64 + 1),
            "{address}: in one train, the first"
        );
        assert_eq!(counter(&status, "vp1", "reports_sent"), number as u64 + 1);
    }
}

/// Connection tracking knows a connection by its SYN: probes ahead of that would leave with the VM's own address.
#[test]
fn nothing_leaves_untranslated() {
    let mut host = Host::new();
    host.configure("enforce", METRICS, "");
    let client = host.add_vm(1);
    let server = Vm::new("wan", "", "192.0.2.1");
    ip("link set wan nomaster");
    ip("addr add 192.0.2.254/24 dev wan");
    ip("addr add 10.9.0.254/24 dev br0");
    sysctl("ipv4/ip_forward", "1");
    rules("table ip n { chain c { type nat hook postrouting priority 100; oifname \"wan\" masquerade; } }");
    client.spawn(|| ip("route add default via 10.9.0.254")).join().unwrap();
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    let tap = Tap::new(index("wan"));
    let address = server.address.into();
    serve(&server, address);
    fetch(&client, address);
    let frames = tap.tcp(10_000);
    let sources = frames.iter().filter_map(|frame| match packet::parse(frame) {
        Kind::Tcp(packet, _) => Some(packet.source[12..16].to_vec()),
        _ => None,
    });
    let mut sources: Vec<_> = sources.collect();
    sources.sort();
    sources.dedup();
    assert_eq!(sources, [[192, 0, 2, 1], [192, 0, 2, 254]], "and the VM's own address is not among them");
    let status = host.status();
    assert_eq!((counter(&status, "vp1", "probes_sent"), counter(&status, "vp1", "probes_routed")), (0, 1));
}
