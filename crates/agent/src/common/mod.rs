//! What both agents have: a lock, a clock, structures of the programs as bytes, what libbpf prints, names of threads
//! and labels.

pub(crate) mod bytes;
pub(crate) mod clock;
pub(crate) mod libbpf;
pub(crate) mod lock;
pub(crate) mod openmetrics;
pub(crate) mod vcpu;
