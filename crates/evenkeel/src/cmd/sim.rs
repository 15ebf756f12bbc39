//! `evenkeel sim` and `evenkeel sweep`.

use std::num::NonZeroUsize;

use evenkeel_scenario::batch::Begin;
use evenkeel_sim::engine::Simulator;

use crate::batch::{self, Asked};
use crate::cli::{Sim, SimRun, Sweep};
use crate::cmd::{AFRESH, begin, going_on, own_command};
use crate::error::CliError;

/// Simulates a scenario.
pub fn run(arguments: Sim) -> Result<(), CliError> {
    simulate(arguments.run, begin(arguments.resume), AFRESH)
}

/// Goes on with a simulation.
pub fn sweep(arguments: Sweep) -> Result<(), CliError> {
    simulate(arguments.run, begin(!arguments.restart), "--restart")
}

fn simulate(arguments: SimRun, begin: Begin, afresh: &'static str) -> Result<(), CliError> {
    let SimRun { scenario, out, repetitions, only, jobs, format, json, quiet } = arguments;
    let jobs = jobs.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let (command, going_on) = (own_command(), going_on(std::env::args().skip(1)));
    let asked = Asked { scenario, out, repetitions, only, format, json, quiet, begin, afresh, command, going_on };
    batch::run(&Simulator { jobs }, &asked)
}
