//! Programs on ports by clsact, which outlive pins and agents in another way than links: whose a filter is, whose the
//! qdisc, and what happens when the hook changes.

use std::fs;
use std::time::{Duration, Instant};

use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::KernelSeries;
use evenkeel_testbed::place::ip;
use evenkeel_testbed::program::{Order, Program};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::bed::{Host, METRICS, both_by, connect, counter, programs, receive, tc, wait_until};
use crate::vflood;

/// Puts a program of somebody else's into a filter that is before evenkeel's or after it.
pub fn filter(host: &Host, program: &Program, port: &str, side: &str, order: Order) {
    let pin = host.path(&format!("bpf/{}", program.id()));
    if !pin.exists() {
        program.pin(&pin);
    }
    let priority = if order == Order::Before { "prio 1 " } else { "" };
    tc(&format!("filter add dev {port} {side} {priority}bpf direct-action object-pinned {}", pin.display()));
}

/// Lines of qdiscs that are clsact.
fn clsacts(port: &str) -> usize {
    tc(&format!("qdisc show dev {port}")).matches("qdisc clsact").count()
}

#[test]
fn a_clsact_that_others_use_stays_and_so_do_their_filters() {
    let mut host = Host::by("clsact");
    let _vms = [host.add_vm(1), host.add_vm(2), host.add_vm(3)];
    let (first, second) = (Program::scribble(1), Program::empty());
    // vp1: somebody has made the clsact before; vp2: somebody uses the agent's; vp3: only the agent uses it.
    tc("qdisc add dev vp1 clsact");
    filter(&host, &first, "vp1", "egress", Order::Before);
    filter(&host, &second, "vp1", "egress", Order::After);
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2", "vp3"]);
    filter(&host, &second, "vp2", "ingress", Order::Before);
    let status = host.status();
    assert_eq!(status["attach"], "clsact");
    let none = json!({ "before": [], "after": [] });
    let beside = json!({ "before": [first.id()], "after": [second.id()] });
    assert_eq!(status["ports"][0]["others"], json!({ "to_vm": beside, "from_vm": none }));
    let before = json!({ "before": [second.id()], "after": [] });
    assert_eq!(host.status()["ports"][1]["others"], json!({ "to_vm": none, "from_vm": before }));
    for port in ["vp1", "vp2", "vp3"] {
        assert_eq!((programs(port), clsacts(port)), (both_by("clsact"), 1));
    }

    // The same with an agent and without one.
    host.stop();
    let left = |port: &str| (programs(port), clsacts(port));
    assert_eq!([left("vp1"), left("vp2"), left("vp3")], [((0, 0), 1), ((0, 0), 1), ((0, 0), 0)]);
    host.ended();
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2", "vp3"]);
    host.signal(Signal::SIGKILL);
    host.ended();
    host.stop();
    assert_eq!([left("vp1"), left("vp2"), left("vp3")], [((0, 0), 1), ((0, 0), 1), ((0, 0), 0)]);
    let theirs = |port, side| tc(&format!("filter show dev {port} {side}")).matches("direct-action").count();
    assert_eq!((theirs("vp1", "egress"), theirs("vp2", "ingress")), (2, 1));
    assert!(!host.path("bpf/evenkeel").exists());
}

/// An empty clsact is somebody's, too.
#[test]
fn an_empty_clsact_of_somebody_else_stays() {
    let mut host = Host::by("clsact");
    let _vm = host.add_vm(1);
    tc("qdisc add dev vp1 clsact");
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    host.stop();
    assert_eq!((programs("vp1"), clsacts("vp1")), ((0, 0), 1));
}

#[test]
fn the_hook_changes_while_connections_live() {
    let (mut host, server, client) = Host::with_both_by("tcx", "enforce");
    let address = server.address;
    let (hold, is_held) = std::sync::mpsc::channel::<()>();
    let (sender, began) = std::sync::mpsc::channel();
    let open = client.spawn(move || {
        let mut stream = connect(address);
        sender.send(()).unwrap();
        is_held.recv().ok();
        receive(&mut stream);
    });
    began.recv().unwrap();
    let syns = counter(&host.status(), "vp2", "syns_from_vm");
    assert!(syns >= 1);
    for attach in ["clsact", "tcx", "clsact"] {
        host.attach = attach;
        host.configure("enforce", METRICS, "");
        host.signal(Signal::SIGHUP);
        wait_until("the other hook", || ["vp1", "vp2"].iter().all(|port| programs(port) == both_by(attach)));
        assert_eq!(host.status()["attach"], attach);
        assert_eq!(clsacts("vp1"), usize::from(attach == "clsact"));
        assert_eq!(counter(&host.status(), "vp2", "syns_from_vm"), syns, "its counters began anew");
    }
    // The next agent finds its programs at one hook, and is to have them at the other.
    host.signal(Signal::SIGKILL);
    host.ended();
    host.attach = "tcx";
    host.configure("enforce", METRICS, "");
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    assert_eq!((programs("vp1"), programs("vp2"), clsacts("vp1")), (both_by("tcx"), both_by("tcx"), 0));
    assert_eq!(counter(&host.status(), "vp2", "syns_from_vm"), syns, "its counters began anew");
    hold.send(()).unwrap();
    open.join().unwrap();
    host.stop();
    assert_eq!((programs("vp1"), clsacts("vp1")), ((0, 0), 0));
}

#[test]
fn filters_that_somebody_takes_off_are_put_on_again() {
    let mut host = Host::by("clsact");
    let _vm = host.add_vm(1);
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    tc("qdisc del dev vp1 clsact");
    wait_until("the programs", || programs("vp1") == both_by("clsact"));
    wait_until("the port", || host.ports() == ["vp1"]);
    assert_eq!(host.status()["agent"]["ports_bare"], 1);
    host.stop();
    assert_eq!((programs("vp1"), clsacts("vp1")), ((0, 0), 0));
}

/// libvirt puts a qdisc on the tap that it has made, and gives the VM up if clsact is in its place.
#[test]
fn a_new_tap_is_left_to_who_has_made_it_at_first() {
    let mut host = Host::by("clsact");
    ip("tuntap add vp1 mode tap");
    host.start();
    // Whoever has made it may not be done when the agent lists it, as when a host starts.
    let mut uptime_s = None;
    wait_until("the port", || {
        let status = host.status();
        uptime_s = status["uptime_s"].as_u64();
        status["ports"][0]["error"].is_null()
    });
    assert!(uptime_s >= Some(2), "{uptime_s:?} s after the agent's start");
    let begin = Instant::now();
    ip("tuntap add vp2 mode tap");
    wait_until("the port", || host.ports() == ["vp1", "vp2"]);
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?} after it was made", begin.elapsed());
    assert_eq!((programs("vp2"), clsacts("vp2")), (both_by("clsact"), 1));
    // Of an agent that takes over, a port is one as soon as it answers.
    host.signal(Signal::SIGKILL);
    host.ended();
    host.start();
    assert_eq!(host.ports(), ["vp1", "vp2"]);
    host.stop();
    assert_eq!(clsacts("vp2"), 0);
}

/// Without its pins a link is gone; a filter stays, and is known by the name of its program.
#[test]
fn a_filter_whose_pins_are_gone_is_replaced() {
    let mut host = Host::by("clsact");
    let _vm = host.add_vm(1);
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    host.signal(Signal::SIGKILL);
    host.ended();
    fs::remove_dir_all(host.path("bpf/evenkeel")).unwrap();
    assert_eq!(programs("vp1"), both_by("clsact"));
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    assert_eq!(programs("vp1"), both_by("clsact"));
    host.stop();
    assert_eq!(programs("vp1"), (0, 0));
}

/// The place of one of evenkeel's filters is taken: the port says so and has none of them, and others are served.
#[test]
fn a_filter_of_somebody_else_in_the_same_place_is_not_touched() {
    for side in ["egress", "ingress"] {
        let mut host = Host::by("clsact");
        let _vms = [host.add_vm(1), host.add_vm(2)];
        let program = Program::empty();
        let pin = host.path("bpf/theirs");
        program.pin(&pin);
        tc("qdisc add dev vp1 clsact");
        let what = format!("bpf direct-action object-pinned {}", pin.display());
        tc(&format!("filter add dev vp1 {side} prio 25963 handle 0x656b {what}"));
        host.start();
        wait_until("the other port", || host.ports() == ["vp2"]);
        let status = host.status();
        let error = status["ports"][0]["error"].as_str().unwrap();
        assert!(error.contains("somebody else's filter has its priority and handle"), "{error}");
        assert_eq!(programs("vp1"), (0, 0), "one program without the other");
        host.stop();
        assert!(tc(&format!("filter show dev vp1 {side}")).contains(&format!("id {}", program.id())));
    }
}

/// The qdisc `ingress`, as libvirt makes it, has one list of filters: the program for packets to the VM would get those
/// that come from it.
#[test]
fn a_port_that_has_the_qdisc_ingress_gets_no_program() {
    let mut host = Host::by("clsact");
    let _vms = [host.add_vm(1), host.add_vm(2)];
    tc("qdisc add dev vp1 ingress");
    host.start();
    wait_until("the other port", || host.ports() == ["vp2"]);
    assert_eq!((tc("filter show dev vp1 ingress").as_str(), programs("vp2")), ("", both_by("clsact")));
    let status = host.status();
    let error = status["ports"][0]["error"].as_str().unwrap();
    assert!(error.contains("the qdisc `ingress` is in clsact's place (libvirt's <bandwidth>"), "{error}");
    tc("qdisc del dev vp1 ingress");
    // Any news of the device will do.
    ip("link set vp1 mtu 1400");
    wait_until("both ports", || host.ports() == ["vp1", "vp2"]);
    // Somebody puts it in the place of the agent's.
    tc("qdisc del dev vp1 clsact");
    tc("qdisc add dev vp1 ingress");
    wait_until("the port to be given up", || host.ports() == ["vp2"]);
    host.stop();
    assert_eq!(tc("qdisc show dev vp1 ingress").matches("qdisc ingress").count(), 1);
    assert!(!host.path("bpf/evenkeel").exists());
}

/// Debian 12's kernel as a host: everything works but what it lacks, each named in one line, and the next agent takes
/// over.
#[test]
fn a_host_without_tcx() {
    let interrupt = Interrupt::install().unwrap();
    let (_host, _directory, machine) = vflood::bed(KernelSeries::V6_1, &interrupt);
    let status = vflood::status(&machine);
    assert_eq!(status["attach"], "clsact", "{status}");
    let lacking = status["lacking"].as_array().unwrap();
    let why =
        |part: &str| lacking.iter().find(|lack| lack["part"] == part).unwrap()["why"].as_str().unwrap().to_owned();
    assert!(why("vsnoop").contains("bpf_task_from_pid") && why("host_vflood").contains("tcx"), "{status}");
    let table = machine.shell("evenkeel doctor --features").unwrap();
    assert!(table.contains("evenkeel host puts its programs on ports by clsact."), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("no tcx: ")).count(), 1, "{table}");

    machine.shell("sed -i 's/\"off\"/\"enforce\"/' /tmp/host.toml && kill -HUP $(cat /tmp/agent.pid)").unwrap();
    machine
        .shell("for i in $(seq 40); do evenkeel status | grep -q 'vp0.*enforce' && exit 0; sleep 0.5; done; exit 1")
        .unwrap();
    vflood::fetch(&machine, "true");
    let seen = vflood::count(&machine, "packets_from_vm");
    assert!(seen > 0 && vflood::count(&machine, "flows") > 0);
    let filters = "tc filter show dev vp0 egress; tc filter show dev vp0 ingress";
    let programs = |text: &str| text.matches("direct-action").count();

    machine.shell("kill -9 $(cat /tmp/agent.pid)").unwrap();
    assert_eq!(programs(&machine.shell(filters).unwrap()), 2);
    vflood::fetch(&machine, "true");
    vflood::start(&machine);
    assert_eq!(vflood::status(&machine)["took_over"], true);
    assert_eq!(programs(&machine.shell(filters).unwrap()), 2);
    assert!(vflood::count(&machine, "packets_from_vm") > seen, "counters began anew, or stood still without an agent");
    vflood::fetch(&machine, "true");

    machine.shell("evenkeel host --stop").unwrap();
    let left = machine.shell("tc qdisc show; ls /sys/fs/bpf").unwrap();
    assert!(!left.contains("clsact") && !left.contains("evenkeel"), "{left}");
    vflood::fetch(&machine, "true");
}
