//! What runs cells: the lab, the simulator.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::Path;

use super::meter::{Meter, Status};
use super::stop::Stop;
use crate::cell::Cell;
use crate::error::Refused;
use crate::format::Scenario;
use crate::result::{self, RunRecord};

/// Runs a cell once. The batch decides which cells, how often, and what becomes of the records.
pub trait Engine: Sync {
    /// As results name it.
    const NAME: result::Engine;
    /// Whether results are to be read while runs are still going on. If not, results of an earlier batch stay in place
    /// until all runs are there.
    const SHOWS_UNFINISHED: bool;
    /// Why there is no record.
    type Error: Display + Send;
    /// What all runs share.
    type Setup: Sync;
    /// What a thread keeps from one run to the next.
    type Worker;

    /// Whether a scenario can be run as it is written.
    ///
    /// # Errors
    /// The first setting that cannot be honoured.
    fn check(&self, scenario: &Scenario) -> Result<(), Refused>;

    /// Cells that are run one after the other, by their positions: one repetition of all of them, then the next. A
    /// group comes after the one before it.
    fn groups(&self, cells: &[Cell]) -> Vec<Vec<usize>> {
        vec![(0..cells.len()).collect()]
    }

    /// How many runs at once.
    fn jobs(&self) -> NonZeroUsize;

    /// The user's options that decide what a run leaves: all runs of a batch have the same.
    fn options(&self) -> Vec<String> {
        Vec::new()
    }

    /// Gets ready for these cells. Called once, before the results of an earlier batch are touched.
    ///
    /// # Errors
    /// The engine's own.
    fn prepare(&self, plan: &Plan<'_>) -> Result<Prepared<Self::Setup>, Self::Error>;

    /// Begins a thread that does runs. It ends when the worker is dropped.
    ///
    /// # Errors
    /// The engine's own.
    fn worker(&self, setup: &Self::Setup) -> Result<Self::Worker, Self::Error>;

    /// Runs a cell once; nothing if the meter, or the plan's `stop`, has ended it.
    ///
    /// # Errors
    /// The engine's own.
    fn run(
        &self,
        setup: &Self::Setup,
        worker: &mut Self::Worker,
        cell: &Cell,
        repetition: u32,
        meter: &Meter<'_>,
    ) -> Result<Option<RunRecord>, Self::Error>;

    /// How much there is to do in a run of this cell, in a unit of the engine's.
    fn size(&self, cell: &Cell) -> u64;

    /// What the progress line says beside the number of runs.
    fn words(status: &Status) -> String;
}

/// What an engine gets ready for.
pub struct Plan<'a> {
    /// All cells.
    pub cells: &'a [Cell],
    /// Where results go.
    pub directory: &'a Path,
    /// Whether the user wants the batch to end.
    pub stop: &'a Stop,
    /// Takes steps of the preparation, for the user to see.
    pub tell: &'a dyn Fn(&str),
}

/// An engine that is ready.
#[derive(Debug)]
pub struct Prepared<S> {
    /// What all runs share.
    pub setup: S,
    /// Component to version, beside `evenkeel`'s own.
    pub versions: BTreeMap<String, String>,
    /// What the reader must know to judge the figures, one sentence each.
    pub remarks: Vec<String>,
}
