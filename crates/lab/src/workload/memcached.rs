//! The real memcached beside long-lived flows: the first VM of those that send asks, the others send to sinks.

use super::bulk;
use super::members::{Members, address};
use super::task::{TaskOf, started};
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{MEMCACHED_PORT, Op, Task};

/// What memcached is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Requests {
    /// Requests at a time.
    pub outstanding: u32,
    /// Those of a thousand that read a value.
    pub gets_permille: u32,
    /// Size of a value.
    pub value_bytes: u32,
}

/// Starts the servers, and the sinks beside them.
pub fn serve(members: &Members) -> Result<Vec<TaskOf>, LabError> {
    let start = |(index, vm): &(usize, &Vm)| Ok((*index, start_server(members, vm)?));
    let servers = members.to.iter().map(start).collect::<Result<_, LabError>>()?;
    bulk::serve(members)?;
    Ok(servers)
}

/// Starts the VM that asks, and those that send.
pub fn begin(members: &Members, requests: Requests, flows: u32) -> Result<(), LabError> {
    let Requests { outstanding, gets_permille, value_bytes } = requests;
    let (_, first) = members.from[0];
    let servers = members.to.iter().map(|(_, vm)| address(vm)).collect();
    let sockets = members.sockets(first);
    members.start(first, Task::KeyValue { servers, outstanding, gets_permille, value_bytes, sockets })?;
    let mut others = members.from.iter().enumerate().skip(1);
    others.try_for_each(|(position, (_, vm))| bulk::send(members, vm, position, flows))
}

/// Starts memcached in a VM; returns its task.
pub fn start_server(members: &Members, vm: &Vm) -> Result<u64, LabError> {
    let port = members.port(MEMCACHED_PORT);
    let argv = ["memcached", "-u", "root", "-m", "32", "-t", "1", "-U", "0", "-p", &port.to_string()];
    let task = started(vm, Op::Spawn { argv: argv.map(str::to_owned).to_vec() })?;
    vm.shell(&format!(
        "i=0; until ss -Hltn sport = :{port} | grep -q .; do i=$((i+1)); [ $i -lt 200 ]; sleep 0.05; done"
    ))?;
    Ok(task)
}
