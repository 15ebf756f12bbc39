//! What a sweep over many machines has in common with the runner of batches: which runs, in which order, and whether
//! those that are kept are of the same sweep.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_scenario::batch::kept::{Begun, Identity};
use evenkeel_scenario::batch::{self, Batch, Begin, Engine, Stop};
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::result::{Engine as Made, RunRecord, RunSet};
use evenkeel_scenario::{LoadedScenario, io};
use evenkeel_sim::engine::Simulator;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error;
use crate::program::PROGRAM;
use crate::results::{self, Results};
use crate::run;
use crate::scenario::Scenario;

/// The command of what Python has run.
const COMMAND: &str = "python -m evenkeel.sweep";
/// As in scenario files and on the command line.
const MOST_REPETITIONS: u32 = 1000;
const SIMULATOR: Simulator = Simulator { jobs: NonZeroUsize::MIN };

/// All runs of a scenario that are wanted, in the order of `evenkeel sweep`.
#[pyclass(frozen, module = "evenkeel._native")]
pub(crate) struct Plan {
    loaded: Arc<LoadedScenario>,
    cells: Vec<Cell>,
    identity: Identity,
    order: Vec<(usize, u32)>,
    set: RunSet,
    stop: Stop,
}

/// A batch as the runner has it, which is only planned here.
fn planned<'a>(
    loaded: &'a LoadedScenario,
    only: &'a [String],
    repetitions: Option<u32>,
    stop: &'a Stop,
) -> Batch<'a, Simulator> {
    let (directory, begin) = (Path::new(""), Begin::GoOn);
    Batch {
        engine: &SIMULATOR,
        loaded,
        only,
        repetitions,
        shard: None,
        directory,
        begin,
        program: &PROGRAM,
        command: COMMAND,
        stop,
    }
}

fn set_of(py: Python<'_>, batch: &Batch<'_, Simulator>) -> PyResult<RunSet> {
    let plan = batch::Plan { cells: &[], directory: batch.directory, stop: batch.stop, tell: &|_| () };
    let ready = SIMULATOR.prepare(&plan);
    let ready = ready.map_err(|e| error::of_refused(py, batch.loaded, &e))?;
    batch.run_set(ready.versions, ready.remarks).map_err(|e| error::of_batch(py, batch.loaded, &e))
}

/// What holds for runs of this scenario, from now on.
pub(crate) fn run_set(py: Python<'_>, loaded: &LoadedScenario) -> PyResult<RunSet> {
    let mut set = set_of(py, &planned(loaded, &[], None, &Stop::default()))?;
    "evenkeel.simulate".clone_into(&mut set.command);
    Ok(set)
}

fn bad(py: Python<'_>, what: &str, why: &serde_json::Error) -> PyErr {
    error::of_results(py, None, format!("{what} is damaged: {why}"))
}

#[pymethods]
impl Plan {
    /// Chooses cells (`only`, as `AXIS=LABEL`) and repetitions, and checks that the simulator can run all of them.
    #[new]
    #[pyo3(signature = (scenario, only = Vec::new(), repetitions = None))]
    fn new(
        py: Python<'_>,
        scenario: &Bound<'_, Scenario>,
        only: Vec<String>,
        repetitions: Option<u32>,
    ) -> PyResult<Self> {
        if repetitions.is_some_and(|repetitions| !(1..=MOST_REPETITIONS).contains(&repetitions)) {
            let why = format!("from 1 to {MOST_REPETITIONS} repetitions are allowed");
            return Err(PyValueError::new_err(why));
        }
        let loaded = Arc::clone(&scenario.get().loaded);
        let stop = Stop::default();
        let batch = planned(&loaded, &only, repetitions, &stop);
        let (cells, identity) = batch.plan().map_err(|e| error::of_batch(py, &loaded, &e))?;
        let set = set_of(py, &batch)?;
        let order = identity.order();
        Ok(Self { loaded: Arc::clone(&loaded), cells, identity, order, set, stop })
    }

    /// How many runs.
    fn __len__(&self) -> usize {
        self.order.len()
    }

    /// Where `evenkeel sweep` would put the results.
    #[getter]
    fn default_directory(&self) -> PathBuf {
        batch::default_directory(Made::Sim, &self.loaded.scenario.name)
    }

    /// A run in words: its labels and its repetition.
    fn name(&self, index: usize) -> PyResult<String> {
        let (cell, repetition) = self.run_at(index)?;
        let labels = cell.labels.iter().map(|(axis, label)| format!("{axis} = {label}, ")).collect::<String>();
        Ok(format!("{labels}repetition {}", repetition + 1))
    }

    /// Simulates a run: its line of `runs.jsonl`, without the end of the line.
    fn simulate<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyBytes>> {
        let (cell, repetition) = self.run_at(index)?;
        let record = run::once(py, &self.loaded, cell, repetition, &self.stop)?;
        let line = serde_json::to_vec(&record).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(PyBytes::new(py, &line))
    }

    /// Ends the runs that go on in other threads, and those that are yet to begin: they raise `RuntimeError`.
    fn stop(&self) {
        self.stop.set();
    }

    /// The bytes of `sweep.json` of a sweep that begins now.
    fn begun<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let begun = Begun { identity: self.identity.clone(), set: self.set.clone() };
        let bytes = serde_json::to_vec(&begun).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Why the sweep of this `sweep.json` is another one; `None` if it is this one.
    fn differs(&self, py: Python<'_>, sweep: &[u8]) -> PyResult<Option<String>> {
        let begun: Begun = serde_json::from_slice(sweep).map_err(|e| bad(py, "sweep.json", &e))?;
        Ok(begun.identity.difference(&self.identity))
    }

    /// Whether these bytes are a whole record of this run.
    fn is_run(&self, index: usize, line: &[u8]) -> bool {
        let record: Result<RunRecord, _> = serde_json::from_slice(line);
        let run = self.order.get(index);
        record.is_ok_and(|record| run.is_some_and(|run| self.identity.is_run(*run, &record)))
    }

    /// The bytes of `meta.json` of the sweep of this `sweep.json`.
    fn meta<'py>(&self, py: Python<'py>, sweep: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let begun: Begun = serde_json::from_slice(sweep).map_err(|e| bad(py, "sweep.json", &e))?;
        let bytes = io::set_bytes(&begun.set).map_err(|e| error::of_scenario(py, &e))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Puts results into a directory, of its `sweep.json` and all lines in their order.
    fn write(
        &self,
        py: Python<'_>,
        directory: PathBuf,
        sweep: &[u8],
        lines: Vec<Bound<'_, PyBytes>>,
        format: &str,
    ) -> PyResult<Results> {
        let begun: Begun = serde_json::from_slice(sweep).map_err(|e| bad(py, "sweep.json", &e))?;
        let records = lines.iter().map(|line| serde_json::from_slice(line.as_bytes())).collect::<Result<Vec<_>, _>>();
        let records: Vec<RunRecord> = records.map_err(|e| bad(py, "a run", &e))?;
        results::write(py, &directory, &begun.set, &records, format)?;
        Ok(Results::new(begun.set, records))
    }
}

impl Plan {
    fn run_at(&self, index: usize) -> PyResult<(&Cell, u32)> {
        let (cell, repetition) = *self.order.get(index).ok_or_else(|| PyIndexError::new_err(index))?;
        let cell = self.cells.get(cell).ok_or_else(|| PyIndexError::new_err(index))?;
        Ok((cell, repetition))
    }
}
