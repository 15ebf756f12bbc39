//! `evenkeel doctor`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evenkeel_agent::doctor::{self, Readings, window};
use evenkeel_agent::features::{Features, Table};

use crate::cli::Doctor;
use crate::cmd::kvm;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

/// Examines the machine, or watches it.
pub fn run(arguments: &Doctor) -> Result<(), CliError> {
    if let Some(seconds) = arguments.seconds {
        return watch(arguments, Duration::from_secs(seconds.into()));
    }
    if arguments.features {
        let table = Table::of(&Features::ask_all());
        return if arguments.json { output::print_json(&table) } else { output::print(&table.to_string()) };
    }
    // KVM first: QEMU would spoil the second in which pauses are looked for.
    let kvm = kvm::examine();
    let report = doctor::judge(&Readings::take(), &kvm);
    if arguments.json { output::print_json(&report) } else { output::print(&format!("{report}\n")) }
}

fn watch(arguments: &Doctor, time: Duration) -> Result<(), CliError> {
    let report = window::watch(time);
    if arguments.json {
        return output::print_json(&report);
    }
    if !arguments.openmetrics {
        return output::print(&report.to_string());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let text = report.openmetrics(now);
    let text = text.map_err(|error| CliError::new(Exit::Failed, format!("cannot write OpenMetrics: {error}")))?;
    output::print_as_it_is(&text)
}
