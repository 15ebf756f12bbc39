//! `evenkeel sim` and `evenkeel sweep`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use evenkeel_scenario::batch::{Begin, Shard};
use evenkeel_sim::engine::Simulator;

use crate::batch::{self, Asked};
use crate::cli::{Sim, SimRun, SimTrace, Sweep};
use crate::cmd::{AFRESH, begin, going_on, made_by};
use crate::error::CliError;
use crate::exit::Exit;
use crate::merge::{self, Joined};
use crate::traced::{self, Traced};

/// Simulates a scenario.
pub fn run(arguments: Sim) -> Result<(), CliError> {
    let SimTrace { pcapng, payload, trace: perfetto, repetition } = arguments.trace;
    if pcapng.is_some() || perfetto.is_some() {
        let (scenario, only) = (arguments.scenario, arguments.run.only);
        return traced::run(&Traced { scenario, only, repetition, pcapng, payload, perfetto });
    }
    simulate(arguments.scenario, None, arguments.run, (begin(arguments.resume), AFRESH))
}

/// Goes on with a simulation, does a part of it, or puts such parts together.
pub fn sweep(arguments: Sweep) -> Result<(), CliError> {
    let Sweep { scenario, run, shard, merge, restart } = arguments;
    if let Some(scenario) = scenario {
        return simulate(scenario, shard, run, (begin(!restart), "--restart"));
    }
    if merge.is_empty() {
        return Err(CliError::new(Exit::Usage, "name a scenario file"));
    }
    let (out, format, json) = (run.out, run.format.unwrap_or_default(), run.json);
    merge::merge(Joined { shards: &merge, out, replace: restart, format, json })
}

/// `begin`: what to do with results that are there, and the option that begins again.
fn simulate(
    scenario: PathBuf,
    shard: Option<Shard>,
    run: SimRun,
    (begin, afresh): (Begin, &'static str),
) -> Result<(), CliError> {
    let SimRun { out, repetitions, only, jobs, format, json, quiet } = run;
    let jobs = jobs.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let going_on = going_on(std::env::args().skip(1));
    // The command that makes the same results runs all of them, not a shard.
    let command = made_by(std::env::args().skip(1));
    let asked =
        Asked { scenario, out, repetitions, only, shard, format, json, quiet, begin, afresh, command, going_on };
    batch::run(&Simulator { jobs }, &asked)
}
