//! The block strobe: the first VM that receives asks all others for blocks.

use super::members::{Members, address};
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{ServeRole, Task};

/// Starts those that are asked.
pub fn serve(members: &Members) -> Result<(), LabError> {
    let server = |vm: &Vm| Task::Serve { role: ServeRole::BlockServer, sockets: members.sockets(vm) };
    members.from.iter().try_for_each(|(_, vm)| members.start(vm, server(vm)))
}

/// Starts the VM that asks.
pub fn begin(members: &Members, block_kib: u32, requests: u32) -> Result<(), LabError> {
    let client = members.to[0].1;
    let bytes_per_server = u64::from(block_kib) * 1024 / members.from.len() as u64;
    let from = members.from.iter().map(|(_, vm)| address(vm)).collect();
    members.start(client, Task::Strobe { from, bytes_per_server, requests, sockets: members.sockets(client) })
}
