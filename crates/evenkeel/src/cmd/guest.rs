//! `evenkeel guest`.

use std::fmt::Write as _;
use std::path::Path;

use evenkeel_agent::guest::agent::{self, COUNTERS, Options, Status, Stopped};
use evenkeel_quote::path;
use serde_json::json;

use crate::cli::GuestAgent;
use crate::error::CliError;
use crate::output;

/// Runs the agent, stops one, or says what is there.
pub fn run(arguments: GuestAgent) -> Result<(), CliError> {
    if arguments.print_config {
        return output::print_as_it_is(&evenkeel_settings::guest::example());
    }
    if arguments.check {
        return check(arguments.config.as_deref(), arguments.json);
    }
    if arguments.status {
        let status = agent::status(&arguments.run_dir, &arguments.pin_dir)?;
        return if arguments.json { output::print_json(&status) } else { output::print(&shown(&status)) };
    }
    if arguments.stop {
        let stopped = agent::stop(&arguments.run_dir, &arguments.pin_dir).map_err(CliError::of_stop)?;
        return if arguments.json { output::print_json(&stopped) } else { output::print(&said(&stopped)) };
    }
    let options = Options { config: arguments.config, run_dir: arguments.run_dir, pin_dir: arguments.pin_dir };
    Ok(agent::run(&options)?)
}

fn check(file: Option<&Path>, json: bool) -> Result<(), CliError> {
    let file = file.unwrap_or(Path::new(evenkeel_settings::guest::DEFAULT_FILE));
    agent::check(file)?;
    if json {
        return output::print_json(&json!({ "file": file, "valid": true }));
    }
    output::print(&format!("{}: valid\n", path(file)))
}

fn said(stopped: &Stopped) -> String {
    if *stopped == Stopped::default() {
        return "nothing was there to undo\n".to_owned();
    }
    let mut text = String::new();
    if stopped.unregistered.iter().any(|name| name == "vflood") {
        text.push_str("the congestion control vflood is unregistered\n");
    }
    if stopped.connections > 0 {
        text.push_str(&format!("connections that go on without it: {}\n", stopped.connections));
    }
    for (name, value) in &stopped.settings {
        text.push_str(&format!("{name} is {value} again\n"));
    }
    for name in &stopped.left {
        text.push_str(&format!("{name} stays: somebody else has set it since\n"));
    }
    text
}

fn shown(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, status);
    text
}

fn write(text: &mut String, status: &Status) -> std::fmt::Result {
    match (status.is_running, status.pid) {
        (true, Some(pid)) => writeln!(text, "evenkeel guest, process {pid}")?,
        (true, None) => writeln!(text, "evenkeel guest runs")?,
        (false, _) => writeln!(text, "no agent runs")?,
    }
    writeln!(text, "host's agent: {}", if status.has_host { "there" } else { "not there" })?;
    let registered = status.registered.iter().any(|name| name == "vflood");
    let vflood = match (registered, status.attested_ms) {
        (false, _) => "not registered".to_owned(),
        (true, 0) => "registered, plain TCP".to_owned(),
        (true, left) => format!("registered, may flood for {left} ms unless the host says more"),
    };
    writeln!(text, "congestion control vflood: {vflood}")?;
    if let Some(permille) = status.off_core_permille {
        writeln!(text, "its core was missing for {}% of the last seconds", (permille + 5) / 10)?;
    }
    match status.endpoint_objections.as_deref() {
        None => {}
        Some([]) => writeln!(text, "vouches for its TCP: its host may acknowledge data early (vSnoop)")?,
        Some(objections) => {
            writeln!(text, "does NOT vouch for its TCP, no early ACKs (vSnoop): {}", objections.join("; "))?;
        }
    }
    if let Some(cards) = status.cards.filter(|cards| *cards > 1) {
        writeln!(text, "CERA's client leaves its connections to the host: {cards} network cards are up")?;
    }
    for (name, before) in &status.settings_before {
        writeln!(text, "{name} was changed; it was {before}")?;
    }
    writeln!(text, "\ncounters")?;
    for (name, help) in COUNTERS {
        let value = status.counters.get(*name).map_or("-".to_owned(), u64::to_string);
        writeln!(text, "  {name:<18} {value:>14}  {help}")?;
    }
    Ok(())
}
