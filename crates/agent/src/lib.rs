//! What runs on hosts and in guests.
//!
//! [`doctor`] says what a machine supports and what hurts TCP there; [`guest`] is what evenkeel does inside a guest.

pub mod datapath;
pub mod doctor;
pub mod guest;
