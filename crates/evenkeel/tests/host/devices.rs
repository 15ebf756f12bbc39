//! Devices as a busy host has them: many at once, with names that are not text, and new ones in place of those that
//! went.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

use evenkeel_testbed::place::{index, ip};
use evenkeel_testbed::vm::Vm;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bed::{Host, both_by, programs, queue_length, tcx_programs, wait_until};

const DEVICES: usize = 300;

/// Many commands of `ip`, one after the other as fast as it can.
fn batch(host: &Host, lines: impl Iterator<Item = String>) {
    fs::write(host.path("batch"), lines.collect::<Vec<_>>().join("\n")).unwrap();
    ip(&format!("-batch {}", host.text("batch")));
}

fn lists(host: &Host) -> u64 {
    host.status()["agent"]["lists_taken"].as_u64().unwrap()
}

/// Stops the agent, and lets it go on once `work` is done.
fn while_stopped(host: &Host, work: impl FnOnce()) {
    let state = format!("/proc/{}/stat", host.status()["pid"]);
    host.signal(Signal::SIGSTOP);
    wait_until("the agent to stand still", || fs::read_to_string(&state).unwrap().contains(") T "));
    work();
    host.signal(Signal::SIGCONT);
}

fn errors(status: &Value) -> Vec<&str> {
    status["ports"].as_array().unwrap().iter().filter_map(|port| port["error"].as_str()).collect()
}

#[test]
fn a_burst_of_devices_is_found_and_said_and_goes_without_a_list() {
    let mut host = Host::new();
    host.start();
    let before = lists(&host);
    // Asked before the agent hears of the first one.
    let mut asked = UnixStream::connect(host.path("host.sock")).unwrap();
    while_stopped(&host, || {
        batch(&host, (0..DEVICES).map(|n| format!("link add vp{n} type veth peer name q{n}")));
        asked.write_all(b"{\"version\":1,\"ask\":{\"what\":\"status\"}}\n").unwrap();
    });
    let mut line = String::new();
    BufReader::new(asked).read_line(&mut line).unwrap();
    let status: Value = serde_json::from_str(&line).unwrap();
    assert!(errors(&status).iter().any(|error| error.starts_with("not served yet")), "{status}");
    wait_until("all ports", || host.ports().len() == DEVICES);
    for n in [0, DEVICES / 2, DEVICES - 1] {
        assert_eq!((tcx_programs(&format!("vp{n}")), queue_length(&format!("vp{n}"))), (2, 4000));
    }
    // In several turns, as a host's VMs end.
    batch(&host, (0..DEVICES).map(|n| format!("link del vp{n}")));
    wait_until("all ports to go", || host.status()["ports"].as_array().unwrap().is_empty());
    let minutes = host.status()["uptime_s"].as_u64().unwrap() / 60;
    assert!(lists(&host) <= before + minutes, "devices were listed {} times", lists(&host) - before);
    assert!(host.status()["agent"]["ports_gone"].as_u64() >= Some(DEVICES as u64));
}

#[test]
fn a_name_that_is_no_text_is_a_port_s_as_any_other() {
    let mut host = Host::new();
    let name = OsStr::from_bytes(b"vp\xff\xfe");
    let add = Command::new("ip").args(["link", "add"]).arg(name).args(["txqueuelen", "77", "type", "veth"]).status();
    assert!(add.unwrap().success());
    host.start();
    wait_until("the port", || host.ports() == [r"vp\xff\xfe"]);
    let queue = || fs::read_to_string(std::path::Path::new("/sys/class/net").join(name).join("tx_queue_len"));
    // `/sys` must show this thread's devices, not those of the thread that mounted it.
    nix::mount::mount(Some("sysfs"), "/sys", Some("sysfs"), nix::mount::MsFlags::empty(), None::<&str>).unwrap();
    wait_until("its queue", || queue().unwrap().trim() == "4000");
    let table = host.evenkeel(&["status", "--socket", &host.text("host.sock")]);
    assert!(String::from_utf8(table.stdout).unwrap().contains(r"vp\xff\xfe "));
    assert!(host.metrics(crate::bed::METRICS).is_some());
    let stopped = host.stop();
    assert_eq!(stopped["ports"], serde_json::json!([r"vp\xff\xfe"]));
    assert_eq!(queue().unwrap().trim(), "77");
    nix::mount::umount("/sys").unwrap();
}

#[test]
fn another_device_is_another_port_by_tcx() {
    another_device_with_the_index_and_the_name_of_one_that_went_is_another_port("tcx");
}

#[test]
fn another_device_is_another_port_by_clsact() {
    another_device_with_the_index_and_the_name_of_one_that_went_is_another_port("clsact");
}

fn another_device_with_the_index_and_the_name_of_one_that_went_is_another_port(attach: &'static str) {
    let mut host = Host::by(attach);
    let vm = host.add_vm(1);
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    wait_until("its queue", || queue_length("vp1") == 4000);
    let ifindex = index("vp1");
    let add = |queue: u32| ip(&format!("link add vp1 index {ifindex} txqueuelen {queue} type veth peer name other"));

    // While the agent does not look, and with the queue length that it has set: all that the kernel tells of the two
    // devices is the same.
    while_stopped(&host, || {
        ip("link del vp1");
        add(4000);
    });
    wait_until("the programs", || programs("vp1") == both_by(attach));
    assert_eq!(host.ports(), ["vp1"]);
    assert_eq!(host.status()["agent"]["ports_gone"], 1);

    // While there is no agent. Notes of the first device do not hold for the second.
    host.signal(Signal::SIGKILL);
    host.ended();
    ip("link del vp1");
    add(500);
    host.start();
    wait_until("the programs", || programs("vp1") == both_by(attach));
    wait_until("its queue", || queue_length("vp1") == 4000);

    // The device lives on in another namespace, with its index and the programs on it.
    host.signal(Signal::SIGKILL);
    host.ended();
    let elsewhere = Vm::bare("10.9.0.9");
    ip(&format!("link set vp1 netns {}", elsewhere.pid()));
    ip("link set other name another");
    add(700);
    host.start();
    wait_until("the programs", || programs("vp1") == both_by(attach));
    assert_eq!(host.ports(), ["vp1"]);
    host.stop();
    assert_eq!(queue_length("vp1"), 700);
    drop(vm);
}

#[test]
fn programs_that_somebody_takes_off_are_missed_and_put_on_again() {
    let mut host = Host::new();
    let _vm = host.add_vm(1);
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    wait_until("its queue", || queue_length("vp1") == 4000);
    // Its VM is about to leave, and nobody has said that it stays.
    host.ask(&["port", "offline", "vp1"]).unwrap();
    let pin = CString::new(host.text(&format!("bpf/evenkeel/links/{}-to_vm", index("vp1")))).unwrap();
    // SAFETY: the path is a string of C, and the descriptor is new.
    let link = unsafe { OwnedFd::from_raw_fd(libbpf_sys::bpf_obj_get(pin.as_ptr())) };
    // SAFETY: the descriptor is a link's.
    assert_eq!(unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) }, 0);
    assert_eq!(tcx_programs("vp1"), 1);
    let status = host.status();
    let is_said = errors(&status).iter().any(|error| error.starts_with("its programs are gone"));
    assert!(is_said || status["agent"]["ports_bare"] == 1, "{status}");
    wait_until("the programs", || tcx_programs("vp1") == 2);
    wait_until("the port", || host.ports() == ["vp1"]);
    let status = host.status();
    assert!(status["agent"]["ports_bare"] == 1 && status["ports"][0]["offline"].is_object(), "{status}");
    host.ask(&["port", "online", "vp1"]).unwrap();
    assert!(host.status()["ports"][0]["offline"].is_null());
    // It is the same device still.
    host.stop();
    assert_eq!(queue_length("vp1"), 71);
}

#[test]
fn a_queue_that_somebody_else_sets_is_theirs_whichever_agent_comes() {
    let mut host = Host::new();
    let _vms = [host.add_vm(1), host.add_vm(2)];
    host.start();
    wait_until("the queues", || ["vp1", "vp2"].map(queue_length) == [4000; 2]);
    let noted = || fs::read_to_string(host.path("run/host-state.json")).unwrap();
    ip("link set vp1 txqueuelen 500");
    wait_until("the agent to note it", || noted().contains("theirs_over_segments"));
    host.signal(Signal::SIGTERM);
    host.ended();
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    // Older kernels give another name only to a device that is down.
    ip("link set vp1 down");
    ip("link set vp1 name vp3");
    let has = |name: &str| host.ports().iter().any(|port| port == name);
    wait_until("its other name", || has("vp3") && !has("vp1"));
    // News of a device comes in order: once this is seen, so is all that was before.
    ip("link add vp4 type veth peer name q4");
    wait_until("another port", || has("vp4"));
    assert_eq!(queue_length("vp3"), 500);
    assert_eq!(host.stop()["left"], serde_json::json!(["vp3"]));
    assert_eq!(["vp3", "vp2"].map(queue_length), [500, 72]);
}
