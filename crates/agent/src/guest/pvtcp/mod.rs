//! Installs, loads, asks, unloads and removes PVTCP's kernel module.

mod error;
mod install;
mod kmsg;
mod load;
mod metrics;
mod settings;
mod status;

pub use error::PvtcpError;
pub use install::{Installed, Machine, Method, Signing, Sources, install, remove};
pub use load::{Loaded, load, unload};
pub use settings::{PARAMETERS, Settings};
pub use status::{COUNTERS, Status, status};

/// The module's name as the kernel has it.
pub const MODULE: &str = "evenkeel_pvtcp";
/// What the kernel shows of the module while it is loaded.
const SYSFS: &str = "/sys/module/evenkeel_pvtcp";
