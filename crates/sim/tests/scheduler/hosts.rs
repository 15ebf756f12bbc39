//! Whether a VM waits as long under the models as it did on a machine.
//!
//! The measurements are round trips of pings to a VM in the lab: one core, VMs as threads of QEMU (translated code), a
//! kernel 6.18 with 250 ticks a second on two cores (slices of 1.4 ms), a ping every 97 ms for 30 s, one or two runs
//! each. An answer takes about 1.1 ms when nobody waits; the virtual CPU takes some 0.5 ms of that, QEMU and the sender
//! the rest, on other cores. "Own load" is a thread in the guest that computes for 60% of every 30 ms by the clock.
//!
//! How long a VM waits depends on how the phases of pings, ticks, periods and loads fall, which one run does not
//! average out; in the models it depends on the seed. Each row has what was measured; the test checks that it is in the
//! range of the quantiles of [`RUNS`] such runs, or out of it by no more than
//!
//! - 0.6 ms (p50), 15% (p90): the machine had other work, and QEMU's threads share a VM's quota;
//! - 20% or 2 ms (the longest): it is one of some 300 pings, and the machine's own interruptions show in it.
//!
//! What fits less well, though within these bounds: under a quota of 30 ms with an own load of 60%, gaps are 11% longer
//! than measured, perhaps because a load in a translated guest is a little less than intended; with own load against
//! busy neighbours the longest waits are shorter (17 ms, not 20). What does not fit at all is left out: the longest
//! round trip under the papers' slices, 149 ms, is longer than two slices of 45 ms and so does not come from slices
//! alone.
//!
//! The credit scheduler was not measured here; its test states what the model makes of the papers' settings.

use evenkeel_scenario::format::CoreSharing;
use evenkeel_scenario::slices::Turns;
use evenkeel_sim::host::scheduler::Scheduler;
use evenkeel_sim::host::scheduler::credit::{Credit, CreditSpec, DomainSpec};
use evenkeel_sim::host::scheduler::linux::{GroupSpec, Linux, LinuxSpec, ThreadSpec};
use evenkeel_sim::host::scheduler::quota::Quota;
use evenkeel_sim::host::scheduler::slices::Slices;
use evenkeel_sim::time::{Duration, Instant};

use crate::machine::{Load, Machine, Requests};

const RUNS: u64 = 24;
/// CPU time of an answer, and the rest of a round trip.
const COST: Duration = Duration::from_us(500);
const BEYOND: Duration = Duration::from_us(600);
const QUANTILES: [usize; 3] = [50, 90, 100];

/// A duty cycle of 60%, by the clock.
const OWN_60: Load = Load::Cycle { busy: Duration::from_ms(18), period: Duration::from_ms(30), by_clock: true };

struct Row {
    what: &'static str,
    /// The loads of the VM and its neighbours.
    loads: &'static [Load],
    quota: Option<(u64, u64)>,
    slice_us: Option<u64>,
    /// p50, p90 and longest, in us.
    measured: [u64; 3],
}

const ROWS: &[Row] = &[
    Row {
        what: "idle, neighbours busy",
        loads: &[Load::Idle, Load::Busy, Load::Busy],
        quota: None,
        slice_us: None,
        measured: [1_100, 4_900, 9_400],
    },
    Row {
        what: "own load 60%, neighbours busy",
        loads: &[OWN_60, Load::Busy, Load::Busy],
        quota: None,
        slice_us: None,
        measured: [4_600, 9_700, 20_000],
    },
    Row {
        what: "own load 60%, neighbours 60%",
        loads: &[OWN_60, OWN_60, OWN_60],
        quota: None,
        slice_us: None,
        measured: [1_300, 5_500, 12_000],
    },
    Row {
        what: "quota 30/100, own load 60%",
        loads: &[OWN_60],
        quota: Some((30, 100)),
        slice_us: None,
        measured: [4_000, 37_000, 52_000],
    },
    Row {
        what: "quota 30/100, own load 100%",
        loads: &[Load::Busy],
        quota: Some((30, 100)),
        slice_us: None,
        measured: [22_600, 62_000, 72_000],
    },
    Row {
        what: "quota 3/10, own load 100%",
        loads: &[Load::Busy],
        quota: Some((3, 10)),
        slice_us: None,
        measured: [4_800, 8_900, 18_000],
    },
    Row {
        what: "idle, slices of 0.3 ms, neighbours busy",
        loads: &[Load::Idle, Load::Busy, Load::Busy],
        quota: None,
        slice_us: Some(300),
        measured: [1_100, 3_500, 7_000],
    },
    Row {
        what: "idle, slices of 0.3 ms, neighbours 60%",
        loads: &[Load::Idle, OWN_60, OWN_60],
        quota: None,
        slice_us: Some(300),
        measured: [1_400, 2_200, 5_000],
    },
];

impl Row {
    fn host(&self) -> LinuxSpec {
        let vms = 0..self.loads.len() as u32;
        let quota = self.quota.map(|(quota, period)| Quota {
            quota: Duration::from_ms(quota),
            period: Duration::from_ms(period),
            burst: Duration::ZERO,
        });
        LinuxSpec {
            slice: Some(Duration::from_us(1_400)),
            groups: vms
                .clone()
                .map(|vm| GroupSpec { quota: quota.filter(|_| vm == 0), ..Default::default() })
                .collect(),
            threads: vms
                .map(|vm| ThreadSpec {
                    group: Some(vm),
                    slice: self.slice_us.filter(|_| vm == 0).map(Duration::from_us),
                })
                .collect(),
            ..LinuxSpec::default()
        }
    }
}

/// The quantiles of the round trips of a run, in us.
fn round_trips<S: Scheduler>(scheduler: S, loads: &[Load], seed: u64, run: Duration) -> [u64; 3] {
    let mut machine = Machine::new(scheduler, loads, seed);
    machine.ask(Requests { to: 0, gap: Duration::from_ms(97), cost: COST });
    machine.run(Instant::START + run);
    let mut answers = std::mem::take(&mut machine.answers);
    answers.sort_unstable();
    QUANTILES.map(|quantile| (answers[(answers.len() - 1) * quantile / 100] + BEYOND).us())
}

/// The least and the greatest of each quantile.
fn ranges(runs: impl Iterator<Item = [u64; 3]>) -> [(u64, u64); 3] {
    runs.fold([(u64::MAX, 0); 3], |ranges, run| {
        std::array::from_fn(|at| (ranges[at].0.min(run[at]), ranges[at].1.max(run[at])))
    })
}

fn check(what: &str, ranges: [(u64, u64); 3], measured: [u64; 3]) {
    println!("{what}: measured {measured:?}, modelled {ranges:?} us");
    for (((least, greatest), measured), quantile) in ranges.into_iter().zip(measured).zip(QUANTILES) {
        let beyond = match quantile {
            50 => 600,
            90 => measured * 15 / 100,
            _ => (measured * 20 / 100).max(2_000),
        };
        let fits = (least.saturating_sub(beyond)..=greatest + beyond).contains(&measured);
        assert!(fits, "{what}, quantile {quantile}: {measured} measured, {least} to {greatest} modelled");
    }
}

#[test]
fn vms_wait_as_long_as_measured_under_linux() {
    for row in ROWS {
        let host = row.host();
        let runs =
            (0..RUNS).map(|seed| round_trips(Linux::new(&host, Some(seed)), row.loads, seed, Duration::from_s(30)));
        check(row.what, ranges(runs), row.measured);
    }
}

#[test]
fn vms_wait_as_long_as_measured_under_slices() {
    let sharing = CoreSharing { vms_per_core: 3, slice_jitter: 0.5, ..CoreSharing::default() };
    let runs = (0..RUNS).map(|seed| {
        let slices = Slices::new([Some(Turns::new(&sharing, seed, 0))]);
        round_trips(slices, &[Load::Busy], seed, Duration::from_s(30))
    });
    let [half, most, longest] = ranges(runs);
    // The longest one is checked against what the slices make possible.
    check("the papers' slices", [half, most, longest], [20_600, 56_500, longest.1]);
    assert!(longest.1 < 2 * 45_000 + 2_000, "{longest:?}");
}

#[test]
fn boost_and_load_decide_how_long_vms_wait_under_credit() {
    let spec =
        CreditSpec { cores: 1, domains: vec![DomainSpec::default(); 3], vcpus: vec![0, 1, 2], ..CreditSpec::default() };
    let of = |loads: [Load; 3]| {
        ranges((0..RUNS).map(|seed| round_trips(Credit::new(&spec, Some(seed)), &loads, seed, Duration::from_s(60))))
    };
    // A VM that is otherwise idle does not wait for those that compute: it is boosted. A rare ping is the exception:
    // the VM's CPU time counts while it takes no part in the accounting, and when a tick finds it at last, it has
    // overdrawn.
    let alone = of([Load::Idle, Load::Busy, Load::Busy]);
    assert_eq!(alone[..2], [(1_100, 1_100); 2]);
    // Those that wake up now and then are boosted as well, and keep the core until they halt or their slice is over.
    let idle = of([Load::Idle, OWN_60, OWN_60]);
    assert!(idle[1].1 < 20_000 && idle[2].1 < 32_000, "{idle:?}");
    // With a load like its neighbours' it waits for their slices: depending on how the duty cycles fall, for 60 ms, as
    // in the vFlood paper, or for more when it has overdrawn.
    let loaded = of([OWN_60; 3]);
    println!("credit, idle: {idle:?}; all 60%: {loaded:?} us");
    assert!(loaded[1].1 > 50_000 && loaded[2].1 > 60_000, "{loaded:?}");
}
