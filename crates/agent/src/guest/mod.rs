//! What evenkeel does inside a guest.

pub mod agent;
pub mod pvtcp;
