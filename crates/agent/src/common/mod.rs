//! What both agents have: a lock, a clock, structures of the programs as bytes.

pub(crate) mod bytes;
pub(crate) mod clock;
pub(crate) mod lock;
