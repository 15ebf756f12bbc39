//! Starts a workload's parts in the right order in the right VMs.

use std::collections::BTreeSet;

use evenkeel_scenario::format::{Scenario, Workload};

use super::roles::Roles;
use super::task::{sockets, started};
use super::{http, memcached, web};
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{Answer, Op, ServeRole};

/// First port of the iperf3 servers; each client has a server of its own.
const IPERF3_PORT: u32 = 5201;

/// A started workload.
#[derive(Default)]
pub struct Running {
    /// iperf3 clients: index of the VM and its task.
    iperf3: Vec<(usize, u64)>,
    /// Servers that are ended with the workload, likewise.
    servers: Vec<(usize, u64)>,
}

impl Running {
    /// Starts servers first, then what talks to them.
    pub fn start(scenario: &Scenario, roles: &Roles, seed: u64, vms: &[Vm]) -> Result<Self, LabError> {
        let members = |group: &str| vms.iter().enumerate().filter(|(_, vm)| vm.spec.group == group).collect::<Vec<_>>();
        let (from, to) = (members(roles.from), members(roles.to));
        let sockets = |vm: &Vm| sockets(scenario, vm);
        let address = |vm: &Vm| vm.spec.address.to_string();
        let mut running = Self::default();
        match &scenario.workload {
            Workload::Ping { interval_ms, .. } => {
                for (_, vm) in &from {
                    started(vm, Op::Ping { to: address(to[0].1), interval_ms: *interval_ms })?;
                }
            }
            Workload::Bulk { flows, .. } => {
                for (_, vm) in &to {
                    started(vm, Op::Serve { role: ServeRole::Sink, sockets: sockets(vm) })?;
                }
                for (position, (_, vm)) in from.iter().enumerate() {
                    started(
                        vm,
                        Op::Bulk { to: address(to[position % to.len()].1), flows: *flows, sockets: sockets(vm) },
                    )?;
                }
            }
            Workload::Strobe { block_kib, requests, .. } => {
                for (_, vm) in &from {
                    started(vm, Op::Serve { role: ServeRole::BlockServer, sockets: sockets(vm) })?;
                }
                let client = to[0].1;
                let bytes_per_server = u64::from(*block_kib) * 1024 / from.len() as u64;
                let from = from.iter().map(|(_, vm)| address(vm)).collect();
                started(client, Op::Strobe { from, bytes_per_server, requests: *requests, sockets: sockets(client) })?;
            }
            Workload::Iperf3 { flows, .. } => {
                let pairs: Vec<_> =
                    from.iter().enumerate().map(|(position, client)| (*client, to[position % to.len()].1)).collect();
                running.iperf3 = start_iperf3(scenario, *flows, &pairs)?;
            }
            Workload::Poisson { background_flows, .. } => {
                for (index, vm) in &to {
                    running.servers.push((*index, http::start_server(vm, &scenario.vms[roles.to].tcp)?));
                }
                if *background_flows > 0 {
                    let pairs: Vec<_> = from
                        .iter()
                        .flat_map(|client| to.iter().map(move |server| (*client, *server)))
                        .filter(|(client, server)| client.0 != server.0)
                        .map(|(client, server)| (client, server.1))
                        .collect();
                    running.iperf3 = start_iperf3(scenario, *background_flows, &pairs)?;
                }
                http::start_requests(scenario, roles, seed, &from, &to)?;
            }
            Workload::Transfers { bytes, concurrent, pause_ms, .. } => {
                for (_, vm) in &to {
                    started(vm, Op::Serve { role: ServeRole::Transfers, sockets: sockets(vm) })?;
                }
                for (position, (_, vm)) in from.iter().enumerate() {
                    let to = in_turn(position, &to).map(address).collect();
                    let (bytes, concurrent, pause_ms) = (u64::from(*bytes), *concurrent, *pause_ms);
                    started(vm, Op::Transfers { to, bytes, concurrent, pause_ms, sockets: sockets(vm) })?;
                }
            }
            Workload::Memcached { outstanding, gets_permille, value_bytes, flows, .. } => {
                for (index, vm) in &to {
                    running.servers.push((*index, memcached::start(vm)?));
                    started(vm, Op::Serve { role: ServeRole::Sink, sockets: sockets(vm) })?;
                }
                let (_, first) = from[0];
                let servers = to.iter().map(|(_, vm)| address(vm)).collect();
                let (outstanding, gets_permille, value_bytes) = (*outstanding, *gets_permille, *value_bytes);
                let sockets_of_first = sockets(first);
                started(
                    first,
                    Op::KeyValue { servers, outstanding, gets_permille, value_bytes, sockets: sockets_of_first },
                )?;
                for (position, (_, vm)) in from.iter().enumerate().skip(1) {
                    let to = address(to[position % to.len()].1);
                    started(vm, Op::Bulk { to, flows: *flows, sockets: sockets(vm) })?;
                }
            }
            Workload::ThreeTier { .. } => running.servers = web::start(scenario, roles, seed, &from, &to)?,
            Workload::RequestResponse { request_bytes, response_bytes, outstanding, think_time_us, .. } => {
                for (index, vm) in &from {
                    http::make_files(vm, &BTreeSet::from([*response_bytes]))?;
                    running.servers.push((*index, http::start_server(vm, &scenario.vms[roles.from].tcp)?));
                }
                for (position, (_, vm)) in to.iter().enumerate() {
                    let fetch = Op::Fetch {
                        servers: in_turn(position, &from).map(address).collect(),
                        outstanding: *outstanding,
                        request_bytes: *request_bytes,
                        response_bytes: *response_bytes,
                        think_time_us: *think_time_us,
                        sockets: sockets(vm),
                    };
                    started(vm, fetch)?;
                }
            }
        }
        Ok(running)
    }

    /// Ends the servers; what the iperf3 clients received in all, in bits per second; None without iperf3.
    pub fn finish(self, vms: &[Vm]) -> Result<Option<f64>, LabError> {
        let mut bits_per_second = None;
        for (index, task) in self.iperf3 {
            let vm = &vms[index];
            let failure = |why: String| LabError::Vm { name: vm.spec.name.clone(), why };
            match vm.call(Op::Wait { task })? {
                Answer::Exec { status: 0, stdout, .. } => {
                    *bits_per_second.get_or_insert(0.0) += iperf3_bits_per_second(&stdout)
                        .ok_or_else(|| failure(format!("cannot read iperf3's report: {stdout}")))?;
                }
                Answer::Exec { status, stdout, stderr } => {
                    return Err(failure(format!("iperf3 ended with exit code {status}: {stdout} {stderr}")));
                }
                other => return Err(failure(format!("unexpected answer to wait: {other:?}"))),
            }
        }
        for (index, task) in self.servers {
            vms[index].call(Op::Kill { task })?;
        }
        Ok(bits_per_second)
    }
}

/// These VMs, as the one at `position` takes them: each begins with another.
fn in_turn<'a>(position: usize, vms: &'a [(usize, &'a Vm)]) -> impl Iterator<Item = &'a Vm> {
    (0..vms.len()).map(move |step| vms[(position + step) % vms.len()].1)
}

/// Starts iperf3 between pairs of a client (with its index) and a server: first all servers, then all clients at once.
fn start_iperf3(scenario: &Scenario, flows: u32, pairs: &[((usize, &Vm), &Vm)]) -> Result<Vec<(usize, u64)>, LabError> {
    let seconds = |ms: u64| ms.div_ceil(1000).max(1).to_string();
    let argv = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let port = |position: usize| (IPERF3_PORT + position as u32).to_string();
    for (position, (_, server)) in pairs.iter().enumerate() {
        let port = port(position);
        started(server, Op::Spawn { argv: argv(&["iperf3", "-s", "-1", "-p", &port]) })?;
        // The server needs a moment to listen, and says nothing before a client comes.
        server.shell(&format!(
            "i=0; until ss -Hltn sport = :{port} | grep -q . || [ $i -ge 100 ]; do i=$((i+1)); sleep 0.05; done"
        ))?;
    }
    let start = |position: usize| {
        let ((index, client), server) = pairs[position];
        let (address, flows, port) = (server.spec.address.to_string(), flows.to_string(), port(position));
        let (time, omit) = (seconds(scenario.duration_ms), seconds(scenario.warmup_ms));
        let mut words = argv(&["iperf3", "-c", &address, "-p", &port, "-J", "-P", &flows, "-t", &time, "-O", &omit]);
        if let Some(bytes) = scenario.vms[&client.spec.group].tcp.send_buffer_bytes {
            words.extend(["-w".to_owned(), (bytes / 2).to_string()]);
        }
        Ok((index, started(client, Op::Spawn { argv: words })?))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..pairs.len()).map(|position| scope.spawn(move || start(position))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn iperf3_bits_per_second(report: &str) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_str(report).ok()?;
    report["end"]["sum_received"]["bits_per_second"].as_f64()
}

#[cfg(test)]
mod tests {
    use super::iperf3_bits_per_second;

    #[test]
    fn reads_iperf3s_report() {
        assert_eq!(iperf3_bits_per_second(r#"{"end":{"sum_received":{"bits_per_second":1.5e8}}}"#), Some(1.5e8));
        assert_eq!(iperf3_bits_per_second(r#"{"error":"unable to connect"}"#), None);
        assert_eq!(iperf3_bits_per_second("iperf3: error"), None);
    }
}
