//! Flows that begin at random times: nginx in the VMs that receive, the load generator in those that send, at times
//! drawn ahead.

use evenkeel_scenario::arrivals::{self, Arrival, Pattern};
use evenkeel_scenario::format::FlowSizes;

use super::members::Members;
use super::task::{Running, sockets, started};
use super::{iperf3, nginx};
use crate::error::LabError;
use crate::host::clock::clock_offset_ns;
use crate::host::cores::monotonic_ns;
use crate::host::vm::Vm;
use crate::proto::Op;

/// How long the generators have to take their plans; a slow guest reads a long one for a while.
const LEAD_NS: u64 = 1_500_000_000;
/// Flows go on beginning for so long after the measured time, which is asked for a little later.
const SLACK_US: u64 = 3_000_000;

/// Which flows.
#[derive(Debug, Clone, Copy)]
pub struct Flows {
    /// Whether a group receives; else all VMs of the one that sends do.
    pub has_receivers: bool,
    /// Share of the bottleneck.
    pub load: f64,
    /// How large they are.
    pub sizes: FlowSizes,
    /// Those that begin at the same time, towards one receiver.
    pub burst_flows: u32,
    /// Long-lived ones of iperf3 from every sender to every receiver.
    pub background_flows: u32,
}

/// Starts them.
pub fn start(members: &Members, flows: Flows) -> Result<Running, LabError> {
    let (from, to) = (&members.from, &members.to);
    let mut running = Running::default();
    for (index, vm) in to {
        running.servers.push((*index, nginx::start_files(vm, members.tcp_of(vm))?));
    }
    if flows.background_flows > 0 {
        let pairs: Vec<_> = from
            .iter()
            .flat_map(|client| to.iter().map(move |server| (*client, *server)))
            .filter(|(client, server)| client.0 != server.0)
            .map(|(client, server)| (client, server.1))
            .collect();
        running.iperf3 = iperf3::start_between(members.scenario, flows.background_flows, &pairs)?;
    }
    start_requests(members, flows)?;
    Ok(running)
}

/// Gives each generator its part of the flows and has them all start at the same time. The flows are the same for all
/// cells of a repetition.
fn start_requests(members: &Members, flows: Flows) -> Result<(), LabError> {
    let Members { scenario, seed, from, to } = members;
    let Flows { has_receivers, load, sizes, burst_flows, .. } = flows;
    let pattern = Pattern {
        senders: from.len(),
        receivers: has_receivers.then_some(to.len()),
        load,
        capacity_bps: f64::from(scenario.network.rate_mbit) * 1e6 * from.len().min(to.len()) as f64,
        sizes,
        burst_flows,
    };
    let until_us = (scenario.warmup_ms + scenario.duration_ms) * 1000 + SLACK_US;
    let arrivals = arrivals::poisson(&pattern, *seed, until_us);
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
}
