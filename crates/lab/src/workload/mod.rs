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
use task::Running;

/// Starts a workload: servers first, then what talks to them.
pub fn start(scenario: &Scenario, seed: u64, vms: &[Vm]) -> Result<Running, LabError> {
    let members = Members::of(scenario, seed, vms);
    match scenario.workload() {
        Workload::Ping { interval_ms, .. } => ping::start(&members, *interval_ms),
        Workload::Bulk { flows, .. } => bulk::start(&members, *flows),
        Workload::Strobe { block_kib, requests, .. } => strobe::start(&members, *block_kib, *requests),
        Workload::Iperf3 { flows, .. } => iperf3::start(&members, *flows),
        Workload::Poisson { to, load, sizes, burst_flows, background_flows, .. } => {
            let flows = poisson::Flows {
                has_receivers: to.is_some(),
                load: *load,
                sizes: *sizes,
                burst_flows: *burst_flows,
                background_flows: *background_flows,
            };
            poisson::start(&members, flows)
        }
        Workload::RequestResponse { request_bytes, response_bytes, outstanding, think_time_us, .. } => {
            let request = request_response::Request {
                request_bytes: *request_bytes,
                response_bytes: *response_bytes,
                outstanding: *outstanding,
                think_time_us: *think_time_us,
            };
            request_response::start(&members, request)
        }
        Workload::Memcached { outstanding, gets_permille, value_bytes, flows, .. } => {
            let requests = memcached::Requests {
                outstanding: *outstanding,
                gets_permille: *gets_permille,
                value_bytes: *value_bytes,
            };
            memcached::start(&members, requests, *flows)
        }
        Workload::Transfers { bytes, concurrent, pause_ms, .. } => {
            transfers::start(&members, u64::from(*bytes), *concurrent, *pause_ms)
        }
        Workload::ThreeTier { users, think_time_ms, keep_alive, operations, .. } => {
            let users = three_tier::Users { users: *users, think_time_ms: *think_time_ms, keep_alive: *keep_alive };
            three_tier::start(&members, users, operations)
        }
    }
}

/// Ends the servers; what the iperf3 clients received in all, in bits per second; None without iperf3.
pub fn finish(running: Running, vms: &[Vm]) -> Result<Option<f64>, LabError> {
    let mut bits_per_second = None;
    for (index, task) in running.iperf3 {
        let vm = &vms[index];
        let failure = |why: String| LabError::Vm { name: vm.spec.name.clone(), why };
        match vm.call(Op::Wait { task })? {
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
    for (index, task) in running.servers {
        vms[index].call(Op::Kill { task })?;
    }
    Ok(bits_per_second)
}
