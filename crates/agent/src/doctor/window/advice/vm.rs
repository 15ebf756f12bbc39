//! Advice on VMs: quotas, neighbours on their cores, and who carries their packets.

use super::super::figures::{Figures, GroupFigures, ThreadFigures, VmFigures, percent};
use super::{Advice, Cost, Cure, in_shell, ms};

/// From this share of the active periods, in percent, those that used the quota up get advice.
const THROTTLED_PERCENT: f64 = 1.0;
/// Fewer such periods get no advice: one may be the start of a program.
const THROTTLED_TIMES: u64 = 2;
/// The period to advise: the time refused is then a tenth of that with the default, 100 ms.
const SHORT_PERIOD_US: u64 = 10_000;
/// The kernel refuses quotas below this.
const LEAST_QUOTA_US: u64 = 1000;
/// A group that uses less than this share of its quota, in percent, has time to save.
const SAVING_PERCENT: f64 = 90.0;
/// From this share of the window, in percent, and this time per turn, waits behind neighbours get advice.
const NEIGHBOURS_PERCENT: f64 = 1.0;
const NEIGHBOURS_MS: f64 = 2.0;
/// An absence that runs TCP's timers.
const LONG_MS: f64 = 8.0;
/// Packets per second for which vhost is worth a restart.
const BUSY_PACKETS: f64 = 1000.0;
/// A thread that runs for this share of the window, in percent, is fully used.
const FULL_PERCENT: f64 = 90.0;

/// How a VM is named.
pub(super) fn name(vm: &VmFigures) -> String {
    format!("{} (process {})", vm.command, vm.process)
}

pub(super) fn advise(vm: &VmFigures, figures: &Figures) -> Vec<Advice> {
    let mut all: Vec<Advice> =
        vm.groups.iter().filter(|group| is_throttled(group)).flat_map(|group| quota(vm, group, figures)).collect();
    all.extend(neighbours(vm, figures));
    all.extend(carrier(vm, figures));
    all
}

pub(super) fn is_throttled(group: &GroupFigures) -> bool {
    group.nr_throttled >= THROTTLED_TIMES
        && percent(group.nr_throttled as f64, group.nr_periods as f64) >= THROTTLED_PERCENT
}

fn advice(vm: &VmFigures, cost: Cost, cure: Cure, why: String, how: String) -> Advice {
    Advice { cost, cure, subject: name(vm), why, how }
}

fn quota(vm: &VmFigures, group: &GroupFigures, figures: &Figures) -> Vec<Advice> {
    let refused = group.refused_ms();
    let fact = format!(
        "its quota of {} in every {} was used up in {} of {} periods, and its cores were refused {} each time",
        ms(group.quota_us as f64 / 1e3),
        ms(group.period_us as f64 / 1e3),
        group.nr_throttled,
        group.nr_periods,
        ms(refused)
    );
    let mut all: Vec<Advice> = period(vm, group, &fact).into_iter().collect();
    let allowed_us = figures.window_s * 1e6 * group.quota_us as f64 / group.period_us.max(1) as f64;
    let used = percent(group.used_us as f64, allowed_us);
    if used < SAVING_PERCENT && group.burst_us == Some(0) {
        let why = format!("{fact}; over the whole window it used {used:.0} % of what it may, so there is time to save");
        let file = if group.is_cpu_max { "cpu.max.burst" } else { "cpu.cfs_burst_us" };
        let file = in_shell(&format!("{}/{file}", group.path));
        let how = format!("echo {} > {file}  # at most the quota: less after a shorter period", group.quota_us);
        all.push(advice(vm, Cost::Command, Cure::QuotaBurst, why, how));
    }
    if used >= SAVING_PERCENT {
        let why = format!("{fact}; it used {used:.0} % of what it may and wants more");
        let how = format!(
            "more than {:.0} % of a core, or less work in the VM; a shorter period only makes the gaps shorter",
            group.quota_percent()
        );
        all.push(advice(vm, Cost::Capacity, Cure::Quota, why, how));
    }
    if refused >= LONG_MS {
        let why = format!("{fact}: longer than TCP's timers are, in data centres");
        let how = "where the quota has to stay as it is: `evenkeel guest pvtcp load` in the VM".to_owned();
        all.push(advice(vm, Cost::Install, Cure::Pvtcp, why, how));
    }
    all
}

/// A period of 10 ms, or as short as the least quota allows; the share of a core stays the same.
fn period(vm: &VmFigures, group: &GroupFigures, fact: &str) -> Option<Advice> {
    let least = (LEAST_QUOTA_US * group.period_us).div_ceil(group.quota_us.max(1));
    let shorter = SHORT_PERIOD_US.max(least.next_multiple_of(1000));
    if 2 * shorter > group.period_us {
        return None;
    }
    let quota = group.quota_us * shorter / group.period_us;
    let gap = group.refused_ms() * shorter as f64 / group.period_us as f64;
    let why = format!("{fact}; with {} it is {} at the same share", ms(shorter as f64 / 1e3), ms(gap));
    let path = &group.path;
    let file = |name: &str| in_shell(&format!("{path}/{name}"));
    let mut how = if group.is_cpu_max {
        format!("echo '{quota} {shorter}' > {}", file("cpu.max"))
    } else {
        format!("echo {quota} > {}; echo {shorter} > {}", file("cpu.cfs_quota_us"), file("cpu.cfs_period_us"))
    };
    // libvirt's group of a virtual CPU: libvirt writes its own values again when the VM starts.
    if path.rsplit('/').next().is_some_and(|last| last.starts_with("vcpu")) {
        how.push_str(&format!(
            "  # libvirt: virsh schedinfo DOMAIN --live --config vcpu_period={shorter} vcpu_quota={quota}"
        ));
    }
    Some(advice(vm, Cost::Command, Cure::QuotaPeriod, why, how))
}

/// Waits that are not the quota's: somebody else had the core.
fn neighbours(vm: &VmFigures, figures: &Figures) -> Vec<Advice> {
    let sum = |of: fn(&ThreadFigures) -> f64| vm.vcpus.iter().map(of).sum::<f64>();
    let own = vm.groups.iter().filter(|group| group.vcpus > 0);
    let throttled_ms: f64 = own.map(|group| group.throttled_usec as f64 / 1e3).sum();
    let waited_ms = (sum(|thread| thread.waited_ms) - throttled_ms).max(0.0);
    let share = percent(waited_ms, vm.vcpus.len() as f64 * figures.window_s * 1e3);
    let turns: u64 = vm.vcpus.iter().map(|thread| thread.turns).sum();
    let each = waited_ms / turns.max(1) as f64;
    if share < NEIGHBOURS_PERCENT || each < NEIGHBOURS_MS {
        return Vec::new();
    }
    let why = format!(
        "its virtual CPUs were ready and others had their cores for {share:.0} % of the window, {} before each of \
         {turns} turns",
        ms(each)
    );
    let mut all = Vec::new();
    if figures.has_slices() {
        let ids: Vec<String> = vm.vcpus.iter().map(|thread| thread.id.to_string()).collect();
        let how = format!(
            "for id in {}; do chrt -o -T 300000 -p 0 $id; done  # slices of 0.3 ms (util-linux 2.41): it runs sooner \
             when it wakes up, and no longer than before",
            ids.join(" ")
        );
        all.push(advice(vm, Cost::Command, Cure::Slice, why.clone(), how));
    }
    if each >= LONG_MS {
        let how = "`evenkeel guest pvtcp load` in the VM, where its neighbours stay".to_owned();
        all.push(advice(vm, Cost::Install, Cure::Pvtcp, why.clone(), how));
    }
    let how = "fewer VMs on these cores, cores of its own (vcpupin), or a larger cpu.weight than its neighbours have";
    all.push(advice(vm, Cost::Capacity, Cure::Cores, why, how.to_owned()));
    all
}

/// Advice on who carries a VM's packets, if that is the bottleneck.
fn carrier(vm: &VmFigures, figures: &Figures) -> Option<Advice> {
    let ports = figures.ports.iter().filter(|port| port.process == Some(vm.process));
    let packets: u64 = ports.map(|port| port.to_vm_packets + port.from_vm_packets).sum();
    let rate = packets as f64 / figures.window_s.max(f64::MIN_POSITIVE);
    let load = |thread: &ThreadFigures| percent(thread.ran_ms, figures.window_s * 1e3);
    if vm.vhost.is_empty() {
        let main = vm.main.as_ref().filter(|_| rate >= BUSY_PACKETS && !vm.vcpus.is_empty())?;
        let why = format!(
            "no vhost thread serves it: its process carries {rate:.0} packets/s itself, and its first thread ran for \
             {:.0} % of the window",
            load(main)
        );
        let how = "vhost=on for QEMU's -netdev tap; libvirt: <driver name='vhost'/> in the <interface>, and \
                   modprobe vhost_net on the host";
        return Some(advice(vm, Cost::Restart, Cure::Vhost, why, how.to_owned()));
    }
    let busiest = vm.vhost.iter().max_by(|a, b| a.ran_ms.total_cmp(&b.ran_ms))?;
    if load(busiest) < FULL_PERCENT {
        return None;
    }
    let why = format!("{} ran for {:.0} % of the window at {rate:.0} packets/s", busiest.name, load(busiest));
    let how = "libvirt: <driver name='vhost' queues='2'/> in the <interface>: a thread for each queue";
    Some(advice(vm, Cost::Restart, Cure::Multiqueue, why, how.to_owned()))
}
