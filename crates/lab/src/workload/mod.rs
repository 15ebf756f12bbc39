//! The host's part of each workload: what runs in which VM, servers first. The guests' part is in
//! [`crate::guest`], in files of the same names; so is the simulator's.

mod bulk;
mod iperf3;
mod members;
mod memcached;
mod nginx;
mod ping;
mod poisson;
mod request_response;
mod roles;
mod strobe;
pub mod task;
mod three_tier;
pub mod transfers;

use evenkeel_scenario::format::{Scenario, Workload};

use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{Answer, Op};
use members::Members;
pub use roles::Roles;
use task::TaskOf;

/// A started workload.
#[derive(Debug, Default)]
pub struct Running {
    /// iperf3's clients, which end by themselves.
    iperf3: Vec<TaskOf>,
    /// Servers that are ended with the workload.
    servers: Vec<TaskOf>,
    /// Until when flows that were planned ahead begin, on this machine's CLOCK_MONOTONIC.
    planned_until_ns: Option<u64>,
}

/// Starts all workloads: first the servers of all of them, then what talks to them.
pub fn start(scenario: &Scenario, seed: u64, vms: &[Vm]) -> Result<Vec<Running>, LabError> {
    let alone: Vec<Scenario> = scenario.alone().map(|(_, one)| one).collect();
    let of_each: Vec<Members> = (0..).zip(&alone).map(|(place, one)| Members::of(one, place, seed, vms)).collect();
    let servers = of_each.iter().map(serve).collect::<Result<Vec<_>, _>>()?;
    of_each.iter().zip(servers).map(|(members, servers)| Ok(Running { servers, ..begin(members)? })).collect()
}

/// Starts a workload's servers; returns those that do not end by themselves.
fn serve(members: &Members) -> Result<Vec<TaskOf>, LabError> {
    match members.scenario.workload() {
        Workload::Ping { .. } => {}
        Workload::Bulk { .. } => bulk::serve(members)?,
        Workload::Strobe { .. } => strobe::serve(members)?,
        Workload::Iperf3 { .. } => iperf3::serve(members, &iperf3::pairs(members))?,
        Workload::Transfers { .. } => transfers::serve(members)?,
        Workload::Poisson { sizes, request_bytes, background_flows, .. } => {
            let asked = poisson::Asked { sizes: *sizes, request_bytes: *request_bytes };
            return poisson::serve(members, asked, *background_flows);
        }
        Workload::RequestResponse { response_bytes, .. } => return request_response::serve(members, *response_bytes),
        Workload::Memcached { .. } => return memcached::serve(members),
        Workload::ThreeTier { keep_alive, operations, .. } => {
            return three_tier::serve(members, *keep_alive, operations);
        }
    }
    Ok(Vec::new())
}

/// Starts what talks to a workload's servers.
fn begin(members: &Members) -> Result<Running, LabError> {
    match members.scenario.workload() {
        Workload::Ping { interval_ms, .. } => ping::begin(members, *interval_ms)?,
        Workload::Bulk { flows, .. } => bulk::begin(members, *flows)?,
        Workload::Strobe { block_kib, requests, .. } => strobe::begin(members, *block_kib, *requests)?,
        Workload::Iperf3 { flows, .. } => {
            let iperf3 = iperf3::begin(members, *flows, &iperf3::pairs(members))?;
            return Ok(Running { iperf3, ..Running::default() });
        }
        Workload::Poisson { to, load, sizes, burst_flows, background_flows, request_bytes, .. } => {
            let flows = poisson::Flows {
                has_receivers: to.is_some(),
                load: *load,
                asked: poisson::Asked { sizes: *sizes, request_bytes: *request_bytes },
                burst_flows: *burst_flows,
                background_flows: *background_flows,
            };
            return poisson::begin(members, flows);
        }
        Workload::RequestResponse { request_bytes, response_bytes, outstanding, think_time_us, .. } => {
            let request = request_response::Request {
                request_bytes: *request_bytes,
                response_bytes: *response_bytes,
                outstanding: *outstanding,
                think_time_us: *think_time_us,
            };
            request_response::begin(members, request)?;
        }
        Workload::Memcached { outstanding, gets_permille, value_bytes, flows, .. } => {
            let requests = memcached::Requests {
                outstanding: *outstanding,
                gets_permille: *gets_permille,
                value_bytes: *value_bytes,
            };
            memcached::begin(members, requests, *flows)?;
        }
        Workload::Transfers { bytes, concurrent, pause_ms, .. } => {
            transfers::begin(members, u64::from(*bytes), *concurrent, *pause_ms)?;
        }
        Workload::ThreeTier { users, think_time_ms, keep_alive, operations, .. } => {
            let users = three_tier::Users { users: *users, think_time_ms: *think_time_ms, keep_alive: *keep_alive };
            three_tier::begin(members, users, operations)?;
        }
    }
    Ok(Running::default())
}

/// Ends the servers; returns what each workload's iperf3 clients received in all, in bits per second, None without
/// iperf3. An error if flows that were planned ahead had all begun when the measured time ended.
pub fn finish(running: Vec<Running>, vms: &[Vm], measured_until_ns: u64) -> Result<Vec<Option<f64>>, LabError> {
    poisson::check_plans(running.iter().filter_map(|one| one.planned_until_ns), measured_until_ns)?;
    let received = running.iter().map(|one| wait_for_iperf3(one, vms)).collect::<Result<_, _>>()?;
    for (index, task) in running.iter().flat_map(|one| &one.servers) {
        vms[*index].call(Op::Kill { task: *task })?;
    }
    Ok(received)
}

fn wait_for_iperf3(running: &Running, vms: &[Vm]) -> Result<Option<f64>, LabError> {
    let mut bits_per_second = None;
    for (index, task) in &running.iperf3 {
        let vm = &vms[*index];
        let failure = |why: String| LabError::Vm { name: vm.spec.name.clone(), why };
        match vm.call(Op::Wait { task: *task })? {
            Answer::Exec { status: 0, stdout, .. } => {
                *bits_per_second.get_or_insert(0.0) += iperf3::bits_per_second(&stdout)
                    .ok_or_else(|| failure(format!("cannot read iperf3's report: {stdout}")))?;
            }
            Answer::Exec { status, stdout, stderr } => {
                return Err(failure(format!("iperf3 ended with exit code {status}: {stdout} {stderr}")));
            }
            other => return Err(failure(format!("unexpected answer to wait: {other:?}"))),
        }
    }
    Ok(bits_per_second)
}
