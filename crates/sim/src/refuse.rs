//! Refuses what a scenario can ask for but the simulator cannot do.

use std::collections::BTreeSet;

use evenkeel_quote::quoted;
use evenkeel_scenario::Refused;
use evenkeel_scenario::format::{
    Discipline, Era, HostKind, Kernel, MachineKind, Scenario, Topology, VmGroup, Workload,
};
use evenkeel_scenario::placement::placements;

use crate::net::FqCoDelSpec;
use crate::run::setup;

/// Congestion controls that the simulator has.
pub const CONGESTION_CONTROLS: [&str; 4] = ["reno", "cubic", "dctcp", "lldct"];
/// Most connections of a run at a time: each takes a few thousand bytes.
const MAX_CONNECTIONS: u64 = 1_000_000;
/// Most queues of FQ-CoDel over all ports: each takes a few hundred bytes.
const MAX_FLOW_QUEUES: u64 = 10_000_000;
/// Most packets of a run under way at a time: each takes a hundred bytes.
const MAX_PACKETS: usize = 20_000_000;
/// Most flows, blocks and pings that a run keeps: each takes a few hundred bytes on its way to a file.
const MAX_KEPT: usize = 10_000_000;

/// Whether the simulator can run a cell as it is written.
///
/// # Errors
/// The first setting that it cannot honour.
pub fn check(scenario: &Scenario) -> Result<(), Refused> {
    let refused = |key: &str, why: &str| Refused { key: key.to_owned(), why: why.to_owned() };
    if let Some((key, why)) = in_network(scenario) {
        return Err(refused(key, why));
    }
    for (_, one) in scenario.alone() {
        if let Some((key, why)) = in_workload(&one) {
            return Err(refused(&one.workload_key(key), why));
        }
    }
    for (name, group) in &scenario.vms {
        if scenario.record.capture && group.core.idle_us.is_some() {
            let why = "with `record.capture`, slices must be known in advance; leave it out, or do not capture";
            return Err(Refused { key: format!("vms.{name}.core.idle_us"), why: why.to_owned() });
        }
        if let Some((key, why)) = in_group(group) {
            return Err(Refused { key: format!("vms.{name}.{key}"), why });
        }
    }
    Ok(())
}

/// How much a run has in memory, as far as that shows only while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Open connections.
    pub connections: usize,
    /// Packets under way.
    pub packets: usize,
    /// Flows, blocks and pings that were kept.
    pub kept: usize,
}

impl Extent {
    /// Whether a run may go on.
    ///
    /// # Errors
    /// The setting that made it grow.
    pub fn check(self) -> Result<(), Refused> {
        let (key, why) = if self.connections as u64 > MAX_CONNECTIONS {
            (
                "workloads",
                format!(
                    "flows begin faster than they end: more than {MAX_CONNECTIONS} connections are open; ask for less"
                ),
            )
        } else if self.packets > MAX_PACKETS {
            let why =
                format!("more than {MAX_PACKETS} packets wait or are under way; ask for shorter queues or fewer flows");
            ("network.buffer_segments", why)
        } else if self.kept > MAX_KEPT {
            (
                "duration_ms",
                format!("more than {MAX_KEPT} flows, blocks or pings have ended, and all are kept; ask for less"),
            )
        } else {
            return Ok(());
        };
        Err(Refused { key: key.to_owned(), why })
    }
}

fn in_network(scenario: &Scenario) -> Option<(&'static str, &'static str)> {
    if scenario.network.topology == Topology::Dumbbell {
        let (from, to): (BTreeSet<&str>, BTreeSet<&str>) = scenario.workloads.values().map(Workload::roles).unzip();
        if !from.is_disjoint(&to) {
            let why = "a group sends in one workload and receives in another, and a dumbbell has it on one side";
            return Some(("network.topology", why));
        }
        let on = |groups: &BTreeSet<&str>| -> BTreeSet<&String> {
            groups.iter().filter_map(|name| scenario.vms.get(*name)?.on.as_ref()).collect()
        };
        if !on(&from).is_disjoint(&on(&to)) {
            let why = "groups of both sides are on the same hosts, which are on one side of a dumbbell";
            return Some(("network.topology", why));
        }
    }
    let ports = setup::topology(scenario).shape.switch_ports();
    let is_fair = scenario.network.queue.discipline == Discipline::FqCodel;
    if is_fair && ports * u64::from(FqCoDelSpec::default().flows) > MAX_FLOW_QUEUES {
        return Some((
            "network.queue.discipline",
            "more than 10,000,000 queues, 1,024 at each port; ask for fewer hosts, leaves or spines, or for `codel`",
        ));
    }
    if scenario.network.rate_mbit == 0 {
        return Some(("network.rate_mbit", "every link of the simulator has a rate; set it above 0"));
    }
    let of_paper = scenario.vms.values().any(|group| group.tcp.era == Era::Paper);
    (scenario.network.segmentation_offload && of_paper).then_some((
        "network.segmentation_offload",
        "packets are as large as Linux 6 makes them, and a group has `tcp.era = \"paper\"`; leave it at false (with \
         `tcp.gso_segments` senders hand over more)",
    ))
}

/// A key of the only workload that the simulator cannot honour, and why.
fn in_workload(scenario: &Scenario) -> Option<(&'static str, &'static str)> {
    let (from, to) = scenario.workload().roles();
    let count = |group: &str| scenario.vms.get(group).map_or(0, |g| u64::from(g.count));
    let (connections, key) = match scenario.workload() {
        Workload::Iperf3 { .. } => {
            return Some(("kind", "iperf3 is a program that only the lab can run; `bulk` is its like"));
        }
        Workload::Bulk { flows, .. } => (count(from) * u64::from(*flows), "flows"),
        Workload::RequestResponse { outstanding, .. } => (count(to) * u64::from(*outstanding), "outstanding"),
        Workload::Memcached { flows, outstanding, .. } => {
            (count(from) * u64::from(*flows) + u64::from(*outstanding), "flows")
        }
        Workload::Transfers { concurrent, .. } => (count(from) * u64::from(*concurrent), "concurrent"),
        // Each user has a connection, and uses at most one of the web front's.
        Workload::ThreeTier { users, .. } => (2 * u64::from(*users), "users"),
        Workload::Poisson { to: Some(_), .. } if has_nobody_to_send_to(scenario, from, to) => {
            let why = "flows go to VMs of other hosts, and all of these are on a host that has VMs of `from`; put them \
                       on others, or name more hosts";
            return Some(("to", why));
        }
        Workload::Poisson { background_flows, background_mesh_flows, to: receivers, .. } => {
            let (others, all) = match receivers {
                Some(_) => (count(to), count(from) + count(to)),
                None => (count(from).saturating_sub(1), count(from)),
            };
            let mesh = all * u64::from(*background_mesh_flows);
            let between_pairs = count(from) * others * u64::from(*background_flows);
            let key = if mesh > between_pairs { "background_mesh_flows" } else { "background_flows" };
            (mesh + between_pairs, key)
        }
        Workload::Ping { .. } | Workload::Strobe { .. } => return None,
    };
    (connections > MAX_CONNECTIONS).then_some((key, "more than 1,000,000 connections in all; ask for fewer"))
}

/// Whether some sending VM has all receivers on its own host.
fn has_nobody_to_send_to(scenario: &Scenario, from: &str, to: &str) -> bool {
    let vms = placements(scenario);
    let of = |group: &str| -> BTreeSet<u32> { vms.iter().filter(|vm| vm.group == group).map(|vm| vm.host).collect() };
    let receiving = of(to);
    receiving.len() == 1 && !receiving.is_disjoint(&of(from))
}

fn in_group(group: &VmGroup) -> Option<(&'static str, String)> {
    let owned = |key, why: &str| Some((key, why.to_owned()));
    let default = VmGroup::default();
    if group.host != HostKind::Native {
        return owned("host", "the simulator's hosts are its own; leave it out (the lab has a choice)");
    }
    if group.machine != MachineKind::Vm {
        return owned("machine", "the simulator's machines are its own; leave it out (the lab has a choice)");
    }
    if group.kernel != Kernel::Newest {
        return owned(
            "kernel",
            "the simulator has no kernel versions, only `tcp.era`; leave it out (the lab has them)",
        );
    }
    if group.vcpus > 1 {
        return owned("vcpus", "the simulator's VMs have one virtual CPU; leave it at 1 (the lab's can have more)");
    }
    if group.memory_mib != default.memory_mib {
        return owned("memory_mib", "the simulator's VMs have no memory that could run out; leave it at 256");
    }
    if group.migrate_at_ms.is_some() {
        return owned("migrate_at_ms", "the simulator's VMs stay where they are; leave it out (the lab's can move)");
    }
    if group.vflood.clients.is_some() {
        return owned("vflood.clients", "all VMs of a group have vFlood in the simulator, or none; leave it out");
    }
    if group.pvtcp.reloads > 0 {
        return owned("pvtcp.reloads", "the simulator has no modules to load; leave it at 0 (the lab has)");
    }
    let name = group.tcp.congestion_control();
    (!CONGESTION_CONTROLS.contains(&name)).then(|| {
        let known = CONGESTION_CONTROLS.join("`, `");
        (
            "tcp.congestion_control",
            format!("the simulator has `{known}`, not {} (the lab has what its kernel has)", quoted(name)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        schema = 2
        name = "t"
        title = "t"
        duration_ms = 1000
        [network]
        rate_mbit = 100
        [vms.a]
        count = 1001
        [vms.b]
        [workloads.w]
        kind = "bulk"
        from = "a"
        to = "b"
    "#;

    fn refused(from: &str, to: &str) -> String {
        assert!(TEXT.contains(from), "{from}");
        let loaded = Scenario::from_str(&TEXT.replace(from, to), "t.toml").unwrap_or_else(|e| panic!("{e}"));
        check(&loaded.scenario).err().map(|refused| refused.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_it_has_is_not_refused() {
        assert_eq!(refused("t", "t"), "");
        let rests = "count = 1\nvflood = { mode = \"enforce\", off_core_percent = 40 }\ntcp = { gso_segments = 9 }";
        assert_eq!(refused("count = 1001", rests), "");
        assert_eq!(refused("rate_mbit = 100", "rate_mbit = 100\nsegmentation_offload = true"), "");
        for name in CONGESTION_CONTROLS {
            assert_eq!(
                refused("[vms.b]", &format!("[vms.b]\ntcp = {{ congestion_control = \"{name}\", ecn = \"on\" }}")),
                ""
            );
        }
    }

    #[test]
    fn what_grows_beyond_memory_while_it_runs_is_refused_by_name() {
        let check = |extent: Extent| extent.check().err().map(|refused| refused.key);
        let most = Extent { connections: MAX_CONNECTIONS as usize, packets: MAX_PACKETS, kept: MAX_KEPT };
        assert_eq!(check(most), None);
        assert_eq!(check(Extent { connections: most.connections + 1, ..most }).as_deref(), Some("workloads"));
        assert_eq!(check(Extent { packets: most.packets + 1, ..most }).as_deref(), Some("network.buffer_segments"));
        assert_eq!(check(Extent { kept: most.kept + 1, ..most }).as_deref(), Some("duration_ms"));
    }

    #[test]
    fn what_it_cannot_honour_is_refused_by_name_and_with_the_reason() {
        for (from, to, key) in [
            ("rate_mbit = 100", "rate_mbit = 0", "network.rate_mbit: "),
            (
                "rate_mbit = 100\n        [vms.a]",
                "rate_mbit = 100\nsegmentation_offload = true\n[vms.a]\ntcp = { era = \"paper\" }",
                "network.segmentation_offload: ",
            ),
            ("\"bulk\"", "\"iperf3\"", "workloads.w.kind: "),
            ("\"bulk\"", "\"bulk\"\nflows = 1000", "workloads.w.flows: "),
            (
                "[vms.b]\n        [workloads.w]\n        kind = \"bulk\"",
                "[vms.b]\ncount = 1000\n[workloads.w]\nkind = \"poisson\"\nload = 0.1\nsizes = 900000\n\
                 background_flows = 1",
                "workloads.w.background_flows: ",
            ),
            (
                "[vms.a]\n        count = 1001\n        [vms.b]\n        [workloads.w]\n        kind = \"bulk\"",
                "[hosts.h]\n[vms.a]\non = \"h\"\n[vms.b]\non = \"h\"\n[workloads.w]\nkind = \"poisson\"\nload = 0.1\n\
                 sizes = 900000",
                "workloads.w.to: ",
            ),
            (
                "rate_mbit = 100",
                "rate_mbit = 100\ntopology = \"leaf-spine\"\nleaves = 128\nspines = 64\nhosts_per_leaf = 8\n\
                 queue = { discipline = \"fq-codel\" }",
                "network.queue.discipline: ",
            ),
            ("[vms.b]", "[vms.b]\nhost = \"vm\"", "vms.b.host: "),
            ("[vms.b]", "[vms.b]\nkernel = \"6.1\"", "vms.b.kernel: "),
            ("[vms.b]", "[vms.b]\nhypervisor = false\nmachine = \"namespace\"", "vms.b.machine: "),
            (
                "[vms.b]",
                "[record]\ncapture = true\n[vms.b]\ncore = { vms_per_core = 2, idle_us = 9 }",
                "vms.b.core.idle_us: ",
            ),
            ("[vms.b]", "[vms.b]\nvcpus = 2", "vms.b.vcpus: "),
            ("[vms.b]", "[vms.b]\nmemory_mib = 512", "vms.b.memory_mib: "),
            ("[vms.b]", "[vms.b]\npvtcp = { mode = \"enforce\", reloads = 3 }", "vms.b.pvtcp.reloads: "),
            ("[vms.b]", "[vms.b]\ntcp = { congestion_control = \"bbr\" }", "vms.b.tcp.congestion_control: "),
        ] {
            let message = refused(from, to);
            assert!(message.starts_with(key) && message.len() > key.len() + 10, "{to}: {message}");
        }
    }
}
