//! What happened between two snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use super::group::Group;
use super::port::Port;
use super::snapshot::{Processor, Snapshot};
use super::vm::{Role, Thread, Vm, Vms};

/// A nameless thread that wanted less of a core than this, in percent of the window, does not count as a virtual CPU.
const IDLE_PERCENT: f64 = 1.0;

/// What was seen between the snapshots.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Watched {
    pub time: Duration,
    /// The most that waited in front of a device, by its index.
    pub backlogs: BTreeMap<u32, Backlog>,
    pub sleeper: Sleeper,
}

/// The most that was seen waiting in a port's queue. What waits in a tap's ring cannot be seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Backlog {
    /// Packets; one that is later split into segments (GSO) counts once.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A sleeper that takes naps of a millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Sleeper {
    /// Its naps.
    pub naps: u64,
    /// Those from which it woke up 8 ms too late or later.
    pub late: u64,
    /// How much too late it was at worst, in milliseconds.
    pub longest_ms: f64,
}

/// Why packets were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Drops {
    /// On the way to the VM: the tap's ring was full, which holds `txqueuelen` packets.
    ToVmRing,
    /// On the way to the VM: the queue in front of the device was full, or dropped by its own rules.
    ToVmQueue,
    /// On the way to the VM: the device could not send.
    ToVmErrors,
    /// On the way from the VM.
    FromVm,
    /// What the VM sent was no packet.
    FromVmErrors,
    /// By a filter or program of tc.
    Filter,
}

impl Drops {
    pub(super) const ALL: [Self; 6] =
        [Self::ToVmRing, Self::ToVmQueue, Self::ToVmErrors, Self::FromVm, Self::FromVmErrors, Self::Filter];
}

/// A port, in the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PortFigures {
    /// Its name.
    pub name: String,
    /// The process that has it open, if one was found.
    pub process: Option<u32>,
    /// Packets that the device took for the VM.
    pub to_vm_packets: u64,
    /// Packets that the VM sent.
    pub from_vm_packets: u64,
    /// Dropped packets by cause; causes without any are left out.
    pub drops: BTreeMap<Drops, u64>,
    /// `txqueuelen`, in packets.
    pub queue_length: u64,
    /// Kind of the queue in front of the device.
    pub qdisc: Option<String>,
    /// The most that waited in it.
    pub backlog_max: Backlog,
}

/// A thread, in the window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadFigures {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// On a core, in milliseconds.
    pub ran_ms: f64,
    /// Ready, and without a core, in milliseconds.
    pub waited_ms: f64,
    /// Turns on a core.
    pub turns: u64,
}

/// A control group with a quota, in the window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupFigures {
    /// Its directory.
    pub path: String,
    /// The VM's virtual CPUs in it.
    pub vcpus: usize,
    /// Cores' time in a period, in microseconds.
    pub quota_us: u64,
    /// Microseconds.
    pub period_us: u64,
    /// What may be saved up, in microseconds; none where the kernel cannot.
    pub burst_us: Option<u64>,
    /// Whether `cpu.max` sets it (version 2), and not `cpu.cfs_quota_us`.
    pub is_cpu_max: bool,
    /// Periods in which it had something to do.
    pub nr_periods: u64,
    /// Those in which the quota was used up.
    pub nr_throttled: u64,
    /// Cores' time refused for that, all cores together, in microseconds.
    pub throttled_usec: u64,
    /// Cores' time that the VM's threads in it got, in microseconds.
    pub used_us: u64,
}

/// A VM, in the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct VmFigures {
    /// Its process.
    pub process: u32,
    /// The process's name.
    pub command: String,
    /// Ports that it has open.
    pub ports: Vec<String>,
    /// Its virtual CPUs.
    pub vcpus: Vec<ThreadFigures>,
    /// Threads of the kernel that carry its packets.
    pub vhost: Vec<ThreadFigures>,
    /// The process's first thread.
    pub main: Option<ThreadFigures>,
    /// Mean share of the window, in percent, in which a virtual CPU was ready and had no core.
    pub off_core_percent: f64,
    /// Mean share of the window, in percent, in which a virtual CPU ran.
    pub ran_percent: f64,
    /// Its control groups that have a quota.
    pub groups: Vec<GroupFigures>,
}

/// TCP of this machine, in the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TcpFigures {
    /// Segments sent.
    pub sent: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Retransmission timeouts, without those of SYNs.
    pub timeouts: u64,
    /// Of SYNs and SYN-ACKs.
    pub syn_timeouts: u64,
    /// Tail-loss probes.
    pub probes: u64,
    /// Slow starts and cuts of the window that turned out to be needless and were undone.
    pub undone: u64,
    /// Timeouts that F-RTO found to be needless; some of those undone.
    pub spurious: u64,
    /// Segments that the receivers had already, by their DSACKs.
    pub needless: u64,
}

/// All figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Length of the window, in seconds.
    pub window_s: f64,
    /// As `uname -r`.
    pub kernel: Option<String>,
    /// Whether this machine is a VM itself.
    pub is_guest: bool,
    /// Ports of VMs.
    pub ports: Vec<PortFigures>,
    /// Who has them open.
    pub vms: Vec<VmFigures>,
    /// Packets that the host dropped between devices and its stack; none if it does not say.
    pub softnet_dropped: Option<u64>,
    /// `net.core.netdev_max_backlog`: packets beyond it are dropped there.
    pub softnet_limit: Option<u64>,
    /// TCP of this machine.
    pub tcp: Option<TcpFigures>,
    /// Share of the core time it wanted, in percent, that this machine did not get.
    pub steal_percent: Option<f64>,
    /// How late timers were.
    pub sleeper: Sleeper,
    /// PVTCP's counters; none if it is not loaded.
    pub pvtcp: Option<BTreeMap<String, u64>>,
    /// Its mode.
    pub pvtcp_mode: Option<String>,
    /// TCP's settings by which it finds out that a timeout was needless.
    pub sysctls: BTreeMap<String, String>,
    /// What is not known, and why.
    pub missing: Vec<String>,
}

/// What happened.
pub(super) fn diff(before: &Snapshot, after: &Snapshot, watched: &Watched) -> Figures {
    let time = watched.time;
    let steal = before.processor.zip(after.processor).and_then(|(before, after)| steal_percent(before, after));
    let mut ports: Vec<PortFigures> =
        after.ports.iter().filter_map(|(name, now)| Some(port(name, before.ports.get(name)?, now, watched))).collect();
    let vms: Vec<VmFigures> = after.vms.all.iter().map(|(id, vm)| of_vm(*id, vm, before, after, time)).collect();
    for port in &mut ports {
        port.process = vms.iter().find(|vm| vm.ports.contains(&port.name)).map(|vm| vm.process);
    }
    let softnet = before.softnet.zip(after.softnet);
    let pvtcp = before.pvtcp.as_ref().zip(after.pvtcp.as_ref());
    let mut missing: BTreeSet<String> = before.missing.iter().chain(&after.missing).cloned().collect();
    let newcomers = after.vms.all.keys().filter(|id| !before.vms.all.contains_key(*id));
    let unnamed = after.vms.all.iter().filter(|(_, vm)| !vm.are_named).map(|(id, _)| id);
    missing.extend(unnamed.map(|id| {
        format!(
            "virtual CPUs of process {id}: no thread has the name of one (QEMU: -name NAME,debug-threads=on), so \
             those that ran count"
        )
    }));
    missing.extend(newcomers.map(|id| format!("waits of process {id}: it came in the window; watch it again")));
    Figures {
        window_s: time.as_secs_f64(),
        kernel: after.release.clone(),
        is_guest: after.is_guest || after.processor.is_some_and(|times| times.steal > 0),
        ports,
        vms,
        softnet_dropped: softnet.map(|(before, after)| after.dropped.saturating_sub(before.dropped)),
        softnet_limit: after.backlog_limit,
        tcp: before.tcp.as_ref().zip(after.tcp.as_ref()).map(|(before, after)| tcp(before, after)),
        steal_percent: steal,
        sleeper: watched.sleeper,
        pvtcp: pvtcp.map(|(before, after)| {
            after.iter().map(|(name, now)| (name.clone(), now.saturating_sub(of(before, name)))).collect()
        }),
        pvtcp_mode: after.pvtcp_mode.clone(),
        sysctls: after.sysctls.clone(),
        missing: missing.into_iter().collect(),
    }
}

fn of(counters: &BTreeMap<String, u64>, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

/// `None` in a window without work.
fn steal_percent(before: Processor, after: Processor) -> Option<f64> {
    let (busy, steal) = (after.busy.saturating_sub(before.busy), after.steal.saturating_sub(before.steal));
    (busy + steal > 0).then(|| 100.0 * steal as f64 / (busy + steal) as f64)
}

fn port(name: &str, before: &Port, after: &Port, watched: &Watched) -> PortFigures {
    let since = |of: fn(&Port) -> u64| of(after).saturating_sub(of(before));
    let drops = [
        (Drops::ToVmRing, since(|port| port.ring_drops)),
        (Drops::ToVmQueue, since(|port| port.queue_drops)),
        (Drops::ToVmErrors, since(|port| port.to_vm_errors)),
        (Drops::FromVm, since(|port| port.from_vm_drops)),
        (Drops::FromVmErrors, since(|port| port.from_vm_errors)),
        (Drops::Filter, since(|port| port.filter_drops)),
    ];
    PortFigures {
        name: name.to_owned(),
        process: None,
        to_vm_packets: since(|port| port.to_vm_packets),
        from_vm_packets: since(|port| port.from_vm_packets),
        drops: drops.into_iter().filter(|(_, count)| *count > 0).collect(),
        queue_length: after.queue_length,
        qdisc: after.qdisc.clone(),
        backlog_max: watched.backlogs.get(&after.ifindex).copied().unwrap_or_default(),
    }
}

fn of_vm(process: u32, vm: &Vm, before: &Snapshot, after: &Snapshot, time: Duration) -> VmFigures {
    let window_ms = time.as_secs_f64() * 1e3;
    let known = before.vms.all.get(&process).map(|vm| &vm.threads);
    let since = |(id, now): (&u32, &Thread)| thread(*id, known.and_then(|threads| threads.get(id)), now);
    let of_role = |role| vm.threads.iter().filter(move |(_, thread)| thread.role == role);
    // Of threads without names, those that wanted a core.
    let is_one =
        |thread: &ThreadFigures| vm.are_named || thread.ran_ms + thread.waited_ms >= IDLE_PERCENT / 100.0 * window_ms;
    let vcpus: Vec<ThreadFigures> = of_role(Role::Vcpu).map(since).filter(is_one).collect();
    let share = |ms: f64| percent(ms, vcpus.len() as f64 * window_ms);
    let paths: BTreeSet<&String> = vm.threads.values().flat_map(|thread| &thread.groups).collect();
    let group = |path: &&String| {
        let inside = || vm.threads.iter().filter(|(_, thread)| thread.groups.contains(path));
        let used_ms: f64 = inside().map(since).map(|thread| thread.ran_ms).sum();
        let vcpus = inside().filter(|(id, _)| vcpus.iter().any(|vcpu| vcpu.id == **id)).count();
        let (was, now) = (before.vms.group(path), after.vms.group(path)?);
        Some(group_figures(path, was, now, vcpus, (used_ms * 1e3) as u64))
    };
    VmFigures {
        process,
        command: vm.command.clone(),
        ports: vm.ports.clone(),
        vhost: of_role(Role::Vhost).map(since).collect(),
        main: of_role(Role::Main).map(since).next(),
        off_core_percent: share(vcpus.iter().map(|thread| thread.waited_ms).sum()),
        ran_percent: share(vcpus.iter().map(|thread| thread.ran_ms).sum()),
        groups: paths.iter().filter_map(group).collect(),
        vcpus,
    }
}

impl Vms {
    fn group(&self, path: &str) -> Option<&Group> {
        self.groups.get(path)
    }
}

fn group_figures(path: &str, before: Option<&Group>, now: &Group, vcpus: usize, used_us: u64) -> GroupFigures {
    let since = |of: fn(&Group) -> u64| of(now).saturating_sub(of(before.unwrap_or(now)));
    GroupFigures {
        path: path.to_owned(),
        vcpus,
        quota_us: now.quota_us,
        period_us: now.period_us,
        burst_us: now.burst_us,
        is_cpu_max: now.is_second,
        nr_periods: since(|group| group.periods),
        nr_throttled: since(|group| group.throttled),
        throttled_usec: since(|group| group.throttled_us),
        used_us,
    }
}

fn thread(id: u32, before: Option<&Thread>, now: &Thread) -> ThreadFigures {
    // A thread that the first snapshot lacks may be older than the window, so its counters count as unchanged.
    let since = |of: fn(&Thread) -> u64| of(now).saturating_sub(of(before.unwrap_or(now)));
    let ms = |ns: u64| ns as f64 / 1e6;
    ThreadFigures {
        id,
        name: now.name.clone(),
        ran_ms: ms(since(|thread| thread.ran_ns)),
        waited_ms: ms(since(|thread| thread.waited_ns)),
        turns: since(|thread| thread.turns),
    }
}

fn tcp(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> TcpFigures {
    let since = |name: &str| of(after, name).saturating_sub(of(before, name));
    let sum = |names: &[&str]| names.iter().map(|name| since(name)).sum();
    let syns = since("TCPSynRetrans");
    TcpFigures {
        sent: since("OutSegs"),
        retransmitted: since("RetransSegs"),
        timeouts: since("TCPTimeouts").saturating_sub(syns),
        syn_timeouts: syns,
        probes: since("TCPLossProbes"),
        undone: sum(&["TCPFullUndo", "TCPPartialUndo", "TCPDSACKUndo", "TCPLossUndo"]),
        spurious: since("TCPSpuriousRTOs"),
        needless: sum(&["TCPDSACKRecv", "TCPDSACKOfoRecv"]),
    }
}

/// A share in percent; of nothing it is 0.
pub(super) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

impl Figures {
    /// Whether a thread may ask for slices of its own: Linux 6.12.
    pub(super) fn has_slices(&self) -> bool {
        let release = self.kernel.as_deref().unwrap_or_default();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|word| word.parse::<u32>().ok());
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 12)
    }
}

impl PortFigures {
    /// Dropped for one cause.
    pub(super) fn dropped(&self, cause: Drops) -> u64 {
        self.drops.get(&cause).copied().unwrap_or(0)
    }
}

impl GroupFigures {
    /// How much of a core its threads may have, in percent.
    pub(super) fn quota_percent(&self) -> f64 {
        percent(self.quota_us as f64, self.period_us as f64)
    }

    /// How long the cores were refused each time, in milliseconds: the counter is of all cores together, so it is
    /// divided by the virtual CPUs.
    pub(super) fn refused_ms(&self) -> f64 {
        let each = self.throttled_usec as f64 / 1e3 / self.nr_throttled.max(1) as f64;
        (each / self.vcpus.max(1) as f64).min(self.period_us as f64 / 1e3)
    }
}
