//! ICMP echo requests.

use super::members::{Members, address};
use crate::error::LabError;
use crate::proto::Task;

/// Starts them: all VMs that send ask the first that receives.
pub fn begin(members: &Members, interval_ms: u32) -> Result<(), LabError> {
    let ask = || Task::Ping { to: address(members.to[0].1), interval_ms };
    members.from.iter().try_for_each(|(_, vm)| members.start(vm, ask()))
}
