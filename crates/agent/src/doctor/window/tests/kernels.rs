//! Machines as they are: three VMs on taps, one of them under a quota of 30 ms in 100, one whose port is flooded though
//! it takes nothing, one alone. Recorded twice each, seconds apart.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::Report;
use super::super::advice::Cure;
use super::super::figures::{Backlog, Drops, Figures, GroupFigures, Watched, diff};
use super::super::snapshot::Snapshot;
use super::fixture::{figures, snapshots};

/// With QEMU 7.2, and cgroups of version 1.
const LINUX_6_18: &str = include_str!("../fixtures/linux-6.18-cgroup1.txt");
/// Debian 11's; with cgroups of version 2, and small programs that stand for the VMs.
const LINUX_5_10: &str = include_str!("../fixtures/linux-5.10-cgroup2.txt");
const TIME: Duration = Duration::from_secs(4);

/// The process that has a port open.
fn holder(figures: &Figures, port: &str) -> Option<u32> {
    figures.ports.iter().find(|found| found.name == port)?.process
}

fn group(figures: &Figures) -> &GroupFigures {
    let mut groups = figures.vms.iter().flat_map(|vm| &vm.groups);
    let group = groups.next().unwrap();
    assert_eq!(groups.next(), None, "the others have no quota");
    group
}

fn cures(figures: Figures, subject: &str) -> Vec<Cure> {
    let report = Report::of(figures);
    report.advice.iter().filter(|advice| advice.subject == subject).map(|advice| advice.cure).collect()
}

#[test]
fn linux_6_18_with_the_first_version_of_cgroups() {
    let figures = figures(LINUX_6_18, TIME);
    assert_eq!(figures.kernel.as_deref(), Some("6.18.44"));
    let holders = ["ekquota", "ekdrop", "ekalone"].map(|port| holder(&figures, port));
    assert_eq!(holders, [Some(30554), Some(30555), Some(30556)]);
    let expected = GroupFigures {
        path: "/sys/fs/cgroup/cpu/vm1".into(),
        vcpus: 1,
        quota_us: 30_000,
        period_us: 100_000,
        burst_us: Some(0),
        is_cpu_max: false,
        nr_periods: 41,
        nr_throttled: 41,
        throttled_usec: 2_831_430,
        used_us: group(&figures).used_us,
    };
    assert_eq!(group(&figures), &expected);
    let vm = figures.vms.iter().find(|vm| vm.process == 30554).unwrap();
    assert_eq!(vm.vcpus.iter().map(|vcpu| vcpu.name.as_str()).collect::<Vec<_>>(), ["CPU 0/TCG"]);
    assert!((65.0..75.0).contains(&vm.off_core_percent), "{}", vm.off_core_percent);
    assert_eq!(figures.ports[1].drops, BTreeMap::from([(Drops::ToVmRing, 5656)]));
    assert_eq!((figures.ports[1].queue_length, figures.ports[1].qdisc.as_deref()), (500, Some("pfifo_fast")));
    assert_eq!(figures.missing, Vec::<String>::new());
    assert_eq!(cures(figures.clone(), "ekdrop"), [Cure::Guest]);
    let expected = [Cure::QuotaPeriod, Cure::Pvtcp, Cure::Quota];
    assert_eq!(cures(figures, "qemu-system-x86 (process 30554)"), expected);
}

#[test]
fn linux_5_10_with_the_second_version_of_cgroups() {
    let figures = figures(LINUX_5_10, TIME);
    assert_eq!(figures.kernel.as_deref(), Some("5.10.0-32-cloud-amd64"));
    let group = group(&figures);
    assert_eq!((group.path.as_str(), group.is_cpu_max, group.burst_us), ("/sys/fs/cgroup/vm1", true, None));
    assert_eq!((group.quota_us, group.period_us), (30_000, 100_000));
    assert_eq!((group.nr_periods, group.nr_throttled, group.throttled_usec), (96, 96, 6_231_080));
    assert_eq!(figures.ports[1].dropped(Drops::ToVmRing), 4387);
    let missing = figures.missing.join("\n");
    assert!(missing.contains("bursts: no cpu.max.burst") && missing.contains("not recorded"), "{missing}");
    let process = holder(&figures, "ekquota").unwrap();
    let cures = cures(figures, &format!("qemu-system-x86 (process {process})"));
    assert_eq!(cures.first(), Some(&Cure::QuotaPeriod));
}

#[test]
fn the_most_that_waited_is_the_ports() {
    let [before, after] = snapshots(LINUX_6_18);
    let backlog = Backlog { packets: 7, bytes: 700 };
    let backlogs = BTreeMap::from([(after.ports["ekdrop"].ifindex, backlog), (99, Backlog::default())]);
    let figures = diff(&before, &after, &Watched { time: TIME, backlogs, ..Watched::default() });
    assert_eq!(figures.ports.iter().map(|port| port.backlog_max.packets).collect::<Vec<_>>(), [0, 7, 0]);
}

#[test]
fn who_comes_in_the_window_has_no_figures_yet() {
    let [mut before, after] = snapshots(LINUX_6_18);
    before.vms.all.remove(&30554);
    before.vms.groups.clear();
    let figures = diff(&before, &after, &Watched { time: TIME, ..Watched::default() });
    let vm = figures.vms.iter().find(|vm| vm.process == 30554).unwrap();
    assert_eq!((vm.off_core_percent, vm.groups[0].nr_throttled), (0.0, 0));
    assert_eq!(figures.missing, ["waits of process 30554: it came in the window; watch it again"]);
}

#[test]
fn a_machine_that_shows_nothing_is_no_error() {
    let [before, after] = snapshots("@@ before\n\n@@ after\n");
    let missing = [
        "TCP's counters: no /proc/net/netstat or /proc/net/snmp",
        "ports: no /sys/class/net",
        "queues in front of ports: the kernel does not answer (not recorded)",
    ];
    let figures = diff(&before, &after, &Watched { time: TIME, ..Watched::default() });
    assert_eq!(figures.missing, missing);
    assert_eq!(Snapshot { missing: vec![], ..after }, Snapshot::default());
    assert!(Report::of(figures).to_string().ends_with("asks for a change.\n"));
}

#[test]
fn ports_of_other_namespaces_are_other_ports() {
    let elsewhere = LINUX_6_18.replace("/proc/30554/ns/net -> net:[", "/proc/30554/ns/net -> net:[1");
    let figures = figures(&elsewhere, TIME);
    assert_eq!(holder(&figures, "ekquota"), None);
    assert_eq!(figures.vms.len(), 2);
}

#[test]
fn threads_without_names_are_taken_for_virtual_cpus_if_they_ran() {
    let figures = figures(&LINUX_6_18.replace("CPU 0/TCG", "qemu-system-x86"), TIME);
    let counts: Vec<_> = figures.vms.iter().map(|vm| vm.vcpus.len()).collect();
    assert_eq!(counts, [1, 0, 0]);
    assert_eq!(figures.missing.len(), 3);
    let is_said = |missing: &String| missing.contains("no thread has the name of one");
    assert!(figures.missing.iter().all(is_said), "{:?}", figures.missing);
}

#[test]
fn vhost_is_found_as_a_process_and_as_a_thread() {
    let thread = LINUX_6_18.replace("\ncall_rcu\n", "\nvhost-30554\n");
    let process = LINUX_6_18.replace(
        "@ /proc/30554/comm\n",
        "@ /proc/77/comm\nvhost-30554\n@ /proc/77/schedstat\n5000000 1000000 3\n@ /proc/30554/comm\n",
    );
    for text in [thread, process] {
        let figures = figures(&text, TIME);
        let vm = figures.vms.iter().find(|vm| vm.process == 30554).unwrap();
        assert_eq!(vm.vhost.iter().map(|thread| thread.name.as_str()).collect::<Vec<_>>(), ["vhost-30554"]);
    }
}
