//! A deterministic packet-level simulator of VMs, the hypervisors that schedule them, and the network between them.
//!
//! It runs the scenario files that the lab runs ([`evenkeel_scenario`]) and leaves the same records. The mechanisms are
//! the C code of `algo/` that is loaded into kernels. Time is in whole picoseconds; a run depends only on its scenario
//! and seed.

pub mod engine;
pub mod event;
pub mod export;
pub mod footprint;
pub mod guest;
pub mod host;
mod memory;
pub mod net;
pub mod packet;
pub mod record;
pub mod refuse;
pub mod run;
pub mod tcp;
pub mod time;
pub mod units;
pub mod workload;
pub mod world;
