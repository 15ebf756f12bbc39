//! Hosts whose cores VMs share: which VMs are on which, how, and whether this machine can be them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_scenario::Refused;
use evenkeel_scenario::format::{DriverDomain, Host, HostKind, Scenario, Scheduler, VmGroup};
use evenkeel_scenario::placement::{core_sharing, placements};
use evenkeel_scenario::slices::Draw;

use crate::host::linux::Neighbour;
use crate::host::load::Load;
use crate::host::preflight::Scheduling;

/// Mixed into the seed of phases, so that their draws differ from those of slices.
const PHASES: u64 = 0x7068_6173_6573;

/// A host that VMs are on, under Linux's scheduler.
#[derive(Debug)]
pub struct LinuxHost<'a> {
    /// Its number among all hosts.
    number: u32,
    /// What it is.
    pub kind: &'a Host,
    /// Names of its VMs.
    pub vms: Vec<String>,
}

/// All of them.
pub fn linux_hosts(scenario: &Scenario) -> Vec<LinuxHost<'_>> {
    let mut hosts: Vec<LinuxHost<'_>> = Vec::new();
    for vm in placements(scenario) {
        let Some(kind) = vm.kind.filter(|kind| matches!(kind.scheduler, Scheduler::Linux { .. })) else { continue };
        match hosts.iter_mut().find(|host| host.number == vm.host) {
            Some(host) => host.vms.push(vm.name()),
            None => hosts.push(LinuxHost { number: vm.host, kind, vms: vec![vm.name()] }),
        }
    }
    hosts
}

/// For each group that says which hosts it is on, the number of each VM's host.
pub fn named_hosts(scenario: &Scenario) -> BTreeMap<&str, Vec<u32>> {
    let mut groups: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for vm in placements(scenario).iter().filter(|vm| vm.kind.is_some()) {
        groups.entry(vm.group).or_default().push(vm.host);
    }
    groups
}

/// How many of the hosts that groups say they are on are VMs.
pub fn named_domains(scenario: &Scenario) -> u64 {
    let is_vm = |group: &str| scenario.vms.get(group).is_some_and(|group| group.host == HostKind::Vm);
    let hosts: BTreeSet<u32> =
        named_hosts(scenario).into_iter().filter(|(group, _)| is_vm(group)).flat_map(|(_, hosts)| hosts).collect();
    hosts.len() as u64
}

/// Whether VMs share a host, and with it its network card.
pub fn share_a_host(scenario: &Scenario) -> bool {
    let all: Vec<u32> = named_hosts(scenario).into_values().flatten().collect();
    all.iter().collect::<BTreeSet<_>>().len() < all.len()
}

/// The neighbours of hosts with these cores, each somewhere in its cycle.
pub fn neighbours(hosts: &[LinuxHost<'_>], cores: &[Vec<usize>], seed: u64) -> Vec<Neighbour> {
    let mut all = Vec::new();
    for (host, cores) in hosts.iter().zip(cores) {
        let kind = host.kind.neighbours;
        for _ in 0..kind.per_core * host.kind.cores {
            let load = load(kind.load, kind.duty_ms, seed, all.len() as u64);
            all.push(Neighbour { cores: cores.clone(), load });
        }
    }
    all
}

/// What the VM at this position computes itself, if its group says so.
pub fn own_load(group: &VmGroup, seed: u64, position: usize) -> Option<Load> {
    group.own_load.map(|own| load(own.load, own.duty_ms, seed, u64::MAX - position as u64))
}

fn load(share: f64, duty_ms: f64, seed: u64, index: u64) -> Load {
    let duty = Duration::from_secs_f64(duty_ms / 1e3);
    Load { share, duty, phase: duty.mul_f64(Draw::new(seed ^ PHASES, index).unit()) }
}

/// An error if this machine cannot be a scenario's hosts.
pub fn check(scenario: &Scenario, machine: impl FnOnce() -> Scheduling) -> Result<(), Refused> {
    let hosts = linux_hosts(scenario);
    if hosts.is_empty() {
        return Ok(());
    }
    let machine = machine();
    let refused = |key: String, why: String| Err(Refused { key, why });
    let wanted: u32 = hosts.iter().map(|host| host.kind.cores).sum();
    let guest_cores = machine.cores.saturating_sub(1);
    let used = |name: &str| scenario.vms.values().any(|group| group.on.as_deref() == Some(name));
    for (name, kind) in scenario.hosts.iter().filter(|(name, _)| used(name)) {
        let Scheduler::Linux { hz, slice_us } = kind.scheduler else { continue };
        let at = |key: &str| format!("hosts.{name}.{key}");
        if wanted as usize > guest_cores {
            let why = format!(
                "the hosts have {wanted} cores in all, and this machine has {guest_cores} beside the driver domain's"
            );
            return refused(at("cores"), why);
        }
        if !machine.has_controller {
            let why =
                "this machine has no cgroups with the processor's controller (`cpu`): mount cgroup2, or version 1";
            return refused(at("scheduler.kind"), why.to_owned());
        }
        if machine.hz.is_some_and(|own| own != hz) {
            let own = machine.hz.unwrap_or_default();
            return refused(at("scheduler.hz"), format!("this machine's kernel has {own} ticks per second; set {own}"));
        }
        let own_us = machine.slice_ns.map(|ns| ns / 1000);
        if slice_us.is_some() && slice_us.map(u64::from) != own_us {
            let own = own_us.map_or("this machine's kernel does not tell its own".to_owned(), |us| {
                format!("this machine's scheduler has {us} us")
            });
            return refused(at("scheduler.slice_us"), format!("{own}; leave it out"));
        }
    }
    let asks = |group: &VmGroup| group.slice_us.is_some();
    if let Some((name, _)) = scenario.vms.iter().find(|(_, group)| asks(group)).filter(|_| !machine.has_own_slices) {
        let why = "this machine's kernel gives threads no slices of their own (Linux 6.12 does); leave it out";
        return refused(format!("vms.{name}.slice_us"), why.to_owned());
    }
    Ok(())
}

/// The first key of hosts that the lab cannot honour, and why.
pub fn why_unsupported(scenario: &Scenario) -> Option<(String, String)> {
    let refuse = |key: String, why: &str| Some((key, why.to_owned()));
    let on = |group: &VmGroup| group.on.as_ref().and_then(|on| scenario.hosts.get(on));
    for (name, kind) in &scenario.hosts {
        if let Scheduler::Credit { .. } = kind.scheduler {
            return refuse(format!("hosts.{name}.scheduler.kind"), "only the simulator has it; set \"linux\"");
        }
        let kinds: BTreeSet<bool> =
            scenario.vms.values().filter(|g| g.on.as_ref() == Some(name)).map(|g| g.host == HostKind::Vm).collect();
        if kinds.len() > 1 {
            return refuse(format!("hosts.{name}"), "the groups on them differ in what runs their hosts (host)");
        }
    }
    let is_linux = |group: &VmGroup| on(group).is_some_and(|kind| matches!(kind.scheduler, Scheduler::Linux { .. }));
    if scenario.vms.values().any(is_linux) {
        if let Some((name, group)) = scenario.vms.iter().find(|(_, group)| core_sharing(scenario, group).is_some()) {
            let why = "VMs take turns that are drawn here, and others are Linux's: the lab has either in a run";
            let key = group.on.as_ref().map_or(format!("vms.{name}.core"), |on| format!("hosts.{on}.scheduler.kind"));
            return refuse(key, why);
        }
    }
    None
}

/// Whether a host's own work competes with its VMs'.
pub fn is_shared(kind: &Host) -> bool {
    kind.driver_domain == DriverDomain::Shared
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::format::CoreSharing;

    use super::*;

    const TEXT: &str = r#"
        schema = 2
        name = "t"
        title = "t"
        duration_ms = 1000
        [hosts.h]
        count = 2
        cores = 2
        neighbours = { per_core = 3, load = 0.6 }
        [vms.a]
        count = 3
        on = "h"
        own_load.load = 0.5
        [vms.b]
        [workloads.w]
        kind = "bulk"
        from = "a"
        to = "b"
    "#;

    const MACHINE: Scheduling =
        Scheduling { cores: 5, hz: Some(250), slice_ns: Some(1_400_000), has_own_slices: true, has_controller: true };

    fn scenario(text: &str) -> Scenario {
        Scenario::from_str(text, "t.toml").unwrap_or_else(|error| panic!("{error}")).scenario
    }

    fn refused(from: &str, to: &str, machine: Scheduling) -> String {
        let scenario = scenario(&TEXT.replace(from, to));
        check(&scenario, || machine).map_or_else(|refused| refused.key, |()| String::new())
    }

    fn unsupported(from: &str, to: &str) -> String {
        why_unsupported(&scenario(&TEXT.replace(from, to))).map(|(key, _)| key).unwrap_or_default()
    }

    #[test]
    fn vms_are_on_the_hosts_of_the_placement() {
        let scenario = scenario(TEXT);
        let hosts = linux_hosts(&scenario);
        assert_eq!(hosts.iter().map(|host| host.vms.join(" ")).collect::<Vec<_>>(), ["a-0 a-2", "a-1"]);
        assert_eq!(named_hosts(&scenario), BTreeMap::from([("a", vec![0, 1, 0])]));
        assert!(share_a_host(&scenario));
        assert_eq!(named_domains(&scenario), 0);
        assert_eq!(core_sharing(&scenario, &scenario.vms["a"]), None);
    }

    #[test]
    fn hosts_that_are_vms_are_counted_once() {
        let text = TEXT.replace("count = 3", "count = 3\nhost = \"vm\"");
        assert_eq!(named_domains(&scenario(&text)), 2);
        assert!(!share_a_host(&scenario(&text.replace("count = 3", "count = 2"))));
    }

    #[test]
    fn each_core_has_its_neighbours_somewhere_in_their_cycles() {
        let scenario = scenario(TEXT);
        let hosts = linux_hosts(&scenario);
        let drawn = |seed| neighbours(&hosts, &[vec![0, 1], vec![2, 3]], seed);
        let all = drawn(7);
        assert_eq!(all.iter().map(|n| n.cores[0]).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2]);
        assert!(all.iter().all(|n| n.load.phase < n.load.duty && n.load.share == 0.6));
        let phases = |seed| drawn(seed).iter().map(|n| n.load.phase).collect::<BTreeSet<_>>();
        assert_eq!(phases(7).len(), 12);
        assert_eq!(phases(7), phases(7));
        assert_ne!(phases(7), phases(8));
        let own = |position| own_load(&scenario.vms["a"], 7, position).expect("a load");
        assert_ne!(own(0).phase, own(1).phase);
        assert!(own_load(&scenario.vms["b"], 7, 0).is_none());
    }

    #[test]
    fn drawn_slices_on_hosts_are_turns() {
        let slices = "[hosts.h]\nscheduler = { kind = \"slices\", slice_jitter = 0.5 }";
        let scenario = scenario(&TEXT.replace("[hosts.h]", slices));
        assert!(linux_hosts(&scenario).is_empty());
        let turns = CoreSharing { vms_per_core: 4, slice_jitter: 0.5, load: 0.6, ..CoreSharing::default() };
        assert_eq!(core_sharing(&scenario, &scenario.vms["a"]), Some(turns));
        assert!(check(&scenario, || unreachable!("nothing is asked of the machine")).is_ok());
        assert_eq!(why_unsupported(&scenario), None);
    }

    #[test]
    fn the_machine_must_be_as_its_hosts() {
        assert_eq!(refused("", "", MACHINE), "");
        assert_eq!(refused("", "", Scheduling { cores: 4, ..MACHINE }), "hosts.h.cores");
        assert_eq!(refused("", "", Scheduling { has_controller: false, ..MACHINE }), "hosts.h.scheduler.kind");
        assert_eq!(refused("", "", Scheduling { hz: Some(1000), ..MACHINE }), "hosts.h.scheduler.hz");
        assert_eq!(refused("", "", Scheduling { hz: None, ..MACHINE }), "");
        let slice = |us: u32| format!("[hosts.h]\nscheduler = {{ kind = \"linux\", slice_us = {us} }}");
        assert_eq!(refused("[hosts.h]", &slice(1400), MACHINE), "");
        assert_eq!(refused("[hosts.h]", &slice(3000), MACHINE), "hosts.h.scheduler.slice_us");
        let untold = Scheduling { slice_ns: None, ..MACHINE };
        assert_eq!(refused("[hosts.h]", &slice(1400), untold), "hosts.h.scheduler.slice_us");
        let own = "count = 3\nslice_us = 300";
        assert_eq!(refused("count = 3", own, MACHINE), "");
        assert_eq!(refused("count = 3", own, Scheduling { has_own_slices: false, ..MACHINE }), "vms.a.slice_us");
    }

    #[test]
    fn what_no_machine_can_is_named() {
        assert_eq!(unsupported("", ""), "");
        assert_eq!(unsupported("[hosts.h]", "[hosts.h]\nscheduler.kind = \"credit\""), "hosts.h.scheduler.kind");
        assert_eq!(unsupported("[vms.b]", "[vms.b]\ncore = { vms_per_core = 2 }"), "vms.b.core");
        assert_eq!(unsupported("[vms.b]", "[vms.b]\non = \"h\"\nhost = \"vm\""), "hosts.h");
        let both = "[hosts.g]\nscheduler.kind = \"slices\"\nneighbours.per_core = 1\n[vms.b]\non = \"g\"";
        assert_eq!(unsupported("[vms.b]", both), "hosts.g.scheduler.kind");
    }
}
