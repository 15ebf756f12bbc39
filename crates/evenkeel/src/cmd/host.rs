//! `evenkeel host`.

use std::path::Path;

use evenkeel_agent::host::{self, Checked, Options, Stopped};
use evenkeel_quote::path;
use serde_json::json;

use crate::cli::Host;
use crate::error::CliError;
use crate::output;

/// Runs the agent, or stops one.
pub fn run(arguments: Host) -> Result<(), CliError> {
    if arguments.print_config {
        return output::print_as_it_is(&evenkeel_settings::host::example());
    }
    if arguments.check {
        return check(arguments.config.as_deref(), arguments.json);
    }
    if arguments.check_pins {
        return check_pins(&arguments.pin_dir, arguments.json);
    }
    if arguments.stop {
        let stopped = host::stop(&arguments.run_dir, &arguments.pin_dir).map_err(CliError::of_stop)?;
        return if arguments.json {
            output::print_json(&stopped)
        } else {
            output::print(&said(&output::on_one_line(&stopped)?))
        };
    }
    let options = Options { config: arguments.config, run_dir: arguments.run_dir, pin_dir: arguments.pin_dir };
    Ok(host::run(&options)?)
}

fn check(file: Option<&Path>, json: bool) -> Result<(), CliError> {
    let Checked { file, probe_keys } = host::check(file)?;
    if json {
        return output::print_json(&json!({ "file": file, "valid": true, "probe_keys": probe_keys }));
    }
    let keys = match probe_keys {
        0 => "; there is no file of probe keys, and so no probes".to_owned(),
        keys => format!("; {keys} probe key{}", if keys == 1 { "" } else { "s" }),
    };
    output::print(&format!("{}: valid{keys}\n", path(&file)))
}

fn check_pins(pin_dir: &Path, json: bool) -> Result<(), CliError> {
    let is_pinned = host::check_pins(pin_dir)?;
    if json {
        return output::print_json(&json!({ "pinned": is_pinned, "taken_over": true }));
    }
    output::print(if is_pinned { "an agent takes over what is pinned\n" } else { "nothing is pinned\n" })
}

fn said(stopped: &Stopped) -> String {
    if *stopped == Stopped::default() {
        return "nothing was there to remove\n".to_owned();
    }
    let mut text = match stopped.ports.len() {
        0 => "no port had the programs on it\n".to_owned(),
        _ => format!("removed from {}\n", stopped.ports.join(", ")),
    };
    for queue in &stopped.queues {
        text.push_str(&format!("queue of {} is {} packets long again\n", queue.port, queue.segments));
    }
    for port in &stopped.left {
        text.push_str(&format!("queue of {port} stays: somebody else has set it since\n"));
    }
    text
}
