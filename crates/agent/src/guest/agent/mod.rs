//! The guest's agent: it keeps vFlood's congestion control and CERA's client, as its host says over the channel.
//!
//! [`run`] is the agent, [`stop`] undoes all it did, [`status`] says what is there.

mod endpoint;
mod error;
mod intf;
mod kernel;
mod line;
mod off_core;
mod programs;
mod state;
mod status;
mod supervisor;
mod work;

pub use error::GuestError;
pub use kernel::KernelReading;
pub use status::{COUNTERS, Status, status};
pub use supervisor::{Options, Stopped, check, run, stop};
