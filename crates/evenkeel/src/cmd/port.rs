//! `evenkeel port`.

use std::time::{Duration, Instant};

use evenkeel_agent::host::{Client, Left};
use evenkeel_quote::shown;
use serde_json::json;

use crate::cli::{Port, PortOffline, PortOnline};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

/// How often the command looks whether all is done.
const LOOK: Duration = Duration::from_millis(20);

/// Asks the agent.
pub fn run(arguments: Port) -> Result<(), CliError> {
    match arguments {
        Port::Offline(arguments) => offline(&arguments),
        Port::Online(arguments) => online(&arguments),
    }
}

fn offline(arguments: &PortOffline) -> Result<(), CliError> {
    let PortOffline { port, wait, agent } = arguments;
    let name = shown(port);
    Client::connect(&agent.socket)?.switch(port, false)?;
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(*wait);
    let left = loop {
        let status = Client::connect(&agent.socket)?.status()?;
        let left = status.ports.iter().find(|other| other.name == *port).and_then(|port| port.offline);
        let left = left.ok_or_else(|| CliError::new(Exit::Failed, format!("{name} went away, or online again")))?;
        if left.is_nothing() || Instant::now() >= end {
            break left;
        }
        std::thread::sleep(LOOK);
    };
    let took_ms = start.elapsed().as_millis() as u64;
    if *wait > 0.0 && !left.is_nothing() {
        let what = format!("{name} is offline, but after {wait} s {}", words(&left));
        let help = format!("wait longer (--wait), or `evenkeel port online {name}`");
        return Err(CliError::new(Exit::Failed, what).help(help));
    }
    if agent.json {
        return output::print_json(&json!({ "port": port, "online": false, "left": left, "took_ms": took_ms }));
    }
    output::print(&match left.is_nothing() {
        true => {
            format!("{name} is offline: nothing is held or promised, and its guest's TCP is plain; the VM can go\n")
        }
        false => format!("{name} is offline; {}\n", words(&left)),
    })
}

fn online(arguments: &PortOnline) -> Result<(), CliError> {
    let PortOnline { port, agent } = arguments;
    Client::connect(&agent.socket)?.switch(port, true)?;
    if agent.json {
        return output::print_json(&json!({ "port": port, "online": true }));
    }
    output::print(&format!("{} is online\n", shown(port)))
}

/// What is left to wait for.
pub fn words(left: &Left) -> String {
    let Left { held_segments, promised_connections, guest_floods } = left;
    let guest = if *guest_floods { ", and its guest has not said that it floods no more" } else { "" };
    format!("{held_segments} segments are held, {promised_connections} connections have data promised by vSnoop{guest}")
}
