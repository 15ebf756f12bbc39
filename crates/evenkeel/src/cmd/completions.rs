//! `evenkeel completions`.

use clap::CommandFactory;

use crate::cli::{Cli, Completions};
use crate::error::CliError;
use crate::output;

/// Prints the completions.
pub fn run(arguments: &Completions) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "evenkeel", &mut script);
    output::print_as_it_is(&String::from_utf8_lossy(&script))
}
