//! `evenkeel lab-guest`: what the lab runs inside its VMs.

use crate::cli::LabGuest;
use crate::error::CliError;
use crate::exit::Exit;

/// Answers the lab until the VM is switched off.
pub fn run(arguments: &LabGuest) -> Result<(), CliError> {
    evenkeel_lab::guest::run(&arguments.control).map_err(|error| CliError::new(Exit::Failed, format!("{error:#}")))
}
