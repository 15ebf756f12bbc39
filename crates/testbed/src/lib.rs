//! What tests and benchmarks of the host's datapath share. Everything here panics where something is not as it should be.

pub mod frames;
pub mod noise;

#[cfg(feature = "host")]
pub mod conversation;
#[cfg(feature = "host")]
pub mod place;
#[cfg(feature = "host")]
pub mod program;
#[cfg(feature = "host")]
pub mod tap;
#[cfg(feature = "host")]
pub mod trunk;
#[cfg(feature = "host")]
pub mod vm;
#[cfg(feature = "host")]
pub mod watch;
