//! Ports that go: nothing of them is listed or counted, or taken for what a later device has.

use evenkeel_testbed::place::{index, ip};
use evenkeel_testbed::vm::Vm;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bed::{Host, connect, receive, wait_until};

/// The ports of all connections that are listed; as many must be counted.
fn ports_of_flows(host: &Host) -> Vec<String> {
    let listed = host.ask(&["flows"]).unwrap();
    let flows = listed["flows"].as_array().unwrap();
    assert_eq!(listed["total"], flows.len());
    assert_eq!(host.status()["flows"], flows.len());
    let mut ports: Vec<_> = flows.iter().map(|flow| flow["port"].as_str().unwrap().to_owned()).collect();
    ports.sort_unstable();
    ports
}

#[test]
fn connections_of_ports_that_are_gone_are_not_shown() {
    let (mut host, server, client) = Host::with_server_and_client("enforce");
    let address = server.address;
    // A transfer whose connection stays open until the returned stream is dropped.
    let transfer = |vm: &Vm| {
        let transferred = vm.spawn(move || {
            let mut stream = connect(address);
            receive(&mut stream);
            stream
        });
        transferred.join().unwrap()
    };
    let _of_client = transfer(&client);
    assert_eq!(ports_of_flows(&host), ["vp1", "vp2"]);

    let ifindex = index("vp2");
    ip("link del vp2");
    drop(client);
    wait_until("the port to go", || host.ports() == ["vp1"]);
    assert_eq!(ports_of_flows(&host), ["vp1"]);

    // Another VM's port gets the index, and has none of the connections.
    let third = Vm::new("vp3", &format!("index {ifindex}"), "10.9.0.3");
    wait_until("a port of the same index", || host.ports() == ["vp1", "vp3"]);
    assert_eq!(ports_of_flows(&host), ["vp1"]);
    let _of_third = transfer(&third);
    assert_eq!(ports_of_flows(&host), ["vp1", "vp1", "vp3"]);

    // The same while no agent runs.
    host.signal(Signal::SIGKILL);
    host.ended();
    ip("link del vp3");
    drop(third);
    let _fourth = Vm::new("vp4", &format!("index {ifindex}"), "10.9.0.4");
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp4"]);
    assert_eq!(host.status()["took_over"], Value::Bool(true));
    assert_eq!(ports_of_flows(&host), ["vp1", "vp1"]);
}
