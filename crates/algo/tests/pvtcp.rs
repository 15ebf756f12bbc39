//! What must hold for any order and timing of events.

use evenkeel_algo::pvtcp::{IDLE_MOST_US, MAX_EXTENSIONS, POLL_US, Settings, Timer, Vcpu};
use proptest::prelude::*;

const TIMERS: [Timer; 3] = [Timer::Rto, Timer::Tlp, Timer::Reo];

fn settings() -> impl Strategy<Value = Settings> {
    (200..1_000_000u32, 0..20_000u32, 0..100_000u32, 0..16u32, any::<[bool; 5]>()).prop_map(
        |(late_us, hold_min_us, hold_max_us, jit_segments, [hold_rto, hold_tlp, hold_reo, filter_rtt, filter_idle])| {
            Settings {
                late_us,
                hold_min_us,
                hold_max_us,
                jit_segments,
                hold_rto,
                hold_tlp,
                hold_reo,
                filter_rtt,
                filter_idle,
            }
        },
    )
}

fn limit_us(set: &Settings) -> u64 {
    u64::from(set.hold_max_us.max(set.hold_min_us))
}

/// A vCPU that comes back at `now_us` after `off_us`.
fn woken(set: &Settings, now_us: u64, off_us: u64) -> Vcpu {
    let mut vcpu = Vcpu::default();
    assert!(vcpu.tick(set, now_us - off_us, now_us, 0));
    vcpu
}

#[test]
fn one_wakeup_from_the_late_tick_to_the_release() {
    let set = Settings::default();
    let mut vcpu = Vcpu::default();

    assert!(!vcpu.tick(&set, 4_000, 4_040, 0));
    assert!(!vcpu.hold(&set, Timer::Rto, 4_050));

    assert!(vcpu.tick(&set, 8_000, 68_000, 0));
    assert_eq!((vcpu.wake_us(), vcpu.off_us()), (68_000, 60_000));
    assert!(vcpu.hold(&set, Timer::Rto, 68_010));
    let since = vcpu.wakes();
    assert_eq!(vcpu.release_us(&set, since, 68_010, true), Some(990), "the lower bound, though the backlog is in");
    assert_eq!(vcpu.release_us(&set, since, 69_000, false), Some(POLL_US));
    assert_eq!(vcpu.release_us(&set, since, 69_200, true), None);

    assert_eq!(vcpu.filter_rtt(&set, 68_300, 800, 0, 61_000), 800, "waited for the vCPU");
    assert_eq!(vcpu.filter_rtt(&set, 68_300, 800, 200, 61_000), 1_000, "one deviation above after an even wake-up");
    assert_eq!(vcpu.filter_rtt(&set, 68_300, 800, 0, 250), 250, "sent since");
    assert_eq!(vcpu.filter_rtt(&set, 90_000, 40_000, 0, 82_000), 82_000, "came in long after the backlog");

    assert_eq!(vcpu.idle_us(&set, 68_300, 61_000), 1_000, "idle for 700 us before the absence, and 300 after it");
    assert_eq!(vcpu.idle_us(&set, 68_300, 300), 300, "sent since");
    assert_eq!(vcpu.idle_us(&set, 68_300, 40_000), 300, "sent by another vCPU meanwhile");

    assert!(!vcpu.tick(&set, 72_000, 72_010, 0));
    assert!(!vcpu.is_waking(&set, 72_020));
}

#[test]
fn a_punctual_tick_before_the_lower_bound_does_not_end_the_wakeup() {
    let set = Settings { hold_min_us: 1_500, ..Settings::default() };
    let mut vcpu = woken(&set, 100_000, 30_000);
    assert!(!vcpu.tick(&set, 101_000, 101_005, 0));
    assert!(vcpu.hold(&set, Timer::Tlp, 101_010));
    assert!(!vcpu.tick(&set, 102_000, 102_005, 0));
    assert!(!vcpu.hold(&set, Timer::Tlp, 102_010));
}

#[test]
fn the_steal_clock_shows_what_no_late_tick_did() {
    let set = Settings::default();
    let mut vcpu = Vcpu::default();
    assert!(!vcpu.steal(&set, 3_000, 500_000), "nothing to compare with yet");
    assert!(!vcpu.tick(&set, 4_000, 4_010, 500_000));
    assert!(!vcpu.steal(&set, 4_020, 501_000));
    assert!(vcpu.steal(&set, 4_030, 520_000));
    assert_eq!(vcpu.off_us(), 20_000);
    assert!(!vcpu.steal(&set, 4_040, 520_000), "seen already");

    let mut vcpu = Vcpu::default();
    assert!(!vcpu.tick(&set, 4_000, 4_010, 0));
    assert!(vcpu.tick(&set, 8_000, 40_000, 0));
    assert!(!vcpu.steal(&set, 40_010, 32_000), "the same absence as the tick's");
}

#[test]
fn three_segments_of_a_connection_after_a_wakeup() {
    let set = Settings { jit_segments: 3, ..Settings::default() };
    let vcpu = woken(&set, 100_000, 60_000);
    assert_eq!(vcpu.jit_segments(&set, 100_100, 60_000, 4_000), 3);
    assert_eq!(vcpu.jit_segments(&set, 100_100, 56_000, 4_000), 3, "ticks round down");
    assert_eq!(vcpu.jit_segments(&set, 100_200, 0, 4_000), 0, "no longer the first");
    assert_eq!(vcpu.jit_segments(&set, 104_000, 60_000, 4_000), 0, "the wake-up is over");
}

proptest! {
    #[test]
    fn lateness_alone_makes_a_wakeup(set in settings(), due in 0..1u64 << 50, late in 0..2_000_000u64) {
        let mut vcpu = Vcpu::default();
        prop_assert_eq!(vcpu.tick(&set, due, due + late, 0), late > u64::from(set.late_us));
    }

    #[test]
    fn without_a_wakeup_nothing_changes(
        set in settings(), ticks in prop::collection::vec(0..200u64, 1..50),
        srtt in any::<u32>(), mdev in any::<u32>(), sample in any::<i64>(), idle in any::<u32>(),
    ) {
        let mut vcpu = Vcpu::default();
        let mut now = 0;
        for late in ticks {
            let due = now + 4_000;
            now = due + late;
            prop_assert!(!vcpu.tick(&set, due, now, 0));
            for timer in TIMERS {
                prop_assert!(!vcpu.hold(&set, timer, now));
            }
            prop_assert_eq!(vcpu.filter_rtt(&set, now, srtt, mdev, sample), sample);
            prop_assert_eq!(vcpu.jit_segments(&set, now, idle.into(), 4_000), 0);
            prop_assert_eq!(vcpu.idle_us(&set, now, idle.into()), u64::from(idle));
        }
    }

    #[test]
    fn each_kind_of_timer_has_its_switch(set in settings(), since in 0..200_000u64) {
        let vcpu = woken(&set, 10_000_000, 2_000_000);
        let waking = since < limit_us(&set);
        let held = TIMERS.map(|timer| vcpu.hold(&set, timer, 10_000_000 + since));
        prop_assert_eq!(held, [set.hold_rto, set.hold_tlp, set.hold_reo].map(|switch| switch && waking));
    }

    #[test]
    fn held_timers_run_within_the_bounds(set in settings(), asked_after in 0..5_000u64, in_after in 0..200_000u64) {
        let wake = 10_000_000;
        let vcpu = woken(&set, wake, 2_000_000);
        let mut now = wake + asked_after;
        while let Some(wait) = vcpu.release_us(&set, vcpu.wakes(), now, now >= wake + in_after) {
            now += u64::from(wait);
        }
        let waited = now - wake;
        prop_assert!(waited >= u64::from(set.hold_min_us));
        prop_assert!(waited < limit_us(&set) + u64::from(POLL_US) || waited == asked_after);
    }

    #[test]
    fn held_timers_run_however_often_the_core_is_lost(set in settings(), on in 1..1_000u64) {
        let mut now = 10_000_000;
        let mut vcpu = woken(&set, now, 2_000_000);
        let since = vcpu.wakes();
        let mut wakeups = 0;
        while vcpu.release_us(&set, since, now + on, false).is_some() {
            now += on + 2_000_000;
            prop_assert!(vcpu.tick(&set, now - 2_000_000, now, 0));
            wakeups += 1;
            prop_assert!(wakeups <= MAX_EXTENSIONS + 1);
        }
        prop_assert_eq!(vcpu.holds_on(since), wakeups <= MAX_EXTENSIONS);
        // Other timers have as many wake-ups of their own, whoever held these, and whatever became of them.
        prop_assert_eq!(vcpu.hold(&set, Timer::Rto, now), set.hold_rto && limit_us(&set) > 0);
        prop_assert!(vcpu.holds_on(vcpu.wakes()));
    }

    #[test]
    fn wake_ups_are_counted_beyond_all_bounds(before in 0..10u32, more in 0..10u32) {
        let set = Settings::default();
        let (mut vcpu, mut now) = (Vcpu::default(), 10_000_000);
        for _ in 0..before + more {
            now += 1_000_000;
            vcpu.tick(&set, now - 500_000, now, 0);
        }
        // One that began to count before the number went around.
        let since = vcpu.wakes().wrapping_sub(more);
        prop_assert_eq!(vcpu.holds_on(since), more <= MAX_EXTENSIONS);
    }

    #[test]
    fn an_absence_is_no_idle_time(
        set in settings(), off in 1..300_000u64, since in 0..300_000u64, idle in 0..400_000u64,
    ) {
        let set = Settings { late_us: 0, ..set };
        let wake = 10_000_000;
        let filtered = woken(&set, wake, off).idle_us(&set, wake + since, idle);
        let (before, after) = (idle.saturating_sub(since + off), idle.min(since));
        let is_shortened = set.filter_idle && idle <= u64::from(IDLE_MOST_US);
        prop_assert_eq!(filtered, if is_shortened { before + after } else { idle });
    }

    #[test]
    fn a_spoilt_sample_leaves_srtt_and_rttvar(
        set in settings(), wake in 10_000_000..10_000_002u64, since in 0..200_000u64,
        srtt in any::<u32>(), mdev in any::<u32>(),
        sample in prop_oneof![any::<i64>(), -10..400_000i64],
    ) {
        let vcpu = woken(&set, wake, 2_000_000);
        let (srtt, mdev) = (i64::from(srtt), i64::from(mdev));
        let filtered = vcpu.filter_rtt(&set, wake + since, srtt as u32, mdev as u32, sample);
        let spoilt = set.filter_rtt && srtt != 0 && since < limit_us(&set) && sample > (since as i64).max(srtt + mdev);
        if spoilt {
            prop_assert_eq!((filtered - srtt).abs(), mdev, "RFC 6298's error is then zero");
            prop_assert!(filtered > 0);
            prop_assert_eq!(filtered < srtt, wake % 2 == 1 && 0 < mdev && mdev < srtt);
        } else {
            prop_assert_eq!(filtered, sample);
        }
    }
}
