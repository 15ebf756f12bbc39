//! The control socket: how `status`, `flows`, `top` and `--stop` ask a running agent.

pub mod client;
pub mod lease;
pub mod proto;
pub mod server;
