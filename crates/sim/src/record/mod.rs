//! What a run leaves: counters and series with the lab's names and meanings, and the input of metrics.

mod both;
mod counters;
mod measured;
mod recorder;
mod results;
mod tracer;
mod wakeup;

pub use both::{Both, Tracing};
pub use counters::{GuestCounters, PvtcpCounters};
pub use measured::{Measured, Traffic, VmMeasured};
pub(crate) use recorder::add;
pub use recorder::{Due, Plan, Recorder, Seen, Shared, Traits};
pub use results::record;
pub use tracer::Tracer;
