//! Combinations of keys that are not allowed.

use evenkeel_quote::quoted;
use evenkeel_settings::Mode;

use crate::check::{join, or_list};
use crate::error::Problem;
use crate::format::{
    Discipline, DriverDomain, Host, HostKind, MachineKind, Network, Queue, Scenario, Scheduler, Topology, VmGroup,
    Workload,
};
use crate::placement::{host_count, hosts_of};

/// Settings that exclude each other or lack one another.
pub(super) fn problems(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = topology(scenario);
    queue("network.queue", &scenario.network.queue, &mut problems);
    for (name, kind) in &scenario.hosts {
        if scenario.vms.values().all(|group| group.on.as_ref() != Some(name)) {
            let message = "no group is on these hosts (vms.NAME.on)";
            problems.push(Problem::at(join("hosts", name), message));
        }
        let groups = scenario.vms.values().filter(|group| group.on.as_ref() == Some(name));
        let vms: u64 = groups.map(|group| u64::from(group.count)).sum();
        if vms > MAX_VMS_PER_HOST * u64::from(kind.count) {
            let message = format!(
                "{vms} VMs are on {} of these hosts (vms.NAME.on); at most {MAX_VMS_PER_HOST} are allowed on each",
                kind.count
            );
            problems.push(Problem::at(join(&join("hosts", name), "count"), message));
        }
        host(&join("hosts", name), kind, &mut problems);
    }
    for (name, group) in &scenario.vms {
        vms(&join("vms", name), group, &mut problems);
        on_hosts(&join("vms", name), group, scenario, &mut problems);
    }
    problems
}

/// The same of the only workload of a scenario.
pub(super) fn of_workload(scenario: &Scenario) -> Option<Problem> {
    let Workload::Poisson { from, to: None, .. } = scenario.workload() else { return None };
    if scenario.network.topology == Topology::Dumbbell {
        let message = "must name a group: a dumbbell has senders on one side and receivers on the other";
        return Some(Problem::at(scenario.workload_key("to"), message));
    }
    let message = "left out, every VM of `from` sends to those of other hosts, but all are on one";
    let is_one = scenario.vms.contains_key(from) && hosts_of(scenario, from) < 2;
    is_one.then(|| Problem::at(scenario.workload_key("to"), message))
}

fn topology(scenario: &Scenario) -> Vec<Problem> {
    let network = &scenario.network;
    let Network { topology, spines, hosts_per_leaf, .. } = *network;
    let (leaves, pods, cores_per_spine) = (network.all_leaves(), network.pods(), network.cores_per_spine());
    let hosts = u64::from(host_count(scenario));
    let places = u64::from(leaves) * u64::from(hosts_per_leaf);
    let is_tree = topology == Topology::FatTree;
    if !is_tree && topology != Topology::LeafSpine {
        return Vec::new();
    }
    let links = u64::from(leaves) * u64::from(spines)
        + if is_tree { u64::from(pods) * u64::from(spines) * u64::from(cores_per_spine) } else { 0 };
    let problem = |key: &str, message: String| vec![Problem::at(format!("network.{key}"), message)];
    if places < hosts {
        let message = format!(
            "{leaves} leaves with {hosts_per_leaf} places each have room for {places} hosts, but the VMs need {hosts}"
        );
        problem("hosts_per_leaf", message)
    } else if places > MAX_PLACES {
        let message = format!("{places} places for hosts at all leaves; at most {MAX_PLACES} are allowed");
        problem("hosts_per_leaf", message)
    } else if links > MAX_LINKS {
        let message = format!("{links} links between switches; at most {MAX_LINKS} are allowed");
        problem("spines", message)
    } else if leaves == 1 && spines > 1 {
        problem("spines", "must be 1 where there is one leaf: nothing would cross a spine".to_owned())
    } else if is_tree && pods == 1 && cores_per_spine > 1 {
        let message = "must be 1 where there is one pod: nothing would cross a core switch".to_owned();
        problem("cores_per_spine", message)
    } else {
        Vec::new()
    }
}

/// Most VMs on one host: what CERA divides an uplink among.
const MAX_VMS_PER_HOST: u64 = 4096;

/// Most places for hosts at all leaves together.
const MAX_PLACES: u64 = 16_384;

/// Most links between switches: a link takes 400 bytes in the simulator before anything crosses it.
const MAX_LINKS: u64 = 524_288;

fn queue(path: &str, queue: &Queue, problems: &mut Vec<Problem>) {
    let at = |key: &str| format!("{path}.{key}");
    if queue.discipline == Discipline::Red {
        match (queue.ecn_threshold_segments, queue.red_min_segments, queue.red_max_segments) {
            (Some(_), None, None) if queue.red_max_probability.is_none() => {}
            (Some(_), _, _) => problems.push(Problem::at(
                at("ecn_threshold_segments"),
                "must not stand beside `red_min_segments`, `red_max_segments` or `red_max_probability`: it replaces \
                 them",
            )),
            (None, Some(min), Some(max)) if min > max => problems.push(Problem::at(
                at("red_min_segments"),
                format!("must be at most `red_max_segments`, which is {max}"),
            )),
            (None, Some(_), Some(_)) => {}
            (None, _, _) => problems.push(Problem::at(
                at("discipline"),
                "`red` needs `ecn_threshold_segments`, or `red_min_segments` and `red_max_segments`",
            )),
        }
    }
    if queue.discipline == Discipline::Priority {
        if queue.thresholds_bytes.is_empty() || queue.thresholds_bytes.len() > MAX_THRESHOLDS {
            problems.push(Problem::at(
                at("thresholds_bytes"),
                format!("`priority` needs 1 to {MAX_THRESHOLDS} of them, not {}", queue.thresholds_bytes.len()),
            ));
        } else if !queue.thresholds_bytes.is_sorted_by(|a, b| a < b) {
            problems.push(Problem::at(at("thresholds_bytes"), "each must be larger than the one before"));
        }
    }
}

/// Switches have eight classes.
const MAX_THRESHOLDS: usize = 7;

/// Checks a kind of hosts.
fn host(path: &str, host: &Host, problems: &mut Vec<Problem>) {
    let mut problem = |key: &str, message: &str| problems.push(Problem::at(format!("{path}.{key}"), message));
    if let (Scheduler::Slices { .. }, DriverDomain::Shared) = (host.scheduler, host.driver_domain) {
        problem("driver_domain", "must be \"own-core\" with drawn slices, which nobody competes for (scheduler.kind)");
    }
}

/// Checks a group's place on its hosts.
fn on_hosts(path: &str, group: &VmGroup, scenario: &Scenario, problems: &mut Vec<Problem>) {
    let default = VmGroup::default();
    let mut problem = |key: &str, message: String| problems.push(Problem::at(format!("{path}.{key}"), message));
    let Some(on) = &group.on else {
        let unused = [
            ("weight", group.weight != default.weight),
            ("quota", group.quota.is_some()),
            ("slice_us", group.slice_us.is_some()),
            ("own_load", group.own_load.is_some()),
        ];
        for (key, _) in unused.into_iter().filter(|(_, is_set)| *is_set) {
            problem(key, "needs `on`: the hosts whose cores these VMs share".to_owned());
        }
        return;
    };
    let Some(host) = scenario.hosts.get(on) else {
        let names: Vec<&str> = scenario.hosts.keys().map(String::as_str).collect();
        let allowed = match names[..] {
            [] => format!("`{}` would be those", join("hosts", on)),
            _ => format!("must be {}", or_list(&names)),
        };
        return problem("on", format!("no hosts are called {}; {allowed}", quoted(on)));
    };
    if group.core != default.core {
        problem("core", "must be left out beside `on`: its hosts say who shares their cores".to_owned());
    }
    if group.per_host != default.per_host {
        problem("per_host", "must be left out beside `on`: VMs are spread over its hosts in turn".to_owned());
    }
    if !group.hypervisor {
        problem("on", "must be left out without a hypervisor (hypervisor = false)".to_owned());
    }
    if group.migrate_at_ms.is_some() {
        problem("migrate_at_ms", "must be left out beside `on`".to_owned());
    }
    let is_linux = matches!(host.scheduler, Scheduler::Linux { .. });
    for (key, is_set) in [("quota", group.quota.is_some()), ("slice_us", group.slice_us.is_some())] {
        if is_set && !is_linux {
            problem(key, format!("only Linux's scheduler has it ({}.scheduler.kind)", join("hosts", on)));
        }
    }
    if group.weight != default.weight && matches!(host.scheduler, Scheduler::Slices { .. }) {
        problem("weight", format!("drawn slices know no weight ({}.scheduler.kind)", join("hosts", on)));
    }
    if group.quota.is_some_and(|quota| quota.burst_us > quota.us) {
        problem("quota.burst_us", "must be at most `us`, as the kernel has it".to_owned());
    }
}

fn vms(path: &str, group: &VmGroup, problems: &mut Vec<Problem>) {
    queue(&format!("{path}.nic_queue"), &group.nic_queue, problems);
    let mut problem = |key: &str, message: &str| problems.push(Problem::at(format!("{path}.{key}"), message));
    if !group.hypervisor {
        if group.core.vms_per_core > 1 {
            problem("core.vms_per_core", "must be 1 without a hypervisor (hypervisor = false)");
        }
        if group.per_host > 1 {
            problem("per_host", "must be 1 without a hypervisor (hypervisor = false)");
        }
    }
    if group.machine == MachineKind::Namespace {
        if group.hypervisor {
            problem("machine", "must be \"vm\" behind a hypervisor, or set `hypervisor = false`");
        }
        if group.pvtcp.mode() != Mode::Off {
            problem("pvtcp.mode", "must be \"off\" in a namespace, which has no kernel of its own to load it into");
        }
        if group.tcp.hystart.is_some() {
            problem("tcp.hystart", "must be left out in a namespace: it is one parameter of the whole machine's");
        }
    }
    if group.host == HostKind::Vm && !group.hypervisor {
        problem("host", "must be left out without a hypervisor (hypervisor = false)");
    }
    for mechanism in group.mechanisms().filter(|mechanism| mechanism.is_on_hosts && mechanism.mode != Mode::Off) {
        if !group.hypervisor {
            let why = "must be \"off\" without a hypervisor, which is where it acts (hypervisor = false)";
            problem(&format!("{}.mode", mechanism.name), why);
        }
    }
    if group.cera.weights.len() > group.count as usize {
        problem("cera.weights", &format!("must be at most one for each of the {} VMs", group.count));
    }
    for (table, checked) in
        [("cera", group.cera.set.in_scenario().check()), ("proboscis", group.proboscis.in_scenario().check())]
    {
        if let Err((key, why)) = checked {
            problem(&format!("{table}.{key}"), &why);
        }
    }
    if group.migrate_at_ms.is_some() && !group.hypervisor {
        problem("migrate_at_ms", "must be left out without a hypervisor (hypervisor = false)");
    }
    if group.vflood.clients.is_some_and(|clients| clients > group.count) {
        problem("vflood.clients", "must not be larger than `count`: so many of these VMs have it");
    }
    if group.far_count > group.count {
        problem("far_count", "must not be larger than `count`: so many of these VMs are far away");
    }
    if (group.far_count > 0) != (group.far_delay_us > 0) {
        problem("far_delay_us", "must stand beside `far_count`: how far so many of these VMs are away");
    }
    if group.far_count > 0 && group.per_host > 1 {
        problem("far_count", "must be 0 where VMs share a host (per_host): hosts are far away, and not VMs");
    }
    if group.pvtcp.mode() != Mode::Off && group.hz == Some(0) {
        problem("hz", "must not be 0 with PVTCP: it tells a wake-up by a late tick");
    }
    if group.tcp.needs_ecn() && !group.tcp.ecn() {
        problem("tcp.ecn", "must not be \"off\" with this congestion control, which works by ECN's marks");
    }
}
