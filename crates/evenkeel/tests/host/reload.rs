//! Reloads change nothing in silence, and leave the control socket where it is.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use serde_json::Value;

use crate::bed::{Host, METRICS, wait_until};

/// Has the agent read its configuration again; returns why it was refused, if it was.
fn reload(host: &Host) -> Option<String> {
    let reloads = |status: &Value| status["agent"]["reloads"].as_u64().unwrap();
    let before = reloads(&host.status());
    host.signal(Signal::SIGHUP);
    wait_until("the configuration to be read", || reloads(&host.status()) > before);
    host.status()["config_refused"].as_str().map(str::to_owned)
}

fn socket(host: &Host) -> u64 {
    fs::metadata(host.path("host.sock")).unwrap().ino()
}

#[test]
fn the_control_socket_is_there_after_every_reload() {
    let mut host = Host::new();
    host.start();
    let file = host.path("host.toml");
    let first = fs::read_to_string(&file).unwrap();
    let with_group = first.replace("[control]\n", "[control]\ngroup = \"0\"\n");
    fs::write(&file, &with_group).unwrap();
    let before = socket(&host);
    assert_eq!(reload(&host), None);
    let second = socket(&host);
    assert_ne!(before, second, "the same group by another name takes another socket");
    // A reload that is refused when its socket is already made: the socket before it stays.
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    fs::write(&file, first.replace(&format!(":{METRICS}"), &format!(":{port}"))).unwrap();
    let why = reload(&host).expect("the address is another's");
    assert!(why.contains("metrics.listen"), "{why}");
    assert_eq!(socket(&host), second);
    assert!(!host.path("host.new").exists());
    // In another place, and back.
    fs::write(&file, first.replace("host.sock", "other.sock")).unwrap();
    host.signal(Signal::SIGHUP);
    wait_until("the other socket", || UnixStream::connect(host.path("other.sock")).is_ok());
    wait_until("the first one to go", || !host.path("host.sock").exists());
    fs::write(&file, &first).unwrap();
    host.signal(Signal::SIGHUP);
    wait_until("the first one again", || host.ask(&["status"]).is_ok());
    wait_until("the other one to go", || !host.path("other.sock").exists());
    assert_eq!(host.stop()["ports"], serde_json::json!([]));
    assert_eq!(host.ended(), Some(0));
    assert!(!host.path("host.sock").exists());
}

#[test]
fn files_that_are_gone_are_not_taken_for_settings() {
    let mut host = Host::new();
    let _vm = host.add_vm(1);
    host.configure("enforce", METRICS, "");
    host.start();
    let is_as_before = || {
        let status = host.status();
        let mode = status["ports"][0]["mode"].as_str().unwrap().to_owned();
        (mode, status["probe_keys"].as_u64().unwrap()) == ("enforce".to_owned(), 1)
    };
    wait_until("the port", || host.ports() == ["vp1"]);
    for name in ["host.toml", "probe.key"] {
        let (file, away) = (host.path(name), host.path("away"));
        fs::rename(&file, &away).unwrap();
        let why = reload(&host).unwrap_or_else(|| panic!("without {name}"));
        assert!(why.contains(name) && is_as_before(), "{why}");
        symlink(host.path("nothing"), &file).unwrap();
        let why = reload(&host).unwrap_or_else(|| panic!("with a link for {name}"));
        assert!(why.contains(name) && is_as_before(), "{why}");
        fs::remove_file(&file).unwrap();
        nix::unistd::mkfifo(&file, Mode::S_IRWXU).unwrap();
        let why = reload(&host).unwrap_or_else(|| panic!("with a FIFO for {name}"));
        assert!(why.contains("it is a FIFO") && is_as_before(), "{why}");
        fs::rename(&away, &file).unwrap();
        assert_eq!(reload(&host), None);
        assert!(is_as_before());
    }
    assert_eq!(host.status()["agent"]["reloads_refused"], 6);
}

/// The kernel has no room for a socket of all addresses beside one of a single address.
#[test]
fn metrics_move_to_other_addresses_of_their_port() {
    let mut host = Host::new();
    host.start();
    let file = host.path("host.toml");
    let first = fs::read_to_string(&file).unwrap();
    let at = |address: &str, more: &str| {
        let listen = format!("\"{address}:{METRICS}\"\n{more}");
        fs::write(&file, first.replace(&format!("\"127.0.0.1:{METRICS}\"\n"), &listen)).unwrap();
        reload(&host)
    };
    let is_heard_at = |address: [u8; 4]| TcpStream::connect((Ipv4Addr::from(address), METRICS)).is_ok();
    for _ in 0..2 {
        assert_eq!(at("0.0.0.0", "allow_remote = true\n"), None);
        assert!(is_heard_at([127, 0, 0, 2]) && host.metrics(METRICS).is_some());
        assert_eq!(at("127.0.0.1", ""), None);
        assert!(!is_heard_at([127, 0, 0, 2]) && host.metrics(METRICS).is_some());
    }
    // One that is another's: the address before it is served as before.
    let _taken = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 9), METRICS)).unwrap();
    let why = at("127.0.0.9", "").expect("the address is another's");
    assert!(why.contains("127.0.0.9"), "{why}");
    assert!(host.metrics(METRICS).is_some());
    assert_eq!(at("127.0.0.3", ""), None);
    assert!(is_heard_at([127, 0, 0, 3]) && host.metrics(METRICS).is_none());
}

/// A process that does not outlive the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As above, for the file that is read if none is named.
#[test]
fn a_usual_file_that_is_gone_is_no_file_only_at_the_start() {
    let host = Host::new();
    // This test's own /etc.
    let etc = host.path("etc");
    fs::create_dir_all(etc.join("evenkeel")).unwrap();
    let flags = nix::mount::MsFlags::MS_BIND;
    nix::mount::mount(Some(&etc), "/etc", None::<&str>, flags, None::<&str>).unwrap();
    let usual = std::path::Path::new("/etc/evenkeel/host.toml");
    let (run, pins) = (host.text("run"), host.text("bpf/evenkeel"));
    symlink(host.path("nothing"), usual).unwrap();
    let places = ["--run-dir", &run, "--pin-dir", &pins];
    let refused = host.evenkeel(&[&["host"], &places[..]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot read /etc/evenkeel/host.toml"));
    fs::remove_file(usual).unwrap();
    fs::copy(host.path("host.toml"), usual).unwrap();
    let agent = Command::new(env!("CARGO_BIN_EXE_evenkeel")).arg("host").args(places).spawn().unwrap();
    let mut agent = Ended(agent);
    wait_until("the agent to answer", || host.ask(&["status"]).is_ok());
    fs::remove_file(usual).unwrap();
    kill(Pid::from_raw(agent.0.id() as i32), Signal::SIGHUP).unwrap();
    wait_until("the refusal", || host.status()["config_refused"].is_string());
    let status = host.status();
    let why = status["config_refused"].as_str().unwrap();
    assert!(why.contains("/etc/evenkeel/host.toml is gone: all settings would be the defaults"), "{why}");
    host.stop();
    agent.0.wait().unwrap();
    nix::mount::umount("/etc").unwrap();
}

#[test]
fn a_check_reads_what_the_configuration_names() {
    let host = Host::new();
    let check = || {
        let output = host.evenkeel(&["host", "--check", "--config", &host.text("host.toml")]);
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, said) = check();
    assert!(code == Some(0) && said.contains("valid; 1 probe key"), "{said}");
    fs::write(host.path("probe.key"), "00\n").unwrap();
    let (code, said) = check();
    assert!(code == Some(2) && said.contains("probe.key:1: probe_key_file: a line of 32"), "{said}");
    fs::remove_file(host.path("probe.key")).unwrap();
    let (code, said) = check();
    assert!(code == Some(0) && said.contains("no file of probe keys"), "{said}");
    // FIFOs that nobody ever writes into.
    nix::unistd::mkfifo(&host.path("probe.key"), Mode::S_IRUSR).unwrap();
    let (code, said) = check();
    assert!(code == Some(2) && said.contains("it is a FIFO"), "{said}");
    fs::remove_file(host.path("host.toml")).unwrap();
    nix::unistd::mkfifo(&host.path("host.toml"), Mode::S_IRUSR).unwrap();
    let (code, said) = check();
    assert!(code == Some(2) && said.contains("it is a FIFO"), "{said}");
}
