//! What a scenario asks of VMs and hosts beside their number.

use std::collections::BTreeSet;

use evenkeel_scenario::format::{HostKind, Scenario, VmGroup, Workload};
use evenkeel_settings::Mode;

use super::hosts;

/// Whether a group's hosts need the agent.
pub fn wants_agent(group: &VmGroup) -> bool {
    group.mechanisms().any(|mechanism| mechanism.is_on_hosts && mechanism.mode != Mode::Off)
}

/// Whether a cell needs VMs to be on hosts: where ports mark, or there is something on hosts.
pub fn needs_own_hosts(scenario: &Scenario) -> bool {
    let on_host = |group: &VmGroup| wants_agent(group) || group.host == HostKind::Vm || group.per_host > 1;
    scenario.vms.values().any(on_host)
        || hosts::share_a_host(scenario)
        || scenario.record.sender_nic
        || scenario.network.queue.ecn_threshold_segments.is_some()
}

/// Whether driver domains get what their VMs send in packets larger than the MTU, as hosts do. A network card with a
/// queue counts packets, which must be segments then.
pub fn segments_for_vms(scenario: &Scenario) -> bool {
    scenario.network.segmentation_offload || !scenario.record.sender_nic
}

/// The groups of which a VM is a database.
pub fn groups_with_database(scenario: &Scenario) -> BTreeSet<&str> {
    let applications = scenario.workloads.values().filter(|one| matches!(one, Workload::ThreeTier { .. }));
    applications.map(|one| one.roles().0).collect()
}

/// Whether VMs move in a scenario, and so are elsewhere afterwards.
pub fn moves(scenario: &Scenario) -> bool {
    scenario.vms.values().any(|group| group.migrate_at_ms.is_some())
}
