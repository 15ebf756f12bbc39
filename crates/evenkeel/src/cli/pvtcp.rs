//! `evenkeel guest pvtcp` and its arguments. The comments are what `--help` prints.

use std::path::PathBuf;

use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use evenkeel_agent::guest::pvtcp::PARAMETERS;
use evenkeel_settings::Key;

/// What to do with PVTCP's kernel module.
#[derive(Debug, Subcommand)]
pub enum Pvtcp {
    Install(PvtcpInstall),
    Load(PvtcpLoad),
    /// Show settings and counters, and whether the counters can be trusted.
    Status {
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
        /// Print counters for Prometheus, in OpenMetrics form, as node_exporter's textfile collector reads them.
        #[arg(long, conflicts_with = "json")]
        openmetrics: bool,
    },
    /// Unload the module. Connections go on; that it was not loaded is no error.
    Unload {
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Unload the module and remove all that `evenkeel guest pvtcp install` has put there.
    Remove {
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Build the module from the sources in this program and install it, in a guest that has no package of it.
///
/// By DKMS, which builds it again for every kernel to come; where there is no dkms, with make and for the running
/// kernel alone. Needs root, the headers of the running kernel, gcc, make and kmod, and says which of them are missing.
/// Loads nothing. Where Secure Boot is on, a module has to be signed: it then says how.
#[derive(Debug, Args)]
pub struct PvtcpInstall {
    /// Print the outcome as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Load the module, or change the settings of the loaded one.
///
/// Settings that are not named stay as they are, or at the module's own defaults, shown here. A kernel that the module
/// does not fit refuses with the reason and leaves TCP as it was.
#[derive(Debug, Args)]
pub struct PvtcpLoad {
    /// Load this file (uncompressed) instead of the installed module.
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,
    #[command(flatten)]
    pub parameters: PvtcpParameters,
    /// Print the outcome as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The module's parameters, out of the table of settings.
#[derive(Debug, Default)]
pub struct PvtcpParameters {
    /// Names and values of those that are given.
    pub given: Vec<(&'static str, String)>,
}

impl Args for PvtcpParameters {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(Self::parameters())
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PvtcpParameters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut parameters = Self::default();
        parameters.update_from_arg_matches(matches)?;
        Ok(parameters)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let value = |key: &Key| Some((key.name, matches.get_one::<String>(key.name)?.clone()));
        self.given = PARAMETERS.iter().filter_map(value).collect();
        Ok(())
    }
}

impl PvtcpParameters {
    fn parameters() -> impl Iterator<Item = clap::Arg> {
        PARAMETERS.iter().map(|key| {
            let default = key.default_in_words();
            let what = if key.is_switch() { key.what.clone() } else { key.comment() };
            let what = what.trim_end_matches('.');
            clap::Arg::new(key.name)
                .long(key.name.replace('_', "-"))
                .value_name(if key.is_switch() { "on|off" } else { "VALUE" })
                .help(format!("{what} [module's default: {default}]"))
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, Guest, GuestCommand};

    #[test]
    fn parameters_of_the_module_are_those_of_the_table() {
        let line = ["evenkeel", "guest", "pvtcp", "load", "--late-us", "3000", "--hold-rto", "off"];
        let Command::Guest(Guest { command: Some(GuestCommand::Pvtcp(Pvtcp::Load(load))), .. }) =
            Cli::try_parse_from(line).unwrap().command
        else {
            panic!()
        };
        assert_eq!(load.parameters.given, [("late_us", "3000".to_owned()), ("hold_rto", "off".to_owned())]);
    }
}
