//! The simulator as an engine with which a batch runs cells.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use evenkeel_scenario::batch::{self, Meter, Plan, Prepared, Status};
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::{Refused, RunRecord, Scenario, result};

use crate::refuse;
use crate::run::{self, Go, RunError};

/// Runs cells on several threads. A run is single-threaded and depends only on its cell and repetition, so the number
/// of threads changes nothing but the time.
#[derive(Debug, Clone, Copy)]
pub struct Simulator {
    /// How many runs at once.
    pub jobs: NonZeroUsize,
}

impl batch::Engine for Simulator {
    const NAME: result::Engine = result::Engine::Sim;
    const SHOWS_UNFINISHED: bool = false;
    type Error = Refused;
    type Setup = ();
    type Worker = ();

    fn check(&self, scenario: &Scenario) -> Result<(), Refused> {
        refuse::check(scenario)
    }

    fn jobs(&self) -> NonZeroUsize {
        self.jobs
    }

    fn prepare(&self, _plan: &Plan<'_>) -> Result<Prepared<()>, Refused> {
        let remarks = vec!["Simulated: times are the model's, and the same on every machine.".to_owned()];
        Ok(Prepared { setup: (), versions: BTreeMap::new(), remarks })
    }

    fn worker(&self, _setup: &()) -> Result<(), Refused> {
        Ok(())
    }

    fn run(
        &self,
        _setup: &(),
        _worker: &mut (),
        cell: &Cell,
        repetition: u32,
        meter: &Meter<'_>,
    ) -> Result<Option<RunRecord>, Refused> {
        let report = &mut |progress: run::Progress| {
            if meter.at(progress.now.us(), progress.events) { Go::On } else { Go::Stop }
        };
        match run::run(cell, repetition, report) {
            Ok(finished) => {
                meter.at(self.size(cell), finished.events);
                Ok(Some(finished.record))
            }
            Err(RunError::Interrupted) => Ok(None),
            Err(RunError::Refused(refused)) => Err(refused),
        }
    }

    /// Simulated time in microseconds.
    fn size(&self, cell: &Cell) -> u64 {
        (cell.scenario.warmup_ms + cell.scenario.duration_ms) * 1000
    }

    fn words(status: &Status) -> String {
        let rate = status.events as f64 / 1e6 / status.elapsed.as_secs_f64().max(1e-3);
        format!("{:.1} s simulated, {rate:.1} M events/s", status.done as f64 / 1e6)
    }
}
