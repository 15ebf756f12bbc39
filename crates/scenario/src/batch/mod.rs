//! Runs all cells and repetitions of a scenario, and can go on with them after a kill.
//!
//! An [`Engine`] runs a cell once; a [`Batch`] does all the rest: which cells, how often, on how many threads, what is
//! finished already ([`kept`]), and the results, in an order that depends neither on threads nor on interruptions.

mod engine;
mod error;
pub mod kept;
mod merge;
mod meter;
mod shard;
mod stop;
mod threads;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub use engine::{Engine, Plan, Prepared};
pub use error::BatchError;
pub use merge::{MergeError, Merged, merge, whole_directory};
pub use meter::{Meter, Status, Watch};
pub use shard::Shard;
pub use stop::Stop;

use crate::cell::Cell;
use crate::io;
use crate::loaded::LoadedScenario;
use crate::lock::Lock;
use crate::provenance::{self, Program, Provenance};
use crate::result::{self, RunRecord, RunSet};
use crate::{fingerprint, select, sweep};
use kept::{Identity, Kept, State};
use threads::Session;

/// What to do with what a results directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Begin again.
    Afresh,
    /// Go on with it; begin, if there is nothing.
    GoOn,
}

/// All runs of a scenario that are wanted.
pub struct Batch<'a, E> {
    /// What runs them.
    pub engine: &'a E,
    /// The scenario.
    pub loaded: &'a LoadedScenario,
    /// Only cells with these labels, each as `AXIS=LABEL`.
    pub only: &'a [String],
    /// Instead of the scenario's own number of repetitions.
    pub repetitions: Option<u32>,
    /// Only this part of the runs; all, if none.
    pub shard: Option<Shard>,
    /// Where results go.
    pub directory: &'a Path,
    /// What to do with what is there.
    pub begin: Begin,
    /// The program that runs it.
    pub program: &'a Program,
    /// The command line that runs it again, for the report.
    pub command: &'a str,
    /// Whether the user wants it to end.
    pub stop: &'a Stop,
}

/// How a batch has ended well.
#[derive(Debug)]
pub enum Outcome {
    /// All runs are there now. When the results are written, the single runs are no longer needed: see
    /// [`Kept::complete`].
    Finished {
        /// The runs, in their order.
        records: Vec<RunRecord>,
        /// The same, one by one, and what holds for all of them.
        kept: Kept,
    },
    /// All runs of this very batch were there before. Nobody else writes there while the lock is held.
    Complete(Lock),
}

impl<E: Engine> Batch<'_, E> {
    /// Does all runs, or those that are missing.
    ///
    /// # Errors
    /// Whatever ends it early. Runs that were finished are kept.
    pub fn run(&self, watch: &dyn Watch) -> Result<Outcome, BatchError<E::Error>> {
        let (cells, identity) = self.plan()?;
        // Taken before anything that takes long.
        let lock = Lock::take(self.directory)?;
        let present = match self.begin {
            Begin::Afresh => Err(lock),
            Begin::GoOn => match Kept::find(self.directory, &identity, lock)? {
                State::Complete(lock) => return Ok(Outcome::Complete(lock)),
                State::Open(kept) => Ok(kept),
                State::None(lock) => Err(lock),
            },
        };
        let (tell, stop) = (&|step: &str| watch.preparing(step), self.stop);
        let plan = Plan { cells: &cells, directory: self.directory, stop, tell };
        let Prepared { setup, versions, remarks } = self.engine.prepare(&plan).map_err(BatchError::Engine)?;
        let set = self.run_set(versions, remarks)?;
        let kept = match present {
            Ok(kept) => kept.with(&set)?,
            Err(_) if self.stop.is_set() => return Err(BatchError::Stopped { finished: None }),
            Err(lock) => Kept::begin(self.directory, identity, set, lock)?,
        };
        if E::SHOWS_UNFINISHED {
            io::write_results(self.directory, kept.set(), &kept.records()?)?;
        }
        let file = &self.loaded.file;
        let (engine, shown) = (self.engine, Mutex::default());
        let session = Session { engine, setup: &setup, file, cells: &cells, kept: &kept, stop, shown };
        session.execute(watch)?;
        Ok(Outcome::Finished { records: kept.records()?, kept })
    }

    /// The cells that are wanted, checked, and what makes runs the same.
    ///
    /// # Errors
    /// Cells that are not there, too many runs, and what the engine cannot honour.
    pub fn plan(&self) -> Result<(Vec<Cell>, Identity), BatchError<E::Error>> {
        let cells = select::select(sweep::cells(self.loaded)?, self.only, self.loaded)?;
        cells.iter().try_for_each(|cell| self.check(cell))?;
        let repetitions = self.repetitions.unwrap_or(self.loaded.scenario.repetitions);
        sweep::check_runs(self.loaded, &cells, repetitions)?;
        let identity = self.identity(&cells, repetitions);
        Ok((cells, identity))
    }

    fn check(&self, cell: &Cell) -> Result<(), BatchError<E::Error>> {
        let Err(refused) = self.engine.check(&cell.scenario) else { return Ok(()) };
        // If an axis sets it, naming the file's own setting would mislead.
        let by_axis = self.engine.check(&self.loaded.scenario).as_ref() != Err(&refused);
        let cell = if by_axis { cell.labels.clone() } else { Vec::new() };
        Err(BatchError::Refused { file: self.loaded.file.clone(), refused, cell })
    }

    fn identity(&self, cells: &[Cell], repetitions: u32) -> Identity {
        Identity {
            engine: E::NAME,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            code: self.program.code.clone(),
            scenario_toml: self.loaded.text.clone(),
            cells: cells.iter().map(|cell| cell.labels.clone()).collect(),
            groups: self.engine.groups(cells),
            repetitions,
            options: self.engine.options(),
            shard: self.shard,
        }
    }

    /// What holds for all runs, from now on.
    ///
    /// # Errors
    /// None for a scenario that was loaded from its file.
    pub fn run_set(
        &self,
        mut versions: BTreeMap<String, String>,
        remarks: Vec<String>,
    ) -> Result<RunSet, BatchError<E::Error>> {
        versions.insert("evenkeel".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Ok(RunSet {
            schema: io::RESULT_SCHEMA,
            engine: E::NAME,
            scenario_toml: self.loaded.text.clone(),
            versions,
            command: self.command.to_owned(),
            started: provenance::now(),
            remarks,
            provenance: Some(Provenance {
                program: self.program.clone(),
                settings: fingerprint::of(self.loaded)?,
                host: provenance::host(),
                again: None,
            }),
        })
    }
}

/// The default directory of results, below the working directory: the simulator's beside the lab's of a scenario of the
/// same name.
pub fn default_directory(engine: result::Engine, name: &str) -> PathBuf {
    match engine {
        result::Engine::Lab => Path::new("results").join(name),
        result::Engine::Sim => Path::new("results/sim").join(name.strip_prefix("sim/").unwrap_or(name)),
    }
}

#[cfg(test)]
mod tests;
