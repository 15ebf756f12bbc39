//! One writer of a results directory at a time.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use evenkeel_scenario::lock;
use pyo3::prelude::*;

use crate::error;

/// The lock of a results directory, which `evenkeel sim` and `sweep` take as well. The kernel lets it go when the
/// process ends, however it ends.
#[pyclass(frozen, module = "evenkeel._native")]
pub(crate) struct Lock(Mutex<Option<lock::Lock>>);

#[pymethods]
impl Lock {
    /// Takes it, and makes the directory if it is not there. Raises `ResultsError` if somebody else has it.
    #[new]
    fn new(py: Python<'_>, directory: PathBuf) -> PyResult<Self> {
        let lock = py.detach(|| lock::Lock::take(&directory)).map_err(|e| error::of_scenario(py, &e))?;
        Ok(Self(Mutex::new(Some(lock))))
    }

    /// Lets it go.
    fn release(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
