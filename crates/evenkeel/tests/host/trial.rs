//! Trials: however a trial ends, ports have what is configured again, and the file is as it was.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_testbed::place::ip;
use evenkeel_testbed::vm::Vm;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::bed::{Host, METRICS, connect, receive, tc, wait_until};

const LONG: &[&str] = &["--for", "1h", "--slot", "1s"];

/// A trial of ProBoSCIS that goes on while others ask.
struct Trial(Child);

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn arguments<'a>(host: &Host, ports: &[&'a str], more: &[&'a str]) -> Vec<String> {
    let common = ["--quiet", "--mechanism", "proboscis", "--socket"];
    let all = ["trial"].iter().chain(ports).chain(more).chain(&common).map(|word| (*word).to_owned());
    all.chain([host.text("host.sock"), "--report".to_owned(), host.text("trial.html")]).collect()
}

impl Trial {
    fn spawn(arguments: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        Self(command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn start(host: &Host, ports: &[&str], more: &[&str]) -> Self {
        let trial = Self::spawn(&arguments(host, ports, more));
        wait_until("the trial", || !port(host, ports[0])["trial"].is_null());
        trial
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }

    /// Waits until it ends; returns its exit code, and what it has said on both streams.
    fn ended(mut self) -> (Option<i32>, String) {
        wait_until("the trial to end", || self.0.try_wait().unwrap().is_some());
        let (mut stdout, mut stderr) = (self.0.stdout.take().unwrap(), self.0.stderr.take().unwrap());
        let text = std::io::read_to_string(&mut stdout).unwrap() + &std::io::read_to_string(&mut stderr).unwrap();
        (self.0.wait().unwrap().code(), text)
    }
}

fn port(host: &Host, name: &str) -> Value {
    let status = host.status();
    let ports = status["ports"].as_array().unwrap();
    ports.iter().find(|port| port["name"] == name).cloned().unwrap_or_default()
}

fn is_as_configured(host: &Host, name: &str) -> bool {
    let port = port(host, name);
    port["trial"].is_null() && port["mode"] == "observe" && port["error"].is_null()
}

/// Both modes come, on this port and no other.
fn alternates(host: &Host, name: &str, other: &str) {
    for mode in ["enforce", "observe", "enforce"] {
        wait_until("the other mode", || port(host, name)["trial"]["mode"] == mode);
        assert!(is_as_configured(host, other));
    }
    assert_eq!(port(host, name)["trial"]["configured"], "observe");
    wait_until("the mode itself", || port(host, name)["mode"] == "enforce");
}

#[test]
fn a_trial_that_is_killed_leaves_what_is_configured() {
    let (mut host, _server, _client) = Host::with_server_and_client("observe");
    let before = std::fs::read(host.path("host.toml")).unwrap();
    let trial = Trial::start(&host, &["vp1"], LONG);
    alternates(&host, "vp1", "vp2");
    kill(trial.pid(), Signal::SIGKILL).unwrap();
    wait_until("the agent to notice", || is_as_configured(&host, "vp1"));

    // On Ctrl-C a trial says what it has, and the agent need not notice its absence.
    let trial = Trial::start(&host, &["vp1"], LONG);
    kill(trial.pid(), Signal::SIGINT).unwrap();
    let (code, text) = trial.ended();
    assert_eq!(code, Some(130), "{text}");
    assert!(text.contains("Too little traffic") && text.contains("it was interrupted"), "{text}");
    assert!(is_as_configured(&host, "vp1"));
    assert!(std::fs::read_to_string(host.path("trial.html")).unwrap().contains("it was interrupted"));

    // The next agent knows nothing of a trial.
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let trial = Trial::start(&host, &["vp1"], LONG);
        wait_until("the mode", || port(&host, "vp1")["mode"] == "enforce");
        host.signal(signal);
        host.ended();
        let (code, text) = trial.ended();
        assert_eq!(code, Some(1), "{text}");
        host.start();
        wait_until("the port", || is_as_configured(&host, "vp1"));
    }
    assert_eq!(std::fs::read(host.path("host.toml")).unwrap(), before);
}

/// The arguments, with another file for the report.
fn reporting_to(mut all: Vec<String>, file: &str) -> Vec<String> {
    *all.last_mut().unwrap() = file.to_owned();
    all
}

#[test]
fn a_report_that_cannot_be_written_costs_neither_an_hour_nor_the_verdict() {
    let (host, _server, _client) = Host::with_server_and_client("observe");
    let run = |all: &[String]| {
        let output = host.evenkeel(&all.iter().map(String::as_str).collect::<Vec<_>>());
        (output.status.code(), [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()))
    };
    // Where there is no such folder, no port is lent.
    let nowhere = reporting_to(arguments(&host, &["vp1"], LONG), &host.text("nowhere/trial.html"));
    let (code, error) = Trial::spawn(&nowhere).ended();
    assert!(code == Some(1) && error.contains("nowhere/trial.html: No such file"), "{error}");
    // A trial that does not begin leaves no page, and takes none away.
    let refused = arguments(&host, &["vp7"], LONG);
    assert_eq!((run(&refused).0, host.path("trial.html").exists()), (Some(1), false));
    std::fs::write(host.path("trial.html"), "before").unwrap();
    assert_eq!(run(&refused).0, Some(1));
    assert_eq!(std::fs::read_to_string(host.path("trial.html")).unwrap(), "before");

    let short = ["--for", "10s", "--slot", "600ms"];
    let (code, [text, error]) = run(&reporting_to(arguments(&host, &["vp1"], &short), "/dev/full"));
    assert!(text.starts_with("Too little traffic") && !text.contains("Report:"), "{text}");
    assert!(code == Some(1) && error.contains("cannot write /dev/full: No space left"), "{error}");
    assert!(is_as_configured(&host, "vp1"));
    // A page that is longer than the next one leaves nothing of itself.
    std::fs::write(host.path("trial.html"), "before".repeat(1 << 20)).unwrap();
    let trial = Trial::start(&host, &["vp1"], LONG);
    kill(trial.pid(), Signal::SIGINT).unwrap();
    assert_eq!(trial.ended().0, Some(130));
    let page = std::fs::read_to_string(host.path("trial.html")).unwrap();
    assert!(page.contains("it was interrupted") && !page.contains("beforebefore"));
}

#[test]
fn a_port_has_one_trial_and_a_reload_breaks_none_in_silence() {
    let (host, _server, _client) = Host::with_server_and_client("observe");
    let trial = Trial::start(&host, &["vp1"], LONG);
    let refused = |ports: &[&str], why: &str| {
        let output = host.evenkeel(&arguments(&host, ports, LONG).iter().map(String::as_str).collect::<Vec<_>>());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains(why), "{text}");
    };
    refused(&["vp2", "vp1"], &format!("a trial on vp1 already: evenkeel trial, process {}", trial.0.id()));
    refused(&["vp7"], "no port vp7");
    refused(&["vp2", "vp2"], "twice");
    assert!(is_as_configured(&host, "vp2"), "of those that are refused nothing is left");

    let reloads = || host.status()["agent"]["reloads"].as_u64().unwrap();
    let reload = |more: &str| {
        host.configure("observe", METRICS, more);
        let before = reloads();
        host.signal(Signal::SIGHUP);
        wait_until("the configuration to be read", || reloads() > before);
    };
    reload("");
    reload("[[port]]\nmatch = \"vp2\"\n[port.cera]\nweight = 3");
    assert!(!port(&host, "vp1")["trial"].is_null(), "what is said of another port ends nothing");
    reload("[[port]]\nmatch = \"vp1\"\n[port.cera]\nweight = 3");
    let (code, text) = trial.ended();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("vp1 is configured otherwise"), "{text}");
    wait_until("what is configured", || is_as_configured(&host, "vp1"));

    // A VM that is about to leave: what is configured is the same offline.
    let trial = Trial::start(&host, &["vp1", "vp2"], LONG);
    host.ask(&["port", "offline", "vp1"]).unwrap();
    let (code, text) = trial.ended();
    assert!(code == Some(1) && text.contains("vp1 is offline, because its VM is about to leave"), "{text}");
    wait_until("both ports", || is_as_configured(&host, "vp1") && is_as_configured(&host, "vp2"));
    refused(&["vp1"], "vp1 offline");
    host.ask(&["port", "online", "vp1"]).unwrap();

    let trial = Trial::start(&host, &["vp1", "vp2"], LONG);
    ip("link del vp1");
    let (code, text) = trial.ended();
    assert!(code == Some(1) && text.contains("a port of it went away"), "{text}");
    wait_until("the other port", || is_as_configured(&host, "vp2"));
}

#[test]
fn a_trial_of_cera_without_an_uplink_is_refused() {
    let mut host = Host::new();
    let _vm = host.add_vm(1);
    host.start();
    wait_until("the port", || host.ports() == ["vp1"]);
    let run = || {
        let all = arguments(&host, &["vp1"], &["--for", "10s", "--slot", "600ms"]);
        let all: Vec<_> = all.iter().map(|word| if word == "proboscis" { "cera" } else { word }).collect();
        let output = host.evenkeel(&all);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let refused = |why: &str| {
        let (code, text) = run();
        assert!(code == Some(1) && text.contains("cannot try it on vp1") && text.contains(why), "{text}");
        assert!(is_as_configured(&host, "vp1"));
    };
    refused("cera.uplinks names no network card");
    host.configure("observe", METRICS, "[cera]\nuplinks = [\"up0\"]\nrate_mbit = 100");
    let before = host.status()["agent"]["reloads"].as_u64().unwrap();
    host.signal(Signal::SIGHUP);
    wait_until("the configuration to be read", || host.status()["agent"]["reloads"].as_u64() > Some(before));
    refused("no device matches");
    ip("link add up0 txqueuelen 1000 type veth peer name far0");
    ip("link set far0 up");
    ip("link set up0 up");
    wait_until("the carrier", || ip("link show up0").contains("LOWER_UP"));
    // A veth has no queue of its own accord.
    tc("qdisc add dev up0 root pfifo");
    let (code, text) = run();
    assert_eq!(code, Some(0), "{text}");
    ip("link set up0 down");
    refused("up0 is down");
}

/// All numbers in it.
fn sum(value: &Value) -> u64 {
    let within = value.as_array().map(|all| all.iter().map(sum).sum());
    let named = || value.as_object().map_or(0, |all| all.values().map(sum).sum());
    value.as_u64().or(within).unwrap_or_else(named)
}

/// Fetches again and again until told to end.
fn fetch(client: &Vm, server: std::net::Ipv4Addr, ends: &Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let ends = Arc::clone(ends);
    client.spawn(move || {
        let mut fetched = 0;
        while !ends.load(Ordering::SeqCst) {
            receive(&mut connect(server));
            fetched += 1;
        }
        fetched
    })
}

#[test]
fn a_trial_times_what_passes_and_says_so_everywhere() {
    let (host, server, client) = Host::with_server_and_client("observe");
    let ends = Arc::new(AtomicBool::new(false));
    let fetching = fetch(&client, server.address, &ends);
    let mut all = arguments(&host, &["vp1"], &["--for", "10s", "--slot", "600ms", "--seed", "7", "--json"]);
    let output = host.evenkeel(&all.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ends.store(true, Ordering::SeqCst);
    let fetched = fetching.join().unwrap();
    assert!(is_as_configured(&host, "vp1"));

    let trial: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trial = &trial["trial"];
    let judgement = &trial["judgement"];
    assert_eq!((&trial["mechanism"], &trial["seed"]), (&"proboscis".into(), &7.into()));
    // How many exchanges count is a matter of time: a machine that stands still makes them long, or makes two of one.
    let rows = judgement["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["direction"] == "sends"), "the server's port: {trial}");
    let seen = sum(&judgement["left_out"]) + rows.iter().map(|row| sum(&row["exchanges"])).sum::<u64>();
    assert!(fetched > 0 && seen > 0, "{fetched} fetched: {trial}");
    let page = std::fs::read_to_string(host.path("trial.html")).unwrap();
    assert!(page.contains("trial of <code>proboscis</code>") && page.contains("Before you judge"));

    // The same as text; there is nothing to time now.
    all.retain(|word| word != "--json");
    let output = host.evenkeel(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("Too little traffic") && text.contains("Report: "), "{text}");
}
