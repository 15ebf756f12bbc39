//! Scenario files, sweeps, the runner of all their runs and the result schema: what the lab and the simulator share.
//!
//! A scenario is a TOML file ([`mod@format`]), read and checked by [`Scenario::load`]; its axes expand into cells
//! ([`cell`], [`sweep`]); an engine runs each repetition of a cell ([`batch`]), which yields one
//! [`result::RunRecord`], kept as [`io`] and [`mod@replace`] have it and summarized by [`stats`]; [`metric`] names and
//! describes every figure a run can report. [`trace`] has the events of a run, for those who look at one packet's way.

pub mod arrivals;
pub mod batch;
pub mod cell;
mod check;
mod edit;
mod error;
pub mod fingerprint;
pub mod format;
pub mod holder;
pub mod io;
mod load;
mod loaded;
pub mod lock;
pub mod metric;
pub mod placement;
pub mod provenance;
pub mod random;
pub mod replace;
pub mod result;
pub mod schema;
pub mod select;
pub mod sizes;
pub mod slices;
pub mod stats;
pub mod sweep;
pub mod trace;
mod tree;
mod validate;

pub use error::{Invalid, Problem, Refused, ScenarioError};
pub use format::Scenario;
pub use loaded::LoadedScenario;
pub use result::RunRecord;
