//! Figures made up, and what is said of them.

use std::collections::BTreeMap;

use super::super::advice::{Advice, Cost, Cure, advise};
use super::super::figures::{Drops, Figures, GroupFigures, PortFigures, Sleeper, TcpFigures, ThreadFigures, VmFigures};

pub(super) fn thread(name: &str, ran_ms: f64, waited_ms: f64) -> ThreadFigures {
    ThreadFigures { id: 11, name: name.into(), ran_ms, waited_ms, turns: 100 }
}

/// A quota of 30 ms in 100, used up in each of 100 periods.
pub(super) fn group(used_us: u64) -> GroupFigures {
    GroupFigures {
        path: r"/sys/fs/cgroup/machine.slice/machine-qemu\x2d1.scope/libvirt/vcpu0".into(),
        vcpus: 1,
        quota_us: 30_000,
        period_us: 100_000,
        burst_us: Some(0),
        is_cpu_max: true,
        nr_periods: 100,
        nr_throttled: 100,
        throttled_usec: 6_900_000,
        used_us,
    }
}

pub(super) fn vm(vcpu: ThreadFigures, groups: Vec<GroupFigures>) -> VmFigures {
    VmFigures {
        process: 10,
        command: "qemu-system-x86".into(),
        ports: vec!["vnet0".into()],
        off_core_percent: vcpu.waited_ms / 100.0,
        ran_percent: vcpu.ran_ms / 100.0,
        vhost: vec![thread("vhost-10", 100.0, 1.0)],
        main: Some(thread("qemu-system-x86", 50.0, 1.0)),
        vcpus: vec![vcpu],
        groups,
    }
}

pub(super) fn port(drops: &[(Drops, u64)]) -> PortFigures {
    PortFigures {
        name: "vnet0".into(),
        process: Some(10),
        to_vm_packets: 500_000,
        from_vm_packets: 300_000,
        drops: drops.iter().copied().collect(),
        queue_length: 500,
        qdisc: Some("fq_codel".into()),
        ..PortFigures::default()
    }
}

pub(super) fn host(port: PortFigures, vm: VmFigures) -> Figures {
    Figures {
        window_s: 10.0,
        kernel: Some("6.1.0-32-amd64".into()),
        ports: vec![port],
        vms: vec![vm],
        ..Figures::default()
    }
}

fn cures(advice: &[Advice]) -> Vec<Cure> {
    advice.iter().map(|advice| advice.cure).collect()
}

#[test]
fn one_alone_is_left_alone() {
    let alone = host(port(&[]), vm(thread("CPU 0/KVM", 9000.0, 20.0), vec![]));
    assert_eq!(advise(&alone), []);
    assert_eq!(advise(&Figures::default()), []);
}

#[test]
fn a_quota_asks_for_a_shorter_period_first() {
    let throttled = host(port(&[]), vm(thread("CPU 0/KVM", 3000.0, 6950.0), vec![group(3_000_000)]));
    let advice = advise(&throttled);
    assert_eq!(cures(&advice), [Cure::QuotaPeriod, Cure::Pvtcp, Cure::Quota]);
    assert_eq!(advice[0].cost, Cost::Command);
    assert!(advice[0].why.contains("30 ms in every 100 ms was used up in 100 of 100 periods"), "{}", advice[0].why);
    assert!(advice[0].why.contains("refused 69 ms each time; with 10 ms it is 6.9 ms"), "{}", advice[0].why);
    let file = r"'/sys/fs/cgroup/machine.slice/machine-qemu\x2d1.scope/libvirt/vcpu0/cpu.max'";
    assert!(advice[0].how.starts_with(&format!("echo '3000 10000' > {file}  # libvirt: virsh ")), "{}", advice[0].how);
    assert!(advice[0].how.contains("vcpu_period=10000 vcpu_quota=3000"), "{}", advice[0].how);
}

#[test]
fn the_first_version_has_two_files() {
    let old = GroupFigures { is_cpu_max: false, path: "/cg/vm".into(), burst_us: None, ..group(3_000_000) };
    let advice = advise(&host(port(&[]), vm(thread("CPU 0/KVM", 3000.0, 6950.0), vec![old])));
    assert_eq!(advice[0].how, "echo 3000 > /cg/vm/cpu.cfs_quota_us; echo 10000 > /cg/vm/cpu.cfs_period_us");
}

#[test]
fn what_is_not_used_can_be_saved() {
    let peaks = GroupFigures { nr_throttled: 20, throttled_usec: 600_000, ..group(1_000_000) };
    let advice = advise(&host(port(&[]), vm(thread("CPU 0/KVM", 1000.0, 620.0), vec![peaks.clone()])));
    assert_eq!(cures(&advice), [Cure::QuotaPeriod, Cure::QuotaBurst, Cure::Pvtcp]);
    assert!(advice[1].why.contains("it used 33 % of what it may"), "{}", advice[1].why);
    let how = &advice[1].how;
    assert!(how.starts_with("echo 30000 > '") && how.contains("/cpu.max.burst'  # at most the quota"), "{how}");
    for burst_us in [None, Some(30_000)] {
        let group = GroupFigures { burst_us, ..peaks.clone() };
        let advice = advise(&host(port(&[]), vm(thread("CPU 0/KVM", 1000.0, 620.0), vec![group])));
        assert!(!cures(&advice).contains(&Cure::QuotaBurst), "{advice:?}");
    }
}

#[test]
fn the_kernel_takes_every_period_that_is_named() {
    for (quota_us, period_us, expected) in [
        (5_000, 100_000, Some("1000 20000")),
        (7_000, 100_000, Some("1050 15000")),
        (400_000, 100_000, Some("40000 10000")),
        (1_000, 100_000, None),
        (3_000, 10_000, None),
    ] {
        let group = GroupFigures { quota_us, period_us, ..group(3_000_000) };
        let advice = advise(&host(port(&[]), vm(thread("CPU 0/KVM", 3000.0, 6950.0), vec![group])));
        let period = advice.iter().find(|advice| advice.cure == Cure::QuotaPeriod);
        let wanted = period.and_then(|advice| advice.how.split('\'').nth(1));
        assert_eq!(wanted, expected, "{quota_us} of {period_us}");
    }
}

#[test]
fn once_throttled_is_nothing() {
    let once = GroupFigures { nr_throttled: 1, throttled_usec: 60_000, ..group(1_000_000) };
    assert_eq!(advise(&host(port(&[]), vm(thread("CPU 0/KVM", 1000.0, 60.0), vec![once]))), []);
}

#[test]
fn waits_beyond_the_quota_are_neighbours() {
    let beside = host(port(&[]), vm(thread("CPU 0/KVM", 5000.0, 4000.0), vec![]));
    assert_eq!(cures(&advise(&beside)), [Cure::Pvtcp, Cure::Cores]);
    let new = Figures { kernel: Some("6.12.3".into()), ..beside };
    let advice = advise(&new);
    assert_eq!(cures(&advice), [Cure::Slice, Cure::Pvtcp, Cure::Cores]);
    assert!(advice[0].why.contains("for 40 % of the window, 40 ms before each of 100 turns"), "{}", advice[0].why);
    assert!(advice[0].how.starts_with("for id in 11;"), "{}", advice[0].how);
}

#[test]
fn short_waits_are_what_sharing_is() {
    let waits = |waited_ms, turns| {
        let vcpu = ThreadFigures { turns, ..thread("CPU 0/KVM", 5000.0, waited_ms) };
        cures(&advise(&host(port(&[]), vm(vcpu, vec![]))))
    };
    assert_eq!(waits(4000.0, 2001), []);
    assert_eq!(waits(4000.0, 2000), [Cure::Cores]);
    assert_eq!(waits(99.0, 1), []);
    assert_eq!(waits(100.0, 13), [Cure::Cores]);
}

#[test]
fn a_ring_that_was_full_asks_for_a_longer_queue_first() {
    let full = host(port(&[(Drops::ToVmRing, 5000)]), vm(thread("CPU 0/KVM", 5000.0, 10.0), vec![]));
    let advice = advise(&full);
    assert_eq!(cures(&advice), [Cure::QueueLength, Cure::RingSize]);
    assert_eq!((advice[0].subject.as_str(), advice[0].how.as_str()), ("vnet0", "ip link set vnet0 txqueuelen 2000"));
    assert!(advice[0].why.contains("5000 packets (0.99 %)"), "{}", advice[0].why);
    assert!(advice[0].why.contains("500 packets fit, as many as come in 9.9 ms at the 50500 packets/s"));
    let long = PortFigures { queue_length: 10_000, ..port(&[(Drops::ToVmRing, 5000)]) };
    let advice = advise(&host(long, vm(thread("CPU 0/KVM", 5000.0, 10.0), vec![])));
    assert_eq!(cures(&advice), [Cure::RingSize]);
}

#[test]
fn no_queue_is_long_enough_for_whom_takes_nothing() {
    let stuck = PortFigures { to_vm_packets: 0, ..port(&[(Drops::ToVmRing, 5000)]) };
    let advice = advise(&host(stuck, vm(thread("CPU 0/KVM", 0.0, 0.0), vec![])));
    assert_eq!(cures(&advice), [Cure::Guest]);
    assert_eq!(advice[0].why, "its ring is full: all 5000 packets for the VM were dropped");
}

#[test]
fn behind_a_ring_that_was_full_may_be_the_quota() {
    let both = host(port(&[(Drops::ToVmRing, 5000)]), vm(thread("CPU 0/KVM", 3000.0, 6950.0), vec![group(3_000_000)]));
    let advice = advise(&both);
    assert_eq!(cures(&advice), [Cure::QuotaPeriod, Cure::QueueLength, Cure::Pvtcp, Cure::Quota]);
    assert!(advice[1].why.ends_with("off its core for 70 % of it, by its quota first of all"), "{}", advice[1].why);
}

#[test]
fn only_queues_that_are_by_length_are_made_longer() {
    for (kind, expected) in [("pfifo_fast", &[Cure::QueueLength][..]), ("fq_codel", &[]), ("tbf", &[])] {
        let port = PortFigures { qdisc: Some(kind.into()), ..port(&[(Drops::ToVmQueue, 5000)]) };
        assert_eq!(cures(&advise(&host(port, vm(thread("CPU 0/KVM", 5000.0, 10.0), vec![])))), expected, "{kind}");
    }
}

#[test]
fn who_carries_packets_is_seen() {
    let carried_by = |vhost: Vec<ThreadFigures>, packets| {
        let vm = VmFigures { vhost, ..vm(thread("CPU 0/KVM", 5000.0, 10.0), vec![]) };
        cures(&advise(&host(PortFigures { to_vm_packets: packets, from_vm_packets: 0, ..port(&[]) }, vm)))
    };
    assert_eq!(carried_by(vec![], 10_000), [Cure::Vhost]);
    assert_eq!(carried_by(vec![], 9_999), []);
    assert_eq!(carried_by(vec![thread("vhost-10", 9_000.0, 0.0)], 10_000), [Cure::Multiqueue]);
    assert_eq!(carried_by(vec![thread("vhost-10", 8_999.0, 0.0)], 10_000), []);
}

#[test]
fn the_hosts_backlog_has_a_sysctl() {
    let figures = Figures { softnet_dropped: Some(3), softnet_limit: Some(1000), ..Figures::default() };
    let advice = advise(&figures);
    assert_eq!(cures(&advice), [Cure::NetdevBacklog]);
    assert_eq!(advice[0].how, "sysctl -w net.core.netdev_max_backlog=4000");
}

pub(super) fn guest(tcp: TcpFigures) -> Figures {
    Figures {
        window_s: 60.0,
        is_guest: true,
        tcp: Some(tcp),
        steal_percent: Some(30.0),
        sleeper: Sleeper { naps: 40_000, late: 500, longest_ms: 71.0 },
        ..Figures::default()
    }
}

pub(super) const HURT: TcpFigures = TcpFigures {
    sent: 100_000,
    retransmitted: 60,
    timeouts: 24,
    syn_timeouts: 0,
    probes: 30,
    undone: 22,
    spurious: 5,
    needless: 50,
};

#[test]
fn a_guest_that_is_hurt_looks_below_first() {
    let advice = advise(&guest(HURT));
    assert_eq!(cures(&advice), [Cure::HostBelow, Cure::Pvtcp]);
    let why = &advice[0].why;
    assert!(why.contains("24 timeouts and 30 probes, of which 22 were undone as needless (5 by F-RTO)"), "{why}");
    assert!(why.contains("30.0 % of the core time it wanted was stolen"), "{why}");
    assert!(why.contains("500 times 8 ms late or more, 71 ms at worst"), "{why}");
}

#[test]
fn what_tcp_has_itself_comes_before() {
    let sysctls = BTreeMap::from([("tcp_timestamps".into(), "0".into()), ("tcp_sack".into(), "1".into())]);
    let advice = advise(&Figures { sysctls, ..guest(HURT) });
    assert_eq!(cures(&advice), [Cure::TcpSettings, Cure::HostBelow, Cure::Pvtcp]);
    assert_eq!(advice[0].how, "sysctl -w net.ipv4.tcp_timestamps=1");
}

#[test]
fn pvtcp_is_not_advised_to_whom_has_it() {
    let with = |mode: &str| cures(&advise(&Figures { pvtcp_mode: Some(mode.into()), ..guest(HURT) }));
    assert_eq!(with("enforce"), [Cure::HostBelow]);
    assert_eq!(with("observe"), [Cure::HostBelow, Cure::Pvtcp]);
}

#[test]
fn steal_that_hurts_nothing_is_left_alone() {
    let quiet = TcpFigures { timeouts: 3, undone: 3, probes: 4, needless: 5, retransmitted: 7, ..HURT };
    assert_eq!(advise(&guest(quiet)), []);
    assert_eq!(advise(&Figures { is_guest: false, ..guest(HURT) }), [], "a host's own TCP has its cores");
}

#[test]
fn losses_are_the_networks() {
    let lost = TcpFigures { retransmitted: 400, needless: 10, timeouts: 20, probes: 0, undone: 0, spurious: 0, ..HURT };
    let advice = advise(&Figures { steal_percent: None, sleeper: Sleeper::default(), ..guest(lost) });
    assert_eq!(cures(&advice), [Cure::HostBelow]);
    assert!(advice[0].why.starts_with("390 segments were lost, 0.39 % of those sent"), "{}", advice[0].why);
}
