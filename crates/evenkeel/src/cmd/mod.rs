//! One file per command.

mod completions;
mod doctor;
mod kvm;
mod lab;
mod lab_guest;
mod pvtcp;
mod report;
mod scenario;

use crate::cli::{Command, Guest};
use crate::error::CliError;

/// Does what was asked.
pub fn run(command: Command) -> Result<(), CliError> {
    match command {
        Command::Lab(arguments) => lab::run(arguments),
        Command::LabGuest(arguments) => lab_guest::run(&arguments),
        Command::Scenario(arguments) => scenario::run(arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Guest(Guest::Pvtcp(arguments)) => pvtcp::run(arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    }
}
