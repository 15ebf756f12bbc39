//! Flows that begin at random times: the load generator in the VMs that open connections, at times drawn ahead, and
//! nginx in the others. Either those that send open connections and PUT, or those that receive do and GET.

use evenkeel_scenario::arrivals::{self, Arrival, Pattern};
use evenkeel_scenario::format::FlowSizes;
use evenkeel_scenario::sizes::SizeDistribution;

use super::members::Members;
use super::task::TaskOf;
use super::{Running, iperf3, nginx};
use crate::error::LabError;
use crate::host::clock::clock_offset_ns;
use crate::host::cores::monotonic_ns;
use crate::host::vm::Vm;
use crate::proto::Task;

/// How long the generators have to take their plans; a slow guest reads a long one for a while.
const LEAD_NS: u64 = 1_500_000_000;
/// How long flows go on beginning after the measured time would be over if it began at once. It begins later, when all
/// counters are read: on a driver domain's processor that is full of packets, that may take 20 seconds.
const SLACK_US: u64 = 30_000_000;

/// What flows bring, and who opens their connections.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// How large they are.
    pub sizes: FlowSizes,
    /// Size of the request by which the receiver asks for each; with 0, the sender opens the connection.
    pub request_bytes: u32,
}

impl Asked {
    /// The VMs that open connections, and those that serve them.
    fn ends<'m, 'a>(self, members: &'m Members<'a>) -> [&'m [(usize, &'a Vm)]; 2] {
        if self.by_receiver() { [&members.to, &members.from] } else { [&members.from, &members.to] }
    }

    fn by_receiver(self) -> bool {
        self.request_bytes > 0
    }
}

/// Which flows.
#[derive(Debug, Clone, Copy)]
pub struct Flows {
    /// Whether a group receives; else all VMs of the one that sends do.
    pub has_receivers: bool,
    /// Share of the bottleneck.
    pub load: f64,
    /// What they bring.
    pub asked: Asked,
    /// Those that begin at the same time, towards one receiver.
    pub burst_flows: u32,
    /// Long-lived ones of iperf3 from every sender to every receiver.
    pub background_flows: u32,
}

/// Starts the servers.
pub fn serve(members: &Members, asked: Asked, background_flows: u32) -> Result<Vec<TaskOf>, LabError> {
    let start = |(index, vm): &(usize, &Vm)| {
        if asked.by_receiver() {
            let largest_bytes = SizeDistribution::new(asked.sizes).quantile_bytes(1.0);
            nginx::make_any_object(members, vm, largest_bytes)?;
        }
        Ok((*index, nginx::start_files(members, vm)?))
    };
    let [_, serving] = asked.ends(members);
    let servers = serving.iter().map(start).collect::<Result<_, LabError>>()?;
    if background_flows > 0 {
        iperf3::serve(members, &background_pairs(members))?;
    }
    Ok(servers)
}

/// Starts the flows.
pub fn begin(members: &Members, flows: Flows) -> Result<Running, LabError> {
    let iperf3 = match flows.background_flows {
        0 => Vec::new(),
        flows => iperf3::begin(members, flows, &background_pairs(members))?,
    };
    let planned_until_ns = Some(start_requests(members, flows)?);
    Ok(Running { iperf3, planned_until_ns, ..Running::default() })
}

/// An error if no flows began any more when the measured time ended: then part of it, or all, had none.
pub fn check_plans(mut until_ns: impl Iterator<Item = u64>, measured_until_ns: u64) -> Result<(), LabError> {
    let Some(late_ns) = until_ns.find_map(|until| measured_until_ns.checked_sub(until)) else { return Ok(()) };
    Err(LabError::TooLate { late_ms: late_ns / 1_000_000, lead_ms: SLACK_US / 1000 })
}

fn background_pairs<'a>(members: &Members<'a>) -> Vec<iperf3::Pair<'a>> {
    let all = members.from.iter().flat_map(|client| members.to.iter().map(move |server| (*client, *server)));
    all.filter(|(client, server)| client.0 != server.0).map(|(client, server)| (client, server.1)).collect()
}

/// Gives each generator its part of the flows and has them all start at the same time. Returns until when flows begin,
/// in ns on this machine's CLOCK_MONOTONIC. The flows are the same for all cells of a repetition.
fn start_requests(members: &Members, flows: Flows) -> Result<u64, LabError> {
    let Members { scenario, seed, from, to, .. } = members;
    let Flows { has_receivers, load, asked, burst_flows, .. } = flows;
    let pattern = Pattern {
        senders: from.len(),
        receivers: has_receivers.then_some(to.len()),
        load,
        capacity_bps: f64::from(scenario.network.rate_mbit) * 1e6 * from.len().min(to.len()) as f64,
        sizes: asked.sizes,
        burst_flows,
    };
    let until_us = (scenario.warmup_ms + scenario.duration_ms) * 1000 + SLACK_US;
    let arrivals = arrivals::poisson(&pattern, *seed, until_us);
    let [opening, serving] = asked.ends(members);
    let servers: Vec<String> = serving.iter().map(|(_, vm)| vm.spec.address.to_string()).collect();
    let start_ns = monotonic_ns() + LEAD_NS;
    std::thread::scope(|scope| {
        let start = |(position, (_, vm)): (usize, &(usize, &Vm))| {
            let task = Task::Requests {
                start_ns: start_ns.saturating_add_signed(clock_offset_ns(vm)?),
                servers: servers.clone(),
                plan: plan_of(position, &arrivals, asked.by_receiver()),
                request_bytes: asked.request_bytes,
                sockets: members.sockets(vm),
            };
            members.start(vm, task)
        };
        let threads: Vec<_> = opening.iter().enumerate().map(|vm| scope.spawn(move || start(vm))).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(start_ns + until_us * 1000)
}

/// The flows of a generator: those that it sends, or that it asks for.
fn plan_of(generator: usize, arrivals: &[Arrival], asks: bool) -> Vec<(u64, u16, u64)> {
    let ends = |a: &Arrival| if asks { (a.to, a.from) } else { (a.from, a.to) };
    let own = arrivals.iter().filter(|a| ends(a).0 == generator);
    // The lab has at most 64 VMs.
    own.map(|a| (a.at_us, u16::try_from(ends(a).1).unwrap_or(u16::MAX), a.bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_must_last_until_the_measured_time_is_over() {
        assert!(check_plans([9_000_000, 5_000_000].into_iter(), 4_999_999).is_ok());
        let error = check_plans([9_000_000, 5_000_000].into_iter(), 7_000_000).expect_err("too late");
        assert!(error.to_string().contains("2 ms"), "{error}");
    }

    #[test]
    fn each_generator_has_its_own_flows_in_order() {
        let arrival = |at_us, from, to| Arrival { at_us, from, to, bytes: 100 };
        let arrivals = [arrival(1, 0, 2), arrival(5, 1, 0), arrival(9, 0, 1)];
        assert_eq!(plan_of(0, &arrivals, false), [(1, 2, 100), (9, 1, 100)]);
        assert_eq!(plan_of(2, &arrivals, false), []);
        assert_eq!(plan_of(0, &arrivals, true), [(5, 1, 100)]);
        assert_eq!(plan_of(2, &arrivals, true), [(1, 0, 100)]);
    }
}
