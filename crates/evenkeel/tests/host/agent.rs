//! The agent's life: ports, control, kill -9, what it sends again, and its errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use evenkeel_testbed::place::ip;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bed::{
    BYTES, Host, LIMIT, METRICS, both_by, connect, counter, programs, queue_length, receive, serve, tc, wait_until,
};

#[test]
fn from_the_first_port_to_the_last_pin_by_tcx() {
    from_the_first_port_to_the_last_pin("tcx");
}

#[test]
fn from_the_first_port_to_the_last_pin_by_clsact() {
    from_the_first_port_to_the_last_pin("clsact");
}

fn from_the_first_port_to_the_last_pin(attach: &'static str) {
    let mut host = Host::by(attach);
    let server = host.add_vm(1);
    serve(&server);
    let error = host.ask(&["status"]).unwrap_err();
    assert!(error.contains("no evenkeel host agent answers at") && error.contains("help: start it with"), "{error}");

    host.start();
    wait_until("the first port", || host.ports() == ["vp1"]);
    wait_until("its queue", || queue_length("vp1") == 4000);
    let client = host.add_vm(2);
    wait_until("the second port", || host.ports() == ["vp1", "vp2"]);
    assert_eq!(programs("vp2"), both_by(attach));
    let mode = fs::metadata(host.path("host.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);

    // A connection, kept open.
    let address = server.address;
    let (hold, is_held) = std::sync::mpsc::channel::<()>();
    let (sender, tuple) = std::sync::mpsc::channel();
    let open = client.spawn(move || {
        let mut stream = connect(address);
        receive(&mut stream);
        sender.send(format!("{}-{}", stream.local_addr().unwrap(), stream.peer_addr().unwrap())).unwrap();
        is_held.recv().ok();
    });
    let tuple = tuple.recv_timeout(LIMIT).unwrap();
    let status = host.status();
    assert!(counter(&status, "vp2", "syns_from_vm") >= 1, "{status}");
    assert!(counter(&status, "vp1", "packets_from_vm") > 0 && counter(&status, "vp2", "packets_to_vm") > 0, "{status}");
    let flows = host.ask(&["flows"]).unwrap();
    // Once on either port: both VMs are on this host.
    assert_eq!(flows["total"], 2, "{flows}");
    let explained = host.ask(&["flows", "--explain", &tuple]).unwrap();
    let of_client = explained["flows"].as_array().unwrap().iter().find(|f| f["port"] == "vp2").unwrap();
    assert_eq!(of_client["tuple"], Value::String(tuple.clone()));
    assert!(of_client["bytes_to_vm"].as_u64().unwrap() >= BYTES as u64, "{of_client}");
    let words =
        of_client["words"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect::<Vec<_>>().join("\n");
    assert!(words.contains("The window is") && words.contains("mode is observe"), "{words}");
    let table = host.evenkeel(&["flows", "--socket", &host.text("host.sock")]);
    assert!(String::from_utf8_lossy(&table.stdout).contains(&tuple));
    let error = host.ask(&["flows", "--explain", "10.9.0.9:1-10.9.0.8:2"]).unwrap_err();
    assert!(error.contains("knows no connection 10.9.0.9:1-10.9.0.8:2"), "{error}");
    let top = host.ask(&["top", "--count", "1"]).unwrap();
    assert_eq!(top["status"]["ports"].as_array().unwrap().len(), 2);

    let metrics = host.metrics(METRICS).unwrap();
    assert!(metrics.ends_with("# EOF\n"));
    assert!(metrics.contains("evenkeel_host_port_attached{port=\"vp2\"} 1"), "{metrics}");
    for line in metrics.lines().filter(|l| l.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        assert!(metrics.lines().any(|l| l.starts_with(&format!("# HELP {name} "))), "{name} is not described");
    }

    // A second agent is refused.
    let second = host.evenkeel(&[
        "host",
        "--config",
        &host.text("host.toml"),
        "--run-dir",
        &host.text("run"),
        "--pin-dir",
        &host.text("bpf/evenkeel"),
    ]);
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another evenkeel host agent runs (process "));

    // A bad configuration is reported and the old one stays; a good one holds, on another address as well.
    host.configure("observe", METRICS, "colour = 1");
    host.signal(Signal::SIGHUP);
    wait_until("the refusal", || host.status()["config_refused"].is_string());
    let status = host.status();
    assert!(status["config_refused"].as_str().unwrap().contains("host.toml:5: colour: unknown field"), "{status}");
    assert_eq!(status["ports"][0]["mode"], "observe");
    host.configure("enforce", METRICS + 1, "");
    host.signal(Signal::SIGHUP);
    wait_until("the new mode", || host.ask(&["status"]).is_ok_and(|s| s["ports"][0]["mode"] == "enforce"));
    assert!(host.status()["config_refused"].is_null());
    wait_until("the new address", || host.metrics(METRICS + 1).is_some());
    wait_until("the old address to close", || host.metrics(METRICS).is_none());

    // A port goes, with what was known of it.
    drop(host.add_vm(3));
    ip("link add vp4 type veth peer name vm4");
    wait_until("the port", || host.ports().contains(&"vp4".to_owned()));
    ip("link set vp4 name other4");
    wait_until("the port to be none", || !host.ports().contains(&"vp4".to_owned()));
    wait_until("its queue", || queue_length("other4") == 1000);
    assert_eq!(programs("other4"), (0, 0));
    ip("link del other4");
    wait_until("the others alone", || host.ports() == ["vp1", "vp2"]);

    // A port whose VM is about to leave.
    let left = host.ask(&["port", "offline", "vp2"]).unwrap();
    assert_eq!((&left["online"], &left["left"]["held_segments"]), (&Value::Bool(false), &Value::from(0)), "{left}");
    let offline = |name: &str| {
        let status = host.status();
        let port = status["ports"].as_array().unwrap().iter().find(|port| port["name"] == name).cloned();
        !port.unwrap()["offline"].is_null()
    };
    assert!(offline("vp2") && !offline("vp1"));
    host.signal(Signal::SIGHUP);
    wait_until("the configuration again", || host.status()["agent"]["reloads"].as_u64().unwrap() >= 3);
    assert!(offline("vp2"), "a configuration that is read again does not end it");
    host.ask(&["port", "online", "vp2"]).unwrap();
    assert!(!offline("vp2"));
    let error = host.ask(&["port", "offline", "vp9"]).unwrap_err();
    assert!(error.contains("has no port vp9"), "{error}");

    // SIGTERM ends the agent and leaves the datapath; the next one finds its flows.
    host.signal(Signal::SIGTERM);
    assert_eq!(host.ended(), Some(0));
    assert_eq!(programs("vp2"), both_by(attach));
    assert_eq!(queue_length("vp2"), 4000);
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    assert_eq!(host.status()["took_over"], true);
    host.ask(&["flows", "--explain", &tuple]).unwrap();

    // All that was changed is put back, and the connection lives.
    let stopped = host.stop();
    assert_eq!(host.ended(), Some(0));
    assert_eq!(stopped["ports"], serde_json::json!(["vp1", "vp2"]));
    assert_eq!((queue_length("vp1"), queue_length("vp2")), (71, 72));
    assert_eq!((programs("vp1"), programs("vp2")), ((0, 0), (0, 0)));
    assert!(!tc("qdisc show").contains("clsact"), "{}", tc("qdisc show"));
    assert!(!host.path("bpf/evenkeel").exists());
    hold.send(()).unwrap();
    open.join().unwrap();
    assert_eq!(host.stop()["ports"], serde_json::json!([]));
}

#[test]
fn a_killed_agent_fails_no_transfer_by_tcx() {
    a_killed_agent_fails_no_transfer("tcx");
}

#[test]
fn a_killed_agent_fails_no_transfer_by_clsact() {
    a_killed_agent_fails_no_transfer("clsact");
}

fn a_killed_agent_fails_no_transfer(attach: &'static str) {
    const CLIENTS: usize = 4;
    const TRANSFERS: usize = 25;
    let (mut host, server, client) = Host::with_both_by(attach, "enforce");

    // Some transfers are slow, so that they live through the kills; others come and go.
    let address = server.address;
    let (sender, done) = std::sync::mpsc::channel();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let sender = sender.clone();
            client.spawn(move || {
                for _ in 0..TRANSFERS {
                    receive(&mut connect(address));
                    sender.send(()).unwrap();
                }
            })
        })
        .collect();
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    let (began, has_begun) = std::sync::mpsc::channel();
    let slow = client.spawn(move || {
        let mut stream = connect(address);
        began.send(()).unwrap();
        is_released.recv().unwrap();
        receive(&mut stream);
    });
    has_begun.recv_timeout(LIMIT).unwrap();

    // Kill it whenever a tenth of the transfers is done, and let another take over.
    let mut finished = 0;
    let mut kills = 0;
    while finished < CLIENTS * TRANSFERS {
        done.recv_timeout(LIMIT).expect("a transfer hangs");
        finished += 1;
        if finished % (CLIENTS * TRANSFERS / 10) == 0 && kills < 5 {
            host.signal(Signal::SIGKILL);
            host.ended();
            assert_eq!(programs("vp1"), both_by(attach), "the datapath went with its agent");
            host.start();
            assert_eq!(host.status()["took_over"], true);
            kills += 1;
        }
    }
    assert_eq!(kills, 5);
    release.send(()).unwrap();
    slow.join().unwrap();
    for thread in clients {
        thread.join().unwrap();
    }
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    let status = host.status();
    // Counters go on over all the kills.
    assert!(counter(&status, "vp2", "syns_from_vm") > (CLIENTS * TRANSFERS) as u64, "{status}");

    // `--stop` removes what a killed agent has left, without an agent.
    host.signal(Signal::SIGKILL);
    host.ended();
    // A queue that somebody else has set stays.
    ip("link set vp2 txqueuelen 500");
    let stopped = host.stop();
    assert_eq!(stopped["left"], serde_json::json!(["vp2"]));
    assert_eq!((queue_length("vp1"), queue_length("vp2")), (71, 500));
    assert_eq!((programs("vp1"), programs("vp2")), ((0, 0), (0, 0)));
    assert!(!tc("qdisc show").contains("clsact"), "{}", tc("qdisc show"));
    assert!(!host.path("bpf/evenkeel").exists());
    client.spawn(move || receive(&mut connect(address))).join().unwrap();
}

#[test]
fn probes_go_before_a_syn_and_a_lost_syn_is_sent_again() {
    let (host, server, client) = Host::with_server_and_client("enforce");
    let address = server.address;
    let (hold, is_held) = std::sync::mpsc::channel::<()>();
    let (began, has_begun) = std::sync::mpsc::channel();
    let open = client.spawn(move || {
        let mut stream = connect(address);
        receive(&mut stream);
        began.send(()).unwrap();
        is_held.recv().ok();
    });
    has_begun.recv_timeout(LIMIT).unwrap();
    let status = host.status();
    let sent = counter(&status, "vp2", "probes_sent");
    assert!(sent >= 10, "{status}");
    assert_eq!(counter(&status, "vp1", "probes_seen"), sent, "{status}");
    let flows = host.ask(&["flows"]).unwrap();
    let on = |port: &str| flows["flows"].as_array().unwrap().iter().find(|f| f["port"] == port).cloned().unwrap();
    assert_eq!((&on("vp2")["probes"]["sent"], &on("vp1")["probes"]["seen"]), (&sent.into(), &sent.into()), "{flows}");
    assert_eq!(on("vp2")["peer_has_evenkeel"], true, "{flows}");
    hold.send(()).unwrap();
    open.join().unwrap();

    // Now the way to the server is cut: the SYN is lost until the agent has sent it again in vain.
    ip("link set vp1 nomaster");
    let late = client.spawn(move || receive(&mut connect(address)));
    wait_until("the SYN to be sent again", || {
        let agent = &host.status()["agent"];
        agent["syns_resent"].as_u64() > Some(0) && agent["probes_resent"].as_u64() > Some(0)
    });
    wait_until("the agent to give up", || host.status()["agent"]["syns_given_up"].as_u64() > Some(0));
    ip("link set vp1 master br0");
    late.join().unwrap();
    wait_until("nothing to wait for", || host.status()["syns_pending"] == 0);
    assert_eq!(host.status()["agent"]["sends_failed"], 0);
}

#[test]
fn a_bad_start_says_what_to_do() {
    let host = Host::new();
    let start = |config: &str, pin_dir: &Path| {
        fs::write(host.path("bad.toml"), config).unwrap();
        let output = host.evenkeel(&[
            "host",
            "--config",
            &host.text("bad.toml"),
            "--run-dir",
            &host.text("run"),
            "--pin-dir",
            pin_dir.to_str().unwrap(),
        ]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = start("[proboscis]\ng_probes = 65\n", &host.path("bpf/evenkeel"));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("bad.toml:2: proboscis.g_probes:") && error.contains("from 0 to 64"), "{error}");
    assert!(error.contains("help: `evenkeel host --print-config`"), "{error}");

    let socket = format!("[control]\nsocket = \"{}\"\n", host.text("bad.sock"));
    let (code, error) = start(&socket, &host.path("pins"));
    assert_eq!(code, Some(3), "{error}");
    assert!(error.contains("bpf file system") && error.contains("mount -t bpf"), "{error}");
    // The failed start leaves nothing.
    assert!(!host.path("pins").exists() && !host.path("bad.sock").exists());

    let check = host.evenkeel(&["host", "--check", "--config", &host.text("host.toml")]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let example = host.evenkeel(&["host", "--print-config"]);
    fs::write(host.path("example.toml"), example.stdout).unwrap();
    let check = host.evenkeel(&["host", "--check", "--config", &host.text("example.toml")]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}
