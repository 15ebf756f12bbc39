//! What must hold for any window and any pattern of acknowledgements.

use evenkeel_algo::congestion::Path;
use evenkeel_algo::cubic::{self, Cubic};
use evenkeel_algo::dctcp::{self, Dctcp};
use evenkeel_algo::hystart::Hystart;
use evenkeel_algo::reno::{self, MAX_CWND, MIN_CWND, Window};
use evenkeel_algo::seq;
use proptest::prelude::*;

#[test]
fn sequence_numbers_wrap() {
    assert!(seq::before(u32::MAX, 0) && seq::after(0, u32::MAX));
    assert!(!seq::before(7, 7) && !seq::after(7, 7));
    assert!(seq::within(2, u32::MAX - 5, 10) && !seq::within(10, u32::MAX - 5, 10));
    assert_eq!(seq::max(u32::MAX - 1, 3), 3);
}

#[test]
fn reno_doubles_up_to_the_threshold_and_then_adds_one_per_window() {
    let mut window = Window::new(10);
    window.set_ssthresh(16);
    window.acked(10);
    assert_eq!(window.cwnd(), 16);
    assert_eq!(window.credit(), 4);
    window.acked(12);
    assert_eq!(window.cwnd(), 17);
}

#[test]
fn cubic_is_back_at_its_old_window_after_k() {
    // W_max 1000, reduced to 700: K = cbrt(300 / 0.4) = 9.09 s (RFC 9438 Fig. 2).
    let mut cubic = Cubic::default();
    let mut window = Window::new(1000);
    let ssthresh = cubic.ssthresh(1000);
    assert_eq!(ssthresh, 700);
    window.set_cwnd(ssthresh);
    window.set_ssthresh(ssthresh);
    let mut now_us = 1_000_000;
    let end_us = now_us + 9_085_600;
    let mut halfway = 0;
    while now_us < end_us {
        let acked = window.cwnd();
        cubic.acked(&mut window, acked, now_us, 100_000);
        now_us += 100_000;
        if halfway == 0 && now_us >= end_us - 4_542_800 {
            halfway = window.cwnd();
        }
    }
    assert!((955..=968).contains(&halfway), "300 / 8 below the plateau after half the time: {halfway}");
    assert!((995..=1003).contains(&window.cwnd()), "{}", window.cwnd());
}

/// Slow start over a path with this RTT whose bottleneck sends a segment each `segment_us`: the window at which HyStart
/// ends it.
fn slow_start_ends_at(base_rtt_us: u32, segment_us: u32, most: u32) -> Option<u32> {
    let (mut hystart, mut window) = (Hystart::default(), Window::new(10));
    let mut now_us = 1_000_000;
    while window.cwnd() < most {
        let segments = window.cwnd();
        // What the path does not hold waits before the bottleneck.
        let round_us = u64::from(base_rtt_us.max(segments * segment_us));
        for n in 0..segments {
            let at_us = now_us + u64::from((n + 1) * segment_us);
            let rtt_us = base_rtt_us + u64::from(n * segment_us).min(round_us - u64::from(base_rtt_us)) as u32;
            hystart.rtt(rtt_us);
            let round_over = n + 1 == segments;
            let path = Path { now_us: at_us, srtt_us: rtt_us, min_rtt_us: base_rtt_us, round_over };
            hystart.acked(&mut window, &path);
            if !window.in_slow_start() {
                return Some(window.cwnd());
            }
            window.acked(1);
        }
        now_us += round_us;
    }
    None
}

#[test]
fn hystart_ends_slow_start_where_the_acks_of_a_round_trip_fill_it() {
    // 1 Gbit/s and 2 ms are 166 segments. Bursts may take 1 ms, so it is the round trip that begins with 160: 125 ACKs
    // take (2 + 1) / 2 ms.
    assert_eq!(slow_start_ends_at(2000, 12, 10_000), Some(272));
    // A path that is never full.
    assert_eq!(slow_start_ends_at(100_000, 1, 5000), None);
    // Below the least window slow start goes on, however slow the path.
    assert!(slow_start_ends_at(1000, 1000, 10_000).is_some_and(|window| (16..32).contains(&window)));
}

#[test]
fn hystart_ends_slow_start_where_the_rtt_rises() {
    let mut hystart = Hystart::default();
    let mut window = Window::new(100);
    let mut round = |hystart: &mut Hystart, now_us: u64, rtt_us: u32, samples: u32| {
        // ACKs too far from each other for a train.
        let path = |now_us, round_over| Path { now_us, srtt_us: rtt_us, min_rtt_us: 40_000, round_over };
        hystart.acked(&mut window, &path(now_us, true));
        for n in 1..=samples {
            hystart.rtt(rtt_us);
            hystart.acked(&mut window, &path(now_us + u64::from(n) * 3000, false));
        }
        window.in_slow_start()
    };
    assert!(round(&mut hystart, 1_000_000, 44_000, 8), "4 ms are no rise, whatever chance brings");
    assert!(round(&mut hystart, 1_100_000, 80_000, 7), "seven RTTs are too few");
    assert!(!round(&mut hystart, 1_200_000, 40_000, 0), "but for a round trip that has no more");
}

#[test]
fn on_a_short_path_cubic_keeps_up_with_reno() {
    let mut cubic = Cubic::default();
    let mut window = Window::new(100);
    let ssthresh = cubic.ssthresh(100);
    window.set_cwnd(ssthresh);
    window.set_ssthresh(ssthresh);
    for round in 0..100 {
        let acked = window.cwnd();
        cubic.acked(&mut window, acked, 1_000_000 + round * 100, 100);
    }
    // 0.53 segments a round up to the old window, then 1: far more than the cubic function's after 10 ms.
    assert!((120..=150).contains(&window.cwnd()), "{}", window.cwnd());
}

#[test]
fn dctcp_halves_for_marks_on_everything_and_forgets_them_by_sixteenths() {
    let mut dctcp = Dctcp::default();
    assert_eq!(dctcp.ssthresh(100), 50);
    dctcp.count(100, false);
    dctcp.window_end();
    assert_eq!(dctcp.alpha(), 960);
    dctcp.count(25, true);
    dctcp.count(75, false);
    dctcp.window_end();
    assert_eq!(dctcp.alpha(), 900 + 16);
    for _ in 0..200 {
        dctcp.count(10, false);
        dctcp.window_end();
    }
    assert_eq!(dctcp.alpha(), 0, "no residue");
    assert_eq!(dctcp.ssthresh(100), 100);
}

#[test]
fn a_change_of_marks_is_acknowledged_before_it_is_echoed() {
    let mut echo = false;
    assert!(dctcp::ack_earlier_first(&mut echo, true, true));
    assert!(!echo);
    assert!(!dctcp::ack_earlier_first(&mut echo, true, false));
    assert!(echo);
    assert!(!dctcp::ack_earlier_first(&mut echo, true, true), "no change");
}

proptest! {
    #[test]
    fn order_is_that_of_the_distance(a in any::<u32>(), distance in 1..1u32 << 31) {
        let b = a.wrapping_add(distance);
        prop_assert!(seq::before(a, b) && seq::after(b, a) && !seq::before(b, a) && !seq::after(a, b));
        prop_assert_eq!((seq::max(a, b), seq::max(b, a)), (b, b));
        prop_assert!(seq::within(a, a, b) && !seq::within(b, a, b));
    }

    #[test]
    fn the_cube_root_is_exact(x in prop_oneof![any::<u64>(), 0..1_000_000u64]) {
        let root = u128::from(cubic::root(x));
        prop_assert!(root.pow(3) <= u128::from(x) && u128::from(x) < (root + 1).pow(3));
    }

    #[test]
    fn windows_grow_by_no_more_than_was_acknowledged(
        cwnd in 1..MAX_CWND, ssthresh in 2..u32::MAX,
        acks in prop::collection::vec((1..10_000u32, 0..10_000_000u64), 1..50),
        srtt in 0..10_000_000u32, loss_at in 0..50usize,
    ) {
        for use_cubic in [false, true] {
            let mut cubic = Cubic::default();
            let mut window = Window::new(cwnd);
            window.set_ssthresh(ssthresh);
            let mut now_us = 0;
            for (number, &(acked, after_us)) in acks.iter().enumerate() {
                now_us += after_us;
                let before = window.cwnd();
                if number == loss_at {
                    let ssthresh = if use_cubic { cubic.ssthresh(before) } else { reno::ssthresh(before) };
                    prop_assert!(ssthresh >= MIN_CWND && ssthresh <= before.max(MIN_CWND));
                    window.set_ssthresh(ssthresh);
                    window.set_cwnd(ssthresh);
                } else if use_cubic {
                    cubic.acked(&mut window, acked, now_us, srtt);
                    prop_assert!(window.cwnd() >= before && window.cwnd() <= before + acked + 1);
                } else {
                    window.acked(acked);
                    prop_assert!(window.cwnd() >= before && window.cwnd() <= before + acked + 1);
                }
                prop_assert!(window.cwnd() <= MAX_CWND);
            }
        }
    }

    #[test]
    fn alpha_stays_a_fraction(
        windows in prop::collection::vec((0..100_000u32, 0..100_000u32), 1..100),
        cwnd in 2..MAX_CWND,
    ) {
        let mut dctcp = Dctcp::default();
        for (marked, clean) in windows {
            dctcp.count(marked, true);
            dctcp.count(clean, false);
            dctcp.window_end();
            prop_assert!(dctcp.alpha() <= dctcp::ONE);
            prop_assert!(dctcp.ssthresh(cwnd) >= cwnd / 2 && dctcp.ssthresh(cwnd) <= cwnd);
        }
    }
}
