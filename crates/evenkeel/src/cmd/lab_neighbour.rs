//! `evenkeel lab-neighbour`: a VM that only computes, as a process beside the lab's VMs.

use std::time::Duration;

use evenkeel_lab::host::load::Load;

use crate::cli::LabNeighbour;
use crate::error::CliError;

/// Computes until the lab kills it, or ends.
pub fn run(arguments: &LabNeighbour) -> Result<(), CliError> {
    let (duty, phase) = (Duration::from_micros(arguments.duty_us), Duration::from_micros(arguments.phase_us));
    Load { share: arguments.load, duty, phase }.compute(|| false);
    Ok(())
}
