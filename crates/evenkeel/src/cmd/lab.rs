//! `evenkeel lab`.

use std::path::PathBuf;

use evenkeel_lab::prepare::{self, KernelSeries};
use evenkeel_lab::{LabError, LabOptions};
use evenkeel_report::Results;
use serde_json::json;

use crate::cli::{Lab, LabCommand, LabRun, Prepare};
use crate::cmd::{command_line, kvm, report};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

/// Runs a scenario, or prepares for one.
pub fn run(arguments: Lab) -> Result<(), CliError> {
    match arguments.command {
        Some(LabCommand::Prepare(arguments)) => prepare(&arguments),
        None => run_scenario(arguments.run),
    }
}

fn run_scenario(arguments: LabRun) -> Result<(), CliError> {
    let scenario = arguments.scenario.ok_or_else(|| CliError::new(Exit::Usage, "name a scenario file"))?;
    let options = LabOptions {
        scenario,
        out: arguments.out,
        repetitions: arguments.repetitions,
        only: arguments.only,
        keep_capture: arguments.keep_capture,
        progress: !arguments.quiet,
        accelerator: kvm::accelerator(),
        evenkeel: this_program()?,
        command: command_line(std::env::args().skip(1)),
    };
    let outcome = evenkeel_lab::run(&options)?;
    let results = Results { set: outcome.set, scenario: outcome.scenario, records: outcome.records };
    report::write_and_show(&outcome.directory, &results, arguments.json)
}

fn prepare(arguments: &Prepare) -> Result<(), CliError> {
    let series = if arguments.kernels.is_empty() { KernelSeries::ALL.to_vec() } else { arguments.kernels.clone() };
    let images = prepare::prepare(&series, &this_program()?, &|step| {
        if !arguments.quiet {
            eprintln!("{step}");
        }
    })?;
    if arguments.json {
        let images: Vec<_> = images
            .iter()
            .map(|i| {
                json!({
                    "kernel": i.series.to_string(),
                    "release": i.release,
                    "vmlinuz": i.vmlinuz,
                    "initramfs": i.initramfs,
                })
            })
            .collect();
        return output::print_json(&images);
    }
    let lines = images.iter().map(|i| format!("{:<7} {}\n", i.series, i.release)).collect::<String>();
    output::print(&lines)
}

/// The running binary: it is what the VMs get as well.
fn this_program() -> Result<PathBuf, CliError> {
    std::env::current_exe().map_err(|error| LabError::io("looking for evenkeel's own binary", error).into())
}
