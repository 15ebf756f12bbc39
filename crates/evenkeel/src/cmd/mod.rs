//! One file per command.

mod completions;
mod doctor;
mod flows;
mod guest;
mod host;
mod kvm;
mod lab;
mod lab_guest;
mod port;
mod pvtcp;
mod report;
mod scenario;
mod sim;
mod status;
mod top;

use crate::cli::{Command, GuestCommand};
use crate::error::CliError;

/// Does what was asked.
pub fn run(command: Command) -> Result<(), CliError> {
    match command {
        Command::Lab(arguments) => lab::run(arguments),
        Command::Sim(arguments) => sim::run(arguments.run, sim::Begin::Afresh),
        Command::Sweep(arguments) => {
            sim::run(arguments.run, if arguments.restart { sim::Begin::Afresh } else { sim::Begin::GoOn })
        }
        Command::LabGuest(arguments) => lab_guest::run(&arguments),
        Command::Scenario(arguments) => scenario::run(arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Host(arguments) => host::run(arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Flows(arguments) => flows::run(&arguments),
        Command::Port(arguments) => port::run(arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Guest(arguments) => match arguments.command {
            Some(GuestCommand::Pvtcp(arguments)) => pvtcp::run(arguments),
            None => guest::run(arguments.agent),
        },
        Command::Report(arguments) => report::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    }
}

/// The command as it could be typed again.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let mut line = "evenkeel".to_owned();
    for argument in arguments {
        line.push(' ');
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
        if !argument.is_empty() && argument.chars().all(is_plain) {
            line.push_str(&argument);
        } else {
            line.push_str(&format!("'{}'", argument.replace('\'', r"'\''")));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let line = |words: &[&str]| command_line(words.iter().map(|w| (*w).to_owned()));
        assert_eq!(
            line(&["lab", "scenarios/demo.toml", "--only", "rto=8 ms"]),
            "evenkeel lab scenarios/demo.toml --only 'rto=8 ms'"
        );
        assert_eq!(line(&["it's", ""]), r"evenkeel 'it'\''s' ''");
    }
}
