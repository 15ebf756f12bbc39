//! A deterministic packet-level simulator of VMs, the hypervisors that schedule them, and the network between them.
//!
//! It runs the scenario files that the lab runs ([`evenkeel_scenario`]) and leaves the same records behind. The
//! mechanisms are the C code of `algo/`, as it is loaded into kernels. Time is whole picoseconds; a run follows from
//! its scenario and seed alone.

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
