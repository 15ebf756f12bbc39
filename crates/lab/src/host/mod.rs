//! What the lab does on this machine: cores and privileges, the network, VMs, the schedule of their virtual CPUs or
//! their part of the kernel's own, driver domains, the host agent.

pub mod agent;
pub mod cgroup;
pub mod clock;
pub mod cores;
pub mod domain;
pub mod linux;
pub mod load;
pub mod marking;
pub mod net;
pub mod preflight;
pub mod qdisc;
pub mod qmp;
pub mod schedule;
pub mod scratch;
pub mod seat;
pub mod vm;
pub mod waits;
