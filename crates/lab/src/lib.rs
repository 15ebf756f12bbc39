//! The lab: real kernels in real VMs on one machine, whose virtual CPUs share a core as a hypervisor would have them share it.
//!
//! [`prepare`] makes kernels and initramfs images; [`proto`] is what the lab says to the runner in a VM, [`guest`] that runner.

pub mod guest;
pub mod prepare;
pub mod proto;
