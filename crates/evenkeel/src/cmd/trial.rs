//! `evenkeel trial`.

use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_quote::path;
use evenkeel_report::trial::usual_slot;
use serde_json::json;

use crate::cli;
use crate::cmd::command_line;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;
use crate::trial::{self, Wanted};

/// Tries a mechanism.
pub fn run(arguments: cli::Trial) -> Result<(), CliError> {
    let cli::Trial { ports, mechanism, time, slot, seed, report, agent, quiet } = arguments;
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let wanted = Wanted {
        ports,
        mechanism,
        time,
        slot: slot.unwrap_or_else(|| usual_slot(time)),
        // Short enough for every reader of JSON.
        seed: seed.unwrap_or_else(|| clock() & u64::from(u32::MAX)),
        socket: agent.socket,
        command: command_line(std::env::args().skip(1)),
        is_shown: !quiet && !agent.json,
    };
    let outcome = trial::run(&wanted)?;
    std::fs::write(&report, outcome.trial.html())
        .map_err(|error| CliError::new(Exit::Failed, format!("cannot write {}: {error}", path(&report))))?;
    if agent.json {
        output::print_json(&json!({ "report": report, "trial": outcome.trial }))?;
    } else {
        output::print(&format!("{}Report: {}\n", outcome.trial.text(), path(&report)))?;
    }
    outcome.trouble.map_or(Ok(()), Err)
}
