//! What the benchmarks of whole worlds have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_scenario::format::Scenario;
use evenkeel_sim::guest::GuestSpec;
use evenkeel_sim::net::TopologySpec;
use evenkeel_sim::run::setup;
use evenkeel_sim::time::{Duration, Instant};
use evenkeel_sim::workload::Workload;
use evenkeel_sim::world::{NoRecorder, World};

/// A world of a scenario's only workload, at its beginning: machines without a hypervisor, and nothing is recorded.
pub fn world(scenario: &Scenario, seed: u64) -> World<Workload, NoRecorder> {
    let places = setup::placed_vms(scenario);
    let members = setup::members(scenario, scenario.workload(), &places, 0, seed);
    let tcp: BTreeMap<&str, _> = scenario
        .vms
        .iter()
        .map(|(name, group)| (name.as_str(), Arc::new(setup::tcp(group, scenario.network.mtu_bytes))))
        .collect();
    let guests: Vec<GuestSpec> =
        places.iter().map(|place| GuestSpec::plain(place.host, Arc::clone(&tcp[place.group.as_str()]))).collect();
    let workload = Workload::new(scenario.workload(), members).expect("the simulator has this workload");
    World::new(&topology(scenario), &guests, seed, workload, NoRecorder)
}

/// All groups have network cards with the same queue here.
pub fn topology(scenario: &Scenario) -> TopologySpec {
    let network = setup::topology(scenario);
    let nic =
        scenario.vms.values().find_map(|group| setup::nic(scenario, group)).unwrap_or_else(|| network.nic.clone());
    TopologySpec { nic, ..network }
}

pub fn at_ms(ms: u64) -> Instant {
    Instant::START + Duration::from_ms(ms)
}
