//! A cell as the input of other simulators: the flows that its workload draws, and their surroundings.

mod draw;
mod htsim;
mod ns3;

use evenkeel_scenario::Refused;
use evenkeel_scenario::format::{Scenario, VmGroup, Workload};
use evenkeel_settings::Mode;

pub use htsim::htsim;
pub use ns3::ns3;

/// An error that names a key.
fn refused<T>(key: impl Into<String>, why: &str) -> Result<T, Refused> {
    Err(Refused { key: key.into(), why: why.to_owned() })
}

/// Refuses what no peer has: hypervisors, with all that they put between machines and their cores and network cards;
/// processing time for packets; mechanisms. Only groups that take part in the workload count.
fn check_machines(scenario: &Scenario, peer: &str) -> Result<(), Refused> {
    if scenario.workloads.len() > 1 {
        return refused("workloads", &format!("{peer} has one workload; leave the others out"));
    }
    for (name, group) in taking_part(scenario) {
        let key = |key: &str| format!("vms.{name}.{key}");
        if group.hypervisor {
            let why = format!("{peer} has machines without a hypervisor; set `hypervisor = false`");
            return refused(key("hypervisor"), &why);
        }
        if group.packet_cost_ns > 0 || group.read_cost_ns > 0 {
            let key = key(if group.packet_cost_ns > 0 { "packet_cost_ns" } else { "read_cost_ns" });
            return refused(key, &format!("{peer} has machines that take no time for packets; set it to 0"));
        }
        if let Some(mechanism) = group.mechanisms().find(|mechanism| mechanism.mode != Mode::Off) {
            let key = key(&format!("{}.mode", mechanism.name));
            return refused(key, &format!("{peer} has no such mechanism; set it to \"off\""));
        }
    }
    Ok(())
}

/// The groups of the first workload: the senders and the receivers.
fn taking_part(scenario: &Scenario) -> impl Iterator<Item = (&str, &VmGroup)> {
    let (from, to) = scenario.workload().roles();
    let others = (to != from).then_some(to);
    [Some(from), others].into_iter().flatten().filter_map(|name| Some((name, scenario.vms.get(name)?)))
}

/// Refuses workloads whose flows depend on when others end.
fn check_workload(scenario: &Scenario, peer: &str) -> Result<(), Refused> {
    let key = |key: &str| scenario.workload_key(key);
    match scenario.workload() {
        Workload::Poisson { persistent: true, .. } => {
            refused(key("persistent"), &format!("each flow of {peer} has a connection of its own; set it to false"))
        }
        Workload::Poisson { .. } | Workload::Bulk { .. } => Ok(()),
        _ => {
            let why = format!("{peer} has flows that begin at times known before: `poisson` and `bulk`");
            refused(key("kind"), &why)
        }
    }
}
