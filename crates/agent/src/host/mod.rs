//! The host agent: it keeps the datapath on the ports of VMs, sends again what was lost, and tells what happens.

pub mod config;
mod error;
mod links;
mod lock;
mod state;

pub use error::{ConfigError, HostError};
