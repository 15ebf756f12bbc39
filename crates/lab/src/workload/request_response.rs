//! Requests and responses in a closed loop: HTTP requests for a file of nginx.

use std::collections::BTreeSet;

use super::members::{Members, addresses_in_turn};
use super::nginx;
use super::task::{Running, sockets, started};
use crate::error::LabError;
use crate::proto::Op;

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

/// Starts them.
pub fn start(members: &Members, request: Request) -> Result<Running, LabError> {
    let Request { request_bytes, response_bytes, outstanding, think_time_us } = request;
    let mut running = Running::default();
    for (index, vm) in &members.from {
        nginx::make_files(vm, &BTreeSet::from([response_bytes]))?;
        running.servers.push((*index, nginx::start_files(vm, members.tcp_of(vm))?));
    }
    for (position, (_, vm)) in members.to.iter().enumerate() {
        let servers = addresses_in_turn(position, &members.from);
        let sockets = sockets(members.scenario, vm);
        started(vm, Op::Fetch { servers, outstanding, request_bytes, response_bytes, think_time_us, sockets })?;
    }
    Ok(running)
}
