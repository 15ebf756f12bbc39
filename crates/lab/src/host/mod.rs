//! What the lab does on this machine: cores and privileges, the network, VMs, the schedule of their virtual CPUs.

pub mod cores;
pub mod net;
pub mod preflight;
pub mod qdisc;
pub mod schedule;
pub mod vm;
