//! How much a run has to keep: a few digits too many in a scenario would let it grow beyond any memory.

use crate::error::Problem;
use crate::format::{Scenario, Topology, Workload};
use crate::sizes::SizeDistribution;

/// Most flows or pings of one run that begin at times of their own, and are all kept: some hundred bytes each.
const MAX_STARTS: u64 = 10_000_000;

/// Whether a run of the only workload of a scenario would have to keep too much.
pub(super) fn problems(scenario: &Scenario) -> Vec<Problem> {
    let seconds = (scenario.warmup_ms + scenario.duration_ms) as f64 / 1e3;
    let starts = match scenario.workload() {
        Workload::Poisson { .. } => flows_per_s(scenario) * seconds,
        Workload::Ping { from, interval_ms, .. } => {
            count(scenario, from) as f64 * seconds * 1e3 / f64::from(*interval_ms)
        }
        _ => return Vec::new(),
    };
    if starts <= MAX_STARTS as f64 {
        return Vec::new();
    }
    let bound = format!("{starts:.0} would begin in a run; at most {MAX_STARTS} are allowed");
    vec![match scenario.workload() {
        Workload::Poisson { .. } => Problem::at(
            scenario.workload_key("sizes"),
            format!(
                "so many flows of this size bring the load that {bound}: ask for larger flows, a smaller `load` or a \
                 shorter `duration_ms`"
            ),
        ),
        _ => Problem::at(scenario.workload_key("interval_ms"), format!("so many pings that {bound}")),
    }]
}

/// Flows that begin in a second, on average; 0 where the ports have no rate, of which a load is a share.
fn flows_per_s(scenario: &Scenario) -> f64 {
    let Workload::Poisson { from, load, sizes, .. } = scenario.workload() else { return 0.0 };
    let (_, to) = scenario.workload().roles();
    let network = &scenario.network;
    let mbit = match network.topology {
        Topology::Dumbbell => u64::from(network.switch_rate_mbit()),
        Topology::Star | Topology::LeafSpine | Topology::FatTree => {
            count(scenario, from).min(count(scenario, to)) * u64::from(network.host_rate_mbit())
        }
    };
    load * mbit as f64 * 1e6 / 8.0 / SizeDistribution::new(*sizes).mean_bytes()
}

fn count(scenario: &Scenario, group: &str) -> u64 {
    scenario.vms.get(group).map_or(0, |group| u64::from(group.count))
}
