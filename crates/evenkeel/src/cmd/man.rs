//! `evenkeel man`.

use clap::CommandFactory;
use evenkeel_quote::path;

use crate::cli::{Cli, Man};
use crate::error::CliError;
use crate::exit::Exit;

/// Writes a page for each command that `--help` shows.
pub fn run(arguments: &Man) -> Result<(), CliError> {
    let written = std::fs::create_dir_all(&arguments.directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &arguments.directory));
    written.map_err(|error| {
        CliError::new(Exit::Failed, format!("cannot write manual pages to {}: {error}", path(&arguments.directory)))
    })
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    /// Commands that `--help` shows, each with its page's name.
    fn shown(command: &Command, name: &str) -> Vec<(String, Command)> {
        let below = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
        let below = below.flat_map(|c| shown(c, &format!("{name}-{}", c.get_name())));
        std::iter::once((name.to_owned(), command.clone())).chain(below).collect()
    }

    #[test]
    fn each_command_has_a_page_with_its_options() {
        let place = tempfile::tempdir().unwrap();
        run(&Man { directory: place.path().join("man") }).unwrap();
        let commands = shown(&Cli::command(), "evenkeel");
        assert!(commands.iter().any(|(name, _)| name == "evenkeel-guest-pvtcp-install"), "{}", commands.len());
        for (name, command) in &commands {
            let page = std::fs::read_to_string(place.path().join(format!("man/{name}.1"))).unwrap();
            for option in command.get_arguments().filter_map(|a| a.get_long()) {
                assert!(page.contains(&option.replace('-', "\\-")), "{name}: --{option}");
            }
        }
        let pages = std::fs::read_dir(place.path().join("man")).unwrap().count();
        assert_eq!(pages, commands.len(), "there are pages of hidden commands");
    }

    #[test]
    fn each_shell_completes_each_command() {
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "evenkeel", &mut script);
            let script = String::from_utf8(script).unwrap();
            for (name, command) in shown(&Cli::command(), "evenkeel") {
                assert!(script.contains(command.get_name()), "{shell}: {name}");
            }
        }
    }
}
