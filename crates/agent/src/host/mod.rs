//! The host agent: it keeps the datapath on the ports of VMs, sends again what was lost, and tells what happens.

pub mod config;
pub mod control;
mod error;
mod flow;
mod http;
mod keys;
mod links;
mod lock;
mod metrics;
mod state;

pub use error::{ConfigError, HostError};
