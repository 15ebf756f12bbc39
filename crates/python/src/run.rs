//! A cell, run once while other Python threads go on.

use evenkeel_scenario::batch::Stop;
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::{LoadedScenario, RunRecord};
use evenkeel_sim::run::{self, Go, RunError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error;

/// Runs a cell once, without the interpreter's lock but to ask for signals a few times a second.
pub(crate) fn once(
    py: Python<'_>,
    loaded: &LoadedScenario,
    cell: &Cell,
    repetition: u32,
    stop: &Stop,
) -> PyResult<RunRecord> {
    let mut raised = None;
    let outcome = py.detach(|| {
        run::run(cell, repetition, &mut |_| match Python::attach(|py| py.check_signals()) {
            Ok(()) if stop.is_set() => Go::Stop,
            Ok(()) => Go::On,
            Err(error) => {
                raised = Some(error);
                Go::Stop
            }
        })
    });
    match outcome {
        Ok(finished) => Ok(finished.record),
        Err(RunError::Interrupted) => {
            Err(raised.unwrap_or_else(|| PyRuntimeError::new_err("the sweep has ended early")))
        }
        Err(RunError::Refused(refused)) => Err(error::of_refused(py, loaded, &refused)),
    }
}
