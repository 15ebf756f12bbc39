//! Scenarios and their cells.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use evenkeel_quote::quoted;
use evenkeel_scenario::result::RunSet;
use evenkeel_scenario::{LoadedScenario, Scenario as Parsed, cell, select, sweep};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};

use crate::error;
use crate::value;

/// A scenario: machines, network, workload, and the axes of a sweep.
///
/// It does not change: `set` gives another one.
///
/// >>> import evenkeel
/// >>> scenario = evenkeel.Scenario.parse('''
/// ... schema = 2
/// ... name = "two"
/// ... title = "Two machines"
/// ... duration_ms = 100
/// ... [network]
/// ... rate_mbit = 100
/// ... [vms.a]
/// ... [vms.b]
/// ... [workloads.w]
/// ... kind = "bulk"
/// ... from = "a"
/// ... to = "b"
/// ... [[axes]]
/// ... name = "cc"
/// ... key = "vms.a.tcp.congestion_control"
/// ... values = ["reno", "cubic"]
/// ... ''')
/// >>> faster = scenario.set("network.rate_mbit", 10_000)
/// >>> faster.cells()
/// [Cell(0, cc='reno'), Cell(1, cc='cubic')]
#[pyclass(frozen, module = "evenkeel")]
pub(crate) struct Scenario {
    pub(crate) loaded: Arc<LoadedScenario>,
    /// What holds for its runs, once the first is made: a digest of all cells is in it.
    pub(crate) set: OnceLock<RunSet>,
}

impl Scenario {
    pub(crate) fn new(loaded: LoadedScenario) -> Self {
        Self { loaded: Arc::new(loaded), set: OnceLock::new() }
    }

    pub(crate) fn of(
        py: Python<'_>,
        loaded: Result<LoadedScenario, evenkeel_scenario::ScenarioError>,
    ) -> PyResult<Self> {
        loaded.map(Self::new).map_err(|e| error::of_scenario(py, &e))
    }

    fn expand(&self, py: Python<'_>) -> PyResult<Vec<cell::Cell>> {
        sweep::cells(&self.loaded).map_err(|e| error::of_scenario(py, &e))
    }

    /// The cell that the user means: one of this scenario's, its number, its labels, or none where there is only one.
    pub(crate) fn cell(&self, meant: Option<&Bound<'_, PyAny>>, py: Python<'_>) -> PyResult<cell::Cell> {
        if let Some(cell) = meant.and_then(|meant| meant.cast::<Cell>().ok()) {
            let cell = cell.get();
            if cell.scenario.text == self.loaded.text {
                return Ok(cell.cell.clone());
            }
            return Err(PyValueError::new_err("the cell is another scenario's; take one of scenario.cells()"));
        }
        let mut cells = self.expand(py)?;
        let count = cells.len();
        let Some(meant) = meant else {
            let only = (count == 1).then(|| cells.pop()).flatten();
            return only.ok_or_else(|| PyTypeError::new_err(format!("the scenario has {count} cells: say which")));
        };
        if meant.is_instance_of::<PyInt>() {
            let number = meant.extract::<usize>().ok().filter(|number| *number < count);
            let none = || PyValueError::new_err(format!("there are {count} cells, counted from 0"));
            return number.map(|number| cells.swap_remove(number)).ok_or_else(none);
        }
        let Ok(labels) = meant.cast::<PyDict>() else {
            let class = meant.get_type();
            let name = class.name()?;
            return Err(PyTypeError::new_err(format!("a cell is a Cell, its number or its labels; not {name}")));
        };
        let labels = labels.iter().map(|(axis, label)| Ok((axis.str()?.extract()?, label.str()?.extract()?)));
        by_labels(cells, &labels.collect::<PyResult<Vec<(String, String)>>>()?)
    }
}

fn by_labels(cells: Vec<cell::Cell>, labels: &[(String, String)]) -> PyResult<cell::Cell> {
    for (axis, label) in labels {
        let mut all = cells.iter().flat_map(|cell| &cell.labels).filter(|(name, _)| name == axis).peekable();
        if all.peek().is_none() {
            return Err(PyKeyError::new_err(format!("no axis is called {}", quoted(axis))));
        }
        if !all.any(|(_, known)| known == label) {
            return Err(PyKeyError::new_err(format!("axis {} has no label {}", quoted(axis), quoted(label))));
        }
    }
    let mut fitting: Vec<_> =
        cells.into_iter().filter(|cell| labels.iter().all(|label| cell.labels.contains(label))).collect();
    match (fitting.pop(), fitting.len()) {
        (Some(cell), 0) => Ok(cell),
        (_, others) => Err(PyValueError::new_err(format!("{} cells have these labels: say which", others + 1))),
    }
}

#[pymethods]
impl Scenario {
    /// Reads and checks a scenario file.
    ///
    /// Raises `ScenarioError` with all that is wrong with it, and `OSError` if it cannot be read.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Self::of(py, Parsed::load(&path))
    }

    /// Checks the text of a scenario file; `file` is what errors call it.
    #[staticmethod]
    #[pyo3(signature = (text, file = PathBuf::from("scenario.toml")))]
    fn parse(py: Python<'_>, text: &str, file: PathBuf) -> PyResult<Self> {
        Self::of(py, Parsed::from_str(text, file))
    }

    /// The scenario with another value of one key, in the units of docs/scenario.md; with `None`, without the key.
    ///
    /// The key is dotted, as in `network.rate_mbit`, `vms.sender.count` or `axes[0].values`. The text keeps its
    /// comments. Raises `ScenarioError` if the scenario is not valid then.
    fn set(&self, py: Python<'_>, key: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::of(py, self.loaded.with(key, value::of_python(value)?))
    }

    /// The cells, the last axis fastest: one for each choice of a label on each axis.
    ///
    /// `only` keeps those with these labels, each written as `"AXIS=LABEL"`.
    #[pyo3(signature = (only = Vec::new()))]
    fn cells(&self, py: Python<'_>, only: Vec<String>) -> PyResult<Vec<Cell>> {
        let all = self.expand(py)?;
        let wanted = select::select(all.clone(), &only, &self.loaded).map_err(|e| error::of_scenario(py, &e))?;
        let numbered = all.into_iter().enumerate().filter(|(_, cell)| wanted.iter().any(|w| w.labels == cell.labels));
        Ok(numbered.map(|(number, cell)| Cell { scenario: Arc::clone(&self.loaded), number, cell }).collect())
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.loaded.scenario.name
    }

    /// Its title.
    #[getter]
    fn title(&self) -> &str {
        &self.loaded.scenario.title
    }

    /// The text.
    #[getter]
    fn text(&self) -> &str {
        &self.loaded.text
    }

    /// The file, as the caller named it.
    #[getter]
    fn file(&self) -> PathBuf {
        self.loaded.file.clone()
    }

    /// The seed of all random draws.
    #[getter]
    fn seed(&self) -> u64 {
        self.loaded.scenario.seed
    }

    /// How often each cell is run.
    #[getter]
    fn repetitions(&self) -> u32 {
        self.loaded.scenario.repetitions
    }

    /// Axis to its labels, in the scenario's order.
    #[getter]
    fn axes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let axes = PyDict::new(py);
        for axis in &self.loaded.scenario.axes {
            axes.set_item(&axis.name, axis.points().into_iter().map(|point| point.label).collect::<Vec<_>>())?;
        }
        Ok(axes)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().loaded.text == self.loaded.text)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        pyo3::types::PyString::new(py, &self.loaded.text).hash()
    }

    fn __repr__(&self) -> String {
        format!(
            "Scenario({:?}, axes={:?})",
            self.name(),
            self.loaded.scenario.axes.iter().map(|a| &a.name).collect::<Vec<_>>()
        )
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String, PathBuf))> {
        Ok((py.get_type::<Self>().getattr("parse")?, (self.loaded.text.clone(), self.loaded.file.clone())))
    }
}

/// One cell of a scenario: one label on each axis.
#[pyclass(frozen, module = "evenkeel")]
pub(crate) struct Cell {
    pub(crate) scenario: Arc<LoadedScenario>,
    number: usize,
    pub(crate) cell: cell::Cell,
}

#[pymethods]
impl Cell {
    /// Its place among all cells of the scenario, from 0.
    #[getter]
    fn number(&self) -> usize {
        self.number
    }

    /// Axis to label, in the scenario's order of axes.
    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let labels = PyDict::new(py);
        self.cell.labels.iter().try_for_each(|(axis, label)| labels.set_item(axis, label))?;
        Ok(labels)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let same = |other: &Self| other.number == self.number && other.scenario.text == self.scenario.text;
        other.cast::<Self>().is_ok_and(|other| same(other.get()))
    }

    fn __hash__(&self) -> usize {
        self.number
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = format!("Cell({}", self.number);
        for (axis, label) in &self.cell.labels {
            let label = pyo3::types::PyString::new(py, label).repr()?;
            text.push_str(&format!(", {}={label}", evenkeel_quote::shown(axis)));
        }
        Ok(text + ")")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Scenario, usize))> {
        let scenario = Scenario { loaded: Arc::clone(&self.scenario), set: OnceLock::new() };
        Ok((py.import("evenkeel._pickle")?.getattr("cell")?, (scenario, self.number)))
    }
}
