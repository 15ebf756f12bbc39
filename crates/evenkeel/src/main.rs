//! The command line: parses arguments, calls the other crates, prints.

mod batch;
mod cli;
mod cmd;
mod error;
mod exit;
mod exported;
mod log;
mod merge;
mod one_cell;
mod output;
mod program;
mod progress;
mod show;
mod traced;
mod trial;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    log::init(&cli.command, cli.log);
    match cmd::run(cli.command) {
        Ok(()) => exit::Exit::Ok.into(),
        Err(error) => {
            error.print(cli.log);
            error.exit.into()
        }
    }
}
