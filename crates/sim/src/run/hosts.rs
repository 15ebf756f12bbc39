//! Turns a scenario's hosts into specifications of who competes for their cores.

use evenkeel_scenario::format::{DriverDomain, Host, Quota as QuotaKeys, Scenario, Scheduler, VmGroup};
use evenkeel_scenario::placement::{core_sharing, placements};
use evenkeel_scenario::slices::Turns;

use crate::host::cores::{CoresSpec, Duty, SchedulerSpec};
use crate::host::scheduler::credit::{CreditSpec, DEFAULT_WEIGHT as DEFAULT_CREDIT_WEIGHT, DomainSpec};
use crate::host::scheduler::linux::{DEFAULT_WEIGHT, GroupSpec, LinuxSpec, ThreadSpec};
use crate::host::scheduler::quota::Quota;
use crate::packet::{GuestId, HostId};
use crate::time::Duration;
use crate::workload::Random;

/// Separate the draws of phases from others of the same seed: of VMs' own loads, and of neighbours'.
const OWN_LOADS: u64 = 3 << 32;
const NEIGHBOURS: u64 = 4 << 32;

/// A VM and its group.
type Vm<'a> = (GuestId, &'a VmGroup);

/// The hosts whose schedulers decide who runs, in the order of their numbers.
pub fn cores(scenario: &Scenario, seed: u64) -> Vec<CoresSpec> {
    let placements = placements(scenario);
    let mut found: Vec<(u32, &Host, Vec<Vm<'_>>)> = Vec::new();
    for (guest, placement) in (0..).map(GuestId).zip(&placements) {
        let (Some(kind), Some(group)) = (placement.kind, scenario.vms.get(placement.group)) else { continue };
        match found.binary_search_by_key(&placement.host, |(number, ..)| *number) {
            Ok(at) => found[at].2.push((guest, group)),
            Err(at) => found.insert(at, (placement.host, kind, vec![(guest, group)])),
        }
    }
    found.into_iter().filter_map(|(number, kind, vms)| host(number, kind, &vms, seed)).collect()
}

/// A host's cores; `None` if turns are drawn there.
fn host(number: u32, kind: &Host, vms: &[Vm<'_>], seed: u64) -> Option<CoresSpec> {
    let mut phases = Random::new(seed, NEIGHBOURS | u64::from(number));
    let neighbours = kind.neighbours.per_core * kind.cores;
    let neighbours: Vec<Duty> =
        (0..neighbours).map(|_| duty(kind.neighbours.load, kind.neighbours.duty_ms, &mut phases)).collect();
    let has_domain = kind.driver_domain == DriverDomain::Shared;
    Some(CoresSpec {
        host: HostId(number),
        scheduler: scheduler(kind, vms, neighbours.len(), has_domain)?,
        vcpus: vms.iter().map(|(guest, group)| (*guest, own_load(group, *guest, seed))).collect(),
        neighbours,
        has_domain,
    })
}

fn scheduler(kind: &Host, vms: &[Vm<'_>], neighbours: usize, has_domain: bool) -> Option<SchedulerSpec> {
    let others = neighbours + usize::from(has_domain);
    Some(match kind.scheduler {
        Scheduler::Credit { slice_ms, tick_ms, boost } => {
            // A weight means the same under every scheduler.
            let weight = |group: &VmGroup| (group.weight * DEFAULT_CREDIT_WEIGHT).div_ceil(DEFAULT_WEIGHT);
            let own = vms.iter().map(|(_, group)| DomainSpec { weight: weight(group), cap: 0 });
            let domains: Vec<_> = own.chain((0..others).map(|_| DomainSpec::default())).collect();
            SchedulerSpec::Credit(CreditSpec {
                cores: kind.cores,
                slice: milliseconds(slice_ms),
                tick: milliseconds(tick_ms),
                boost,
                vcpus: (0..domains.len() as u32).collect(),
                domains,
            })
        }
        Scheduler::Linux { hz, slice_us } => {
            let groups = vms.iter().map(|(_, group)| GroupSpec { weight: group.weight, quota: group.quota.map(quota) });
            let own_slice = |group: &VmGroup| group.slice_us.map(microseconds);
            let threads = (0..).zip(vms).map(|(number, (_, group))| (Some(number), own_slice(group)));
            // A neighbour is a VM with a group of its own; the host's thread has none.
            let first = vms.len() as u32;
            let of_neighbours = (first..first + neighbours as u32).map(|number| (Some(number), None));
            let of_domain = has_domain.then_some((None, None));
            SchedulerSpec::Linux(LinuxSpec {
                cores: kind.cores,
                hz,
                slice: slice_us.map(microseconds),
                groups: groups.chain((0..neighbours).map(|_| GroupSpec::default())).collect(),
                threads: threads
                    .chain(of_neighbours)
                    .chain(of_domain)
                    .map(|(group, slice)| ThreadSpec { group, slice })
                    .collect(),
                ..LinuxSpec::default()
            })
        }
        Scheduler::Slices { .. } => return None,
    })
}

fn quota(keys: QuotaKeys) -> Quota {
    Quota { quota: microseconds(keys.us), period: microseconds(keys.period_us), burst: microseconds(keys.burst_us) }
}

fn microseconds(us: u32) -> Duration {
    Duration::from_us(u64::from(us))
}

fn milliseconds(ms: f64) -> Duration {
    Duration::from_ns((ms * 1e6).round() as u64)
}

/// What a VM computes beside its traffic.
pub fn own_load(group: &VmGroup, guest: GuestId, seed: u64) -> Option<Duty> {
    let own = group.own_load?;
    Some(duty(own.load, own.duty_ms, &mut Random::new(seed, OWN_LOADS | u64::from(guest.0))))
}

fn duty(load: f64, duty_ms: f64, phases: &mut Random) -> Duty {
    let period = milliseconds(duty_ms);
    Duty { busy: milliseconds(duty_ms * load), period, phase: phases.span(period) }
}

/// When a VM has its core, if that is drawn.
pub fn turns(scenario: &Scenario, group: &VmGroup, guest: GuestId, seed: u64) -> Option<Turns> {
    core_sharing(scenario, group).map(|sharing| Turns::new(&sharing, seed, u64::from(guest.0)))
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::format::CoreSharing;

    use super::*;

    fn scenario(hosts: &str, sender: &str) -> Scenario {
        let text = format!(
            "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 1000\n[network]\nrate_mbit = 1000\n\
             [hosts.shared]\n{hosts}\n[vms.receiver]\n[vms.sender]\non = \"shared\"\n{sender}\n\
             [workloads.w]\nkind = \"bulk\"\nfrom = \"sender\"\nto = \"receiver\""
        );
        Scenario::from_str(&text, "t.toml").unwrap_or_else(|e| panic!("{e}")).scenario
    }

    #[test]
    fn a_host_has_its_vms_its_neighbours_and_its_own_thread() {
        let scenario = scenario(
            "count = 2\ncores = 2\ndriver_domain = \"shared\"\nneighbours = { per_core = 3, load = 0.6 }\n\
             scheduler = { kind = \"linux\", hz = 1000, slice_us = 1400 }",
            "count = 3\nweight = 300\nslice_us = 300\nquota = { us = 30000 }\nown_load = { load = 0.5 }",
        );
        let hosts = cores(&scenario, 7);
        let of: Vec<_> = hosts.iter().map(|host| host.vcpus.iter().map(|vm| vm.0.0).collect::<Vec<_>>()).collect();
        assert_eq!(of, [vec![0, 2], vec![1]]);
        let SchedulerSpec::Linux(linux) = &hosts[1].scheduler else { panic!("{:?}", hosts[1]) };
        assert_eq!((linux.cores, linux.hz, linux.slice), (2, 1000, Some(Duration::from_us(1400))));
        let groups: Vec<_> = linux.threads.iter().map(|thread| thread.group).collect();
        assert_eq!(groups, [Some(0), Some(1), Some(2), Some(3), Some(4), Some(5), Some(6), None]);
        assert_eq!((linux.groups[0].weight, linux.groups[1].weight), (300, DEFAULT_WEIGHT));
        assert_eq!(linux.groups[0].quota.map(|quota| quota.period), Some(Duration::from_ms(100)));
        assert_eq!((linux.threads[0].slice, linux.threads[1].slice), (Some(Duration::from_us(300)), None));
        assert!(hosts[1].has_domain && hosts[1].neighbours.len() == 6);
        let phases: Vec<_> = hosts.iter().flat_map(|host| &host.neighbours).map(|duty| duty.phase).collect();
        assert!(phases.windows(2).all(|pair| pair[0] != pair[1]), "{phases:?}");
        assert_eq!(hosts[1].vcpus[0].1.map(|duty| duty.busy), Some(Duration::from_ms(15)));
    }

    #[test]
    fn weights_mean_the_same_under_credit() {
        let scenario = scenario("scheduler = { kind = \"credit\", tick_ms = 5, boost = false }", "weight = 200");
        let hosts = cores(&scenario, 7);
        let SchedulerSpec::Credit(credit) = &hosts[0].scheduler else { panic!("{:?}", hosts[0]) };
        assert_eq!((credit.domains[0].weight, credit.boost), (512, false));
        assert_eq!((credit.slice, credit.tick), (Duration::from_ms(30), Duration::from_ms(5)));
    }

    #[test]
    fn drawn_slices_are_those_of_a_shared_core() {
        let scenario = scenario(
            "neighbours = { per_core = 2, load = 0.6 }\nscheduler = { kind = \"slices\", slice_jitter = 0.5 }",
            "count = 2",
        );
        assert!(cores(&scenario, 7).is_empty());
        let group = &scenario.vms["sender"];
        let on = turns(&scenario, group, GuestId(1), 7).unwrap();
        let core = CoreSharing { vms_per_core: 3, slice_jitter: 0.5, load: 0.6, ..CoreSharing::default() };
        let alone = VmGroup { core, on: None, ..group.clone() };
        let own = turns(&scenario, &alone, GuestId(1), 7).unwrap();
        assert!(on.take(100).eq(own.take(100)));
    }
}
