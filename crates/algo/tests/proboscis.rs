//! ProBoSCIS, the window arbiter and the tag's hash, by what must hold of them.

use evenkeel_algo::dctcp;
use evenkeel_algo::proboscis::{
    Budget, Echo, Peer, Pending, Resend, Sender, SenderSettings, Settings, Train, Trains, Verdict, WindowSettings,
};
use evenkeel_algo::siphash::{self, Key};
use evenkeel_algo::window::{self, By};
use proptest::prelude::*;

/// With ProBoSCIS alone.
fn arbitrate(limit: Option<u32>, offered: u16, scale: u8, mss: u32) -> (u16, By) {
    window::arbitrate(window::Offers { proboscis_bytes: limit, ..Default::default() }, offered, scale, mss)
}

/// The test vectors of the authors' reference implementation (vectors_sip64, key and message 00 01 02 ...), for lengths
/// 0, 8 and 16.
#[test]
fn siphash_gives_its_published_vectors() {
    let key = Key(std::array::from_fn(|i| i as u8));
    let message: Vec<u8> = (0..64).collect();
    let expected: [(usize, [u8; 8]); 3] = [
        (0, [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72]),
        (8, [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]),
        (16, [0xdb, 0x9b, 0xc2, 0x57, 0x7f, 0xcc, 0x2a, 0x3f]),
    ];
    for (length, hash) in expected {
        assert_eq!(siphash::hash(key, &message[..length]).to_le_bytes(), hash, "{length} bytes");
    }
}

#[test]
fn the_arbiter_by_example() {
    assert_eq!(arbitrate(None, 500, 7, 1448), (500, By::Receiver));
    assert_eq!(arbitrate(Some(10_000), 500, 7, 1448), (78, By::Proboscis), "rounded down to the scale");
    assert_eq!(arbitrate(Some(1), 500, 7, 1448), (12, By::Proboscis), "one MSS, rounded up");
    assert_eq!(arbitrate(Some(1), 3, 7, 1448), (3, By::Receiver), "the receiver said so");
    assert_eq!(arbitrate(Some(1), 0, 7, 1448), (0, By::Receiver));
    assert_eq!(arbitrate(Some(20_000), 60_000, 0, 1448), (20_000, By::Proboscis));
    assert_eq!(arbitrate(Some(1 << 20), 9, 255, 1448), (9, By::Receiver), "more than 14 is 14 (RFC 7323)");
}

fn window_settings() -> WindowSettings {
    WindowSettings { k_percent: 50, k2_permille: 500, icwnd_segments: 10, b3_us: 1000 }
}

#[test]
fn a_later_train_takes_the_place_of_an_earlier() {
    let mut train = Train::default();
    assert!(train.count(0, 0, 10, true) && train.count(0, 1, 10, true));
    assert!(train.count(1, 5, 20, false));
    assert_eq!((train.seen(), train.marked(), train.total()), (1, 0, 20));
    assert!(!train.count(0, 2, 10, true), "too late");
    assert!(!train.count(1, 5, 20, true), "a copy");
    assert!(!train.count(1, 20, 20, true), "no such probe");
    assert!(!train.count(1, 1, 21, true), "another total");
    assert!(!train.count(2, 0, 65, true) && !train.count(2, 0, 0, true));
}

#[test]
fn a_synack_waits_for_late_probes_only() {
    let mut train = Train::default();
    assert!(!train.synack_waits(&window_settings(), 0), "none came: perhaps none were sent");
    train.count(0, 0, 2, false);
    assert!(train.synack_waits(&window_settings(), 999));
    assert!(!train.synack_waits(&window_settings(), 1000));
    train.count(0, 1, 2, false);
    assert!(!train.synack_waits(&window_settings(), 0));
}

#[test]
fn hosts_that_never_answer_are_probed_seldom_and_forgiven_at_once() {
    let mut peer = Peer::default();
    for _ in 0..16 {
        assert!(peer.probe());
        peer.silent();
    }
    assert_eq!((0..640).filter(|_| peer.probe()).count(), 10);
    peer.answered();
    assert!((0..100).all(|_| peer.probe()));
}

#[test]
fn dctcp_lets_go_when_marks_end() {
    let settings = SenderSettings { k1_permille: 100 };
    let mut sender = Sender::new(0);
    let mut seq = 0u32;
    let mut window = |sender: &mut Sender, echo| {
        seq += 14480;
        sender.sent(seq);
        sender.acked(&settings, seq, echo, 1448, 0)
    };
    assert_eq!(window(&mut sender, false), None, "no limit before the first mark");
    let first = window(&mut sender, true).expect("a limit");
    assert!((7240..=7700).contains(&first), "{first}");
    let grown = window(&mut sender, false).expect("a limit");
    assert_eq!(grown, first + 1448);
    assert!((0..60).any(|_| window(&mut sender, false).is_none()), "alpha falls below k1");
}

#[test]
fn dctcp_lets_go_by_and_by() {
    let settings = SenderSettings { k1_permille: 100 };
    let mut sender = Sender::new(0);
    let (mut seq, mut limit) = (0u32, 14480);
    // The VM fills whatever it is allowed.
    let mut fill = |sender: &mut Sender, bytes: u32, echo| {
        seq = seq.wrapping_add(bytes);
        sender.sent(seq);
        sender.acked(&settings, seq, echo, 1448, 0)
    };
    limit = fill(&mut sender, limit, true).expect("a limit");
    while u64::from(sender.alpha()) * 1000 >= 100 * u64::from(dctcp::ONE) {
        let next = fill(&mut sender, limit, false).expect("a limit as long as alpha is k1 or more");
        assert!(
            next == limit + 1448 || u64::from(sender.alpha()) * 1000 < 100 * u64::from(dctcp::ONE),
            "{limit} {next}"
        );
        limit = next;
    }
    for _ in 0..5 {
        let next = fill(&mut sender, limit, false).expect("a limit as long as the VM fills it");
        assert_eq!(next, limit + limit / 2);
        limit = next;
    }
    assert_eq!(fill(&mut sender, limit / 4, false), None, "it holds nobody back");
}

proptest! {
    #[test]
    fn the_arbiter_neither_raises_nor_starves(
        limit in prop::option::of(1u32..), offered: u16, scale in 0u8..=14, mss in 1u32..65_496,
    ) {
        let (field, by) = arbitrate(limit, offered, scale, mss);
        prop_assert!(field <= offered);
        prop_assert_eq!(by == By::Receiver, field == offered);
        if by != By::Receiver {
            let bytes = u64::from(field) << scale;
            let limit = u64::from(limit.unwrap());
            prop_assert!(bytes >= u64::from(mss));
            prop_assert!(bytes <= limit || bytes < u64::from(mss) + (1 << scale));
        }
    }

    #[test]
    fn a_changed_word_leaves_the_checksum_right(
        mut words in prop::collection::vec(any::<u16>(), 2..40),
        at: prop::sample::Index,
        new: u16,
    ) {
        let sum = |words: &[u16]| {
            let mut sum: u32 = words.iter().map(|w| u32::from(*w)).sum();
            while sum > 0xffff { sum = (sum & 0xffff) + (sum >> 16); }
            !(sum as u16)
        };
        let before = sum(&words);
        let at = at.index(words.len());
        let after = window::csum_replace(before, words[at], new);
        words[at] = new;
        // All zeros have two checksums, which are equal to a receiver.
        prop_assume!(words.iter().any(|w| *w != 0));
        prop_assert_eq!(after, sum(&words));
    }

    #[test]
    fn the_first_window_is_whole_segments_within_bounds(
        probes in prop::collection::vec((0u8..70, any::<bool>()), 0..100), total in 0u8..70, mss in 1u32..9000,
        k_percent in 1u32..=100, k2_permille in 0u32..=1000, icwnd_segments in 1u32..=1000,
    ) {
        let settings = WindowSettings { k_percent, k2_permille, icwnd_segments, b3_us: 0 };
        let mut train = Train::default();
        for (index, marked) in probes {
            train.count(0, index, total, marked);
        }
        prop_assert!(train.marked() <= train.seen() && train.seen() <= train.total());
        let (verdict, bytes) = train.first_window(&settings, mss);
        match verdict {
            Verdict::NoProbes => prop_assert!(train.seen() == 0 && bytes == 0),
            Verdict::OneMss => prop_assert_eq!(bytes, mss),
            Verdict::Scaled => {
                prop_assert_eq!(bytes % mss, 0);
                prop_assert!(bytes >= mss && bytes <= mss * icwnd_segments);
            }
        }
    }

    #[test]
    fn more_marks_never_make_a_larger_window(marks in 0u8..10) {
        let window_with = |marks| {
            let mut train = Train::default();
            for index in 0..10 { train.count(0, index, 10, index < marks); }
            train.first_window(&window_settings(), 1448).1
        };
        prop_assert!(window_with(marks + 1) <= window_with(marks));
    }

    #[test]
    fn no_more_probes_than_the_budget(
        gaps_ns in prop::collection::vec(0u64..100_000_000, 1..400),
        rate in 1u32..100_000,
        burst in 1u32..5000,
    ) {
        let mut budget = Budget::new(rate, burst);
        let (mut now_ns, mut sent) = (1_000_000_000u64, 0u64);
        let start_ns = now_ns;
        for gap_ns in gaps_ns {
            now_ns += gap_ns;
            sent += if budget.take(now_ns, 10) { 10 } else { 0 };
            let allowed = u128::from(burst) + u128::from(now_ns - start_ns) * u128::from(rate) / 1_000_000_000;
            // Ten: each time in nanoseconds is rounded down.
            prop_assert!(u128::from(sent) <= allowed + 10, "{sent} {allowed}");
        }
    }

    #[test]
    fn trains_share_what_is_under_way(
        gaps_ns in prop::collection::vec(0u64..1_000_000, 1..200),
        probes in 1u32..=64,
        b1_us in 1u32..20_000,
    ) {
        let settings = Settings { probes, b1_us, ..Settings::default() };
        let (mut trains, mut now_ns) = (Trains::default(), 1_000_000_000u64);
        let mut sent: Vec<(u64, u32)> = Vec::new();
        for gap_ns in gaps_ns {
            now_ns += gap_ns;
            let length = trains.length(&settings, now_ns, probes);
            prop_assert!(length <= probes && length >= probes.min(2));
            // Counts the trains within b1 that are longer than the least.
            let since_ns = now_ns.saturating_sub(u64::from(b1_us) * 1000);
            let counts = |(at_ns, length): &&(u64, u32)| *at_ns > since_ns && *length > 2;
            let before: u32 = sent.iter().filter(counts).map(|(_, length)| length).sum();
            if length > 2 {
                prop_assert!(before + length <= 4 * probes, "{before} and {length}");
            }
            sent.push((now_ns, length));
        }
        now_ns += u64::from(b1_us) * 1000;
        prop_assert_eq!(trains.length(&settings, now_ns, probes), probes, "all that was on its way has come");
    }

    #[test]
    fn a_stranger_is_sent_its_syn_once_more(steps_us in prop::collection::vec(0u64..30_000, 1..50)) {
        let settings = Settings { probes: 10, b1_us: 4000, b2_us: 20_000, b3_us: 1000, max_time_us: 60_000 };
        let (mut pending, mut now_us, mut sent) = (Pending::new(0, true), 0, Vec::new());
        for step_us in steps_us {
            now_us += step_us;
            match pending.expire(&settings, now_us) {
                Resend::Wait => prop_assert!(pending.due_us(&settings) > now_us),
                Resend::GiveUp => break,
                other => sent.push((now_us, other)),
            }
        }
        prop_assert!(sent.len() <= 1);
        prop_assert!(sent.iter().all(|(at_us, what)| *at_us >= 20_000 && *what == Resend::Both(10)), "{:?}", sent);
    }

    #[test]
    fn echoed_bytes_follow_marked_ones(
        segments in prop::collection::vec((1u32..65_536, any::<bool>(), 1usize..5), 1..300),
    ) {
        let mut echo = Echo::new(0);
        let (mut end, mut acked, mut marked, mut echoed, mut largest) = (0u32, 0u32, 0i64, 0i64, 0i64);
        for (bytes, is_marked, every) in segments {
            end = end.wrapping_add(bytes);
            if is_marked {
                echo.marked(bytes);
                marked += i64::from(bytes);
            }
            if every == 1 {
                let covered = i64::from(end.wrapping_sub(acked));
                largest = largest.max(covered);
                if echo.ack(end) { echoed += covered; }
                acked = end;
                prop_assert!((marked - echoed).abs() <= largest, "{marked} {echoed} {largest}");
            }
        }
    }

    #[test]
    fn any_acks_leave_dctcp_in_bounds(
        steps in prop::collection::vec((any::<u32>(), 0u32..100_000, any::<bool>()), 1..200),
        start: u32,
        scale in 0u8..=14,
    ) {
        let mut sender = Sender::new(start);
        for (ack, sent, echo) in steps {
            let end = start.wrapping_add(sent);
            sender.sent(end);
            // A forged acknowledgement, and a fitting one.
            for ack in [ack, end] {
                if let Some(limit) = sender.acked(&SenderSettings { k1_permille: 0 }, ack, echo, 1448, scale) {
                    // Two segments, also as the window field tells them.
                    prop_assert!(limit >> scale << scale >= 2 * 1448, "{limit}, scale {scale}");
                }
            }
        }
    }
}
