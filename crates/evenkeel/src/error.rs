//! What the user reads when a command fails: what was wrong, and what to do next.

use std::io::Write;

use evenkeel_agent::datapath::DatapathError;
use evenkeel_agent::guest::agent::GuestError;
use evenkeel_agent::guest::pvtcp::PvtcpError;
use evenkeel_agent::host::HostError;
use evenkeel_lab::LabError;
use evenkeel_lab::prepare::PrepareError;
use evenkeel_quote::shown;
use evenkeel_report::ReportError;
use evenkeel_scenario::{Refused, ScenarioError};

use crate::cli::LogFormat;
use crate::exit::Exit;

/// A failed command.
#[derive(Debug)]
pub struct CliError {
    /// What was wrong, cause included. One error per line: each error escapes text from outside itself.
    pub what: String,
    /// What to do next.
    pub help: Option<String>,
    /// How the program ends.
    pub exit: Exit,
}

impl CliError {
    /// An error that has nothing to advise.
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { what: what.into(), help: None, exit }
    }

    /// With what to do next.
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// That of a `--stop`: whatever has failed, not everything is put back.
    pub fn of_stop(error: impl Into<Self>) -> Self {
        let error = error.into();
        let exit = if error.exit == Exit::Failed { Exit::Stays } else { error.exit };
        Self { exit, ..error }
    }

    /// Prints it on standard error; if the log is JSON, as an event of the log.
    pub fn print(&self, format: LogFormat) {
        if format == LogFormat::Json {
            tracing::error!(help = self.help, "{}", self.what);
            return;
        }
        let mut stderr = std::io::stderr().lock();
        // With standard error gone there is nobody to tell.
        for line in self.what.lines() {
            let _ = writeln!(stderr, "error: {}", shown(line));
        }
        if let Some(help) = &self.help {
            let _ = writeln!(stderr, "help: {}", shown(help));
        }
    }
}

impl From<ScenarioError> for CliError {
    fn from(error: ScenarioError) -> Self {
        let what = error.to_string();
        match error {
            ScenarioError::Invalid(_) => {
                Self::new(Exit::Usage, what).help("`evenkeel scenario schema` has all keys, for editors as well")
            }
            ScenarioError::Read { .. } => Self::new(Exit::Usage, what),
            ScenarioError::InUse { .. } => {
                Self::new(Exit::Failed, what).help("wait until it has ended, or name another directory (--out)")
            }
            ScenarioError::Write { .. } | ScenarioError::Result { .. } => Self::new(Exit::Failed, what),
        }
    }
}

impl From<Refused> for CliError {
    fn from(refused: Refused) -> Self {
        Self::new(Exit::Usage, refused.to_string())
    }
}

impl From<PrepareError> for CliError {
    fn from(error: PrepareError) -> Self {
        let exit = match &error {
            PrepareError::UnknownSeries { .. } => Exit::Usage,
            PrepareError::NotRoot
            | PrepareError::Architecture { .. }
            | PrepareError::MissingProgram { .. }
            | PrepareError::NoRoom { .. }
            | PrepareError::NotStatic { .. }
            | PrepareError::NotElf { .. } => Exit::Missing,
            _ => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<LabError> for CliError {
    fn from(error: LabError) -> Self {
        let help = error.help().map(str::to_owned);
        let exit = match error {
            LabError::Prepare(error) => return error.into(),
            LabError::Missing { .. } => Exit::Missing,
            LabError::Interrupted => Exit::Interrupted,
            LabError::Vm { .. }
            | LabError::Agent { .. }
            | LabError::NothingPasses { .. }
            | LabError::TooLate { .. }
            | LabError::Command { .. }
            | LabError::Io { .. } => Exit::Failed,
        };
        Self { what: error.to_string(), help, exit }
    }
}

impl From<ReportError> for CliError {
    fn from(error: ReportError) -> Self {
        let what = error.to_string();
        match error {
            ReportError::Results(ScenarioError::Read { .. }) => {
                Self::new(Exit::Usage, what).help("name the results directory of an `evenkeel lab`, `sim` or `sweep`")
            }
            ReportError::Read { .. } | ReportError::Rows { .. } => Self::new(Exit::Usage, what),
            _ => Self::new(Exit::Failed, what),
        }
    }
}

impl From<PvtcpError> for CliError {
    fn from(error: PvtcpError) -> Self {
        let exit = match &error {
            PvtcpError::UnknownParameter { .. } | PvtcpError::BadValue { .. } | PvtcpError::NotAModule { .. } => {
                Exit::Usage
            }
            PvtcpError::Missing { .. } => Exit::Missing,
            _ => Exit::Failed,
        };
        Self { what: error.to_string(), help: error.help().map(str::to_owned), exit }
    }
}

impl From<GuestError> for CliError {
    fn from(error: GuestError) -> Self {
        let exit = match &error {
            GuestError::Config(_) => Exit::Usage,
            GuestError::Stays { .. } => Exit::Stays,
            GuestError::Missing { .. } => Exit::Missing,
            _ => Exit::Failed,
        };
        Self { what: error.to_string(), help: error.help().map(str::to_owned), exit }
    }
}

impl From<HostError> for CliError {
    fn from(error: HostError) -> Self {
        let exit = match &error {
            HostError::Config(_) => Exit::Usage,
            HostError::Stays { .. } => Exit::Stays,
            HostError::Missing { .. }
            | HostError::Datapath(DatapathError::CannotRun { .. } | DatapathError::NoBpfFs { .. }) => Exit::Missing,
            _ => Exit::Failed,
        };
        Self { what: error.to_string(), help: error.help().map(str::to_owned), exit }
    }
}
