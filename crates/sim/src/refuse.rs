//! What a scenario can ask for that the simulator cannot give.

use evenkeel_quote::{quoted, shown};
use evenkeel_scenario::format::{HostKind, Kernel, MachineKind, Scenario, VmGroup, Workload};

/// Congestion controls that the simulator has.
pub const CONGESTION_CONTROLS: [&str; 4] = ["reno", "cubic", "dctcp", "lldct"];
/// Most connections of one run: each takes several hundred bytes.
const MAX_CONNECTIONS: u64 = 1_000_000;

/// A setting that the simulator cannot honour.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", shown(key), shown(why))]
pub struct Refused {
    /// The key, as in `vms.sender.vcpus`.
    pub key: String,
    /// Why not, and what to do.
    pub why: String,
}

/// Whether the simulator can run a cell as it is written.
///
/// # Errors
/// The first setting that it cannot honour.
pub fn check(scenario: &Scenario) -> Result<(), Refused> {
    let refused = |key: &str, why: &str| Refused { key: key.to_owned(), why: why.to_owned() };
    if let Some((key, why)) = in_network(scenario).or_else(|| in_workload(scenario)) {
        return Err(refused(key, why));
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

fn in_network(scenario: &Scenario) -> Option<(&'static str, &'static str)> {
    if scenario.network.rate_mbit == 0 {
        return Some(("network.rate_mbit", "every link of the simulator has a rate; set it above 0"));
    }
    scenario.network.segmentation_offload.then_some((
        "network.segmentation_offload",
        "the simulator's packets are segments; leave it at false (the lab can hand over larger ones)",
    ))
}

fn in_workload(scenario: &Scenario) -> Option<(&'static str, &'static str)> {
    let (from, to) = scenario.workload.roles();
    let count = |group: &str| scenario.vms.get(group).map_or(0, |g| u64::from(g.count));
    let (connections, key) = match &scenario.workload {
        Workload::Iperf3 { .. } => {
            return Some(("workload.kind", "iperf3 is a program that only the lab can run; `bulk` is its like"));
        }
        Workload::Bulk { flows, .. } => (count(from) * u64::from(*flows), "workload.flows"),
        Workload::RequestResponse { outstanding, .. } => (count(to) * u64::from(*outstanding), "workload.outstanding"),
        Workload::Memcached { flows, outstanding, .. } => {
            (count(from) * u64::from(*flows) + u64::from(*outstanding), "workload.flows")
        }
        Workload::Transfers { concurrent, .. } => (count(from) * u64::from(*concurrent), "workload.concurrent"),
        // Each user has a connection, and at most one of the web front's is used for it.
        Workload::ThreeTier { users, .. } => (2 * u64::from(*users), "workload.users"),
        Workload::Ping { .. } | Workload::Strobe { .. } | Workload::Poisson { .. } => return None,
    };
    (connections > MAX_CONNECTIONS).then_some((key, "more than 1,000,000 connections in all; ask for fewer"))
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
    if group.vflood.off_core_percent.is_some() {
        return owned(
            "vflood.off_core_percent",
            "the simulator's vFlood always acts; leave it out (the lab's can rest)",
        );
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
        schema = 1
        name = "t"
        title = "t"
        duration_ms = 1000
        [network]
        rate_mbit = 100
        [vms.a]
        count = 1001
        [vms.b]
        [workload]
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
        for name in CONGESTION_CONTROLS {
            assert_eq!(
                refused("[vms.b]", &format!("[vms.b]\ntcp = {{ congestion_control = \"{name}\", ecn = \"on\" }}")),
                ""
            );
        }
    }

    #[test]
    fn what_it_cannot_honour_is_refused_by_name_and_with_the_reason() {
        for (from, to, key) in [
            ("rate_mbit = 100", "rate_mbit = 0", "network.rate_mbit: "),
            ("rate_mbit = 100", "rate_mbit = 100\nsegmentation_offload = true", "network.segmentation_offload: "),
            ("\"bulk\"", "\"iperf3\"", "workload.kind: "),
            ("\"bulk\"", "\"bulk\"\nflows = 1000", "workload.flows: "),
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
            (
                "count = 1001",
                "count = 1\nvflood = { mode = \"enforce\", off_core_percent = 0 }",
                "vms.a.vflood.off_core_percent: ",
            ),
            ("[vms.b]", "[vms.b]\ntcp = { congestion_control = \"bbr\" }", "vms.b.tcp.congestion_control: "),
        ] {
            let message = refused(from, to);
            assert!(message.starts_with(key) && message.len() > key.len() + 10, "{to}: {message}");
        }
    }
}
