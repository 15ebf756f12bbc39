//! The traffic of a cell as a connection matrix of csg-htsim.
//!
//! The file begins with the numbers of nodes and connections; then each connection has a line with its ends, a number
//! from 1, its start in picoseconds and its size in bytes (0: without end). htsim takes the network, its queues and its
//! transport from the command line.

use std::fmt::Write as _;

use evenkeel_scenario::Refused;
use evenkeel_scenario::format::Scenario;

use super::draw::{self, Flow};
use super::{check_machines, check_workload, refused};
use crate::packet::GuestId;
use crate::run::setup;

const PEER: &str = "htsim";
/// htsim reads sizes as C++'s `int`.
const MAX_BYTES: u64 = i32::MAX as u64;

/// The connection matrix of a cell's first repetition: hosts are nodes, in their order here.
///
/// # Errors
/// The first key that a connection matrix cannot express.
pub fn htsim(scenario: &Scenario) -> Result<String, Refused> {
    check_machines(scenario, PEER)?;
    check_workload(scenario, PEER)?;
    let places = setup::placed_vms(scenario);
    let host = |guest: GuestId| places.get(guest.0 as usize).map_or(0, |place| place.host.0);
    let flows = draw::flows(scenario, &places);
    if flows.iter().any(|flow| flow.bytes.is_some_and(|bytes| bytes > MAX_BYTES)) {
        return refused(scenario.workload_key("sizes"), "htsim has flows of at most 2,147,483,647 bytes");
    }
    let nodes = setup::topology(scenario).shape.hosts();
    let mut text = format!("Nodes {nodes}\nConnections {}\n", flows.len());
    for (number, Flow { start, from, to, bytes }) in (1..).zip(&flows) {
        let (start, size) = (start.ps(), bytes.unwrap_or(0));
        let _ = writeln!(text, "{}->{} id {number} start {start} size {size}", host(*from), host(*to));
    }
    Ok(text)
}
