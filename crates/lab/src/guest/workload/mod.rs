//! The guests' part of each workload, in files of the names that the host's part has in [`crate::workload`]. iperf3 has
//! none: it is a program.

pub mod bulk;
pub mod memcached;
pub mod ping;
pub mod poisson;
pub mod request_response;
pub mod strobe;
pub mod three_tier;
pub mod transfers;
