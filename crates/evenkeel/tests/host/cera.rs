//! CERA with the real agent: two VMs that send to a third machine by one uplink, whose shaper is the bottleneck.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_agent::channel::wire::Capabilities;
use evenkeel_agent::channel::{Effect, GuestEnd};
use evenkeel_testbed::place::ip;
use evenkeel_testbed::vm::Vm;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bed::{Host, LIMIT, METRICS, SERVER, wait_until};

const FLOWS: usize = 6;
/// Less than any receiver offers here, whether it has let its window grow or not.
const PLAIN_BYTES: u64 = 60_000;
/// More than CERA leaves a flow.
const LIMITED_BYTES: u64 = 40_000;
/// An agent that is late by this much limits all the same.
const LATE: Duration = Duration::from_secs(2);

fn tc(arguments: &str) {
    let output = Command::new("tc").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The machine at the other end of the uplink takes all that comes.
fn sink(far: &Vm) {
    let address = far.address;
    let (ready, is_ready) = std::sync::mpsc::channel();
    far.spawn(move || {
        let listener = TcpListener::bind((address, SERVER)).unwrap();
        ready.send(()).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    is_ready.recv().unwrap();
}

/// Flows that send until they are told to stop; each panics if it cannot.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Load {
    fn new(vm: &Vm, to: Ipv4Addr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let one = |_| {
            let stop = Arc::clone(&stop);
            vm.spawn(move || {
                let mut stream = TcpStream::connect_timeout(&SocketAddr::from((to, SERVER)), LIMIT).unwrap();
                stream.set_write_timeout(Some(LIMIT)).unwrap();
                let data = vec![0; 1 << 16];
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    sent += stream.write(&data).expect("a connection broke") as u64;
                }
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                assert_eq!(stream.read(&mut [0; 1]).expect("the end is acknowledged"), 0);
                sent
            })
        };
        Self { threads: (0..FLOWS).map(one).collect(), stop }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            assert!(thread.join().expect("no connection breaks") > 0);
        }
    }
}

fn config(mode: &str) -> String {
    format!(
        "[cera]\nmode = \"{mode}\"\nuplinks = [\"up*\"]\nhigh_segments = 40\n[[port]]\nmatch = \"vp2\"\n[port.cera]\n\
         weight = 2"
    )
}

fn port<'a>(status: &'a Value, name: &str) -> &'a Value {
    let ports = status["ports"].as_array().unwrap();
    &ports.iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("no port {name} in {status}"))["cera"]
}

/// The largest window that a VM's connections see their peer offer, as `ss` says.
fn widest_window(vm: &Vm) -> u64 {
    let list =
        vm.spawn(|| Command::new("ss").args(["-tinH", "state", "established"]).output().unwrap()).join().unwrap();
    let text = String::from_utf8(list.stdout).unwrap();
    let windows = text.split_whitespace().filter_map(|word| word.strip_prefix("snd_wnd:"));
    windows.map(|window| window.parse().unwrap()).max().unwrap_or(0)
}

#[test]
fn a_long_queue_is_cut_whoever_the_controller_is_and_nobody_is_limited_without_one() {
    let mut host = Host::new();
    let far = host.add_vm(9);
    ip("link set vp9 down");
    ip("link set vp9 name up9");
    ip("link set up9 up");
    tc("qdisc add dev up9 root handle 1: htb default 1");
    tc("class add dev up9 parent 1: classid 1:1 htb rate 100mbit burst 3k cburst 3k");
    tc("qdisc add dev up9 parent 1:1 pfifo limit 1000");
    let vms = [host.add_vm(1), host.add_vm(2)];
    sink(&far);

    // Observed: windows are found, and none is written.
    host.configure("off", METRICS, &config("observe"));
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
    let loads = [Load::new(&vms[0], far.address), Load::new(&vms[1], far.address)];
    wait_until("a cut", || host.status()["cera"]["cuts"].as_u64() > Some(0));
    let status = host.status();
    assert_eq!(status["cera"]["error"], Value::Null, "{status}");
    let uplink = &status["cera"]["uplinks"][0];
    assert_eq!((&uplink["name"], &uplink["qdisc"]), (&"up9".into(), &"htb".into()), "{status}");
    assert_eq!((&uplink["bytes_per_s"], &uplink["rate_from"]), (&12_500_000.into(), &"shaper".into()), "{status}");
    assert_eq!((&port(&status, "vp1")["weight"], &port(&status, "vp2")["weight"]), (&1.into(), &2.into()), "{status}");
    wait_until("flows", || ["vp1", "vp2"].iter().all(|vp| port(&host.status(), vp)["flows"] == FLOWS));
    wait_until("windows", || port(&host.status(), "vp1")["window_segments"].as_u64() > Some(0));
    let observed = host.evenkeel(&["status", "--socket", &host.text("host.sock")]);
    let observed = String::from_utf8(observed.stdout).unwrap();
    assert!(observed.contains("uplink up9 (htb), 100 Mbit/s (shaper)"), "{observed}");
    wait_until("windows as wide as receivers make them", || widest_window(&vms[0]) > PLAIN_BYTES);

    // Enforced: the VMs' own windows are what CERA writes.
    let fits = |vm: &Vm| widest_window(vm) < LIMITED_BYTES;
    host.configure("off", METRICS, &config("enforce"));
    host.signal(Signal::SIGHUP);
    wait_until("limits", || fits(&vms[0]) && fits(&vms[1]));
    let mut one = Value::Null;
    wait_until("a flow of each VM that CERA limits", || {
        let flows = host.ask(&["flows"]).unwrap();
        let of = |name: &str| {
            let mut all = flows["flows"].as_array().unwrap().iter();
            all.find(|flow| flow["port"] == name && flow["window"]["set_by"] == "cera").cloned()
        };
        one = of("vp1").unwrap_or_default();
        one.is_object() && of("vp2").is_some()
    });
    let explained = host.ask(&["flows", "--explain", one["tuple"].as_str().unwrap()]).unwrap();
    let words = explained["flows"][0]["words"].to_string();
    assert!(words.contains("CERA: the VM has") && words.contains("in the ACKs that pass"), "{words}");
    let metrics = host.metrics(METRICS).unwrap();
    for name in ["cera_queue_bytes ", "cera_cuts_total ", "port_cera_window_segments{port=\"vp1\"} ", "cera_failed 0"] {
        assert!(metrics.contains(&format!("evenkeel_host_{name}")), "{name}: {metrics}");
    }

    // Late by less than limits hold for: they stay. Stuck for longer: they end, and come back with it.
    host.signal(Signal::SIGSTOP);
    let stopped = Instant::now();
    while stopped.elapsed() < LATE {
        let widest = vms.each_ref().map(widest_window);
        // A machine that was itself late has shown nothing.
        assert!(widest.iter().all(|window| *window < LIMITED_BYTES) || stopped.elapsed() >= LATE, "{widest:?}");
    }
    wait_until("plain TCP", || widest_window(&vms[0]) > PLAIN_BYTES);
    host.signal(Signal::SIGCONT);
    wait_until("limits", || fits(&vms[0]) && fits(&vms[1]));
    // Killed: limits end by themselves, while the datapath stays.
    host.signal(Signal::SIGKILL);
    host.ended();
    wait_until("plain TCP", || widest_window(&vms[0]) > PLAIN_BYTES && widest_window(&vms[1]) > PLAIN_BYTES);
    // Another one takes over.
    host.start();
    assert_eq!(host.status()["took_over"], true);
    wait_until("limits", || fits(&vms[0]) && fits(&vms[1]));
    // An agent that ends in good order ends its limits, too, and `--stop` leaves nothing.
    host.signal(Signal::SIGTERM);
    assert_eq!(host.ended(), Some(0));
    wait_until("plain TCP", || widest_window(&vms[0]) > PLAIN_BYTES);
    host.start();
    wait_until("limits", || fits(&vms[0]));
    host.stop();
    assert_eq!(host.ended(), Some(0));
    wait_until("plain TCP", || widest_window(&vms[0]) > PLAIN_BYTES);
    loads.into_iter().for_each(Load::end);
}

fn mac_of(vm: &Vm) -> String {
    let list = vm.spawn(|| ip("-j link show eth0")).join().unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    list[0]["address"].as_str().unwrap().to_owned()
}

fn knows(vm: &Vm, other: &Vm) {
    let (address, mac) = (other.address, mac_of(other));
    vm.spawn(move || ip(&format!("neigh add {address} lladdr {mac} dev eth0"))).join().unwrap();
}

/// No bridge: packets are handed from device to device, as Open vSwitch and offloaded switches do.
#[test]
fn ports_that_are_joined_to_the_uplink_by_redirects_are_limited_too() {
    let mut host = Host::new();
    let far = host.add_vm(9);
    ip("link set vp9 down");
    ip("link set vp9 nomaster name up9");
    ip("link set up9 up");
    tc("qdisc add dev up9 root tbf rate 100mbit burst 10k limit 1m");
    tc("qdisc add dev up9 clsact");
    let vm = host.add_vm(1);
    ip("link set vp1 nomaster");
    tc("qdisc add dev vp1 clsact");
    tc("filter add dev vp1 ingress protocol all u32 match u32 0 0 action mirred egress redirect dev up9");
    tc("filter add dev up9 ingress protocol all u32 match u32 0 0 action mirred egress redirect dev vp1");
    knows(&vm, &far);
    knows(&far, &vm);
    sink(&far);
    host.configure("off", METRICS, &config("enforce"));
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    let load = Load::new(&vm, far.address);
    wait_until("limits", || host.status()["cera"]["cuts"].as_u64() > Some(0) && widest_window(&vm) < LIMITED_BYTES);
    let status = host.status();
    assert_eq!(status["cera"]["uplinks"][0]["qdisc"], "tbf", "{status}");
    assert!(status["ports"][0]["counters"]["cera_windows_limited"].as_u64() > Some(0), "{status}");
    load.end();
}

#[test]
fn an_uplink_that_is_missing_is_named_and_found_when_it_comes() {
    let mut host = Host::new();
    let _vm = host.add_vm(1);
    host.configure("off", METRICS, &config("enforce"));
    host.start();
    let fails = |why: &str| {
        let error = host.status()["cera"]["error"].as_str().map(str::to_owned);
        error.is_some_and(|error| error.contains(why))
    };
    wait_until("no device", || fails("no device matches cera.uplinks"));
    ip("link add up1 type veth peer name far1");
    wait_until("a device that is down", || fails("up1 is down"));
    ip("link set up1 up");
    wait_until("a device at which nothing is", || fails("up1 has no carrier"));
    ip("link set far1 up");
    wait_until("a device without a queue", || fails("up1 has no queue"));
    tc("qdisc replace dev up1 root tbf rate 50mbit burst 10k limit 1m");
    wait_until("the uplink", || host.status()["cera"]["uplinks"][0]["bytes_per_s"] == 6_250_000);
    wait_until("no error", || host.status()["cera"]["error"].is_null());
    wait_until("epochs", || host.status()["cera"]["epochs"].as_u64() > Some(0));
    let says_failed = |failed: u32| {
        let metrics = host.metrics(METRICS).unwrap_or_default();
        metrics.contains(&format!("evenkeel_host_cera_failed {failed}"))
    };
    assert!(says_failed(0));
    for (device, why) in [("up1", "up1 is down"), ("far1", "up1 has no carrier")] {
        ip(&format!("link set {device} down"));
        wait_until(why, || fails(why) && says_failed(1));
        ip(&format!("link set {device} up"));
        wait_until("the uplink again", || host.status()["cera"]["error"].is_null() && says_failed(0));
    }
}

/// A guest's agent at its end of the channel: it takes windows, and does to the channel what it is told to.
struct Agent {
    manners: Arc<AtomicU32>,
    told: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

const POLITE: u32 = 0;
const SILENT: u32 = 1;
const BABBLING: u32 = 2;
const GONE: u32 = 3;
/// How long an agent waits for its host's word before it checks how it is to behave.
const TIMEOUT: Duration = Duration::from_millis(5);
/// Period of an agent's heartbeats: the shortest that there is.
const HEARTBEAT_MS: u16 = 50;

impl Agent {
    /// Listens as QEMU does.
    fn new(path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let (manners, told) = (Arc::new(AtomicU32::new(POLITE)), Arc::new(AtomicU32::new(0)));
        let (mine, window) = (Arc::clone(&manners), Arc::clone(&told));
        let thread = std::thread::spawn(move || {
            while mine.load(Ordering::Relaxed) != GONE {
                let (stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                stream.set_write_timeout(Some(TIMEOUT)).unwrap();
                talk(stream, &mine, &window);
            }
        });
        Self { manners, told, thread: Some(thread) }
    }

    /// Listens in a VM that has no virtio-serial port.
    fn over_tcp(vm: &Vm, port: u16) -> Self {
        let address = vm.address;
        let (manners, told) = (Arc::new(AtomicU32::new(POLITE)), Arc::new(AtomicU32::new(0)));
        let (mine, window) = (Arc::clone(&manners), Arc::clone(&told));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = vm.spawn(move || {
            let listener = TcpListener::bind((address, port)).unwrap();
            ready.send(()).unwrap();
            while mine.load(Ordering::Relaxed) != GONE {
                let (stream, _) = listener.accept().unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                stream.set_write_timeout(Some(TIMEOUT)).unwrap();
                talk(stream, &mine, &window);
            }
        });
        is_ready.recv().unwrap();
        Self { manners, told, thread: Some(thread) }
    }

    fn is(&self, manners: u32) {
        self.manners.store(manners, Ordering::Relaxed);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.is(GONE);
        if let Some(thread) = self.thread.take().filter(|_| !std::thread::panicking()) {
            let _ = thread.join();
        }
    }
}

/// One connection, until it ends or the agent is gone.
fn talk(mut stream: impl Read + Write, manners: &AtomicU32, window: &AtomicU32) {
    let mut end = GuestEnd::new(HEARTBEAT_MS, Capabilities::CERA, 7, Instant::now());
    end.connected(Instant::now());
    let (mut bytes, mut out) = ([0; 4096], Vec::new());
    loop {
        match manners.load(Ordering::Relaxed) {
            POLITE => {}
            SILENT => {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            BABBLING => {
                let _ = stream.write(&[0xe7; 4096]);
                continue;
            }
            _ => return,
        }
        out.clear();
        end.outgoing(Instant::now(), &mut out);
        if stream.write_all(&out).is_err() {
            return;
        }
        let effects = match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(length) => end.received(&bytes[..length], Instant::now()),
            Err(_) => end.expire(Instant::now()),
        };
        for effect in effects {
            match effect {
                Effect::Share(share) => window.store(share.segments, Ordering::Relaxed),
                Effect::Released | Effect::Down(_) => window.store(0, Ordering::Relaxed),
                _ => {}
            }
        }
    }
}

/// A client in the VM is told its window. Whatever it makes of that, here nothing, the host limits the VM itself.
#[test]
fn a_guest_whose_agent_does_nothing_falls_silent_babbles_or_goes_is_limited_by_its_host() {
    let mut host = Host::new();
    let far = host.add_vm(9);
    ip("link set vp9 down");
    ip("link set vp9 name up9");
    ip("link set up9 up");
    tc("qdisc add dev up9 root tbf rate 100mbit burst 10k limit 1m");
    let vm = host.add_vm(1);
    sink(&far);
    let agent = Agent::new(&host.path("vp1.channel"));
    let channel = format!("[[port]]\nmatch = \"vp1\"\nchannel = \"{}\"\n", host.text("vp1.channel"));
    host.configure("off", METRICS, &format!("{}\n{channel}", config("enforce")));
    host.start();
    let has_client = |has: bool| port(&host.status(), "vp1")["has_client"] == has;
    wait_until("the client", || has_client(true));
    let load = Load::new(&vm, far.address);
    wait_until("a window for the client", || agent.told.load(Ordering::Relaxed) > 0);
    let limited = || widest_window(&vm) < LIMITED_BYTES;
    wait_until("an agent that says yes and does nothing", || has_client(true) && limited());
    for (what, manners) in [("silence", SILENT), ("garbage", BABBLING)] {
        agent.is(manners);
        wait_until(what, || has_client(false) && limited());
        agent.is(POLITE);
        wait_until("the client again", || has_client(true) && agent.told.load(Ordering::Relaxed) > 0 && limited());
    }
    drop(agent);
    wait_until("nobody at the other end", || has_client(false) && limited());
    assert_eq!(host.status()["cera"]["error"], Value::Null);
    load.end();
}

/// A channel over TCP is a connection through the VM's port, and stays on the host: its heartbeats are no flow that has
/// a part of the uplink.
#[test]
fn a_channel_over_tcp_is_no_flow_of_the_vms() {
    const PORT: u16 = 9465;
    /// Epochs are ten heartbeats long: if heartbeats counted, every epoch would have a flow.
    const EPOCHS: &str = "epoch_us = 500000\n[[port]]";
    let mut host = Host::new();
    let far = host.add_vm(9);
    ip("link set vp9 down");
    ip("link set vp9 name up9");
    ip("link set up9 up");
    ip("addr add 10.9.0.200/24 dev br0");
    tc("qdisc add dev up9 root tbf rate 100mbit burst 10k limit 1m");
    let vm = host.add_vm(1);
    sink(&far);
    let _agent = Agent::over_tcp(&vm, PORT);
    let channel = format!("[[port]]\nmatch = \"vp1\"\nchannel = \"tcp:{}:{PORT}\"\n", vm.address);
    host.configure("off", METRICS, &format!("{}\n{channel}", config("enforce").replacen("[[port]]", EPOCHS, 1)));
    host.start();
    wait_until("the client", || port(&host.status(), "vp1")["has_client"] == true);

    let most_flows_in_five_epochs = || {
        let epochs = |status: &Value| status["cera"]["epochs"].as_u64().unwrap();
        let end = epochs(&host.status()) + 5;
        let mut most = 0;
        wait_until("epochs", || {
            let status = host.status();
            most = most.max(port(&status, "vp1")["flows"].as_u64().unwrap());
            epochs(&status) >= end
        });
        most
    };
    let messages = || host.status()["ports"][0]["channel"]["messages"].as_u64().unwrap();
    let before = messages();
    assert_eq!(most_flows_in_five_epochs(), 0);
    wait_until("words on the channel", || messages() > before);
    let load = Load::new(&vm, far.address);
    wait_until("flows", || port(&host.status(), "vp1")["flows"] == FLOWS);
    let most = most_flows_in_five_epochs();
    assert!(most <= FLOWS as u64, "{most} flows");
    let flows = host.ask(&["flows"]).unwrap();
    let channel = format!(":{PORT}");
    let of_channel = |flow: &&Value| flow["tuple"].as_str().is_some_and(|tuple| tuple.contains(&channel));
    let flows = flows["flows"].as_array().unwrap();
    let of_channel: Vec<_> = flows.iter().filter(of_channel).map(|flow| &flow["window"]["set_by"]).collect();
    assert!(!of_channel.is_empty() && of_channel.iter().all(|by| *by == "receiver"), "{flows:?}");
    load.end();
}
