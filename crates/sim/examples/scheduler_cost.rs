//! What a call of a host's scheduler costs, in nanoseconds: VMs that wake up, compute for a little while and halt
//! again, beside neighbours that always compute.

use std::hint::black_box;
use std::time::Instant as Wall;

use evenkeel_scenario::random::Random;
use evenkeel_sim::host::scheduler::credit::{Credit, CreditSpec, DomainSpec};
use evenkeel_sim::host::scheduler::linux::{GroupSpec, Linux, LinuxSpec, ThreadSpec};
use evenkeel_sim::host::scheduler::quota::Quota;
use evenkeel_sim::host::scheduler::{EntityId, Scheduler};
use evenkeel_sim::time::{Duration, Instant};

const HOSTS: usize = 100;
const CALLS: u32 = 3_000_000;

/// Every second VM computes without end; the others wake up and halt in turn. Time per call, ticks included.
fn measure(what: &str, mut hosts: Vec<Box<dyn Scheduler>>, vms: u32) {
    let (mut random, mut changes, mut changed) = (Random::new(1, 0), Vec::new(), 0);
    let mut awake = vec![vec![false; vms as usize]; hosts.len()];
    for host in &mut hosts {
        for vm in (0..vms).step_by(2) {
            host.wake(EntityId(vm), Instant::START, &mut changes);
        }
    }
    let mut now = Instant::START;
    let begin = Wall::now();
    for _ in 0..CALLS {
        let bits = random.bits();
        // 5 us apart on average: each VM has 250 wake-ups per second.
        now += Duration::from_ns(bits >> 32 & 0x1fff);
        let (host, vm) = ((bits & 0xffff) as usize % hosts.len(), ((bits >> 16) as u32 % vms) | 1);
        let vm = vm.min(vms - 1);
        let is_awake = &mut awake[host][vm as usize];
        *is_awake = !*is_awake;
        if *is_awake {
            hosts[host].wake(EntityId(vm), now, &mut changes);
        } else {
            hosts[host].block(EntityId(vm), now, &mut changes);
        }
        changed += changes.len();
        changes.clear();
        black_box(hosts[host].next_event());
    }
    let ns = begin.elapsed().as_nanos() / u128::from(CALLS);
    println!("{what}: {ns} ns per call, {changed} changes, {} of simulated time", now.since(Instant::START));
}

fn linux(cores: u32, vms: u32, quota: Option<Quota>) -> Vec<Box<dyn Scheduler>> {
    let spec = LinuxSpec {
        cores,
        groups: (0..vms).map(|_| GroupSpec { quota, ..GroupSpec::default() }).collect(),
        threads: (0..vms).map(|vm| ThreadSpec { group: Some(vm), slice: None }).collect(),
        ..LinuxSpec::default()
    };
    (0..HOSTS).map(|seed| Box::new(Linux::new(&spec, Some(seed as u64))) as Box<dyn Scheduler>).collect()
}

fn credit(cores: u32, vms: u32) -> Vec<Box<dyn Scheduler>> {
    let spec = CreditSpec {
        cores,
        domains: vec![DomainSpec::default(); vms as usize],
        vcpus: (0..vms).collect(),
        ..CreditSpec::default()
    };
    (0..HOSTS).map(|seed| Box::new(Credit::new(&spec, Some(seed as u64))) as Box<dyn Scheduler>).collect()
}

fn main() {
    let quota = Quota { quota: Duration::from_ms(30), period: Duration::from_ms(100), burst: Duration::ZERO };
    for (cores, vms) in [(2, 8), (4, 8), (1, 8), (1, 64), (16, 64)] {
        measure(&format!("linux, {vms} VMs on {cores} cores"), linux(cores, vms, None), vms);
        measure(&format!("linux with quotas, {vms} VMs on {cores} cores"), linux(cores, vms, Some(quota)), vms);
        measure(&format!("credit, {vms} VMs on {cores} cores"), credit(cores, vms), vms);
    }
}
