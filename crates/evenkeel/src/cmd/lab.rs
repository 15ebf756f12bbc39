//! `evenkeel lab`.

use std::path::PathBuf;

use evenkeel_lab::LabError;
use evenkeel_lab::prepare::{self, KernelSeries};
use serde_json::json;

use crate::batch::{self, Asked};
use crate::cli::{Lab, LabCommand, LabRun, Prepare};
use crate::cmd::{AFRESH, begin, going_on, kvm, made_by};
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
    let LabRun { scenario, out, repetitions, only, keep_capture, require_kvm, resume, json, quiet } = arguments;
    let scenario = scenario.ok_or_else(|| CliError::new(Exit::Usage, "name a scenario file"))?;
    let lab =
        evenkeel_lab::Lab { keep_capture, accelerator: kvm::accelerator(require_kvm)?, evenkeel: this_program()? };
    let asked = Asked {
        scenario,
        out,
        repetitions,
        only,
        shard: None,
        format: None,
        json,
        quiet,
        begin: begin(resume),
        afresh: AFRESH,
        command: made_by(std::env::args().skip(1)),
        going_on: going_on(std::env::args().skip(1)),
    };
    batch::run(&lab, &asked)
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
