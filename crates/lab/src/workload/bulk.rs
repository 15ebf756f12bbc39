//! Long-lived flows to sinks.

use super::members::{Members, address};
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{ServeRole, Task};

/// Starts the sinks.
pub fn serve(members: &Members) -> Result<(), LabError> {
    let sink = |vm: &Vm| Task::Serve { role: ServeRole::Sink, sockets: members.sockets(vm) };
    members.to.iter().try_for_each(|(_, vm)| members.start(vm, sink(vm)))
}

/// Starts the flows.
pub fn begin(members: &Members, flows: u32) -> Result<(), LabError> {
    members.from.iter().enumerate().try_for_each(|(position, (_, vm))| send(members, vm, position, flows))
}

/// Starts the flows of the VM at this position among those that send: they take the sinks in turn.
pub fn send(members: &Members, vm: &Vm, position: usize, flows: u32) -> Result<(), LabError> {
    let to = address(members.to[position % members.to.len()].1);
    members.start(vm, Task::Bulk { to, flows, sockets: members.sockets(vm) })
}
