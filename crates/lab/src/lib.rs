//! The lab: real kernels in real VMs on one machine, whose virtual CPUs share a core as a hypervisor would have them
//! share it.
//!
//! [`Lab`] runs a cell of a scenario. Below it, [`prepare`] makes kernels and initramfs images, [`host`] is what the
//! lab does on this machine, [`proto`] what it says to the runner in a VM, [`guest`] that runner, and [`capture`] what
//! packets tell.

mod ask;
pub mod backlog;
pub mod capture;
pub mod error;
pub mod guest;
pub mod host;
pub mod interrupt;
pub mod kvm;
pub mod prepare;
pub mod proto;
pub mod run;
mod workload;

pub use error::LabError;
pub use run::Lab;
