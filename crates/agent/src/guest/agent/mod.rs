//! The guest's agent: it keeps vFlood's congestion control and CERA's client, as its host says over the channel.
//!
//! [`run`] is the agent, [`stop`] undoes all it did, [`status`] says what is there.

mod config;
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

pub use config::{Cera, Channel, Config, DEFAULT_FILE, DEFAULT_PIN_DIR, DEFAULT_RUN_DIR, EXAMPLE, Shadow, Vflood};
pub use error::GuestError;
pub use kernel::KernelReading;
pub use status::{COUNTERS, Status, status};
pub use supervisor::{Options, Stopped, run, stop};
