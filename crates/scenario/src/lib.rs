//! Scenario files, sweeps and the result schema that the lab and the simulator share.
//!
//! A scenario is a TOML file ([`format`]); its axes expand into cells ([`sweep`]); each repetition of a cell
//! yields one [`result::RunRecord`]; [`metric`] names and describes every figure a run can report.

pub mod format;
pub mod metric;
pub mod result;

pub use format::Scenario;
pub use result::RunRecord;
