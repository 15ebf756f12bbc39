//! Results: of one run, or of a directory that `lab`, `sim` or `sweep` wrote.

use std::path::PathBuf;

use evenkeel_report::columnar;
use evenkeel_scenario::result::{RunRecord, RunSet};
use evenkeel_scenario::{Scenario as Parsed, io};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

use crate::error;
use crate::scenario::Scenario;
use crate::table::Table;

/// What runs have left: six tables, and what holds for all runs.
///
/// Every table has a column `run`, the row of `runs` that a row belongs to. Shapes: `runs` has a row per run, with
/// `repetition`, `seed`, `duration_us` (µs), a column `axis.NAME` per axis and one per metric, in the metric's unit;
/// `counters` a row per counter of a VM (`vm`, `counter`, `increase`); `flows` a row per flow (`from`, `to`, `bytes`,
/// `start_us`, `duration_us`); `series` a row per point (`series`, `name`, `subject`, `t_us`, `value`, in the unit that
/// `name` ends with); `packets` a row per captured packet; `remarks` a row per remark.
#[pyclass(frozen, module = "evenkeel")]
pub(crate) struct Results {
    set: RunSet,
    records: Vec<RunRecord>,
    tables: [PyOnceLock<Py<Table>>; columnar::TABLES.len()],
}

impl Results {
    pub(crate) fn new(set: RunSet, records: Vec<RunRecord>) -> Self {
        Self { set, records, tables: std::array::from_fn(|_| PyOnceLock::new()) }
    }

    fn table(&self, py: Python<'_>, place: usize) -> PyResult<Py<Table>> {
        let made = self.tables[place].get_or_try_init(py, || {
            let format = columnar::TABLES[place];
            let none = || PyRuntimeError::new_err(format!("there is no table {}", format.file));
            let make = columnar::maker(format.file).ok_or_else(none)?;
            let table = py.detach(|| make(&self.records).map(|columns| Table::of(&columns)));
            let table = table.map_err(|problem| error::of_results(py, None, problem.to_string()))??;
            Py::new(py, table)
        });
        made.map(|table| table.clone_ref(py))
    }
}

/// How results are written.
pub(crate) fn write(
    py: Python<'_>,
    directory: &std::path::Path,
    set: &RunSet,
    records: &[RunRecord],
    format: &str,
) -> PyResult<()> {
    match format {
        "jsonl" => io::write_results(directory, set, records).map_err(|e| error::of_scenario(py, &e)),
        "parquet" => evenkeel_report::write_parquet(directory, set, records).map_err(|e| error::of_report(py, &e)),
        other => Err(PyValueError::new_err(format!("the format is 'jsonl' or 'parquet', not {other:?}"))),
    }
}

#[pymethods]
impl Results {
    /// Reads a directory of results, whatever their format.
    ///
    /// Raises `ResultsError` for what is damaged or not finished, and `OSError` for what cannot be read.
    #[staticmethod]
    fn load(py: Python<'_>, directory: PathBuf) -> PyResult<Self> {
        let loaded = py.detach(|| evenkeel_report::load(&directory));
        let loaded = loaded.map_err(|e| error::of_report(py, &e))?;
        Ok(Self::new(loaded.set, loaded.records))
    }

    /// The runs of several results together, in their order. All must be of one scenario's text and one version.
    #[staticmethod]
    fn concat(results: Vec<Py<Self>>) -> PyResult<Self> {
        let first = results.first().ok_or_else(|| PyValueError::new_err("there are no results to put together"))?.get();
        let others = |other: &&Py<Self>| {
            let set = &other.get().set;
            (set.engine, &set.scenario_toml, &set.versions)
                != (first.set.engine, &first.set.scenario_toml, &first.set.versions)
        };
        if results.iter().any(|other| others(&other)) {
            let why = "they are of several scenarios, engines or versions; put their tables together instead";
            return Err(PyValueError::new_err(why));
        }
        let records = results.iter().flat_map(|results| results.get().records.iter().cloned()).collect();
        Ok(Self::new(first.set.clone(), records))
    }

    /// Of the bytes of `meta.json` and `runs.jsonl`.
    #[staticmethod]
    fn _of_bytes(py: Python<'_>, meta: &[u8], runs: &[u8]) -> PyResult<Self> {
        let bad = |error: serde_json::Error| error::of_results(py, None, error.to_string());
        let lines = runs.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let records = lines.map(serde_json::from_slice).collect::<Result<Vec<_>, _>>().map_err(bad)?;
        Ok(Self::new(serde_json::from_slice(meta).map_err(bad)?, records))
    }

    /// Writes them into a directory, as `evenkeel sim` does, in the place of what results are there. `format` is
    /// `"jsonl"` or `"parquet"`.
    #[pyo3(signature = (directory, format = "jsonl"))]
    fn save(&self, py: Python<'_>, directory: PathBuf, format: &str) -> PyResult<()> {
        write(py, &directory, &self.set, &self.records, format)
    }

    /// The bytes of `runs.jsonl`: a line of JSON per run.
    fn to_jsonl<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut lines = Vec::new();
        for record in &self.records {
            let line = serde_json::to_writer(&mut lines, record);
            line.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
            lines.push(b'\n');
        }
        Ok(PyBytes::new(py, &lines))
    }

    /// A row per run: repetition, seed, duration (µs), labels, and all metrics in their units.
    #[getter]
    fn runs(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        self.table(py, 0)
    }

    /// A row per counter of a VM: its increase over the measured time.
    #[getter]
    fn counters(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        self.table(py, 1)
    }

    /// A row per flow: payload (bytes), begin and duration (µs).
    #[getter]
    fn flows(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        self.table(py, 2)
    }

    /// A row per point of a series: time (µs) and value (in the unit that its name ends with).
    #[getter]
    fn series(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        self.table(py, 3)
    }

    /// A row per captured packet of the plotted flow: time (µs), sequence number and length (bytes).
    #[getter]
    fn packets(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        self.table(py, 4)
    }

    /// A row per remark on a run.
    #[getter]
    fn remarks(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        self.table(py, 5)
    }

    /// What `meta.json` has: schema, engine, scenario_toml, versions, command, started, remarks.
    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = io::set_bytes(&self.set).map_err(|e| error::of_scenario(py, &e))?;
        py.import("json")?.call_method1("loads", (PyBytes::new(py, &text),))
    }

    /// The scenario that was run, checked by this version.
    #[getter]
    fn scenario(&self, py: Python<'_>) -> PyResult<Scenario> {
        Scenario::of(py, Parsed::from_str(&self.set.scenario_toml, "meta.json"))
    }

    fn __len__(&self) -> usize {
        self.records.len()
    }

    fn __repr__(&self) -> String {
        let engine = if self.set.engine == evenkeel_scenario::result::Engine::Lab { "lab" } else { "sim" };
        format!("Results({engine}, {} runs)", self.records.len())
    }
}
