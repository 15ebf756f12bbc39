//! One host stops seeing to ECN while a connection runs: the other host lets go at the next packet from there.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use evenkeel_testbed::place::index;
use evenkeel_testbed::program::Program;
use nix::sys::signal::Signal;

use crate::bed::{BYTES, Host, METRICS, SERVER, connect, counter, pattern, receive, wait_until};

#[test]
fn a_connection_whose_other_host_has_stopped_has_no_ecn() {
    let mut host = Host::new();
    host.configure("enforce", METRICS, "");
    let (server, client) = (host.add_vm(1), host.add_vm(2));
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    // A switch that marks all it can.
    let marker = Program::mark_all();
    let _marking = ["vp1", "vp2"].map(|port| marker.attach(index(port), libbpf_sys::BPF_TCX_EGRESS));
    let address = server.address;
    let (ready, is_ready) = mpsc::channel();
    // Takes as much as it gives, time and again.
    let serving = server.spawn(move || {
        let listener = TcpListener::bind((address, SERVER)).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let data: Vec<u8> = (0..BYTES).map(pattern).collect();
        let mut taken = vec![0; BYTES];
        while stream.read_exact(&mut taken).is_ok() {
            assert_eq!(taken, data);
            stream.write_all(&data).unwrap();
        }
    });
    is_ready.recv().unwrap();
    let mut stream = client.spawn(move || connect(address)).join().unwrap();
    let mut exchange = || {
        stream.write_all(&(0..BYTES).map(pattern).collect::<Vec<u8>>()).unwrap();
        receive(&mut stream);
    };
    exchange();
    let flow = |host: &Host| {
        let flows = host.ask(&["flows"]).unwrap();
        flows["flows"].as_array().unwrap().iter().find(|flow| flow["port"] == "vp2").cloned().unwrap()
    };
    assert_eq!(flow(&host)["ecn"], "hosts");
    assert!(counter(&host.status(), "vp2", "ect_set") > 0);

    host.configure("enforce", METRICS, "[[port]]\nmatch = \"vp1\"\n[port.proboscis]\nmode = \"off\"");
    host.signal(Signal::SIGHUP);
    wait_until("the port to be off", || host.status()["ports"][0]["mode"] == "off");
    exchange();
    let known = flow(&host);
    assert_eq!((&known["ecn"], &known["peer_is_gone"]), (&"none".into(), &true.into()), "{known}");
    let status = host.status();
    assert_eq!(counter(&status, "vp2", "peers_gone"), 1);
    exchange();
    let later = host.status();
    for name in ["ect_set", "ce_hidden", "ece_set", "windows_limited"] {
        assert_eq!(counter(&later, "vp2", name), counter(&status, "vp2", name), "{name}");
    }
    drop(stream);
    serving.join().unwrap();
}
