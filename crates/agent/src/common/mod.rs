//! What both agents have: how configurations are read, a lock, a clock, structures of the programs as bytes.

pub(crate) mod bytes;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod lock;
