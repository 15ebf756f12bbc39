//! What evenkeel does inside a guest.

pub mod pvtcp;
