//! One file per command.

mod completions;
mod doctor;
mod export;
mod flows;
mod guest;
mod host;
mod kvm;
mod lab;
mod lab_guest;
mod lab_neighbour;
mod man;
mod port;
mod pvtcp;
mod report;
mod scenario;
mod scorecard;
mod sim;
mod status;
mod top;
mod trial;
mod verify;

use evenkeel_scenario::batch::Begin;

use crate::cli::{Command, GuestCommand};
use crate::error::CliError;

/// Does what was asked.
pub fn run(command: Command) -> Result<(), CliError> {
    match command {
        Command::Lab(arguments) => lab::run(arguments),
        Command::Sim(arguments) => sim::run(arguments),
        Command::Sweep(arguments) => sim::sweep(arguments),
        Command::LabGuest(arguments) => lab_guest::run(&arguments),
        Command::LabNeighbour(arguments) => lab_neighbour::run(&arguments),
        Command::Scenario(arguments) => scenario::run(arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Host(arguments) => host::run(arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Flows(arguments) => flows::run(&arguments),
        Command::Port(arguments) => port::run(arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Trial(arguments) => trial::run(arguments),
        Command::Guest(arguments) => match arguments.command {
            Some(GuestCommand::Pvtcp(arguments)) => pvtcp::run(arguments),
            None => guest::run(arguments.agent),
        },
        Command::Report(arguments) => report::run(&arguments),
        Command::Scorecard(arguments) => scorecard::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
    }
}

/// What begins again instead of going on, for commands that have `--resume`.
const AFRESH: &str = "the same without --resume";

fn begin(goes_on: bool) -> Begin {
    if goes_on { Begin::GoOn } else { Begin::Afresh }
}

/// The command that makes the same results, without the options for their place, a shard, progress, and going on.
fn made_by(arguments: impl Iterator<Item = String>) -> String {
    let mut is_value = false;
    command_line(arguments.filter(|argument| {
        let own = ["--shard", "--out"];
        let is_own = own.iter().any(|name| argument.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')));
        let leaves = is_value || is_own || ["-q", "--quiet", "--restart", "--resume"].contains(&argument.as_str());
        is_value = !is_value && own.contains(&argument.as_str());
        !(leaves || is_value)
    }))
}

/// The command that goes on with what this `lab`, `sim` or `sweep` has begun.
fn going_on(arguments: impl Iterator<Item = String>) -> String {
    let mut rest = arguments.filter(|argument| argument != "--restart" && argument != "--resume");
    let first: &[&str] =
        if rest.next().is_some_and(|command| command == "lab") { &["lab", "--resume"] } else { &["sweep"] };
    command_line(first.iter().map(|word| (*word).to_owned()).chain(rest))
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

    #[test]
    fn the_command_of_results_does_not_say_where_they_went() {
        let line = |words: &[&str]| made_by(words.iter().map(|w| (*w).to_owned()));
        assert_eq!(line(&["sweep", "--shard", "3/16", "a.toml", "--out", "--out"]), "evenkeel sweep a.toml");
        assert_eq!(line(&["sweep", "a.toml", "--shard=3/16", "--quiet"]), "evenkeel sweep a.toml");
        assert_eq!(line(&["lab", "-q", "a.toml", "--out=/b", "--only", "a=b"]), "evenkeel lab a.toml --only a=b");
    }

    #[test]
    fn what_was_interrupted_can_be_gone_on_with() {
        let line = |words: &[&str]| going_on(words.iter().map(|w| (*w).to_owned()));
        assert_eq!(
            line(&["sim", "a b.toml", "--only", "rto=8 ms", "--repetitions", "3"]),
            "evenkeel sweep 'a b.toml' --only 'rto=8 ms' --repetitions 3"
        );
        assert_eq!(line(&["sweep", "--restart", "a.toml", "--out", "o"]), "evenkeel sweep a.toml --out o");
        assert_eq!(line(&["sim", "--resume", "a.toml"]), "evenkeel sweep a.toml");
        assert_eq!(line(&["lab", "a.toml", "--quiet"]), "evenkeel lab --resume a.toml --quiet");
        assert_eq!(line(&["lab", "a.toml", "--resume"]), "evenkeel lab --resume a.toml");
    }
}
