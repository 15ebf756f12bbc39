//! Which cells are run, and which of them can share booted VMs.

use std::collections::BTreeMap;

use evenkeel_scenario::Refused;
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::{HostKind, Kernel, MachineKind, Scenario, VmGroup};

use super::needs::{groups_with_database, segments_for_vms};
use super::{hosts, support};
use crate::host::domain;

/// What can only be set when VMs are started.
#[derive(PartialEq, Eq)]
struct Shape {
    groups: Vec<(String, u32, Kernel, u32, u32, MachineKind)>,
    /// Of each group: whether it is on hosts, of which kind, how many of its VMs are on each, and whether they move.
    hosts: Vec<(bool, HostKind, u32, bool)>,
    /// Of each group that says which hosts it is on: the host of each VM.
    named_hosts: BTreeMap<String, Vec<u32>>,
    segmentation_offload: bool,
    segments_for_vms: bool,
    groups_with_database: Vec<String>,
}

fn shape(scenario: &Scenario) -> Shape {
    Shape {
        groups: scenario
            .vms
            .iter()
            .map(|(name, g)| (name.clone(), g.count, g.kernel, g.vcpus, g.memory_mib, g.machine))
            .collect(),
        hosts: scenario.vms.values().map(|g| (g.hypervisor, g.host, g.per_host, g.migrate_at_ms.is_some())).collect(),
        named_hosts: hosts::named_hosts(scenario).into_iter().map(|(name, hosts)| (name.to_owned(), hosts)).collect(),
        segmentation_offload: scenario.network.segmentation_offload,
        segments_for_vms: segments_for_vms(scenario),
        groups_with_database: groups_with_database(scenario).into_iter().map(str::to_owned).collect(),
    }
}

/// Whether two scenarios can share booted VMs.
pub fn share_a_boot(one: &Scenario, other: &Scenario) -> bool {
    shape(one) == shape(other)
}

/// Cells that can share booted VMs, by their positions, in the order in which their first cell comes. None is empty.
pub fn by_boot(cells: &[Cell]) -> Vec<Vec<usize>> {
    let mut boots: Vec<Vec<usize>> = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        match boots.iter_mut().find(|boot| share_a_boot(&cells[boot[0]].scenario, &cell.scenario)) {
            Some(boot) => boot.push(index),
            None => boots.push(vec![index]),
        }
    }
    boots
}

/// An error if the lab cannot honour a setting.
pub fn check_supported(scenario: &Scenario) -> Result<(), Refused> {
    support::why_unsupported(scenario).map_or(Ok(()), |(key, why)| Err(Refused { key, why }))
}

/// An error if a network namespace cannot have the congestion control asked for: this machine's kernel allows
/// namespaces `allowed`.
pub fn check_namespaces(scenario: &Scenario, allowed: &[String]) -> Result<(), Refused> {
    for (name, group) in scenario.vms.iter().filter(|(_, group)| group.machine == MachineKind::Namespace) {
        let asked = group.tcp.congestion_control();
        if !allowed.iter().any(|allowed| allowed == asked) {
            return Err(Refused {
                key: format!("vms.{name}.tcp.congestion_control"),
                why: format!(
                    "a network namespace of this machine can have `{}`, not `{asked}`: set one of these, or add it to \
                     the machine's net.ipv4.tcp_allowed_congestion_control",
                    allowed.join("`, `")
                ),
            });
        }
    }
    Ok(())
}

fn memory_mib(scenario: &Scenario) -> u64 {
    let of_domains = domains(scenario) * u64::from(domain::MEMORY_MIB);
    // While a VM moves, its memory is in both places.
    let twice = |g: &&VmGroup| g.migrate_at_ms.is_some();
    let moving = scenario.vms.values().filter(twice).map(|g| u64::from(g.count) * u64::from(g.memory_mib)).sum::<u64>();
    of_domains + moving + booted(scenario).map(|g| u64::from(g.count) * u64::from(g.memory_mib)).sum::<u64>()
}

fn vm_count(scenario: &Scenario) -> u64 {
    booted(scenario).map(|g| u64::from(g.count)).sum::<u64>() + domains(scenario)
}

/// Groups of VMs, which take memory.
fn booted(scenario: &Scenario) -> impl Iterator<Item = &VmGroup> {
    scenario.vms.values().filter(|group| group.machine == MachineKind::Vm)
}

/// Hosts that are VMs themselves.
fn domains(scenario: &Scenario) -> u64 {
    let own = scenario.vms.values().filter(|group| group.host == HostKind::Vm && group.on.is_none());
    let own = own.map(|group| u64::from(group.hosts()) + u64::from(group.migrate_at_ms.is_some()));
    own.sum::<u64>() + hosts::named_domains(scenario)
}

/// Most guest memory that any cell needs at once.
pub fn largest_memory_mib(cells: &[Cell]) -> u64 {
    cells.iter().map(|c| memory_mib(&c.scenario)).max().unwrap_or(0)
}

/// Most VMs that any cell needs at once.
pub fn largest_vm_count(cells: &[Cell]) -> u64 {
    cells.iter().map(|c| vm_count(&c.scenario)).max().unwrap_or(0)
}

/// About how long one run takes, in milliseconds.
pub fn run_time_ms(scenario: &Scenario) -> u64 {
    scenario.warmup_ms + scenario.duration_ms + 1000
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::{LoadedScenario, sweep};

    use super::*;

    const TEXT: &str = r#"
        schema = 2
        name = "t"
        title = "t"
        duration_ms = 1000
        [vms.a]
        [vms.b]
        [workloads.w]
        kind = "bulk"
        from = "a"
        to = "b"
        [[axes]]
        name = "kernel"
        key = "vms.a.kernel"
        values = ["6.1", "newest"]
        [[axes]]
        name = "cc"
        key = "vms.a.tcp.congestion_control"
        values = ["reno", "cubic"]
    "#;

    fn loaded() -> LoadedScenario {
        Scenario::from_str(TEXT, "t.toml").unwrap()
    }

    #[test]
    fn kernels_need_boots_of_their_own_and_tcp_settings_do_not() {
        let boots = by_boot(&sweep::cells(&loaded()).unwrap());
        assert_eq!(boots, [[0, 1], [2, 3]]);
    }

    #[test]
    fn hosts_need_boots_of_their_own_only_where_vms_are_elsewhere() {
        let on = |more: &str| {
            let text = TEXT.replace("[vms.a]", &format!("[hosts.h]\n{more}\n[vms.a]\ncount = 2\non = \"h\""));
            shape(&Scenario::from_str(&text, "t.toml").unwrap().scenario)
        };
        assert!(on("") == on("neighbours = { per_core = 3 }"));
        assert!(on("") == on("scheduler.kind = \"slices\""));
        assert!(on("") != on("count = 2"));
    }

    #[test]
    fn packets_are_segments_at_a_network_card_with_a_queue_and_in_vms_before_it() {
        let (plain, mut at_card) = (loaded().scenario, loaded().scenario);
        at_card.record.sender_nic = true;
        assert!(shape(&plain).segments_for_vms && !shape(&at_card).segments_for_vms);
        at_card.network.segmentation_offload = true;
        assert!(shape(&at_card).segments_for_vms);
    }

    #[test]
    fn a_namespace_can_have_what_this_machine_allows() {
        let text = TEXT.replace("[vms.b]", "[vms.b]\nhypervisor = false\nmachine = \"namespace\"");
        let scenario = Scenario::from_str(&text, "t.toml").unwrap().scenario;
        let allowed = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            check_namespaces(&scenario, &names)
        };
        assert!(allowed(&["reno", "cubic"]).is_ok());
        let error = allowed(&["reno", "bbr"]).unwrap_err().to_string();
        assert!(error.starts_with("vms.b.tcp.congestion_control:") && error.contains("`reno`, `bbr`"), "{error}");
        assert_eq!((vm_count(&scenario), memory_mib(&scenario)), (1, 256));
    }

    #[test]
    fn what_is_refused_is_named() {
        let mut scenario = loaded().scenario;
        scenario.network.delay_us = 50;
        let error = check_supported(&scenario).unwrap_err().to_string();
        assert!(error.starts_with("network.delay_us:"), "{error}");
    }
}
