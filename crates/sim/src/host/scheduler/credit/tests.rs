//! The rules of the credit scheduler, one by one. Ticks are at multiples of 10 ms.

use super::*;

struct Host {
    credit: Credit,
    changes: Vec<Change>,
}

const RUNS: What = What::Runs;
const SLICE_OVER: What = What::Stops(Why::SliceOver);
const PREEMPTED: What = What::Stops(Why::Preempted);
const THROTTLED: What = What::Stops(Why::Throttled);

fn at(us: u64) -> Instant {
    Instant::START + Duration::from_us(us)
}

/// A domain with a virtual CPU for each weight and cap.
fn domains(cores: u32, weights: &[(u32, u32)]) -> CreditSpec {
    CreditSpec {
        cores,
        domains: weights.iter().map(|(weight, cap)| DomainSpec { weight: *weight, cap: *cap }).collect(),
        vcpus: (0..weights.len() as u32).collect(),
        ..CreditSpec::default()
    }
}

impl Host {
    fn new(spec: &CreditSpec) -> Self {
        Self { credit: Credit::new(spec, None), changes: Vec::new() }
    }

    fn equal(cores: u32, count: usize) -> Self {
        Self::new(&domains(cores, &vec![(DEFAULT_WEIGHT, 0); count]))
    }

    fn wake(&mut self, vcpu: u32, us: u64) -> &mut Self {
        self.credit.wake(EntityId(vcpu), at(us), &mut self.changes);
        self
    }

    fn block(&mut self, vcpu: u32, us: u64) -> &mut Self {
        self.credit.block(EntityId(vcpu), at(us), &mut self.changes);
        self
    }

    fn run(&mut self, us: u64) -> &mut Self {
        self.credit.advance(at(us), &mut self.changes);
        self
    }

    fn happened(&mut self) -> Vec<(u64, u32, What)> {
        self.changes.drain(..).map(|change| (change.at.us(), change.entity.0, change.what)).collect()
    }

    fn priority(&self, vcpu: u32) -> Priority {
        self.credit.vcpus[vcpu as usize].priority
    }

    /// How long each has run by then, in us.
    fn shares(&mut self, us: u64) -> Vec<u64> {
        self.run(us);
        let count = self.credit.vcpus.len();
        let (mut since, mut ran) = (vec![None; count], vec![0; count]);
        for change in &self.changes {
            let vcpu = change.entity.0 as usize;
            match change.what {
                What::Runs => since[vcpu] = Some(change.at.us()),
                What::Stops(_) => ran[vcpu] += change.at.us() - since[vcpu].take().unwrap_or(0),
            }
        }
        since.into_iter().zip(ran).map(|(since, ran)| ran + since.map_or(0, |since| us - since)).collect()
    }
}

#[test]
fn equal_ones_alternate_by_slices_of_30_ms() {
    let mut host = Host::equal(1, 3);
    host.wake(0, 0).wake(1, 0).wake(2, 0).run(2_000_000);
    host.happened();
    host.run(2_300_000);
    let changes = host.happened();
    let starts: Vec<_> = changes.iter().filter(|change| change.2 == RUNS).collect();
    assert!(starts.windows(2).all(|pair| pair[1].0 - pair[0].0 == 30_000 && pair[0].1 != pair[1].1), "{starts:?}");
    assert!(changes.iter().all(|change| change.2 == RUNS || change.2 == SLICE_OVER));
}

#[test]
fn a_credit_lasts_a_tenth_of_a_millisecond_and_fractions_are_kept() {
    let mut host = Host::equal(1, 1);
    // Ten times 40 us are four credits, though each is less than half of one.
    for turn in 0..10 {
        host.wake(0, turn * 100 + 1).block(0, turn * 100 + 41);
    }
    assert_eq!(host.credit.vcpus[0].credit, -4);
    host.wake(0, 2_000).block(0, 5_000);
    assert_eq!(host.credit.vcpus[0].credit, -34);
}

#[test]
fn who_wakes_up_with_credits_is_boosted_and_runs_at_once() {
    let mut host = Host::equal(1, 2);
    host.wake(0, 0).run(15_000);
    assert_eq!(host.priority(0), Priority::Under);
    host.happened();
    host.wake(1, 15_000);
    assert_eq!(host.happened(), [(15_000, 0, PREEMPTED), (15_000, 1, RUNS)]);
    assert_eq!(host.priority(1), Priority::Boost);
    // It keeps its boost if it halts before a tick finds it.
    host.block(1, 16_000);
    assert_eq!(host.priority(1), Priority::Boost);
    host.wake(1, 19_900).run(20_000);
    assert_eq!(host.priority(1), Priority::Under);
}

#[test]
fn a_boosted_one_does_not_preempt_another() {
    let mut host = Host::equal(1, 2);
    host.wake(0, 1_000).wake(1, 2_000);
    assert_eq!(host.happened(), [(1_000, 0, RUNS)]);
    // The tick takes the boost from the one that runs, but nobody looks at the queue until the slice is over.
    assert_eq!(host.run(31_000).happened(), [(31_000, 0, SLICE_OVER), (31_000, 1, RUNS)]);
}

#[test]
fn who_has_overdrawn_is_not_boosted_and_waits() {
    let mut host = Host::equal(1, 3);
    host.wake(0, 0).wake(1, 0).wake(2, 0).run(65_000);
    // 1 has burnt 300 credits and was dealt half of what there was: it is OVER, also when it has slept.
    host.happened();
    host.block(1, 65_500).wake(1, 65_600);
    assert_eq!((host.happened(), host.priority(1)), (vec![], Priority::Over));
    assert_eq!(host.credit.cores[0].queue, [0, 1]);
    // 0 is not, and goes first once the tick has taken the boost from 2.
    assert_eq!(host.priority(0), Priority::Under);
    host.block(0, 65_700).wake(0, 65_800);
    assert_eq!(host.happened(), []);
    host.block(0, 70_700).wake(0, 70_800);
    assert_eq!(host.happened(), [(70_800, 2, PREEMPTED), (70_800, 0, RUNS)]);
}

#[test]
fn under_goes_before_over() {
    let mut host = Host::equal(1, 2);
    host.wake(0, 0).wake(1, 0).run(60_000);
    host.credit.vcpus[0].priority = Priority::Over;
    host.credit.vcpus[1].priority = Priority::Under;
    host.credit.cores[0].queue.clear();
    host.credit.insert(0, 0);
    host.credit.insert(0, 1);
    assert_eq!(host.credit.cores[0].queue, [1, 0]);
}

#[test]
fn the_queue_is_put_in_order_at_the_tick_after_the_accounting() {
    let mut host = Host::equal(1, 5);
    host.credit.cores[0].queue = vec![0, 1, 2, 3];
    for (vcpu, priority) in [Priority::Over, Priority::Under, Priority::Over, Priority::Under].into_iter().enumerate() {
        host.credit.vcpus[vcpu].priority = priority;
    }
    host.credit.tick(at(10_000));
    assert_eq!(host.credit.cores[0].queue, [0, 1, 2, 3]);
    host.credit.accountings += 1;
    host.credit.tick(at(20_000));
    assert_eq!(host.credit.cores[0].queue, [1, 3, 0, 2]);
}

#[test]
fn twice_the_weight_is_twice_the_time() {
    let ran = Host::new(&domains(1, &[(512, 0), (256, 0)])).wake(0, 0).wake(1, 0).shares(12_000_000);
    assert!(ran[0].abs_diff(8_000_000) < 120_000, "{ran:?}");
}

#[test]
fn a_capped_domain_is_parked_and_gets_no_more() {
    let mut host = Host::new(&domains(1, &[(256, 30)]));
    let ran = host.wake(0, 0).shares(6_000_000);
    assert!(ran[0].abs_diff(1_800_000) < 120_000, "{ran:?}");
    assert!(host.changes.iter().any(|change| change.what == THROTTLED));
    // Unparked, it is not boosted.
    assert!(host.priority(0) < Priority::Boost);
}

#[test]
fn who_saves_more_than_a_slice_leaves_with_half() {
    let mut host = Host::equal(1, 2);
    // Found by the tick at 10 ms, then asleep.
    host.wake(0, 9_900).block(0, 10_100).run(100_000);
    assert_eq!(host.credit.weight, 0);
    let entry = &host.credit.vcpus[0];
    assert!(!entry.active && entry.credit > 140 && entry.credit <= 300, "{entry:?}");
    assert_eq!(host.credit.next_event(), None);
}

#[test]
fn an_idle_core_takes_who_waits() {
    let mut host = Host::equal(2, 3);
    // All come to core 0; core 1 is told, and takes one. The third waits until somebody halts.
    host.wake(0, 1_000).wake(1, 1_000).wake(2, 1_000);
    assert_eq!(host.credit.running(CoreId(1)), Some(EntityId(1)));
    host.block(1, 2_000);
    assert_eq!(host.credit.running(CoreId(1)), Some(EntityId(2)));
}

#[test]
fn a_boosted_one_drives_the_other_to_the_idle_core() {
    let mut host = Host::equal(2, 2);
    host.wake(0, 0).run(15_000);
    host.happened();
    host.wake(1, 15_000);
    let expected = [(15_000, 0, PREEMPTED), (15_000, 1, RUNS), (15_000, 0, RUNS)];
    assert_eq!(host.happened(), expected);
    assert_eq!(host.credit.running(CoreId(1)), Some(EntityId(0)));
}

#[test]
fn three_share_two_cores() {
    let ran = Host::equal(2, 3).wake(0, 0).wake(1, 0).wake(2, 0).shares(9_000_000);
    assert_eq!(ran.iter().sum::<u64>(), 18_000_000);
    assert!(ran.iter().all(|ran| ran.abs_diff(6_000_000) < 200_000), "{ran:?}");
}

#[test]
fn a_host_without_work_has_no_events() {
    let mut host = Host::equal(1, 1);
    assert_eq!(host.credit.next_event(), None);
    host.wake(0, 5_000);
    assert_eq!(host.credit.next_event(), Some(at(10_000)));
    host.block(0, 6_000);
    assert_eq!(host.credit.next_event(), None);
}
