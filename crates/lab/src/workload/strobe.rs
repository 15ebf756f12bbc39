//! The block strobe: the first VM that receives asks all others for blocks.

use super::members::{Members, address};
use super::task::{Running, sockets, started};
use crate::error::LabError;
use crate::proto::{Op, ServeRole};

/// Starts it.
pub fn start(members: &Members, block_kib: u32, requests: u32) -> Result<Running, LabError> {
    let (scenario, from) = (members.scenario, &members.from);
    for (_, vm) in from {
        started(vm, Op::Serve { role: ServeRole::BlockServer, sockets: sockets(scenario, vm) })?;
    }
    let client = members.to[0].1;
    let bytes_per_server = u64::from(block_kib) * 1024 / from.len() as u64;
    let from = from.iter().map(|(_, vm)| address(vm)).collect();
    started(client, Op::Strobe { from, bytes_per_server, requests, sockets: sockets(scenario, client) })?;
    Ok(Running::default())
}
