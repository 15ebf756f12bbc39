//! ICMP echo requests.

use super::members::{Members, address};
use super::task::{Running, started};
use crate::error::LabError;
use crate::proto::Op;

/// Starts them: all VMs that send ask the first that receives.
pub fn start(members: &Members, interval_ms: u32) -> Result<Running, LabError> {
    for (_, vm) in &members.from {
        started(vm, Op::Ping { to: address(members.to[0].1), interval_ms })?;
    }
    Ok(Running::default())
}
