//! Long-lived flows to sinks.

use super::members::{Members, address};
use super::task::{Running, sockets, started};
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{Op, ServeRole};

/// Starts them.
pub fn start(members: &Members, flows: u32) -> Result<Running, LabError> {
    for (_, vm) in &members.to {
        serve(members, vm)?;
    }
    for (position, (_, vm)) in members.from.iter().enumerate() {
        send(members, vm, position, flows)?;
    }
    Ok(Running::default())
}

/// Starts a sink.
pub fn serve(members: &Members, vm: &Vm) -> Result<(), LabError> {
    started(vm, Op::Serve { role: ServeRole::Sink, sockets: sockets(members.scenario, vm) }).map(drop)
}

/// Starts the flows of the VM at this position among those that send: they take the sinks in turn.
pub fn send(members: &Members, vm: &Vm, position: usize, flows: u32) -> Result<(), LabError> {
    let to = address(members.to[position % members.to.len()].1);
    started(vm, Op::Bulk { to, flows, sockets: sockets(members.scenario, vm) }).map(drop)
}
