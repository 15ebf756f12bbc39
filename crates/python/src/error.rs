//! Errors as Python's exceptions. Their classes are in `evenkeel.errors`, because the stable ABI has no exception
//! classes with attributes.

use std::io;
use std::path::Path;

use evenkeel_report::ReportError;
use evenkeel_scenario::batch::BatchError;
use evenkeel_scenario::batch::kept::KeptError;
use evenkeel_scenario::{Invalid, LoadedScenario, Refused, ScenarioError};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;

const MODULE: &str = "evenkeel.errors";

/// One problem as Python has it: line, key, message, allowed.
type Problem = (Option<usize>, String, String, Vec<String>);

/// An exception of `evenkeel.errors`.
fn exception<'py>(py: Python<'py>, class: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    let made = py.import(MODULE).and_then(|module| module.getattr(class)).and_then(|class| class.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}

fn of_problems(py: Python<'_>, file: &Path, message: String, problems: Vec<Problem>) -> PyErr {
    exception(py, "ScenarioError", (message, file, problems))
}

/// What the system said of a file: the class is Python's own for that, as `FileNotFoundError`.
fn of_system(source: &io::Error, file: &Path) -> PyErr {
    let text = source.to_string();
    // Without the number, which Python adds by itself.
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    PyOSError::new_err((source.raw_os_error(), text, file.to_owned()))
}

/// A scenario that is not valid.
pub(crate) fn of_invalid(py: Python<'_>, invalid: &Invalid) -> PyErr {
    let problem = |p: &evenkeel_scenario::Problem| (p.line, p.key.clone(), p.message.clone(), p.allowed.clone());
    of_problems(py, &invalid.file, invalid.to_string(), invalid.problems.iter().map(problem).collect())
}

/// A setting that the simulator cannot honour.
pub(crate) fn of_refused(py: Python<'_>, loaded: &LoadedScenario, refused: &Refused) -> PyErr {
    let line = loaded.line_of(&refused.key);
    let place = line.map(|line| format!("{line}:")).unwrap_or_default();
    let message = format!("{}:{place} {refused}", evenkeel_quote::path(&loaded.file));
    of_problems(py, &loaded.file, message, vec![(line, refused.key.clone(), refused.why.clone(), Vec::new())])
}

/// Results that cannot be read or written.
pub(crate) fn of_results(py: Python<'_>, file: Option<&Path>, message: String) -> PyErr {
    exception(py, "ResultsError", (message, file))
}

/// What is wrong with scenario or result files.
pub(crate) fn of_scenario(py: Python<'_>, error: &ScenarioError) -> PyErr {
    match error {
        ScenarioError::Invalid(invalid) => of_invalid(py, invalid),
        ScenarioError::Read { file, source } | ScenarioError::Write { file, source } => of_system(source, file),
        ScenarioError::InUse { directory, .. } => of_results(py, Some(directory), error.to_string()),
        ScenarioError::Result { file, .. } => of_results(py, Some(file), error.to_string()),
    }
}

/// Why results cannot be loaded.
pub(crate) fn of_report(py: Python<'_>, error: &ReportError) -> PyErr {
    let file = match error {
        ReportError::Results(error) => return of_scenario(py, error),
        ReportError::Scenario { file, .. }
        | ReportError::NoRuns { file }
        | ReportError::Table { file, .. }
        | ReportError::Unfinished { file }
        | ReportError::Manifest { file, .. }
        | ReportError::Damaged { file, .. }
        | ReportError::Read { file, .. }
        | ReportError::Rows { file, .. }
        | ReportError::Changes { file, .. }
        | ReportError::Write { file, .. } => file,
    };
    of_results(py, Some(file), error.to_string())
}

/// Why a batch cannot be planned.
pub(crate) fn of_batch(py: Python<'_>, loaded: &LoadedScenario, error: &BatchError<Refused>) -> PyErr {
    match error {
        BatchError::Scenario(error) => of_scenario(py, error),
        BatchError::Refused { refused, .. } => of_refused(py, loaded, refused),
        BatchError::Kept(KeptError::Other { directory, .. }) => of_results(py, Some(directory), error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}
