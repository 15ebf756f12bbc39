//! The log on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::cli::{Command, Sim, Sweep};

/// What to log, for whoever wants other than the default.
const VARIABLE: &str = "EVENKEEL_LOG";

/// Starts logging.
pub fn init(command: &Command) {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(default_level(command)));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
}

/// Where there is no terminal for a progress bar, the log tells of progress.
fn default_level(command: &Command) -> &'static str {
    match command {
        Command::Lab(lab) if !lab.is_quiet() && !std::io::stderr().is_terminal() => "info",
        Command::Sim(Sim { run }) | Command::Sweep(Sweep { run, .. })
            if !run.quiet && !std::io::stderr().is_terminal() =>
        {
            "info"
        }
        // The netlink library warns of every attribute that a newer kernel has grown.
        Command::Host(host) if !host.stop => "info,netlink_packet_route=error",
        Command::Host(_) => "warn,netlink_packet_route=error",
        _ => "warn",
    }
}
