//! What tests and benchmarks on this machine's kernel share. Everything here panics where something is not as it should
//! be.

pub mod place;
pub mod program;
pub mod tap;
pub mod thread;
pub mod trunk;
pub mod vm;
pub mod watch;
