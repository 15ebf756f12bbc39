//! What runs on hosts and in guests.
//!
//! [`doctor`] says what a machine supports and what hurts TCP there; [`guest`] is what evenkeel does inside a guest, [`host`] what it does
//! on a hypervisor.

pub mod doctor;
pub mod guest;
pub mod host;
