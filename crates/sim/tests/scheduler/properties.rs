//! What holds for all models, whatever happens: virtual CPUs compute and are asked at random, by fixed seeds.

use std::cell::RefCell;
use std::rc::Rc;

use evenkeel_scenario::format::CoreSharing;
use evenkeel_scenario::random::Random;
use evenkeel_scenario::slices::Turns;
use evenkeel_sim::host::scheduler::credit::{Credit, CreditSpec, DomainSpec};
use evenkeel_sim::host::scheduler::linux::{GroupSpec, Linux, LinuxSpec, ThreadSpec};
use evenkeel_sim::host::scheduler::quota::Quota;
use evenkeel_sim::host::scheduler::slices::Slices;
use evenkeel_sim::host::scheduler::{CoreId, Scheduler};
use evenkeel_sim::time::{Duration, Instant};

use crate::machine::{Load, Machine, Requests};

const SEEDS: u64 = 12;
const RUN: Duration = Duration::from_s(20);
const TICK: Duration = Duration::from_ms(4);

fn below(random: &mut Random, count: u64) -> u64 {
    random.bits() % count
}

fn load(random: &mut Random) -> Load {
    let period = Duration::from_us(500 + below(random, 60_000));
    let busy = Duration::from_ps(period.ps() / 100 * (1 + below(random, 99)));
    match below(random, 6) {
        0 => Load::Busy,
        1 => Load::Idle,
        2 => Load::Some { percent: below(random, 101), period },
        by => Load::Cycle { busy, period, by_clock: by == 3 },
    }
}

fn loads(random: &mut Random, count: u32) -> Vec<Load> {
    (0..count).map(|_| load(random)).collect()
}

/// The longest time for which something waited without a break although a core was idle, and the sum of such times.
fn idle_although_needed<S: Scheduler>(machine: &mut Machine<S>) -> (Duration, Duration) {
    let cores = machine.scheduler.cores() as usize;
    let found = Rc::new(RefCell::new((Duration::ZERO, Duration::ZERO)));
    let (seen, mut present) = (Rc::clone(&found), Duration::ZERO);
    machine.look = Some(Box::new(move |span, awake, runs| {
        let running = runs.iter().filter(|runs| **runs).count();
        assert!(running <= cores, "{running} run on {cores} cores");
        let waits = awake.iter().zip(runs).any(|(awake, runs)| *awake && !runs);
        present = if waits && running < cores { present + span } else { Duration::ZERO };
        let mut seen = seen.borrow_mut();
        seen.0 = seen.0.max(present);
        if present > Duration::ZERO {
            seen.1 += span;
        }
    }));
    let first = machine.scheduler.cores() - 1;
    machine.ask(Requests { to: first.min(1), gap: Duration::from_us(3_700), cost: Duration::from_us(90) });
    machine.run(Instant::START + RUN);
    *found.borrow()
}

/// Groups and threads at random, without quotas unless they are given.
fn linux(random: &mut Random, cores: u32, quota: Option<Quota>) -> (LinuxSpec, u32) {
    let groups = 1 + below(random, 6) as u32;
    let group = |random: &mut Random| GroupSpec { weight: 1 + below(random, 400) as u32, quota };
    let threads = groups + below(random, 8) as u32;
    let thread = |number: u32, random: &mut Random| ThreadSpec {
        group: (number < groups || below(random, 3) > 0).then(|| number % groups),
        slice: (below(random, 4) == 0).then(|| Duration::from_us(100 + below(random, 9_000))),
    };
    let spec = LinuxSpec {
        cores,
        hz: if cores % 2 == 0 { 1000 } else { 250 },
        lazy: below(random, 4) == 0,
        slice: None,
        groups: (0..groups).map(|_| group(random)).collect(),
        threads: (0..threads).map(|number| thread(number, random)).collect(),
    };
    (spec, threads)
}

#[test]
fn linux_leaves_no_core_idle_that_is_needed() {
    for seed in 0..SEEDS {
        let mut random = Random::new(seed, 2);
        let cores = 1 + (seed % 4) as u32;
        let (spec, threads) = linux(&mut random, cores, None);
        let mut machine = Machine::new(Linux::new(&spec, Some(seed)), &loads(&mut random, threads), seed);
        let (longest, total) = idle_although_needed(&mut machine);
        // With several cores, a thread that wakes up before it has left its queue waits there until a tick balances.
        let limit = if cores == 1 { Duration::ZERO } else { TICK };
        assert!(longest <= limit, "seed {seed}: {longest}");
        assert!(total.ps() <= RUN.ps() / 100, "seed {seed}: {total}");
    }
}

#[test]
fn credit_leaves_no_core_idle_that_is_needed() {
    for seed in 0..SEEDS {
        let mut random = Random::new(seed, 3);
        let (cores, domains) = (1 + (seed % 4) as u32, 1 + below(&mut random, 8) as u32);
        let spec = CreditSpec {
            cores,
            domains: (0..domains).map(|_| DomainSpec { weight: 1 + below(&mut random, 900) as u32, cap: 0 }).collect(),
            vcpus: (0..domains * 2).map(|vcpu| vcpu % domains).collect(),
            ..CreditSpec::default()
        };
        let mut machine = Machine::new(Credit::new(&spec, Some(seed)), &loads(&mut random, domains * 2), seed);
        assert_eq!(idle_although_needed(&mut machine).0, Duration::ZERO, "seed {seed}");
    }
}

#[test]
fn slices_run_only_those_that_have_something_to_do() {
    let sharing = CoreSharing { vms_per_core: 3, slice_jitter: 0.5, idle_us: Some(100), ..CoreSharing::default() };
    let mut random = Random::new(5, 4);
    let turns = (0..6).map(|index| Some(Turns::new(&sharing, 5, index)));
    let mut machine = Machine::new(Slices::new(turns), &loads(&mut random, 6), 5);
    // The driver itself checks that what runs is awake.
    idle_although_needed(&mut machine);
    assert!(machine.changed > 1000, "{}", machine.changed);
}

#[test]
fn linux_shares_by_weight() {
    for seed in 0..SEEDS {
        let mut random = Random::new(seed, 5);
        let count = 2 + below(&mut random, 6) as u32;
        let groups: Vec<_> =
            (0..count).map(|_| GroupSpec { weight: 20 + below(&mut random, 300) as u32, quota: None }).collect();
        let all: u32 = groups.iter().map(|group| group.weight).sum();
        let threads = (0..count).map(|group| ThreadSpec { group: Some(group), slice: None }).collect();
        let spec = LinuxSpec { groups: groups.clone(), threads, ..LinuxSpec::default() };
        let mut machine = Machine::new(Linux::new(&spec, Some(seed)), &vec![Load::Busy; count as usize], seed);
        machine.run(Instant::START + RUN);
        for (number, group) in (0..).zip(&groups) {
            let due = Duration::from_ps(RUN.ps() / u64::from(all) * u64::from(group.weight));
            let ran = machine.ran(number);
            // Lag is bounded by a slice or a tick, weighted: a thousandth of the run.
            assert!(ran.ps().abs_diff(due.ps()) < 5 * TICK.ps(), "seed {seed}, group {number}: {ran}, due {due}");
        }
    }
}

#[test]
fn credit_shares_by_weight() {
    for seed in 0..SEEDS {
        let mut random = Random::new(seed, 6);
        let count = 2 + below(&mut random, 4) as u32;
        let domains: Vec<_> =
            (0..count).map(|_| DomainSpec { weight: 100 + below(&mut random, 400) as u32, cap: 0 }).collect();
        let all: u32 = domains.iter().map(|domain| domain.weight).sum();
        let spec =
            CreditSpec { cores: 1, domains: domains.clone(), vcpus: (0..count).collect(), ..CreditSpec::default() };
        let mut machine = Machine::new(Credit::new(&spec, Some(seed)), &vec![Load::Busy; count as usize], seed);
        let run = Duration::from_s(200);
        machine.run(Instant::START + run);
        for (number, domain) in (0..).zip(&domains) {
            let due = Duration::from_ps(run.ps() / u64::from(all) * u64::from(domain.weight));
            let ran = machine.ran(number);
            // Within 2.5%, but for those who save more than 300 credits while the others have a slice each: they leave
            // the accounting with half of them, and get 12% less than they are due.
            assert!(ran.ps().abs_diff(due.ps()) < due.ps() * 15 / 100, "seed {seed}, {number}: {ran}, due {due}");
        }
    }
}

#[test]
fn nobody_has_more_than_the_quota() {
    for seed in 0..SEEDS {
        let mut random = Random::new(seed, 7);
        let (cores, period) = (1 + (seed % 3) as u32, 10 + below(&mut random, 100));
        let [quota, period, burst] =
            [1 + below(&mut random, period), period, below(&mut random, 2) * 5].map(Duration::from_ms);
        let quota = Quota { quota, period, burst };
        let (spec, threads) = linux(&mut random, cores, Some(quota));
        let mut machine = Machine::new(Linux::new(&spec, Some(seed)), &loads(&mut random, threads), seed);
        machine.run(Instant::START + RUN);
        for group in 0..spec.groups.len() as u32 {
            let of_group = (0..threads).filter(|thread| spec.threads[*thread as usize].group == Some(group));
            let ran = of_group.map(|thread| machine.ran(thread)).fold(Duration::ZERO, |sum, ran| sum + ran);
            // The first period is cut short, and each core may overdraw by a tick.
            let periods = RUN.ps() / period.ps() + 2;
            let most = quota.quota * periods + burst + TICK * u64::from(cores);
            assert!(ran <= most, "seed {seed}, group {group}: {ran} of {most}");
        }
    }
}

#[test]
fn the_same_seed_has_the_same_effects() {
    let run = |seed| {
        let mut random = Random::new(seed, 8);
        let quota = Quota { quota: Duration::from_ms(20), period: Duration::from_ms(50), burst: Duration::ZERO };
        let (spec, threads) = linux(&mut random, 2, Some(quota));
        let mut machine = Machine::new(Linux::new(&spec, Some(seed)), &loads(&mut random, threads), seed);
        machine.run(Instant::START + RUN);
        (machine.changed, (0..threads).map(|thread| machine.ran(thread)).collect::<Vec<_>>())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_core_that_is_not_there_runs_nobody() {
    let linux = Linux::new(&LinuxSpec::default(), None);
    let credit = Credit::new(&CreditSpec::default(), None);
    assert_eq!((linux.running(CoreId(7)), credit.running(CoreId(7))), (None, None));
    assert_eq!((linux.cores(), credit.cores()), (1, 1));
}
