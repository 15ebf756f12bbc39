//! What a run leaves behind: counters, series and metrics with the names and the meaning of the lab's.

mod counters;
mod metrics;
mod recorder;
mod wakeup;

pub use counters::{GuestCounters, PvtcpCounters};
pub use metrics::{Measured, VmMeasured, record};
pub(crate) use recorder::add;
pub use recorder::{Due, Plan, Recorder, Seen, Shared};
