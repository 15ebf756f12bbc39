//! The host agent as a user meets it: the real binary in a network namespace of its own, with veth ports for VMs. Needs root, Linux
//! 6.6 with BTF, iproute2.
//!
//! Every test takes its own network and mount namespaces, which its thread hands down to what it starts. Nothing is left when the last
//! process in them ends.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// How long anything may take. Nothing is judged by time: this only ends a test that hangs.
const LIMIT: Duration = Duration::from_secs(60);
const METRICS: u16 = 9464;
const SERVER: u16 = 8000;
/// Of one transfer.
const BYTES: usize = 1 << 20;

/// A command in this thread's namespaces.
fn output(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn ip(arguments: &str) -> String {
    let output = output("ip", &arguments.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < end, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A VM: a network namespace that a sleeping process keeps.
struct Vm {
    keeper: Child,
    address: Ipv4Addr,
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

impl Vm {
    /// A thread inside.
    fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = fs::File::open(format!("/proc/{}/ns/net", self.keeper.id())).unwrap();
        std::thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        })
    }
}

/// The host under test.
struct Host {
    directory: tempfile::TempDir,
    agent: Option<Child>,
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
    fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("this test needs root");
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let host = Self { directory, agent: None };
        fs::create_dir(host.path("bpf")).unwrap();
        mount(Some("bpf"), &host.path("bpf"), Some("bpf"), MsFlags::empty(), None::<&str>).unwrap();
        ip("link set lo up");
        ip("link add br0 type bridge");
        ip("link set br0 up");
        fs::write(host.path("probe.key"), "000102030405060708090a0b0c0d0e0f\n").unwrap();
        fs::set_permissions(host.path("probe.key"), fs::Permissions::from_mode(0o600)).unwrap();
        host.configure("observe", METRICS, "");
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn configure(&self, mode: &str, metrics: u16, more: &str) {
        let text = format!(
            "ports = [\"vp*\"]\nport_queue_segments = 4000\nprobe_key_file = \"{}\"\n{more}\n[proboscis]\nmode = \"{mode}\"\n\
             [control]\nsocket = \"{}\"\n[metrics]\nlisten = \"127.0.0.1:{metrics}\"\n",
            self.text("probe.key"),
            self.text("host.sock"),
        );
        fs::write(self.path("host.toml"), text).unwrap();
    }

    /// A VM with its port on the bridge; its queue is not the default, to see that it comes back.
    fn add_vm(&self, number: u8) -> Vm {
        let mut keeper = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up; echo ready; exec sleep 3600"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let vm = Vm { keeper, address: Ipv4Addr::new(10, 9, 0, number) };
        let pid = vm.keeper.id();
        ip(&format!("link add vp{number} txqueuelen 7{number} type veth peer name eth0 netns {pid}"));
        ip(&format!("link set vp{number} master br0 up"));
        let address = vm.address;
        vm.spawn(move || {
            ip(&format!("addr add {address}/24 dev eth0"));
            ip("link set eth0 up");
        })
        .join()
        .unwrap();
        vm
    }

    fn evenkeel(&self, arguments: &[&str]) -> Output {
        output(env!("CARGO_BIN_EXE_evenkeel"), arguments)
    }

    fn start(&mut self) {
        // With no more than the capabilities of the systemd unit.
        let agent = Command::new("setpriv")
            .args(["--bounding-set", &capabilities(), "--no-new-privs", env!("CARGO_BIN_EXE_evenkeel")])
            .args(["host", "--config", &self.text("host.toml")])
            .args(["--run-dir", &self.text("run"), "--pin-dir", &self.text("bpf/evenkeel")])
            .env_remove("EVENKEEL_LOG")
            .spawn()
            .unwrap();
        let pid = agent.id();
        self.agent = Some(agent);
        // One that was killed has left its socket: only the new one answers there.
        wait_until("the agent to answer", || {
            let is_there = self.agent.as_mut().unwrap().try_wait().unwrap().is_none();
            assert!(is_there, "the agent ended");
            self.ask(&["status"]).is_ok_and(|status| status["pid"] == pid)
        });
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.agent.as_ref().unwrap().id() as i32);
        kill(pid, signal).unwrap();
    }

    /// The agent's exit code.
    fn ended(&mut self) -> Option<i32> {
        let mut agent = self.agent.take().unwrap();
        let mut status = None;
        wait_until("the agent to end", || {
            status = agent.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }

    fn stop(&self) -> Value {
        let output = self.evenkeel(&[
            "host",
            "--stop",
            "--json",
            "--run-dir",
            &self.text("run"),
            "--pin-dir",
            &self.text("bpf/evenkeel"),
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What a command says in JSON, or its error.
    fn ask(&self, arguments: &[&str]) -> Result<Value, String> {
        let mut all = arguments.to_vec();
        let socket = self.text("host.sock");
        all.extend(["--json", "--socket", &socket]);
        let output = self.evenkeel(&all);
        if !output.status.success() {
            return Err(String::from_utf8(output.stderr).unwrap());
        }
        Ok(serde_json::from_slice(&output.stdout).unwrap())
    }

    fn status(&self) -> Value {
        self.ask(&["status"]).unwrap()
    }

    /// Names of ports that the datapath is on.
    fn ports(&self) -> Vec<String> {
        let status = self.status();
        let ports = status["ports"].as_array().unwrap();
        let fine = ports.iter().filter(|p| p["error"].is_null());
        fine.map(|p| p["name"].as_str().unwrap().to_owned()).collect()
    }

    fn metrics(&self, port: u16) -> Option<String> {
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

/// Those that the systemd unit gives, as setpriv wants them.
fn capabilities() -> String {
    let unit = include_str!("../../../packaging/systemd/evenkeel-host.service");
    let line = unit.lines().find_map(|l| l.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let names = line.split(' ').map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()));
    names.fold("-all".to_owned(), |all, name| all + &name)
}

fn queue_length(port: &str) -> u64 {
    let links: Value = serde_json::from_str(&ip(&format!("-j link show {port}"))).unwrap();
    links[0]["txqlen"].as_u64().unwrap()
}

/// Programs on a device, at tcx ingress and egress.
fn tcx_programs(port: &str) -> u32 {
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
fn serve(vm: &Vm) {
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

fn pattern(index: usize) -> u8 {
    (index.wrapping_mul(31) >> 3) as u8
}

fn connect(server: Ipv4Addr) -> TcpStream {
    let address = SocketAddr::new(IpAddr::V4(server), SERVER);
    let stream = TcpStream::connect_timeout(&address, LIMIT).expect("a connection failed");
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn receive(stream: &mut TcpStream) {
    let mut data = vec![0; BYTES];
    stream.read_exact(&mut data).expect("a transfer failed");
    assert!(data.iter().enumerate().all(|(index, byte)| *byte == pattern(index)), "a transfer came damaged");
}

/// A port's counter.
fn counter(status: &Value, port: &str, name: &str) -> u64 {
    let ports = status["ports"].as_array().unwrap();
    let port = ports.iter().find(|p| p["name"] == port).unwrap_or_else(|| panic!("no port {port} in {status}"));
    port["counters"][name].as_u64().unwrap()
}

#[test]
fn from_the_first_port_to_the_last_pin() {
    let mut host = Host::new();
    let server = host.add_vm(1);
    serve(&server);
    let error = host.ask(&["status"]).unwrap_err();
    assert!(error.contains("no evenkeel host agent answers at") && error.contains("help: start it with"), "{error}");

    host.start();
    wait_until("the first port", || host.ports() == ["vp1"]);
    wait_until("its queue", || queue_length("vp1") == 4000);
    let client = host.add_vm(2);
    wait_until("the second port", || host.ports() == ["vp1", "vp2"]);
    assert_eq!(tcx_programs("vp2"), 2);
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
    assert!(status["config_refused"].as_str().unwrap().contains("host.toml:4: colour: unknown field"), "{status}");
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
    assert_eq!(tcx_programs("other4"), 0);
    ip("link del other4");
    wait_until("the others alone", || host.ports() == ["vp1", "vp2"]);

    // SIGTERM ends the agent and leaves the datapath; the next one finds its flows.
    host.signal(Signal::SIGTERM);
    assert_eq!(host.ended(), Some(0));
    assert_eq!(tcx_programs("vp2"), 2);
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
    assert_eq!((tcx_programs("vp1"), tcx_programs("vp2")), (0, 0));
    assert!(!host.path("bpf/evenkeel").exists());
    hold.send(()).unwrap();
    open.join().unwrap();
    assert_eq!(host.stop()["ports"], serde_json::json!([]));
}

#[test]
fn a_killed_agent_fails_no_transfer() {
    const CLIENTS: usize = 4;
    const TRANSFERS: usize = 25;
    let mut host = Host::new();
    host.configure("enforce", METRICS, "");
    let (server, client) = (host.add_vm(1), host.add_vm(2));
    serve(&server);
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);

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
            assert_eq!(tcx_programs("vp1"), 2, "the datapath went with its agent");
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

    // What a killed agent has left, --stop removes without one.
    host.signal(Signal::SIGKILL);
    host.ended();
    // A queue that somebody else has set stays.
    ip("link set vp2 txqueuelen 500");
    let stopped = host.stop();
    assert_eq!(stopped["left"], serde_json::json!(["vp2"]));
    assert_eq!((queue_length("vp1"), queue_length("vp2")), (71, 500));
    assert_eq!((tcx_programs("vp1"), tcx_programs("vp2")), (0, 0));
    assert!(!host.path("bpf/evenkeel").exists());
    client.spawn(move || receive(&mut connect(address))).join().unwrap();
}

#[test]
fn probes_go_before_a_syn_and_a_lost_syn_is_sent_again() {
    let mut host = Host::new();
    host.configure("enforce", METRICS, "");
    let (server, client) = (host.add_vm(1), host.add_vm(2));
    serve(&server);
    host.start();
    wait_until("the ports", || host.ports() == ["vp1", "vp2"]);
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

    // Now the way to the server is cut: its SYN is lost until the agent has sent it again in vain.
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
    // Nothing is left of it.
    assert!(!host.path("pins").exists() && !host.path("bad.sock").exists());

    let check = host.evenkeel(&["host", "--check", "--config", &host.text("host.toml")]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let example = host.evenkeel(&["host", "--print-config"]);
    fs::write(host.path("example.toml"), example.stdout).unwrap();
    let check = host.evenkeel(&["host", "--check", "--config", &host.text("example.toml")]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}
