//! The open-loop workload: nginx in the VMs that receive, the load generator in those that send, at times drawn ahead.

use std::collections::BTreeSet;
use std::fmt::Write;

use evenkeel_scenario::arrivals::{self, Arrival, Pattern};
use evenkeel_scenario::format::{GuestTcp, Scenario, Workload};

use super::roles::Roles;
use super::task::{sockets, started};
use super::transfers::clock_offset_ns;
use crate::error::LabError;
use crate::host::cores::monotonic_ns;
use crate::host::vm::Vm;
use crate::proto::{HTTP_PORT, OBJECT_PATH, Op};

/// How long the generators have to take their plans; a slow guest reads a long one for a while.
const LEAD_NS: u64 = 1_500_000_000;
/// Flows go on beginning for so long after the measured time, which is asked for a little later.
const SLACK_US: u64 = 3_000_000;
/// Where nginx's configuration goes in a VM.
const CONFIG: &str = "/run/nginx/nginx.conf";
/// What it serves.
const FILES: &str = "/run/nginx/files";

/// What differs from one nginx to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Servers behind it, and what holds for them.
    pub upstreams: String,
    /// What it does with which path.
    pub locations: String,
}

impl Site {
    /// nginx takes what clients upload into one file in memory, which each upload replaces. Its answer comes when it
    /// has all of it.
    fn files() -> Self {
        Self { upstreams: String::new(), locations: "location / {\n            dav_methods PUT;\n        }".to_owned() }
    }
}

/// nginx's configuration.
pub fn config(tcp: &GuestTcp, site: &Site) -> String {
    let Site { upstreams, locations } = site;
    let mut listen = format!("{HTTP_PORT} backlog=4096");
    // The kernel doubles what is set. Writing to a String cannot fail.
    if let Some(bytes) = tcp.receive_buffer_bytes {
        let _ = write!(listen, " rcvbuf={}", bytes / 2);
    }
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path /run/nginx/{kind};\n"))
        .concat();
    format!(
        "user root;\nworker_processes 1;\nworker_rlimit_nofile 8192;\npid /run/nginx/pid;\nerror_log stderr error;\n\
         events {{\n    worker_connections 4096;\n}}\n\
         http {{\n    access_log off;\n    client_max_body_size 0;\n    client_body_timeout 600;\n    \
         keepalive_requests 1000000000;\n    keepalive_timeout 600;\n{temporary}    {upstreams}    \
         server {{\n        listen {listen};\n        root {FILES};\n        {locations}\n    }}\n}}\n"
    )
}

/// Makes a file of each of these sizes for nginx.
pub fn make_files(vm: &Vm, sizes_bytes: &BTreeSet<u32>) -> Result<(), LabError> {
    let directory = format!("{FILES}{OBJECT_PATH}");
    let files = sizes_bytes.iter().map(|bytes| format!("head -c {bytes} /dev/zero >{directory}{bytes}\n"));
    vm.shell(&format!("mkdir -p {directory}\n{}", files.collect::<String>())).map(drop)
}

/// Starts nginx with files in a VM; its task.
pub fn start_server(vm: &Vm, tcp: &GuestTcp) -> Result<u64, LabError> {
    start_nginx(vm, &config(tcp, &Site::files()))
}

/// Starts nginx with this configuration in a VM; its task.
pub fn start_nginx(vm: &Vm, config: &str) -> Result<u64, LabError> {
    vm.shell(&format!("mkdir -p {FILES} /var/log/nginx /var/lib/nginx"))?;
    vm.call(Op::WriteFile { path: CONFIG.to_owned(), text: config.to_owned() })?;
    let argv = ["nginx", "-e", "stderr", "-c", CONFIG, "-g", "daemon off;"].map(str::to_owned).to_vec();
    let task = started(vm, Op::Spawn { argv })?;
    vm.shell(&format!(
        "i=0; until ss -Hltn sport = :{HTTP_PORT} | grep -q .; do i=$((i+1)); [ $i -lt 200 ]; sleep 0.05; done"
    ))?;
    Ok(task)
}

/// Gives each generator its part of the flows and has them all start at the same time. The flows are the same for all
/// cells of a repetition.
pub fn start_requests(
    scenario: &Scenario,
    roles: &Roles,
    seed: u64,
    from: &[(usize, &Vm)],
    to: &[(usize, &Vm)],
) -> Result<(), LabError> {
    let Workload::Poisson { to: receivers, load, sizes, burst_flows, .. } = &scenario.workload else { return Ok(()) };
    let pattern = Pattern {
        senders: from.len(),
        receivers: receivers.is_some().then_some(to.len()),
        load: *load,
        capacity_bps: f64::from(scenario.network.rate_mbit) * 1e6 * from.len().min(to.len()) as f64,
        sizes: *sizes,
        burst_flows: *burst_flows,
    };
    debug_assert!(receivers.is_some() || roles.from == roles.to, "all-to-all");
    let until_us = (scenario.warmup_ms + scenario.duration_ms) * 1000 + SLACK_US;
    let arrivals = arrivals::poisson(&pattern, seed, until_us);
    let servers: Vec<String> = to.iter().map(|(_, vm)| vm.spec.address.to_string()).collect();
    let start_ns = monotonic_ns() + LEAD_NS;
    std::thread::scope(|scope| {
        let start = |(position, (_, vm)): (usize, &(usize, &Vm))| {
            let op = Op::Requests {
                start_ns: start_ns.saturating_add_signed(clock_offset_ns(vm)?),
                servers: servers.clone(),
                plan: plan_of(position, &arrivals),
                sockets: sockets(scenario, vm),
            };
            started(vm, op).map(drop)
        };
        let threads: Vec<_> = from.iter().enumerate().map(|sender| scope.spawn(move || start(sender))).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn plan_of(sender: usize, arrivals: &[Arrival]) -> Vec<(u64, u16, u64)> {
    let own = arrivals.iter().filter(|a| a.from == sender);
    // The lab has at most 64 VMs.
    own.map(|a| (a.at_us, u16::try_from(a.to).unwrap_or(u16::MAX), a.bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_generator_has_its_own_flows_in_order() {
        let arrival = |at_us, from, to| Arrival { at_us, from, to, bytes: 100 };
        let arrivals = [arrival(1, 0, 2), arrival(5, 1, 0), arrival(9, 0, 1)];
        assert_eq!(plan_of(0, &arrivals), [(1, 2, 100), (9, 1, 100)]);
        assert_eq!(plan_of(2, &arrivals), []);
    }

    #[test]
    fn nginx_gets_the_groups_receive_buffer() {
        let config = |tcp: &GuestTcp| config(tcp, &Site::files());
        assert!(config(&GuestTcp::default()).contains("listen 80 backlog=4096;"));
        let tcp = GuestTcp { receive_buffer_bytes: Some(65_536), ..GuestTcp::default() };
        assert!(config(&tcp).contains("listen 80 backlog=4096 rcvbuf=32768;"));
    }
}
