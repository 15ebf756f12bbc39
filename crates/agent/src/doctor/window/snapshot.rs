//! All that is counted on a machine, at one moment.

use std::collections::BTreeMap;

use super::super::evidence;
use super::files::Files;
use super::group::Hierarchy;
use super::port::{self, Port};
use super::qdisc::Qdiscs;
use super::vm::{self, Vms};
use crate::guest::pvtcp::COUNTERS;

/// Groups of counters that are TCP's.
const GROUPS: &[&str] = &["Tcp", "TcpExt"];
/// What the guest module shows.
const MODULE: &str = "/sys/module/evenkeel_pvtcp/parameters";
/// Settings of TCP by which it finds out that a timeout was needless.
pub(super) const SYSCTLS: [&str; 5] = ["tcp_sack", "tcp_timestamps", "tcp_early_retrans", "tcp_recovery", "tcp_frto"];

/// Counters since boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// As `uname -r`.
    pub release: Option<String>,
    /// Whether the processor says that there is a hypervisor below.
    pub is_guest: bool,
    pub ports: BTreeMap<String, Port>,
    pub vms: Vms,
    pub softnet: Option<Softnet>,
    pub processor: Option<Processor>,
    /// By nstat's names without the group; `None` if they cannot be read.
    pub tcp: Option<BTreeMap<String, u64>>,
    /// Of PVTCP; `None` if it is not loaded.
    pub pvtcp: Option<BTreeMap<String, u64>>,
    /// Its mode.
    pub pvtcp_mode: Option<String>,
    /// Those of [`SYSCTLS`] that exist below `/proc/sys/net/ipv4`.
    pub sysctls: BTreeMap<String, String>,
    /// `net.core.netdev_max_backlog`.
    pub backlog_limit: Option<u64>,
    /// What is not known, and why.
    pub missing: Vec<String>,
}

/// What waits for a processor of the host between device and stack, all processors together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Softnet {
    /// Dropped, because `net.core.netdev_max_backlog` packets waited.
    pub dropped: u64,
}

/// The processors' time, in steps of 10 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Processor {
    pub busy: u64,
    pub steal: u64,
}

impl Snapshot {
    /// Reads the machine whose files are below a root; `qdiscs` are its queues, or why they are not known.
    pub(super) fn read(files: Files<'_>, qdiscs: Result<&Qdiscs, &str>) -> Self {
        let mut missing = Vec::new();
        if let Err(why) = qdiscs {
            missing.push(format!("queues in front of ports: the kernel does not answer ({why})"));
        }
        let ports = port::read(files, qdiscs.unwrap_or(&Qdiscs::default())).unwrap_or_else(|| {
            missing.push("ports: no /sys/class/net".to_owned());
            BTreeMap::new()
        });
        let hierarchy = Hierarchy::find(files);
        let vms = vm::read(files, &ports, hierarchy.as_ref());
        let tcp = ["netstat", "snmp"].map(|name| files.text(&format!("/proc/net/{name}")).map(|text| counters(&text)));
        if !ports.is_empty() {
            missing.extend(of_host(&vms, hierarchy.is_some()));
        }
        if tcp.iter().any(Option::is_none) {
            missing.push("TCP's counters: no /proc/net/netstat or /proc/net/snmp".to_owned());
        }
        let pvtcp_mode = files.text(&format!("{MODULE}/mode"));
        let sysctl = |name: &&str| Some(((*name).to_owned(), files.text(&format!("/proc/sys/net/ipv4/{name}"))?));
        Self {
            release: files.text("/proc/sys/kernel/osrelease"),
            is_guest: files.text("/proc/cpuinfo").is_some_and(|text| has_hypervisor_flag(&text)),
            softnet: files.text("/proc/net/softnet_stat").map(|text| Softnet::of(&text)),
            processor: files.text("/proc/stat").and_then(|text| Processor::of(&text)),
            tcp: tcp.into_iter().collect::<Option<Vec<_>>>().map(|both| both.into_iter().flatten().collect()),
            pvtcp: pvtcp_mode.is_some().then(|| module_counters(files)),
            pvtcp_mode,
            sysctls: SYSCTLS.iter().filter_map(sysctl).collect(),
            backlog_limit: files.number("/proc/sys/net/core/netdev_max_backlog"),
            ports,
            vms,
            missing,
        }
    }
}

/// What is not known of VMs here.
fn of_host(vms: &Vms, has_groups: bool) -> Vec<String> {
    let mut missing = Vec::new();
    if vms.is_partial {
        missing.push("who holds which port: some processes do not show their files; root sees them".to_owned());
    }
    if vms.has_no_waits {
        missing.push("waits of threads: no schedstat in /proc/PID/task/TID (CONFIG_SCHED_INFO)".to_owned());
    }
    if !has_groups {
        missing.push("quotas: no cgroup hierarchy with the controller `cpu` is mounted".to_owned());
    }
    if !vms.groups.is_empty() && vms.groups.values().all(|group| group.burst_us.is_none()) {
        missing.push("bursts: no cpu.max.burst or cpu.cfs_burst_us, which Linux has since 5.14".to_owned());
    }
    missing
}

fn counters(text: &str) -> BTreeMap<String, u64> {
    evidence::counters(text, GROUPS).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn module_counters(files: Files<'_>) -> BTreeMap<String, u64> {
    // A maximum is no count.
    let names = COUNTERS.iter().map(|(name, _)| *name).filter(|name| *name != "wakeup_max_us");
    names.filter_map(|name| Some((name.to_owned(), files.number(&format!("{MODULE}/{name}"))?))).collect()
}

fn has_hypervisor_flag(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
}

impl Softnet {
    /// A line for each processor: hexadecimal numbers, of which the second counts drops.
    fn of(text: &str) -> Self {
        let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
        Self { dropped: text.lines().filter_map(dropped).sum() }
    }
}

impl Processor {
    /// The line of all processors in `/proc/stat`.
    fn of(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal
        let [user, nice, system, _, _, irq, softirq, steal, ..] = fields[..] else { return None };
        Some(Self { busy: user + nice + system + irq + softirq, steal })
    }
}
