//! What both agents have: how configurations are read, a lock, a clock.

pub(crate) mod clock;
pub mod config;
pub(crate) mod lock;
pub mod value;
