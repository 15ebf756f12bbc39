//! Requests and responses in a closed loop: HTTP requests for a file of nginx.

use std::collections::BTreeSet;

use super::members::{Members, addresses_in_turn};
use super::nginx;
use super::task::TaskOf;
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::Task;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Size of a request.
    pub request_bytes: u32,
    /// Size of a response.
    pub response_bytes: u32,
    /// Requests of a VM at a time.
    pub outstanding: u32,
    /// Time between a response and the next request.
    pub think_time_us: u32,
}

/// Starts the servers.
pub fn serve(members: &Members, response_bytes: u32) -> Result<Vec<TaskOf>, LabError> {
    let start = |(index, vm): &(usize, &Vm)| {
        nginx::make_files(members, vm, &BTreeSet::from([response_bytes]))?;
        Ok((*index, nginx::start_files(members, vm)?))
    };
    members.from.iter().map(start).collect()
}

/// Starts those who ask.
pub fn begin(members: &Members, request: Request) -> Result<(), LabError> {
    let Request { request_bytes, response_bytes, outstanding, think_time_us } = request;
    members.to.iter().enumerate().try_for_each(|(position, (_, vm))| {
        let servers = addresses_in_turn(position, &members.from);
        let sockets = members.sockets(vm);
        members.start(vm, Task::Fetch { servers, outstanding, request_bytes, response_bytes, think_time_us, sockets })
    })
}
