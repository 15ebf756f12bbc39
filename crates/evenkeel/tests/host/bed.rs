//! A host with the real agent in namespaces of its own, and what goes between its VMs.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use evenkeel_testbed::place::ip;
use evenkeel_testbed::vm::{Vm, bridge};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// How long anything may take. Nothing is judged by time: this only ends a test that hangs.
pub const LIMIT: Duration = Duration::from_secs(60);
pub const METRICS: u16 = 9464;
pub const SERVER: u16 = 8000;
/// Bytes of one transfer.
pub const BYTES: usize = 1 << 20;

/// A command in this thread's namespaces.
fn output(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < end, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The host under test.
pub struct Host {
    directory: tempfile::TempDir,
    agent: Option<Child>,
    /// How the agent's programs are to attach to ports.
    pub attach: &'static str,
    /// Capabilities of the agent beside those of the systemd unit, as setpriv wants them.
    pub more_capabilities: &'static str,
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        let _ = nix::mount::umount(&self.path("bpf"));
    }
}

impl Host {
    /// Takes this thread into namespaces of its own, with a bridge and a bpf file system.
    pub fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("this test needs root");
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let host = Self { directory, agent: None, attach: "auto", more_capabilities: "" };
        fs::create_dir(host.path("bpf")).unwrap();
        mount(Some("bpf"), &host.path("bpf"), Some("bpf"), MsFlags::empty(), None::<&str>).unwrap();
        ip("link set lo up");
        bridge();
        fs::write(host.path("probe.key"), "000102030405060708090a0b0c0d0e0f\n").unwrap();
        fs::set_permissions(host.path("probe.key"), fs::Permissions::from_mode(0o600)).unwrap();
        host.configure("observe", METRICS, "");
        host
    }

    /// The same, with the programs attached to ports by this hook.
    pub fn by(attach: &'static str) -> Self {
        let mut host = Self::new();
        host.attach = attach;
        host.configure("observe", METRICS, "");
        host
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes the configuration, with time for a handshake on a busy machine before its SYN is sent again.
    pub fn configure(&self, mode: &str, metrics: u16, more: &str) {
        let text = format!(
            "ports = [\"vp*\"]\nport_queue_segments = 4000\nprobe_key_file = \"{}\"\nattach = \"{}\"\n{more}\n\
             [proboscis]\n\
             mode = \"{mode}\"\n\
             b2_us = 300000\nmax_time_us = 900000\n[control]\nsocket = \"{}\"\n[metrics]\n\
             listen = \"127.0.0.1:{metrics}\"\n",
            self.text("probe.key"),
            self.attach,
            self.text("host.sock"),
        );
        fs::write(self.path("host.toml"), text).unwrap();
    }

    /// A VM with its port on the bridge; its queue is not the default, to see that it comes back.
    pub fn add_vm(&self, number: u8) -> Vm {
        Vm::new(&format!("vp{number}"), &format!("txqueuelen 7{number}"), &format!("10.9.0.{number}"))
    }

    /// A host with an agent in this mode and the ports of two VMs, a server (the first) and a client.
    pub fn with_server_and_client(mode: &str) -> (Self, Vm, Vm) {
        Self::with_both_by("auto", mode)
    }

    /// The same, with the programs attached to ports by this hook.
    pub fn with_both_by(attach: &'static str, mode: &str) -> (Self, Vm, Vm) {
        let mut host = Self::by(attach);
        host.configure(mode, METRICS, "");
        let (server, client) = (host.add_vm(1), host.add_vm(2));
        serve(&server);
        host.start();
        wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
        (host, server, client)
    }

    pub fn evenkeel(&self, arguments: &[&str]) -> Output {
        output(env!("CARGO_BIN_EXE_evenkeel"), arguments)
    }

    pub fn start(&mut self) {
        // With no more than the capabilities of the systemd unit.
        let agent = Command::new("setpriv")
            .args([
                "--bounding-set",
                &(capabilities() + self.more_capabilities),
                "--no-new-privs",
                env!("CARGO_BIN_EXE_evenkeel"),
            ])
            .args(["host", "--config", &self.text("host.toml")])
            .args(["--run-dir", &self.text("run"), "--pin-dir", &self.text("bpf/evenkeel")])
            .env_remove("EVENKEEL_LOG")
            .spawn()
            .unwrap();
        let pid = agent.id();
        self.agent = Some(agent);
        // A killed agent has left its socket: only the new one answers there.
        wait_until("the agent to answer", || {
            let is_there = self.agent.as_mut().unwrap().try_wait().unwrap().is_none();
            assert!(is_there, "the agent ended");
            self.ask(&["status"]).is_ok_and(|status| status["pid"] == pid)
        });
    }

    /// Sets the mode of all ports of the running agent.
    pub fn switch(&self, mode: &str) {
        self.configure(mode, METRICS, "");
        self.signal(Signal::SIGHUP);
        wait_until("the new mode", || {
            self.status()["ports"].as_array().unwrap().iter().all(|port| port["mode"] == mode)
        });
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.agent.as_ref().unwrap().id() as i32);
        kill(pid, signal).unwrap();
    }

    /// The agent's exit code.
    pub fn ended(&mut self) -> Option<i32> {
        let mut agent = self.agent.take().unwrap();
        let mut status = None;
        wait_until("the agent to end", || {
            status = agent.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }

    fn try_to_stop(&self) -> Output {
        let (run, pins) = (self.text("run"), self.text("bpf/evenkeel"));
        self.evenkeel(&["host", "--stop", "--json", "--run-dir", &run, "--pin-dir", &pins])
    }

    pub fn stop(&self) -> Value {
        let output = self.try_to_stop();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What a `--stop` says that cannot put everything back.
    pub fn stop_in_part(&self) -> String {
        let output = self.try_to_stop();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(4), "{text}");
        assert!(text.contains("run `evenkeel host --stop` again"), "{text}");
        text
    }

    /// What a command says in JSON, or its error.
    pub fn ask(&self, arguments: &[&str]) -> Result<Value, String> {
        let mut all = arguments.to_vec();
        let socket = self.text("host.sock");
        all.extend(["--json", "--socket", &socket]);
        let output = self.evenkeel(&all);
        if !output.status.success() {
            return Err(String::from_utf8(output.stderr).unwrap());
        }
        Ok(serde_json::from_slice(&output.stdout).unwrap())
    }

    pub fn status(&self) -> Value {
        self.ask(&["status"]).unwrap()
    }

    /// Names of ports that the datapath is on.
    pub fn ports(&self) -> Vec<String> {
        let status = self.status();
        let ports = status["ports"].as_array().unwrap();
        let fine = ports.iter().filter(|p| p["error"].is_null());
        fine.map(|p| p["name"].as_str().unwrap().to_owned()).collect()
    }

    pub fn metrics(&self, port: u16) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(head.to_lowercase().contains("application/openmetrics-text"), "{head}");
        Some(body.to_owned())
    }
}

/// The capabilities that the systemd unit gives, as setpriv wants them.
fn capabilities() -> String {
    let unit = include_str!("../../../../packaging/systemd/evenkeel-host.service");
    let line = unit.lines().find_map(|l| l.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let names = line.split(' ').map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()));
    names.fold("-all".to_owned(), |all, name| all + &name)
}

pub fn queue_length(port: &str) -> u64 {
    let links: Value = serde_json::from_str(&ip(&format!("-j link show {port}"))).unwrap();
    links[0]["txqlen"].as_u64().unwrap()
}

/// Programs on a device, at both sides: all in tcx's lists, others' too, and evenkeel's own filters at clsact.
pub fn programs(port: &str) -> (u32, usize) {
    let filters = |side| tc(&format!("filter show dev {port} {side}"));
    let own = |text: &str, name| text.matches(&format!(" {name}:[")).count();
    (tcx_programs(port), own(&filters("egress"), "to_vm") + own(&filters("ingress"), "from_vm"))
}

/// What [`programs`] gives if both are attached by this and by nothing else.
pub fn both_by(attach: &str) -> (u32, usize) {
    if attach == "clsact" { (0, 2) } else { (2, 0) }
}

/// What `tc` says.
pub fn tc(arguments: &str) -> String {
    let output = output("tc", &arguments.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Programs on a device, at tcx ingress and egress.
pub fn tcx_programs(port: &str) -> u32 {
    let ifindex = nix::net::if_::if_nametoindex(port).unwrap() as i32;
    let count = |attach_type| {
        let mut query = libbpf_sys::bpf_prog_query_opts {
            sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        // SAFETY: the structure is of the size that it says, and asks for no arrays.
        let error = unsafe { libbpf_sys::bpf_prog_query_opts(ifindex, attach_type, &mut query) };
        assert_eq!(error, 0, "cannot ask for the programs on {port}");
        // SAFETY: the kernel has written the count.
        unsafe { query.__bindgen_anon_1.prog_cnt }
    };
    count(libbpf_sys::BPF_TCX_INGRESS) + count(libbpf_sys::BPF_TCX_EGRESS)
}

/// Serves until the listener's namespace is gone: sends [`BYTES`] for each connection, and ends when the client does.
pub fn serve(vm: &Vm) {
    let address = vm.address;
    let (ready, is_ready) = std::sync::mpsc::channel();
    vm.spawn(move || {
        let listener = TcpListener::bind((address, SERVER)).unwrap();
        ready.send(()).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let data: Vec<u8> = (0..BYTES).map(pattern).collect();
                if stream.write_all(&data).is_ok() {
                    // The client closes when it has it all.
                    let _ = stream.read(&mut [0; 1]);
                }
            });
        }
    });
    is_ready.recv().unwrap();
}

pub fn pattern(index: usize) -> u8 {
    (index.wrapping_mul(31) >> 3) as u8
}

pub fn connect(server: Ipv4Addr) -> TcpStream {
    let address = SocketAddr::new(IpAddr::V4(server), SERVER);
    let stream = TcpStream::connect_timeout(&address, LIMIT).expect("a connection failed");
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

pub fn receive(stream: &mut TcpStream) {
    let mut data = vec![0; BYTES];
    stream.read_exact(&mut data).expect("a transfer failed");
    assert!(data.iter().enumerate().all(|(index, byte)| *byte == pattern(index)), "a transfer came damaged");
}

/// A port's counter.
pub fn counter(status: &Value, port: &str, name: &str) -> u64 {
    let ports = status["ports"].as_array().unwrap();
    let port = ports.iter().find(|p| p["name"] == port).unwrap_or_else(|| panic!("no port {port} in {status}"));
    port["counters"][name].as_u64().unwrap()
}
