//! `evenkeel guest pvtcp` and its arguments. The comments are what `--help` prints.

use std::path::PathBuf;

use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use evenkeel_agent::guest::pvtcp::PARAMETERS;
use evenkeel_settings::Key;

/// Commands for PVTCP's kernel module.
#[derive(Debug, Subcommand)]
pub enum Pvtcp {
    Install(PvtcpInstall),
    Load(PvtcpLoad),
    /// Show settings and counters, and whether the counters can be trusted.
    Status {
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
        /// Print the counters in OpenMetrics form, for node_exporter's textfile collector.
        #[arg(long, conflicts_with = "json")]
        openmetrics: bool,
    },
    /// Unload the module. Connections go on; it is no error if it was not loaded.
    Unload {
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Unload the module and remove everything that `evenkeel guest pvtcp install` has installed.
    Remove {
        /// Print the outcome as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Build the module from the sources in this program and install it, in a guest without its package.
///
/// Uses DKMS, which builds it again for every later kernel; without dkms it uses make, for the running kernel only.
/// Needs root, the headers of the running kernel, gcc, make and kmod, and names those that are missing. Loads nothing.
/// With Secure Boot a module has to be signed: the command then says how.
#[derive(Debug, Args)]
pub struct PvtcpInstall {
    /// Print the outcome as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Load the module, or change the settings of the loaded one.
///
/// Settings that are not named keep their values, at first the module's defaults, shown here. On a kernel that the
/// module does not fit, loading fails with the reason and TCP stays as it was.
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

/// The module's parameters, from the table of settings.
#[derive(Debug, Default)]
pub struct PvtcpParameters {
    /// Names and values of the given parameters.
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
