//! Which host each VM is on.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::{CoreSharing, Host, Scenario, Scheduler, VmGroup};

/// A VM and its host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Placement<'a> {
    /// Its group's name.
    pub group: &'a str,
    /// Its number in its group, from 0.
    pub number: u32,
    /// The host's number among all hosts, from 0.
    pub host: u32,
    /// What the host is, if the group says which hosts it is on.
    pub kind: Option<&'a Host>,
}

impl Placement<'_> {
    /// The VM's name, as in `sender-0`.
    pub fn name(&self) -> String {
        format!("{}-{}", self.group, self.number)
    }
}

/// All VMs: the groups that send first, then those that receive. Hosts are numbered in the order in which VMs come
/// to them; the hosts of one kind are taken in turn, by the VMs of all groups on them.
pub fn placements(scenario: &Scenario) -> Vec<Placement<'_>> {
    let names = scenario.groups_in_order();
    let groups: Vec<(&str, &VmGroup)> =
        names.into_iter().filter_map(|name| Some((name, scenario.vms.get(name)?))).collect();
    let mut placements = Vec::new();
    let mut hosts = 0;
    // By kind: the first of its hosts, and how many VMs are on them all.
    let mut kinds: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for (name, group) in groups {
        let named = group.on.as_deref().and_then(|on| Some((on, scenario.hosts.get(on)?)));
        if let Some((on, kind)) = named {
            let (first, vms) = kinds.entry(on).or_insert_with(|| {
                let first = hosts;
                hosts += kind.count;
                (first, 0)
            });
            for number in 0..group.count {
                placements.push(Placement { group: name, number, host: *first + *vms % kind.count, kind: Some(kind) });
                *vms += 1;
            }
        } else {
            for number in 0..group.count {
                let host = hosts + number / group.per_host.max(1);
                placements.push(Placement { group: name, number, host, kind: None });
            }
            hosts += group.hosts();
        }
    }
    placements
}

/// How many hosts there are; those of a kind count whether VMs are on them or not.
pub fn host_count(scenario: &Scenario) -> u32 {
    let kinds: u32 = scenario.hosts.values().map(|kind| kind.count).sum();
    let own = scenario.vms.values().filter(|group| group.on.is_none()).map(VmGroup::hosts);
    kinds + own.sum::<u32>()
}

/// How many hosts a group's VMs are on.
pub fn hosts_of(scenario: &Scenario, group: &str) -> u32 {
    let vms = placements(scenario);
    let hosts: BTreeSet<u32> = vms.iter().filter(|vm| vm.group == group).map(|vm| vm.host).collect();
    hosts.len() as u32
}

/// How a group's virtual CPUs share a core in turns that are drawn: as it says, or as its hosts say. None if a
/// scheduler decides there, or nobody else is on the core.
pub fn core_sharing(scenario: &Scenario, group: &VmGroup) -> Option<CoreSharing> {
    let sharing = match group.on.as_ref().and_then(|on| scenario.hosts.get(on)) {
        None => group.core.clone(),
        Some(kind) => {
            let Scheduler::Slices { slice_ms, slice_jitter, idle_us } = kind.scheduler else { return None };
            let vms_per_core = 1 + kind.neighbours.per_core;
            CoreSharing { vms_per_core, slice_ms, slice_jitter, load: kind.neighbours.load, idle_us }
        }
    };
    (sharing.vms_per_core > 1).then_some(sharing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts_of(text: &str) -> Vec<(String, u32)> {
        let text = format!(
            "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 1000\n{text}\n\
             [workloads.w]\nkind = \"bulk\"\nfrom = \"s\"\nto = \"r\"\n"
        );
        let loaded = Scenario::from_str(&text, "t.toml").unwrap_or_else(|error| panic!("{error}"));
        placements(&loaded.scenario).iter().map(|vm| (vm.name(), vm.host)).collect()
    }

    fn wanted(vms: &[(&str, u32)]) -> Vec<(String, u32)> {
        vms.iter().map(|(name, host)| ((*name).to_owned(), *host)).collect()
    }

    #[test]
    fn groups_on_one_kind_of_hosts_take_them_in_turn() {
        let found = hosts_of("[hosts.h]\ncount = 2\n[vms.s]\ncount = 3\non = \"h\"\n[vms.r]\ncount = 2\non = \"h\"");
        assert_eq!(found, wanted(&[("s-0", 0), ("s-1", 1), ("s-2", 0), ("r-0", 1), ("r-1", 0)]));
    }

    #[test]
    fn hosts_of_their_own_come_beside_hosts_that_are_named() {
        let found = hosts_of("[hosts.h]\n[vms.s]\ncount = 3\nper_host = 2\n[vms.r]\ncount = 2\non = \"h\"");
        assert_eq!(found, wanted(&[("s-0", 0), ("s-1", 0), ("s-2", 1), ("r-0", 2), ("r-1", 2)]));
    }
}
