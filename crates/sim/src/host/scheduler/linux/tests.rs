//! The rules of EEVDF, one by one, on small hosts without phases: ticks are at multiples of their distance.

use super::*;

struct Host {
    linux: Linux,
    changes: Vec<Change>,
}

fn at(us: u64) -> Instant {
    Instant::START + Duration::from_us(us)
}

fn threads(slices_us: &[u64]) -> Vec<ThreadSpec> {
    let own = |us: &u64| (*us > 0).then(|| Duration::from_us(*us));
    slices_us.iter().map(|us| ThreadSpec { group: None, slice: own(us) }).collect()
}

/// A VM for each weight, with a thread each.
fn vms(weights: &[u32]) -> LinuxSpec {
    LinuxSpec {
        groups: weights.iter().map(|weight| GroupSpec { weight: *weight, quota: None }).collect(),
        threads: (0..).zip(weights).map(|(group, _)| ThreadSpec { group: Some(group), slice: None }).collect(),
        ..LinuxSpec::default()
    }
}

impl Host {
    fn new(spec: &LinuxSpec) -> Self {
        Self { linux: Linux::new(spec, None), changes: Vec::new() }
    }

    fn wake(&mut self, thread: u32, us: u64) -> &mut Self {
        self.linux.wake(EntityId(thread), at(us), &mut self.changes);
        self
    }

    fn block(&mut self, thread: u32, us: u64) -> &mut Self {
        self.linux.block(EntityId(thread), at(us), &mut self.changes);
        self
    }

    fn run(&mut self, us: u64) -> &mut Self {
        self.linux.advance(at(us), &mut self.changes);
        self
    }

    /// What has happened since this was asked last: when (in us), who, and what.
    fn happened(&mut self) -> Vec<(u64, u32, What)> {
        self.changes.drain(..).map(|change| (change.at.us(), change.entity.0, change.what)).collect()
    }

    fn runs(&self) -> Option<u32> {
        self.linux.running(CoreId(0)).map(|entity| entity.0)
    }

    /// How long each thread has run by then, in us.
    fn shares(&mut self, threads: usize, us: u64) -> Vec<u64> {
        self.run(us);
        let (mut since, mut ran) = (vec![None; threads], vec![0; threads]);
        for change in &self.changes {
            let thread = change.entity.0 as usize;
            match change.what {
                What::Runs => since[thread] = Some(change.at.us()),
                What::Stops(_) => ran[thread] += change.at.us() - since[thread].take().unwrap_or(0),
            }
        }
        since.into_iter().zip(ran).map(|(since, ran)| ran + since.map_or(0, |since| us - since)).collect()
    }
}

const RUNS: What = What::Runs;
const SLICE_OVER: What = What::Stops(Why::SliceOver);
const PREEMPTED: What = What::Stops(Why::Preempted);
const BLOCKED: What = What::Stops(Why::Blocked);
const THROTTLED: What = What::Stops(Why::Throttled);

#[test]
fn slices_follow_the_number_of_cores() {
    let slices: Vec<_> = [1, 2, 3, 4, 8, 64].into_iter().map(|cores| default_slice(cores).us()).collect();
    assert_eq!(slices, [700, 1400, 1400, 2100, 2800, 2800]);
}

#[test]
fn two_equal_threads_alternate_by_ticks() {
    let mut host = Host::new(&LinuxSpec { threads: threads(&[0, 0]), ..LinuxSpec::default() });
    host.wake(0, 0).wake(1, 0).run(12_500);
    let expected = [
        (0, 0, RUNS),
        (4_000, 0, SLICE_OVER),
        (4_000, 1, RUNS),
        (8_000, 1, SLICE_OVER),
        (8_000, 0, RUNS),
        (12_000, 0, SLICE_OVER),
        (12_000, 1, RUNS),
    ];
    assert_eq!(host.happened(), expected);
}

#[test]
fn with_more_ticks_they_alternate_by_slices() {
    let slice = Some(Duration::from_ms(3));
    let mut host = Host::new(&LinuxSpec { hz: 1000, slice, threads: threads(&[0, 0]), ..LinuxSpec::default() });
    host.wake(0, 0).wake(1, 0).run(9_500);
    let starts: Vec<_> = host.happened().into_iter().filter(|change| change.2 == RUNS).collect();
    assert_eq!(starts, [(0, 0, RUNS), (3_000, 1, RUNS), (6_000, 0, RUNS), (9_000, 1, RUNS)]);
}

#[test]
fn one_alone_needs_no_ticks() {
    let mut host = Host::new(&LinuxSpec { threads: threads(&[0, 0]), ..LinuxSpec::default() });
    host.wake(0, 100);
    assert_eq!(host.linux.next_event(), None);
    // When another thread comes after all, ticks are where they were, and 0 is in a slice that began at one of them.
    host.wake(1, 96_500);
    assert_eq!(host.linux.next_event(), Some(at(100_000)));
    assert_eq!(host.run(100_000).happened(), [(100, 0, RUNS), (100_000, 0, SLICE_OVER), (100_000, 1, RUNS)]);
    host.block(0, 101_000).block(1, 101_500);
    assert_eq!((host.linux.next_event(), host.runs()), (None, None));
}

#[test]
fn a_sleeper_without_lag_goes_first_if_the_slice_is_over() {
    let mut host = Host::new(&LinuxSpec { threads: threads(&[0, 0]), ..LinuxSpec::default() });
    // The slice of 0.7 ms that began at the tick at 96 ms is long over.
    host.wake(0, 0).wake(1, 99_000);
    assert_eq!(host.happened(), [(0, 0, RUNS), (99_000, 0, PREEMPTED), (99_000, 1, RUNS)]);
}

#[test]
fn twice_the_weight_is_twice_the_time() {
    let mut host = Host::new(&vms(&[200, 100]));
    let ran = host.wake(0, 0).wake(1, 0).shares(2, 3_000_000);
    assert!(ran[0].abs_diff(2_000_000) <= 8_000 && ran[0] + ran[1] == 3_000_000, "{ran:?}");
}

#[test]
fn a_group_has_its_weight_however_many_threads_it_has() {
    let mut spec = vms(&[100, 100]);
    spec.threads.push(ThreadSpec { group: Some(1), slice: None });
    let mut host = Host::new(&spec);
    let ran = host.wake(0, 0).wake(1, 0).wake(2, 0).shares(3, 2_000_000);
    assert!(ran[0].abs_diff(1_000_000) <= 8_000, "{ran:?}");
    assert!(ran[1].abs_diff(500_000) <= 8_000, "{ran:?}");
}

#[test]
fn a_thread_without_group_competes_with_groups() {
    let mut spec = vms(&[300]);
    spec.threads.push(ThreadSpec::default());
    let ran = Host::new(&spec).wake(0, 0).wake(1, 0).shares(2, 4_000_000);
    assert!(ran[0].abs_diff(3_000_000) <= 8_000, "{ran:?}");
}

#[test]
fn one_that_is_behind_keeps_its_slice() {
    let slice = Some(Duration::from_ms(3));
    let mut host = Host::new(&LinuxSpec { slice, threads: threads(&[0, 0, 0]), ..LinuxSpec::default() });
    // 0 runs for 4 ms, then 1, which is behind: it keeps its slice when 2 comes, which waits for the tick.
    host.wake(0, 0).wake(1, 0).run(4_000);
    host.happened();
    host.wake(2, 5_000);
    assert_eq!((host.happened(), host.runs()), (vec![], Some(1)));
    host.run(8_000);
    assert_eq!(host.happened(), [(8_000, 1, SLICE_OVER), (8_000, 2, RUNS)]);
}

#[test]
fn a_shorter_slice_breaks_the_protection() {
    let slice = Some(Duration::from_ms(3));
    let mut host = Host::new(&LinuxSpec { slice, threads: threads(&[0, 0, 300]), ..LinuxSpec::default() });
    host.wake(0, 0).wake(1, 0).run(4_000);
    host.happened();
    host.wake(2, 5_000);
    assert_eq!(host.happened(), [(5_000, 1, PREEMPTED), (5_000, 2, RUNS)]);
}

#[test]
fn a_vcpus_slice_is_its_groups_slice() {
    let mut spec = vms(&[100, 100, 100]);
    spec.slice = Some(Duration::from_ms(3));
    spec.threads[2].slice = Some(Duration::from_us(300));
    let mut host = Host::new(&spec);
    host.wake(0, 0).wake(1, 0).run(4_000);
    host.happened();
    host.wake(2, 5_000);
    assert_eq!(host.happened(), [(5_000, 1, PREEMPTED), (5_000, 2, RUNS)]);
}

#[test]
fn own_slices_have_bounds() {
    let linux = Linux::new(&LinuxSpec { threads: threads(&[1, 500_000]), ..LinuxSpec::default() }, None);
    assert_eq!((linux.all[0].slice, linux.all[1].slice), OWN_SLICE_NS);
}

#[test]
fn lazily_a_wake_up_is_noticed_at_the_tick() {
    let mut host = Host::new(&LinuxSpec { lazy: true, threads: threads(&[0, 0]), ..LinuxSpec::default() });
    host.wake(0, 0).wake(1, 0).run(4_000).block(1, 4_100);
    host.happened();
    host.wake(1, 50_000);
    assert_eq!(host.happened(), []);
    assert_eq!(host.run(52_000).happened(), [(52_000, 0, PREEMPTED), (52_000, 1, RUNS)]);
}

#[test]
fn positive_lag_lasts_over_a_sleep() {
    let mut host = Host::new(&LinuxSpec { threads: threads(&[0, 0]), ..LinuxSpec::default() });
    // 1 waits for 4 ms and halts as soon as it runs: half of what 0 had is owed to it.
    host.wake(0, 0).wake(1, 0).run(4_000);
    host.block(1, 4_100);
    let lag = host.linux.all[1].lag;
    assert_eq!(lag, 1_950_000);
    host.happened();
    // It goes first when it comes back, and its lag is what it was.
    host.wake(1, 50_000);
    assert_eq!(host.happened(), [(50_000, 0, PREEMPTED), (50_000, 1, RUNS)]);
    let average = host.linux.queues[0].average(&host.linux.all);
    assert!((average - host.linux.all[1].vruntime - lag).abs() <= 2);
}

#[test]
fn lag_is_limited() {
    let mut host = Host::new(&LinuxSpec { threads: threads(&[0, 0]), ..LinuxSpec::default() });
    let lengths = host.linux.lengths;
    host.wake(0, 0);
    host.linux.all[0].vruntime = 50_000_000;
    host.linux.queues[0].note_lag(&mut host.linux.all, 0, lengths);
    assert_eq!(host.linux.all[0].lag, 0);
    let far = Schedulable { vruntime: -50_000_000, ..host.linux.all[0].clone() };
    host.linux.all[1] = Schedulable { queued: true, ..far };
    host.linux.queues[0].insert(&host.linux.all, 1);
    host.linux.queues[0].note_lag(&mut host.linux.all, 1, lengths);
    assert_eq!(host.linux.all[1].lag, lengths.tick);
}

#[test]
fn who_had_too_much_competes_asleep() {
    let mut host = Host::new(&LinuxSpec { threads: threads(&[0, 0]), ..LinuxSpec::default() });
    host.wake(0, 0).wake(1, 0).block(0, 1_000);
    assert!(host.linux.all[0].delayed && host.linux.all[0].queued);
    assert_eq!(host.happened(), [(0, 0, RUNS), (1_000, 0, BLOCKED), (1_000, 1, RUNS)]);
    // At the tick, 1 has had its slice, and 0 is picked: it leaves, and 1 goes on.
    host.run(8_000);
    assert!(!host.linux.all[0].queued && !host.linux.all[0].delayed);
    assert_eq!(host.linux.all[0].lag, 0);
    assert_eq!((host.happened(), host.runs()), (vec![], Some(1)));
}

#[test]
fn one_that_wakes_up_in_the_competition_goes_on_from_there() {
    let mut host = Host::new(&LinuxSpec { threads: threads(&[0, 0]), ..LinuxSpec::default() });
    host.wake(0, 0).wake(1, 0).block(0, 1_000).wake(0, 1_200);
    assert!(host.linux.all[0].queued && !host.linux.all[0].delayed);
    // It is still ahead: 1 keeps the core.
    assert_eq!(host.runs(), Some(1));
    assert_eq!(host.linux.queues[0].count, 2);
}

fn limited(quota_ms: u64, period_ms: u64, burst_ms: u64, hz: u32) -> LinuxSpec {
    let [quota, period, burst] = [quota_ms, period_ms, burst_ms].map(Duration::from_ms);
    let mut spec = vms(&[100]);
    spec.groups[0].quota = Some(Quota { quota, period, burst });
    LinuxSpec { hz, ..spec }
}

#[test]
fn a_quota_throttles_when_it_is_used_up_until_the_period_ends() {
    let mut host = Host::new(&limited(30, 100, 0, 1000));
    host.wake(0, 0).run(205_000);
    let expected =
        [(0, 0, RUNS), (30_000, 0, THROTTLED), (100_000, 0, RUNS), (130_000, 0, THROTTLED), (200_000, 0, RUNS)];
    assert_eq!(host.happened(), expected);
    let stats = host.linux.quota_stats(0).unwrap();
    assert_eq!((stats.periods, stats.throttled_periods, stats.throttled), (2, 2, Duration::from_ms(140)));
}

#[test]
fn with_long_ticks_it_overdraws_and_pays_back() {
    let mut host = Host::new(&limited(30, 100, 0, 250));
    host.wake(0, 0).run(1_000_000);
    let ends: Vec<_> = host.happened().into_iter().filter(|change| change.2 == THROTTLED).map(|end| end.0).collect();
    // 32 ms at first, then 28: the debt of 2 ms is paid back.
    assert_eq!(ends[..4], [32_000, 128_000, 232_000, 328_000]);
}

#[test]
fn a_burst_is_what_was_not_used() {
    let mut host = Host::new(&limited(30, 100, 20, 1000));
    host.wake(0, 0).block(0, 10_000).wake(0, 100_000).run(300_000);
    let ends: Vec<_> = host.happened().into_iter().filter(|change| change.2 == THROTTLED).map(|end| end.0).collect();
    // 20 ms were left of the first period.
    assert_eq!(ends, [150_000, 230_000]);
}

#[test]
fn who_wakes_up_without_quota_waits_for_the_period() {
    let mut host = Host::new(&limited(30, 100, 0, 1000));
    host.wake(0, 0).run(30_000).block(0, 35_000).wake(0, 60_000);
    assert_eq!(host.runs(), None);
    host.run(100_000);
    assert_eq!(host.happened().last(), Some(&(100_000, 0, RUNS)));
}

#[test]
fn a_freed_group_waits_for_the_tick() {
    let mut spec = limited(3, 10, 0, 250);
    spec.threads.push(ThreadSpec::default());
    let mut host = Host::new(&spec);
    host.wake(0, 0).wake(1, 0).run(9_000);
    // Throttled at the tick at 4 ms, when it is 2 ms ahead of the average.
    assert_eq!(host.happened(), [(0, 0, RUNS), (4_000, 0, THROTTLED), (4_000, 1, RUNS)]);
    // Freed at 10 ms, which nobody notices. At the tick at 12 ms it is ahead still, at the next one no more.
    host.run(16_000);
    assert_eq!(host.happened(), [(16_000, 1, SLICE_OVER), (16_000, 0, RUNS)]);
}

#[test]
fn all_cores_draw_from_one_pool() {
    let mut spec = limited(20, 100, 0, 1000);
    spec.cores = 2;
    spec.threads.push(ThreadSpec { group: Some(0), slice: None });
    let ran = Host::new(&spec).wake(0, 0).wake(1, 0).shares(2, 1_000_000);
    assert!(ran.iter().sum::<u64>().abs_diff(200_000) <= 2_000, "{ran:?}");
}

#[test]
fn who_wakes_up_takes_an_idle_core() {
    let spec = LinuxSpec { cores: 2, threads: threads(&[0, 0, 0]), ..LinuxSpec::default() };
    let mut host = Host::new(&spec);
    host.wake(0, 0).wake(1, 0);
    assert_eq!(host.linux.running(CoreId(1)), Some(EntityId(1)));
    // All are busy: it waits where it was last. The core that gets idle takes it.
    host.wake(2, 100).block(1, 200);
    assert_eq!(host.linux.running(CoreId(1)), Some(EntityId(2)));
    assert_eq!(host.linux.next_event(), None);
}

#[test]
fn three_threads_share_two_cores() {
    let spec = LinuxSpec { cores: 2, threads: threads(&[0, 0, 0]), ..LinuxSpec::default() };
    let ran = Host::new(&spec).wake(0, 0).wake(1, 0).wake(2, 0).shares(3, 6_000_000);
    assert_eq!(ran.iter().sum::<u64>(), 12_000_000);
    assert!(ran.iter().all(|ran| ran.abs_diff(4_000_000) < 400_000), "{ran:?}");
}

#[test]
fn a_groups_weight_is_shared_by_its_cores() {
    let mut spec = vms(&[100, 100]);
    spec.cores = 2;
    spec.threads.push(ThreadSpec { group: Some(0), slice: None });
    let mut host = Host::new(&spec);
    host.wake(0, 0).wake(2, 0).wake(1, 4_100);
    let owner = |core: usize| host.linux.all[3 + core].weight;
    assert_eq!((owner(0), owner(1)), (512, 512));
}

#[test]
fn a_group_that_runs_out_of_threads_on_a_core_may_get_one_from_another() {
    let mut spec = vms(&[100, 100]);
    spec.cores = 2;
    spec.threads.push(ThreadSpec { group: Some(0), slice: None });
    let mut host = Host::new(&spec);
    // On core 1, thread 2 of the first group; on core 0 the other group's, then thread 0 behind it.
    host.wake(1, 0).wake(2, 0).wake(0, 100);
    host.happened();
    host.block(2, 200);
    assert_eq!(host.happened(), [(200, 2, BLOCKED), (200, 0, RUNS)]);
    assert_eq!((host.linux.queues[1].count, host.linux.queues[1].current), (1, Some(4)));
    host.block(0, 300).run(20_000);
    assert_eq!(host.linux.running(CoreId(1)), None);
}
