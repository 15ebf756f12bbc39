//! What the Python package `evenkeel` has of Rust: scenarios, the simulator in the caller's process, results as Arrow
//! tables, and what a sweep over many machines needs of the runner of batches.
//!
//! The documentation of classes and methods is Python's: `help(evenkeel)` shows it, and its examples are tests.

use pyo3::prelude::*;

mod error;
mod lock;
mod plan;
mod program;
mod results;
mod run;
mod scenario;
mod simulate;
mod table;
mod value;

/// The Rust part of evenkeel.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("__code__", program::CODE)?;
    module.add_class::<scenario::Scenario>()?;
    module.add_class::<scenario::Cell>()?;
    module.add_class::<results::Results>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<lock::Lock>()?;
    module.add_function(wrap_pyfunction!(simulate::simulate, module)?)
}
