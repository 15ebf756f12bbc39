//! `evenkeel doctor`.

use evenkeel_agent::doctor::{self, Readings};

use crate::cli::Doctor;
use crate::cmd::kvm;
use crate::error::CliError;
use crate::output;

/// Examines the machine.
pub fn run(arguments: &Doctor) -> Result<(), CliError> {
    // KVM first: QEMU would spoil the second in which pauses are looked for.
    let kvm = kvm::examine();
    let report = doctor::judge(&Readings::take(), &kvm);
    if arguments.json { output::print_json(&report) } else { output::print(&format!("{report}\n")) }
}
