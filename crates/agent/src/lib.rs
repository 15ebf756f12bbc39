//! What runs on hosts and in guests.
//!
//! [`doctor`] says what a machine supports and what hurts TCP there, [`features`] what its kernel can do; [`guest`] is
//! what evenkeel does inside a guest. On a hypervisor, [`datapath`] is the packet path and [`host`] the agent that
//! keeps it; [`channel`] is what the two agents say to each other, [`common`] what both have.

pub mod channel;
pub mod common;
pub mod datapath;
pub mod doctor;
pub mod features;
mod file;
pub mod guest;
pub mod host;
mod netdevice;
mod netlink;
mod netns;
mod tc;
