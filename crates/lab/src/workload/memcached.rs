//! The real memcached beside long-lived flows: the first VM of those that send asks, the others send to sinks.

use super::bulk;
use super::members::{Members, address};
use super::task::{Running, sockets, started};
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{MEMCACHED_PORT, Op};

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

/// Starts all of it.
pub fn start(members: &Members, requests: Requests, flows: u32) -> Result<Running, LabError> {
    let Requests { outstanding, gets_permille, value_bytes } = requests;
    let mut running = Running::default();
    for (index, vm) in &members.to {
        running.servers.push((*index, start_server(vm)?));
        bulk::serve(members, vm)?;
    }
    let (_, first) = members.from[0];
    let servers = members.to.iter().map(|(_, vm)| address(vm)).collect();
    let sockets = sockets(members.scenario, first);
    started(first, Op::KeyValue { servers, outstanding, gets_permille, value_bytes, sockets })?;
    for (position, (_, vm)) in members.from.iter().enumerate().skip(1) {
        bulk::send(members, vm, position, flows)?;
    }
    Ok(running)
}

/// Starts memcached in a VM; its task.
pub fn start_server(vm: &Vm) -> Result<u64, LabError> {
    let argv = ["memcached", "-u", "root", "-m", "32", "-t", "1", "-U", "0", "-p", &MEMCACHED_PORT.to_string()];
    let task = started(vm, Op::Spawn { argv: argv.map(str::to_owned).to_vec() })?;
    vm.shell(&format!(
        "i=0; until ss -Hltn sport = :{MEMCACHED_PORT} | grep -q .; do i=$((i+1)); [ $i -lt 200 ]; sleep 0.05; done"
    ))?;
    Ok(task)
}
