//! Other ends: kernels of three ages in real VMs, and a TCP that is not Linux's, at a port with evenkeel and beyond it,
//! in both directions. Connections work as they do without evenkeel, nothing is reset, and no SYN has to be sent twice.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_algo::frames::RST;
use evenkeel_algo::packet::{self, Kind};
use evenkeel_lab::host::vm::{Accelerator, Channel, Nic, System, Vm as Machine, VmSpec};
use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::{self, GuestImage, KernelSeries};
use evenkeel_lab::proto::{Answer, Op};
use evenkeel_testbed::place::ip;
use evenkeel_testbed::vm::{Vm, tcp_counter};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium, TunTapInterface};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{EthernetAddress, IpCidr};

use crate::bed::{BYTES, Host, LIMIT, METRICS, counter, pattern, wait_until};

/// Connections of each case.
const CONNECTIONS: usize = 20;
/// Where guests serve files.
pub const WEB: u16 = 8001;

/// How long connecting took, and how many segments were sent again.
fn connections(vm: &Vm, server: Ipv4Addr, port: u16) -> (Vec<Duration>, u64) {
    vm.spawn(move || {
        let resets = || (tcp_counter("OutRsts"), tcp_counter("EstabResets"), tcp_counter("AttemptFails"));
        let (before, retransmitted) = (resets(), tcp_counter("RetransSegs"));
        // Streams stay open until the end: a late retransmission of a busy machine's guest would find its connection
        // closed, and be answered by a reset.
        let mut streams = Vec::new();
        let times = (0..CONNECTIONS)
            .map(|_| {
                let start = Instant::now();
                let mut stream = TcpStream::connect((server, port)).expect("a connection failed");
                let took = start.elapsed();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                stream.write_all(b"GET /data HTTP/1.0\r\n\r\n").unwrap();
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).expect("a transfer failed");
                assert!(answer.len() >= BYTES, "{} bytes came", answer.len());
                let data = &answer[answer.len() - BYTES..];
                assert!(data.iter().enumerate().all(|(i, byte)| *byte == pattern(i)), "a transfer came damaged");
                streams.push(stream);
                took
            })
            .collect();
        assert_eq!(resets(), before, "a connection was reset, or failed");
        // Each connection sends a SYN and a request. What stalls a SYN stalls all of them; a busy machine stalls one or
        // the other.
        let retransmitted = tcp_counter("RetransSegs") - retransmitted;
        assert!(retransmitted < CONNECTIONS as u64 / 2, "{retransmitted} segments sent again");
        (times, retransmitted)
    })
    .join()
    .unwrap()
}

fn spread((times, retransmitted): &(Vec<Duration>, u64)) -> String {
    let mut times = times.clone();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    format!("connect median {:.2} ms, p90 {:.2}, most {:.2}, {retransmitted} sent again", at(50), at(90), at(100))
}

/// Answers each connection's request with [`BYTES`] and closes: what `wget` and [`connections`] ask for.
pub fn serve_web(vm: &Vm) {
    let address = vm.address;
    let (ready, is_ready) = mpsc::channel();
    vm.spawn(move || {
        let listener = TcpListener::bind((address, WEB)).unwrap();
        ready.send(()).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let mut answer = format!("HTTP/1.0 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").into_bytes();
            answer.extend((0..BYTES).map(pattern));
            let _ = stream.write_all(&answer);
        }
    });
    is_ready.recv().unwrap();
}

/// A port's counters of what is meant for hosts with evenkeel.
fn probes(host: &Host, port: &str) -> (u64, u64) {
    let status = host.status();
    (counter(&status, port, "probes_sent"), counter(&status, port, "reports_seen"))
}

fn add_tap(name: &str, more: &str) {
    ip(&format!("tuntap add dev {name} mode tap {more}"));
    ip(&format!("link set {name} master br0 up"));
}

pub fn boot(image: &GuestImage, tap: &str, number: u8, directory: &Path, interrupt: &Interrupt) -> Machine {
    boot_with(image, tap, number, 1, Vec::new(), directory, interrupt)
}

/// Boots a guest with `vcpus` processors, all run by one thread: before QEMU 8.1 a change of code that another
/// processor is translating is lost.
pub fn boot_with(
    image: &GuestImage,
    tap: &str,
    number: u8,
    vcpus: u32,
    channels: Vec<Channel>,
    directory: &Path,
    interrupt: &Interrupt,
) -> Machine {
    add_tap(tap, "vnet_hdr");
    let spec = VmSpec {
        name: format!("{tap}-{}", image.series),
        group: "guest".into(),
        number: 0,
        system: System::Booted(image.clone()),
        vcpus,
        vcpu_threads: 1,
        memory_mib: 512,
        nics: vec![Nic { tap: tap.into(), mac: format!("52:54:00:00:00:{number:02x}"), segmentation_offload: true }],
        address: Ipv4Addr::new(10, 9, 0, number),
        channels,
        accelerator: Accelerator::Tcg,
    };
    let machine = Machine::spawn(spec, directory, interrupt.clone()).unwrap();
    machine.wait_ready(LIMIT * 3).unwrap();
    machine.shell(&format!("ip addr add 10.9.0.{number}/24 dev eth0 && ip link set eth0 up")).unwrap();
    machine
}

/// What the guest has counted: resets, and SYNs sent again.
fn troubles(machine: &Machine) -> (Vec<i64>, i64) {
    let Answer::Counters { values } = machine.call(Op::Counters).unwrap() else { panic!("no counters") };
    let resets = ["TcpOutRsts", "TcpEstabResets", "TcpAttemptFails"].map(|name| values[name]);
    (resets.to_vec(), values["TcpExtTCPSynRetrans"])
}

/// The guest fetches from `server` [`CONNECTIONS`] times, and compares.
pub fn fetch(machine: &Machine, server: Ipv4Addr) {
    machine
        .shell(&format!(
            "for i in $(seq {CONNECTIONS}); do wget -q -T 60 -O /tmp/got http://{server}:{WEB}/data && cmp /tmp/got \
             /tmp/data || exit 1; done"
        ))
        .unwrap();
}

/// The guest's own kernel takes the programs of all mechanisms, as a host's would; a kernel without tcx takes them by
/// clsact. One port is in another network namespace.
pub fn takes_the_programs(machine: &Machine, image: &GuestImage) {
    machine
        .shell(
            "ip link add vp0 type veth peer name vm0; modprobe tun; ip tuntap add dev vp1 mode tap; ip netns add pod1; \
             ip -n pod1 link add vp2 type veth peer name vm2; \
             umask 077; echo 0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f > /tmp/host.key; \
             printf 'ports = [\"vp*\"]\\nnetns = [\"pod*\"]\\nprobe_key_file = \"/tmp/host.key\"\\n\
             [proboscis]\\nmode = \"enforce\"\\nanswers = true\\n[vflood]\\nmode = \"enforce\"\\n\
             [vsnoop]\\nmode = \"enforce\"\\nendpoint = \"observed\"\\n[metrics]\\nenabled = false\\n' \
             > /tmp/host.toml",
        )
        .unwrap();
    machine.shell("setsid evenkeel host --config /tmp/host.toml >/tmp/host.log 2>&1 </dev/null &").unwrap();
    // The verifier takes its time on a busy machine, and a call ends after a minute.
    let end = Instant::now() + 5 * LIMIT;
    let status = loop {
        let status = machine.shell("evenkeel status --json 2>/dev/null || true").unwrap();
        // By clsact, a new tap's turn comes after two seconds.
        if status.contains("vp2") && !status.contains("not served yet") {
            break status;
        }
        assert!(Instant::now() < end, "no agent: {}", machine.shell("tail -n 30 /tmp/host.log").unwrap());
        std::thread::sleep(Duration::from_millis(500));
    };
    machine.shell("evenkeel host --stop >/dev/null").unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["attach"], if image.series == KernelSeries::V6_1 { "clsact" } else { "tcx" });
    let ports = status["ports"].as_array().unwrap();
    for (port, name, queue) in
        [(&ports[0], "pod1/vp2", "no_tap"), (&ports[1], "vp0", "no_tap"), (&ports[2], "vp1", "detached")]
    {
        assert_eq!((&port["name"], &port["error"]), (&name.into(), &serde_json::Value::Null));
        assert_eq!(port["vsnoop"]["queue"], queue, "{}: {port}", image.release);
        // The kernel could say who has a tap open, if anybody had.
        assert_eq!(port["vsnoop"]["vcpus"]["state"], "nobody", "{}: {port}", image.release);
    }
    println!("{} takes the programs", image.release);
}

/// A kernel as the guest of a port with evenkeel, the other end without it, and the other way round; both open
/// connections.
#[test]
fn kernels_of_three_ages() {
    let interrupt = Interrupt::install().unwrap();
    let series = [KernelSeries::V6_1, KernelSeries::V6_12, KernelSeries::Newest];
    let binary = Path::new(env!("CARGO_BIN_EXE_evenkeel"));
    let images = prepare::prepare(&series, binary, &|line| println!("{line}")).unwrap();
    // `vp1` has evenkeel, `plain` has not.
    let mut host = Host::new();
    host.configure("enforce", METRICS, "");
    let with = host.add_vm(1);
    serve_web(&with);
    host.start();
    for (number, image) in (20..).zip(&images) {
        // New addresses: a peer that never answers probes is sent none after some connections.
        let without = Vm::new(&format!("plain{number}"), "", &format!("10.9.0.{number}"));
        serve_web(&without);
        // A guest of a port with evenkeel (vp5), and one of a port without (bare).
        let directory = tempfile::tempdir().unwrap();
        for (tap, number, other) in [("vp5", 5, &without), ("bare", number + 20, &with)] {
            let machine = boot(image, tap, number, directory.path(), &interrupt);
            if tap == "vp5" {
                wait_until("the port", || host.ports().contains(&"vp5".to_owned()));
            }
            // The first copy is the one that the others are compared with.
            machine
                .shell(&format!("wget -q -O /tmp/data http://{}:{WEB}/data && httpd -p {WEB} -h /tmp", other.address))
                .unwrap();
            host.switch("off");
            fetch(&machine, other.address);
            let plain = connections(other, machine.spec.address, WEB);
            host.switch("enforce");
            let before = troubles(&machine);
            fetch(&machine, other.address);
            let enforced = connections(other, machine.spec.address, WEB);
            let after = troubles(&machine);
            assert_eq!(after.0, before.0, "{} at {tap}: resets", image.release);
            let twice = after.1 - before.1;
            assert!(twice < CONNECTIONS as i64 / 2, "{} at {tap}: {twice} SYNs sent again", image.release);
            let near = if tap == "vp5" { "vp5" } else { "vp1" };
            let (sent, reports) = probes(&host, near);
            assert!(sent > 0 && reports == 0, "{sent} probes, {reports} reports");
            println!(
                "{} at {tap}: off {}; enforce {}; {twice} SYNs of its own again",
                image.release,
                spread(&plain),
                spread(&enforced)
            );
            if tap == "bare" {
                takes_the_programs(&machine, image);
            }
            drop(machine);
            ip(&format!("link del {tap}"));
            if tap == "vp5" {
                wait_until("the port to go", || !host.ports().contains(&"vp5".to_owned()));
            }
        }
    }
}

/// smoltcp on a tap, with a thread of its own: it serves on [`WEB`] and fetches when it is told to.
struct Stack {
    address: Ipv4Addr,
    orders: mpsc::Sender<(Ipv4Addr, mpsc::Sender<Vec<Duration>>)>,
    resets: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Stack {
    fn drop(&mut self) {
        // Without anybody to give orders the thread ends.
        self.orders = mpsc::channel().0;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A tap that counts the RSTs that are sent on it.
struct Watched {
    tap: TunTapInterface,
    resets: Arc<AtomicU64>,
}

struct WatchedTx<'a> {
    token: <TunTapInterface as Device>::TxToken<'a>,
    resets: Arc<AtomicU64>,
}

impl Device for Watched {
    type RxToken<'a> = <TunTapInterface as Device>::RxToken<'a>;
    type TxToken<'a> = WatchedTx<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        self.tap.capabilities()
    }

    fn receive(&mut self, now: StackInstant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let resets = Arc::clone(&self.resets);
        self.tap.receive(now).map(|(rx, token)| (rx, WatchedTx { token, resets }))
    }

    fn transmit(&mut self, now: StackInstant) -> Option<Self::TxToken<'_>> {
        let resets = Arc::clone(&self.resets);
        self.tap.transmit(now).map(|token| WatchedTx { token, resets })
    }
}

impl phy::TxToken for WatchedTx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        self.token.consume(len, |frame| {
            let result = f(frame);
            if let Kind::Tcp(packet, _) = packet::parse(frame) {
                self.resets.fetch_add(u64::from(packet.flags & RST != 0), Ordering::Relaxed);
            }
            result
        })
    }
}

/// A connection that was accepted: what it has sent.
fn serve_on(socket: &mut tcp::Socket<'_>, answer: &[u8], sent: &mut usize) {
    if !socket.is_open() {
        socket.listen(WEB).unwrap();
        *sent = 0;
    }
    if socket.can_recv() {
        socket.recv(|request| (request.len(), ())).unwrap();
    }
    if socket.can_send() && *sent < answer.len() {
        *sent += socket.send_slice(&answer[*sent..]).unwrap();
    }
    if *sent == answer.len() {
        socket.close();
    }
}

/// A connection that was opened.
struct Fetch {
    start: Instant,
    took: Option<Duration>,
    answer: Vec<u8>,
}

impl Fetch {
    fn start(socket: &mut tcp::Socket<'_>, interface: &mut Interface, server: Ipv4Addr, port: u16) -> Self {
        socket.connect(interface.context(), (server, WEB), port).unwrap();
        Self { start: Instant::now(), took: None, answer: Vec::new() }
    }

    /// How long connecting took, when all has come.
    fn step(&mut self, socket: &mut tcp::Socket<'_>) -> Option<Duration> {
        assert!(self.start.elapsed() < LIMIT, "a transfer hangs in {}", socket.state());
        if self.took.is_none() && socket.can_send() {
            self.took = Some(self.start.elapsed());
            socket.send_slice(b"GET /data HTTP/1.0\r\n\r\n").unwrap();
        }
        if socket.can_recv() {
            socket.recv(|data| (data.len(), self.answer.extend_from_slice(data))).unwrap();
        }
        if socket.state() == tcp::State::CloseWait && !socket.can_recv() {
            let data = &self.answer[self.answer.len() - BYTES..];
            assert!(data.iter().enumerate().all(|(i, byte)| *byte == pattern(i)), "a transfer came damaged");
            socket.close();
            return self.took;
        }
        assert!(socket.is_open(), "a connection was reset");
        None
    }
}

impl Stack {
    fn start(tap: &str, number: u8) -> Self {
        add_tap(tap, "");
        let address = Ipv4Addr::new(10, 9, 0, number);
        let (orders, told) = mpsc::channel::<(Ipv4Addr, mpsc::Sender<Vec<Duration>>)>();
        let (resets, tap) = (Arc::new(AtomicU64::new(0)), tap.to_owned());
        let counted = Arc::clone(&resets);
        let thread = std::thread::spawn(move || run(&tap, address, &told, counted));
        Self { address, orders, resets, thread: Some(thread) }
    }

    fn fetch(&self, server: Ipv4Addr) -> Vec<Duration> {
        let (sender, times) = mpsc::channel();
        self.orders.send((server, sender)).unwrap();
        times.recv().expect("smoltcp's thread has failed")
    }
}

fn run(
    tap: &str,
    address: Ipv4Addr,
    told: &mpsc::Receiver<(Ipv4Addr, mpsc::Sender<Vec<Duration>>)>,
    resets: Arc<AtomicU64>,
) {
    let tap = TunTapInterface::new(tap, Medium::Ethernet).unwrap();
    let fd = tap.as_raw_fd();
    let mut device = Watched { tap, resets };
    let mac = EthernetAddress([2, 0, 0, 0, 9, address.octets()[3]]);
    let mut interface = Interface::new(Config::new(mac.into()), &mut device, StackInstant::now());
    interface.update_ip_addrs(|all| all.push(IpCidr::new(address.into(), 24)).unwrap());
    let mut sockets = SocketSet::new(Vec::new());
    let mut add = || {
        let buffer = || tcp::SocketBuffer::new(vec![0; 64 << 10]);
        sockets.add(tcp::Socket::new(buffer(), buffer()))
    };
    // Clients keep their connections to the end.
    let mut servers: Vec<_> = (0..CONNECTIONS + 4).map(|_| (add(), 0)).collect();
    let client = add();
    let answer: Vec<u8> = (0..BYTES).map(pattern).collect();
    let (mut port, mut order, mut fetch) = (50_000, None, None);
    loop {
        // Before anything is read: a SYN that nobody listens for is reset.
        for (handle, sent) in &mut servers {
            serve_on(sockets.get_mut(*handle), &answer, sent);
        }
        interface.poll(StackInstant::now(), &mut device, &mut sockets);
        if order.is_none() {
            match told.try_recv() {
                Ok((server, sender)) => order = Some((server, sender, Vec::new())),
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => return,
            }
        }
        if let Some((server, sender, times)) = &mut order {
            let socket = sockets.get_mut::<tcp::Socket<'_>>(client);
            match &mut fetch {
                None if times.len() == CONNECTIONS => {
                    sender.send(std::mem::take(times)).unwrap();
                    order = None;
                }
                // The last connection has ended, or only waits in TIME-WAIT.
                None if !socket.is_open() || socket.state() == tcp::State::TimeWait => {
                    socket.abort();
                    port += 1;
                    fetch = Some(Fetch::start(socket, &mut interface, *server, port));
                }
                None => {}
                Some(running) => {
                    if let Some(took) = running.step(socket) {
                        times.push(took);
                        fetch = None;
                    }
                }
            }
        }
        let most = smoltcp::time::Duration::from_millis(5);
        let delay = interface.poll_delay(StackInstant::now(), &sockets).map_or(most, |delay| delay.min(most));
        phy::wait(fd, Some(delay)).unwrap();
    }
}

/// smoltcp as the guest of a port with evenkeel, and as the unprepared other end, which gets the probes of those that
/// call it.
#[test]
fn a_tcp_that_is_not_linux() {
    let mut host = Host::new();
    host.configure("enforce", METRICS, "");
    let with = host.add_vm(1);
    let without = Vm::new("plain", "", "10.9.0.2");
    for vm in [&with, &without] {
        serve_web(vm);
    }
    host.start();
    for (tap, number, near, other) in [("vp5", 5, "vp5", &without), ("bare", 6, "vp1", &with)] {
        let stack = Stack::start(tap, number);
        wait_until("the ports", || host.ports().iter().any(|port| port == near));
        host.switch("off");
        let plain = (connections(other, stack.address, WEB), (stack.fetch(other.address), 0));
        host.switch("enforce");
        let enforced = (connections(other, stack.address, WEB), (stack.fetch(other.address), 0));
        let (sent, reports) = probes(&host, near);
        assert!(sent >= 10 && reports == 0, "{sent} probes, {reports} reports");
        assert_eq!(stack.resets.load(Ordering::Relaxed), 0, "smoltcp has reset a connection, or answered a probe");
        println!("smoltcp at {tap} serves:  off {}; enforce {}", spread(&plain.0), spread(&enforced.0));
        println!("smoltcp at {tap} fetches: off {}; enforce {}", spread(&plain.1), spread(&enforced.1));
    }
}
