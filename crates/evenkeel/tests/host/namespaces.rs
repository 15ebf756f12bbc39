//! Ports in other network namespaces, as pods have them: devices with the same names and indices, VMs with the same
//! addresses, and namespaces that come and go.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_testbed::place::{index, ip};
use evenkeel_testbed::tap::TapVm;
use evenkeel_testbed::vm::{Vm, bridge};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bed::{Host, METRICS, both_by, connect, counter, programs, queue_length, receive, serve, wait_until};

const ALL: &str = "netns = [\"pod*\"]";

/// A host whose agent may enter namespaces, with a `/run/netns` of its own.
fn host(attach: &'static str) -> Host {
    let mut host = Host::by(attach);
    host.more_capabilities = ",+sys_admin";
    host.configure("enforce", METRICS, ALL);
    fs::create_dir_all("/run/netns").unwrap();
    mount(Some("tmpfs"), "/run/netns", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    host
}

/// A namespace with a bridge, and the ports of a server and a client there.
struct Pod {
    /// Keeps the namespace when its name is gone.
    namespace: File,
    server: Vm,
    client: Vm,
}

impl Pod {
    fn new(name: &str) -> Self {
        ip(&format!("netns add {name}"));
        let namespace = File::open(format!("/run/netns/{name}")).unwrap();
        let (server, client) = within(&namespace, || {
            ip("link set lo up");
            bridge();
            (vm(1), vm(2))
        });
        serve(&server);
        Self { namespace, server, client }
    }

    fn within<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        within(&self.namespace, work)
    }

    /// The client fetches a file of the server's.
    fn fetch(&self) {
        let address = self.server.address;
        self.client.spawn(move || receive(&mut connect(address))).join().unwrap();
    }

    /// The same, with the connection open until the returned sender is dropped.
    fn fetch_and_stay(&self) -> Sender<()> {
        let address = self.server.address;
        let (stay, is_over) = channel();
        let (sender, is_there) = channel();
        self.client.spawn(move || {
            let mut stream = connect(address);
            receive(&mut stream);
            sender.send(()).unwrap();
            let _ = is_over.recv();
        });
        is_there.recv().unwrap();
        stay
    }

    fn queue(&self) -> u64 {
        self.within(|| queue_length("vp1"))
    }

    fn programs(&self) -> (u32, usize) {
        self.within(|| programs("vp1"))
    }
}

fn vm(number: u8) -> Vm {
    Vm::new(&format!("vp{number}"), &format!("txqueuelen 7{number}"), &format!("10.9.0.{number}"))
}

fn within<T: Send + 'static>(namespace: &File, work: impl FnOnce() -> T + Send + 'static) -> T {
    let namespace = namespace.try_clone().unwrap();
    let there: JoinHandle<T> = std::thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        work()
    });
    there.join().unwrap()
}

fn seen(host: &Host, port: &str) -> u64 {
    let status = host.status();
    counter(&status, port, "packets_from_vm") + counter(&status, port, "packets_to_vm")
}

/// Everything is the same but the namespaces: names, indices, addresses, ports of TCP.
fn are_told_apart(attach: &'static str) {
    let mut host = host(attach);
    let _own = [host.add_vm(1), host.add_vm(2)];
    host.start();
    wait_until("the own ports", || host.ports() == ["vp1", "vp2"]);
    // Two pods come while the agent runs, with another namespace that is not the agent's.
    let (one, two) = (Pod::new("pod1"), Pod::new("pod2"));
    ip("netns add other");
    assert_eq!(one.within(|| index("vp1")), two.within(|| index("vp1")));
    assert_eq!(one.within(|| index("vp1")), index("vp1"));
    wait_until("the ports", || host.ports() == ["pod1/vp1", "pod1/vp2", "pod2/vp1", "pod2/vp2", "vp1", "vp2"]);
    assert_eq!(host.status()["ports"][0]["ifindex"], index("vp1"));
    wait_until("the queues", || [one.queue(), two.queue(), queue_length("vp1")] == [4000; 3]);
    assert_eq!([one.programs(), two.programs()], [both_by(attach); 2]);

    let syns = |host: &Host| {
        let status = host.status();
        ["pod1/vp2", "pod2/vp2", "vp2"].map(|port| counter(&status, port, "syns_from_vm"))
    };
    one.fetch();
    assert_eq!(syns(&host), [1, 0, 0]);
    let _open = [one.fetch_and_stay(), two.fetch_and_stay()];
    assert_eq!(syns(&host), [2, 1, 0]);
    let flows = host.ask(&["flows"]).unwrap();
    let mut ports: Vec<_> = flows["flows"].as_array().unwrap().iter().map(|flow| flow["port"].clone()).collect();
    ports.sort_unstable_by_key(Value::to_string);
    ports.dedup();
    assert_eq!(ports, ["pod1/vp1", "pod1/vp2", "pod2/vp1", "pod2/vp2"], "{flows}");
    // Both ends are ports of one host, as they are in the agent's own namespace.
    assert!(flows["flows"].as_array().unwrap().iter().all(|flow| flow["is_local"] == true), "{flows}");
    let metrics = host.metrics(METRICS).unwrap();
    assert!(metrics.contains("port=\"pod1/vp1\"") && metrics.contains("port=\"vp1\""), "{metrics}");

    host.stop();
    assert_eq!([one.queue(), two.queue(), queue_length("vp1")], [71; 3]);
    assert_eq!([one.programs(), two.programs()], [(0, 0); 2]);
    assert!(!host.path("bpf/evenkeel").exists());
}

#[test]
fn ports_of_two_namespaces_are_told_apart() {
    are_told_apart("auto");
}

#[test]
fn ports_of_two_namespaces_are_told_apart_by_clsact() {
    are_told_apart("clsact");
}

/// What cannot be read is no absence.
#[test]
fn names_that_cannot_be_read_are_kept() {
    for attach in ["auto", "clsact"] {
        let mut host = host(attach);
        let one = Pod::new("pod1");
        host.start();
        let all = ["pod1/vp1", "pod1/vp2", "pod2/vp1", "pod2/vp2"];
        wait_until("the ports", || host.ports() == all[..2]);
        wait_until("the queue", || one.queue() == 4000);
        let may = |mode| fs::set_permissions("/run/netns", fs::Permissions::from_mode(mode)).unwrap();
        // The agent has no right to read whatever it wants: neither the list of names, nor, with that, what they are.
        for mode in [0o000, 0o444] {
            may(mode);
            let reloads = host.status()["agent"]["reloads"].as_u64().unwrap();
            host.signal(Signal::SIGHUP);
            wait_until("a reload", || host.status()["agent"]["reloads"].as_u64() > Some(reloads));
            // The look comes 10 ms after it.
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(host.ports(), all[..2]);
            assert_eq!((one.queue(), one.programs()), (4000, both_by(attach)));
        }
        // One that comes meanwhile is found without news.
        let _two = Pod::new("pod2");
        may(0o755);
        wait_until("its ports", || host.ports() == all);
        assert_eq!(host.status()["agent"]["ports_gone"], 0);

        // Nor does the next agent forget, which does not start.
        host.signal(Signal::SIGKILL);
        host.ended();
        for mode in [0o000, 0o444] {
            may(mode);
            let error = refusal(&host, host.more_capabilities, 1);
            assert!(error.contains("cannot look at /run/netns"), "{error}");
        }
        may(0o755);
        host.start();
        wait_until("the ports", || host.ports() == all);
        assert_eq!((one.queue(), one.programs()), (4000, both_by(attach)));
        host.stop();
        assert_eq!((one.queue(), one.programs()), (71, (0, 0)));
    }
}

/// Nothing of the agent keeps a namespace, or is left in one that somebody else keeps.
#[test]
fn a_namespace_that_loses_its_name_is_left() {
    for attach in ["auto", "clsact"] {
        let mut host = host(attach);
        let (one, two) = (Pod::new("pod1"), Pod::new("pod2"));
        host.start();
        let all = ["pod1/vp1", "pod1/vp2", "pod2/vp1", "pod2/vp2"];
        wait_until("the ports", || host.ports() == all);
        wait_until("the queue", || one.queue() == 4000);
        ip("netns del pod1");
        wait_until("its ports to go", || host.ports() == all[2..]);
        wait_until("its queue", || one.queue() == 71);
        assert_eq!(one.programs(), (0, 0));
        one.fetch();
        // Another one of the same name.
        let third = Pod::new("pod1");
        wait_until("its ports", || host.ports() == all);
        third.fetch();
        assert!(seen(&host, "pod1/vp1") > 10);
        // pod2 ends as without an agent, and its devices with it.
        ip("link add mark type veth peer name inner netns pod2");
        drop(two);
        ip("netns del pod2");
        wait_until("its ports to go", || host.ports() == all[..2]);
        wait_until("its end", || nix::net::if_::if_nametoindex("mark").is_err());
        host.stop();
    }
}

#[test]
fn an_agent_takes_over_ports_of_namespaces() {
    for attach in ["auto", "clsact"] {
        let mut host = host(attach);
        let (one, two) = (Pod::new("pod1"), Pod::new("pod2"));
        host.start();
        wait_until("the ports", || host.ports().len() == 4);
        wait_until("the queue", || one.queue() == 4000);
        one.fetch();
        let before = seen(&host, "pod1/vp1");
        host.signal(Signal::SIGKILL);
        host.ended();
        one.fetch();
        // A namespace that goes meanwhile.
        ip("netns del pod2");
        drop(two);
        host.start();
        wait_until("the ports", || host.ports() == ["pod1/vp1", "pod1/vp2"]);
        assert_eq!(host.status()["took_over"], true);
        assert!(seen(&host, "pod1/vp1") > before, "counters began anew, or stood still without an agent");
        assert_eq!(one.programs(), both_by(attach));
        let links = fs::read_dir(host.path("bpf/evenkeel/links")).unwrap().count();
        // By clsact each device has two filters, and a qdisc of the agent's own.
        assert_eq!(links, if attach == "clsact" { 6 } else { 4 });
        // `--stop` finds what a killed agent leaves.
        host.signal(Signal::SIGKILL);
        host.ended();
        let stopped = host.stop();
        assert_eq!(stopped["ports"], serde_json::json!(["pod1/vp1", "pod1/vp2"]));
        assert_eq!((one.queue(), one.programs()), (71, (0, 0)));
        assert!(!host.path("bpf/evenkeel").exists());
        one.fetch();
    }
}

/// An agent that is no longer to have other namespaces undoes what the one before it did there.
#[test]
fn an_agent_without_namespaces_leaves_them() {
    let mut host = host("auto");
    let one = Pod::new("pod1");
    let _own = host.add_vm(1);
    host.start();
    wait_until("the ports", || host.ports() == ["pod1/vp1", "pod1/vp2", "vp1"]);
    wait_until("the queue", || one.queue() == 4000);
    host.configure("enforce", METRICS, "");
    host.signal(Signal::SIGHUP);
    wait_until("the refusal", || host.status()["config_refused"].is_string());
    assert_eq!(host.ports().len(), 3);
    host.signal(Signal::SIGTERM);
    host.ended();
    host.start();
    wait_until("the own port", || host.ports() == ["vp1"]);
    assert_eq!((one.queue(), one.programs()), (71, (0, 0)));
    host.stop();
}

/// What an agent says that may not enter namespaces, and ends.
fn refusal_without_the_right_to_enter(host: &Host) -> String {
    refusal(host, "", 3)
}

/// What an agent says that ends with this code.
fn refusal(host: &Host, more_capabilities: &str, code: i32) -> String {
    let capabilities = format!("-all,+bpf,+net_admin,+perfmon{more_capabilities}");
    let output = std::process::Command::new("setpriv")
        .args(["--bounding-set", &capabilities, "--no-new-privs", env!("CARGO_BIN_EXE_evenkeel")])
        .args(["host", "--config", &host.text("host.toml")])
        .args(["--run-dir", &host.text("run"), "--pin-dir", &host.text("bpf/evenkeel")])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{error}");
    error
}

#[test]
fn without_the_right_to_enter_it_says_so_and_ends() {
    let host = host("auto");
    let error = refusal_without_the_right_to_enter(&host);
    assert!(error.contains("CAP_SYS_ADMIN") && !host.path("bpf/evenkeel").exists(), "{error}");
}

/// Nor is what the agent before it did there forgotten.
#[test]
fn without_the_right_to_enter_nothing_is_left_behind() {
    for attach in ["auto", "clsact"] {
        let mut host = host(attach);
        let one = Pod::new("pod1");
        host.start();
        wait_until("the ports", || host.ports() == ["pod1/vp1", "pod1/vp2"]);
        wait_until("the queue", || one.queue() == 4000);
        host.signal(Signal::SIGTERM);
        host.ended();
        host.configure("enforce", METRICS, "");
        let error = refusal_without_the_right_to_enter(&host);
        assert!(error.contains("(pod1)") && error.contains("evenkeel host --stop"), "{error}");
        assert_eq!((one.queue(), one.programs()), (4000, both_by(attach)));
        host.stop();
        assert_eq!((one.queue(), one.programs()), (71, (0, 0)));
    }
}

/// What a mechanism does through the agent, or by looking into the tap, it does in a namespace too.
#[test]
fn a_tap_of_a_namespace_is_found_and_its_queue_read() {
    let mut host = host("auto");
    host.configure("enforce", METRICS, &format!("{ALL}\n[vsnoop]\nmode = \"enforce\"\nendpoint = \"observed\""));
    ip("netns add pod1");
    let namespace = File::open("/run/netns/pod1").unwrap();
    let (receiver, sender) = within(&namespace, || {
        ip("link set lo up");
        bridge();
        (vm(2), TapVm::new("vp1", false, "10.9.0.1"))
    });
    serve(&receiver);
    host.start();
    wait_until("the ports", || host.ports() == ["pod1/vp1", "pod1/vp2"]);
    let process = std::process::id();
    wait_until("its process", || host.status()["ports"][0]["vm"]["process"] == process);
    let status = host.status();
    assert_eq!(status["ports"][0]["vsnoop"]["queue"], "free", "{status}");
    assert!(status["ports"][0]["tap"]["queues"] == 1, "{status}");
    let address = receiver.address;
    sender.vm.spawn(move || receive(&mut connect(address))).join().unwrap();
    wait_until("early ACKs", || counter(&host.status(), "pod1/vp1", "vsnoop_early_acks") > 0);
    host.stop();
}
