//! `evenkeel lab-guest`: what the lab runs inside its VMs and network namespaces.

use evenkeel_lab::guest;

use crate::cli::LabGuest;
use crate::error::CliError;
use crate::exit::Exit;

/// Answers the lab until the VM is switched off or the lab has gone.
pub fn run(arguments: &LabGuest) -> Result<(), CliError> {
    let answered = match &arguments.root {
        None => guest::run(&arguments.control),
        Some(root) => guest::run_in_namespace(&arguments.control, root),
    };
    answered.map_err(|error| CliError::new(Exit::Failed, format!("{error:#}")))
}
