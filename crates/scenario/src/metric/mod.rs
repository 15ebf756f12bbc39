//! The figures that a run can report: their list, and each one's formula over what an engine has measured.

mod formula;
mod list;
mod measurements;
mod size;

pub use formula::metrics;
pub use list::{About, Better, Metric};
pub(crate) use list::{Formula, Source};
pub use measurements::{
    Arrival, Bursts, CpuTime, Ended, LongLived, Measurements, Migration, PS_PER_US, Read, SocketSample, Trace, Traffic,
    Unfinished, Uplink, Vm, Waits,
};
pub use size::SizeClass;
