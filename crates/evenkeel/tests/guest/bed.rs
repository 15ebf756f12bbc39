//! A VM with a channel, a peer for its connections, and the host's end of the channel.

use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use evenkeel_agent::channel::Channels;
use evenkeel_algo::vflood;
use evenkeel_lab::host::vm::{Accelerator, Channel, Nic, System, Vm as Machine, VmSpec};
use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::GuestImage;
use evenkeel_settings::address::{HostAddress, PORT_NAME};
use evenkeel_testbed::place::ip;
use evenkeel_testbed::vm::{Vm, bridge};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

use crate::relay::Relay;

/// How long anything may take. Nothing is judged by time: this only ends a test that hangs.
pub const LIMIT: Duration = Duration::from_secs(180);
/// The VM's port, as far as the channels are concerned.
pub const PORT: u32 = 7;
/// The host's heartbeat.
pub const HEARTBEAT_MS: u16 = 200;
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 5);
const PEER: &str = "10.9.0.2";
const CONTAINER: &str = "10.9.0.6";

/// A connection of the guest's, as `ss` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    pub algorithm: String,
    pub cwnd: u32,
    pub ssthresh: Option<u32>,
}

/// A guest with everything around it.
pub struct Bed {
    pub machine: Machine,
    pub channels: Channels,
    pub relay: Relay,
    _peer: Vm,
    servers: Vec<Child>,
    _directory: tempfile::TempDir,
}

fn nft(commands: &[&str]) {
    for command in commands {
        let done = Command::new("nft").arg(command).status().expect("nftables is installed");
        assert!(done.success(), "{command}");
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Bed {
    /// Takes this thread into namespaces of its own.
    pub fn leave() {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("this test needs root");
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        ip("link set lo up");
        bridge();
    }

    pub fn new(image: &GuestImage, interrupt: &Interrupt) -> Self {
        let directory = tempfile::tempdir().unwrap();
        ip("tuntap add dev guest mode tap vnet_hdr");
        ip("link set guest master br0 up");
        ip("tuntap add dev second mode tap vnet_hdr");
        let socket = directory.path().join("channel");
        let spec = VmSpec {
            name: format!("guest-{}", image.series),
            group: "guest".into(),
            number: 0,
            system: System::Booted(image.clone()),
            vcpus: 1,
            vcpu_threads: 1,
            memory_mib: 512,
            nics: [("guest", "52:54:00:00:00:05"), ("second", "52:54:00:00:00:06")]
                .map(|(tap, mac)| Nic { tap: tap.into(), mac: mac.into(), segmentation_offload: true })
                .into(),
            address: GUEST,
            channels: vec![Channel { name: PORT_NAME.into(), socket: socket.clone(), listens: true }],
            accelerator: Accelerator::Tcg,
        };
        let machine = Machine::spawn(spec, directory.path(), interrupt.clone()).unwrap();
        machine.wait_ready(LIMIT * 3).unwrap();
        machine.shell(&format!("ip addr add {GUEST}/24 dev eth0 && ip link set eth0 up")).unwrap();
        let relay = Relay::new(directory.path(), &socket);
        let channels = Channels::start().unwrap();
        channels.set(PORT, "guest", Some(&HostAddress::Path(relay.path.clone()).into()), HEARTBEAT_MS).unwrap();
        let peer = Vm::new("peer", "", PEER);
        let servers = [5201, 5202, 5203]
            .map(|port| {
                let (sender, server) = mpsc::channel();
                peer.spawn(move || {
                    let server = Command::new("iperf3")
                        .args(["-s", "-p", &port.to_string()])
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        .spawn()
                        .expect("iperf3 is installed");
                    sender.send(server).unwrap();
                })
                .join()
                .unwrap();
                server.recv().unwrap()
            })
            .into();
        Self { machine, channels, relay, _peer: peer, servers, _directory: directory }
    }

    pub fn shell(&self, script: &str) -> String {
        self.machine.shell(script).unwrap_or_else(|error| panic!("{error}\n{}", self.machine.console()))
    }

    /// Waits until something is so, and says how long that took.
    pub fn wait_until(&self, what: &str, mut done: impl FnMut() -> bool) -> Duration {
        let (begin, mut looks) = (Instant::now(), 0);
        while !done() {
            looks += 1;
            assert!(begin.elapsed() < LIMIT, "waited in vain ({looks} looks) for: {what}\n{}", self.picture());
            std::thread::sleep(Duration::from_millis(20));
        }
        begin.elapsed()
    }

    /// The state of guest and channel, for the report of a wait in vain.
    fn picture(&self) -> String {
        const SCRIPT: &str = "exec 2>&1; ps | grep -v ' \\['; ss -tinp; tc -s qdisc show dev eth0; dmesg | tail -n 20
            for process in $(pidof iperf3); do
                grep -E '^(State|Sig)' /proc/$process/status; cat /proc/$process/wchan /proc/$process/stack; echo
            done
            evenkeel guest --status; tail -n 30 /tmp/guest.log || true";
        let guest = self.machine.shell(SCRIPT).unwrap_or_else(|error| error.to_string());
        format!("{guest}\nthe channel: {:?}", self.channels.status(PORT))
    }

    /// From now on the host holds all connections: its token is in their packets.
    pub fn hold(&self) {
        let token = vflood::token(self.channels.session(PORT).unwrap());
        nft(&["add table bridge host", "add chain bridge host to_guest { type filter hook forward priority 0; }"]);
        nft(&[&format!("add rule bridge host to_guest oifname {{ guest, second }} tcp urgptr set {token}")]);
    }

    /// The host holds none any more.
    pub fn let_go(&self) {
        nft(&["delete table bridge host"]);
    }

    fn configure(&self, config: &str) {
        self.shell(&format!("cat > /tmp/guest.toml <<'X'\n{config}\nX"));
    }

    /// Makes the agent read another configuration.
    pub fn reload(&self, config: &str) {
        self.configure(config);
        self.shell("kill -HUP $(cat /run/evenkeel/guest.lock)");
    }

    /// Starts the agent, and waits until it says that it is ready.
    pub fn start_agent(&self, config: &str) {
        self.configure(config);
        self.shell(
            "EVENKEEL_LOG=info setsid evenkeel guest --config /tmp/guest.toml >>/tmp/guest.log 2>&1 </dev/null &",
        );
        self.wait_until("the agent", || {
            let log = self.shell("cat /tmp/guest.log");
            assert!(!log.contains("error:"), "{log}");
            let status = self.status();
            status["is_running"] == true && status["registered"].as_array().is_some_and(|names| !names.is_empty())
        });
    }

    /// `evenkeel guest --status`.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.shell("evenkeel guest --status --json")).unwrap()
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.status()["counters"][name].as_u64().unwrap()
    }

    pub fn sysctl(&self, name: &str) -> String {
        self.shell(&format!("cat /proc/sys/net/ipv4/{name}")).trim().to_owned()
    }

    /// Whether the kernel has a congestion control of this name.
    pub fn registered(&self, name: &str) -> bool {
        self.sysctl("tcp_available_congestion_control").split(' ').any(|other| other == name)
    }

    /// Sends data to the peer until it is killed. iperf3 gets the arguments `more`.
    pub fn send(&self, port: u16, more: &str) {
        self.shell(&format!(
            "setsid iperf3 -c {PEER} -p {port} -t 3600 {more} >/tmp/iperf{port}.log 2>&1 </dev/null &"
        ));
        self.wait_until("connections", || !self.sockets(port).is_empty());
    }

    /// A container with the second card, in the same network.
    pub fn add_container(&self) {
        ip("link set second master br0 up");
        self.shell(&format!(
            "ip netns add box && ip link set eth1 netns box && ip -n box addr add {CONTAINER}/24 dev eth1 &&
             ip -n box link set eth1 up"
        ));
    }

    /// Gives the card back.
    pub fn end_container(&self) {
        self.shell("ip -n box link set eth1 netns 1 && ip netns del box");
        ip("link set second nomaster down");
    }

    /// The container's connections to one of the peer's servers, which it begins now.
    pub fn send_from_container(&self, port: u16, more: &str) -> Vec<Socket> {
        let sender = format!("setsid ip netns exec box iperf3 -c {PEER} -p {port} -t 3600 {more}");
        self.shell(&format!("{sender} >/tmp/box.log 2>&1 </dev/null &"));
        let mut sockets = Vec::new();
        self.wait_until("the container's connection", || {
            sockets = self.sockets_by("ip netns exec box", port);
            !sockets.is_empty()
        });
        sockets
    }

    /// Ends the senders, by a signal that iperf3 does not handle: its handler jumps out of whatever it is doing.
    pub fn end_connections(&self) {
        self.shell("killall -9 iperf3 || true");
        self.wait_until("no connections", || {
            self.shell(&format!("pidof iperf3 || true; ss -tnOH state established dst {PEER}")).trim().is_empty()
        });
    }

    /// The guest's connections to one of the peer's servers that have sent more than a control connection does.
    pub fn sockets(&self, port: u16) -> Vec<Socket> {
        self.sockets_by("", port)
    }

    /// The same, as `ss` has them where this command runs it.
    fn sockets_by(&self, within: &str, port: u16) -> Vec<Socket> {
        let text = self.shell(&format!("{within} ss -tinOH state established dst {PEER}:{port}"));
        let field = |line: &str, name: &str| {
            line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix(':')?.parse::<u64>().ok())
        };
        text.lines()
            .filter(|line| field(line, "bytes_sent").is_some_and(|bytes| bytes > 20_000))
            .map(|line| Socket {
                // The client's own algorithm has the namespace's number behind its name.
                algorithm: line
                    .split_whitespace()
                    .find(|word| ["vflood", "cubic", "reno", "bbr"].contains(word) || word.starts_with("ek_cera"))
                    .unwrap_or_else(|| panic!("no algorithm in `{line}`"))
                    .to_owned(),
                cwnd: field(line, "cwnd").unwrap_or_else(|| panic!("no cwnd in `{line}`")) as u32,
                ssthresh: field(line, "ssthresh").map(|segments| segments as u32),
            })
            .collect()
    }
}
