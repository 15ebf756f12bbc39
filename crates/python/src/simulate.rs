//! One run, in the caller's process.

use evenkeel_scenario::batch::Stop;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::plan;
use crate::results::Results;
use crate::run;
use crate::scenario::Scenario;

/// Simulates one repetition of one cell, and gives its results: one run.
///
/// `cell` is one of `scenario.cells()`, its number, or its labels as a dict; a scenario without axes has one cell.
/// `seed` stands in the place of the scenario's own; `repetition` counts from 0. The same scenario, cell, seed and
/// repetition give the same bytes as `evenkeel sim`, on any machine.
///
/// Other Python threads run meanwhile, and Ctrl-C ends it with `KeyboardInterrupt`. Raises `ScenarioError` for what the
/// simulator cannot honour.
#[pyfunction]
#[pyo3(signature = (scenario, cell = None, seed = None, *, repetition = 0))]
pub(crate) fn simulate(
    py: Python<'_>,
    scenario: &Bound<'_, Scenario>,
    cell: Option<&Bound<'_, PyAny>>,
    seed: Option<u64>,
    repetition: u32,
) -> PyResult<Results> {
    let mut scenario = scenario.get();
    let mut cell = scenario.cell(cell, py)?;
    let seeded;
    if let Some(seed) = seed.filter(|seed| *seed != scenario.loaded.scenario.seed) {
        let value = i64::try_from(seed).map_err(|_| PyOverflowError::new_err("a seed is at most 2**63 - 1"))?;
        seeded = Scenario::of(py, scenario.loaded.with("seed", Some(value.into())))?;
        scenario = &seeded;
        cell.scenario.seed = seed;
    }
    let record = run::once(py, &scenario.loaded, &cell, repetition, &Stop::default())?;
    let set = match scenario.set.get() {
        Some(set) => set,
        None => {
            let made = plan::run_set(py, &scenario.loaded)?;
            scenario.set.get_or_init(|| made)
        }
    };
    Ok(Results::new(set.clone(), vec![record]))
}
