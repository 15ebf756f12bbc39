//! Without losses: handshake, growth, acknowledgements, windows, marks.

use evenkeel_algo::pvtcp::{Settings, Vcpu};
use evenkeel_sim::packet::{Ecn, Flags};
use evenkeel_sim::tcp::{CongestionControl, Connection, EcnMode, Note, TcpConfig, TimerKind};
use evenkeel_sim::time::{Duration, Instant};

use crate::pair::{Fate, Pair};

const MSS: u64 = 1448;

/// Cumulative segments acknowledged by each bare ACK of the server, and when, in microseconds from `from`.
fn acks(pair: &Pair, from: Instant) -> Vec<(u64, u64)> {
    let start = pair.configs[0].initial_sequence.wrapping_add(1);
    let told = pair.sent[1].iter().filter(|(_, packet)| packet.segment.payload_bytes == 0);
    told.map(|(at, packet)| (u64::from(packet.segment.ack.wrapping_sub(start)) / MSS, at.since(from).us())).collect()
}

#[test]
fn handshake() {
    let config = TcpConfig { ecn: EcnMode::Classic, ..TcpConfig::current(0) };
    let mut pair = Pair::new(config.clone(), config);
    pair.connect();
    pair.run_for(Duration::from_ms(20));
    assert!(pair.ends.iter().all(|end| end.is_established() && end.next_timer().is_none()));
    let flags = |side: usize| pair.sent[side].iter().map(|(_, packet)| packet.segment.flags).collect::<Vec<_>>();
    let permitted = Flags::SACK_PERMITTED;
    assert_eq!(flags(0), [Flags::SYN.with(Flags::ECE).with(Flags::CWR).with(permitted), Flags::ACK]);
    assert_eq!(flags(1), [Flags::SYN.with(Flags::ACK).with(Flags::ECE).with(permitted)]);
    let syn = &pair.sent[0][0].1.segment;
    assert_eq!((syn.window, syn.window_scale), (u16::MAX, 7));
    assert_eq!(pair.ends[0].info().srtt_us, 10_020);
}

#[test]
fn a_lost_syn_is_sent_again_and_the_window_starts_at_one() {
    for (config, wait_ms) in [(TcpConfig::current(0), 1000), (TcpConfig::paper(0), 3000)] {
        let mut pair = Pair::new(config.clone(), config);
        pair.judge = Box::new(|side, number, _| Fate { drop: side == 0 && number < 2, ..Fate::default() });
        pair.connect();
        let begin = pair.now;
        pair.run_for(Duration::from_s(12));
        let at: Vec<u64> = pair.sent[0].iter().map(|(at, _)| at.since(begin).us() / 1000).collect();
        assert_eq!(at, [0, wait_ms, 3 * wait_ms, 3 * wait_ms + 10]);
        assert_eq!((pair.ends[0].stats().timeouts, pair.ends[0].info().cwnd), (2, 1));
    }
}

#[test]
fn a_connection_is_small() {
    assert!(size_of::<Connection>() <= 1024, "{}", size_of::<Connection>());
}

#[test]
fn slow_start_doubles_each_round_trip() {
    let segments = |hystart| {
        let config = TcpConfig { delayed_ack: false, tail_loss_probe: false, hystart, ..TcpConfig::current(0) };
        let mut pair = Pair::established(config);
        pair.delay = Duration::from_ms(20);
        let begin = pair.now;
        pair.write(0, 1_000 * MSS);
        pair.run_for(Duration::from_ms(150));
        let of_round = |round| pair.sent[0].iter().filter(|(at, _)| at.since(begin).us() / 40_000 == round).count();
        [0, 1, 2, 3].map(of_round)
    };
    assert_eq!(segments(false), [10, 20, 40, 80]);
    // The path has become longer since the handshake: HyStart ends slow start with eight RTTs in a window of 16 or
    // more.
    assert_eq!(segments(true), [10, 18, 19, 20]);
}

#[test]
fn before_byte_counting_delayed_acks_slow_it_down() {
    let mut pair = Pair::established(TcpConfig { delayed_ack: true, ..TcpConfig::paper(0) });
    pair.delay = Duration::from_ms(20);
    pair.write(0, 20 * 1460);
    pair.run_for(Duration::from_ms(35));
    assert_eq!(pair.trace(0), "0 1 2");
    pair.run_for(Duration::from_ms(40));
    assert_eq!(pair.ends[0].info().cwnd, 6, "quick ACKs at the start: one more for each");
}

#[test]
fn the_first_segments_are_acknowledged_at_once_then_every_second_or_after_a_delay() {
    let mut pair = Pair::established(TcpConfig::current(0));
    pair.write(0, 16 * MSS);
    pair.run_for(Duration::from_ms(100));
    assert_eq!(acks(&pair, pair.now).len(), 16, "quick ACKs");
    pair.forget();
    let begin = pair.now;
    pair.write(0, 3 * MSS);
    pair.run_for(Duration::from_ms(300));
    // The interval since the last data halves ato into 40 ms; the third segment waits for it.
    assert_eq!(acks(&pair, begin), [(18, 5_020), (19, 45_030)]);
    assert_eq!(pair.ends[1].stats().delayed_acks, 1);
    pair.forget();
    pair.with(1, |end, _| end.quick_ack(1));
    pair.write(0, MSS);
    pair.run_for(Duration::from_ms(300));
    assert_eq!((pair.sent[1].len(), pair.ends[1].stats().delayed_acks), (1, 1), "asked for at once");
}

#[test]
fn idle_time_takes_the_window_back_to_the_initial_one() {
    for restart in [true, false] {
        let config = TcpConfig { slow_start_after_idle: restart, ..TcpConfig::current(0) };
        let mut pair = Pair::established(config);
        pair.write(0, 200 * MSS);
        pair.run_for(Duration::from_ms(500));
        let grown = pair.ends[0].info().cwnd;
        assert!(grown > 100);
        pair.run_for(Duration::from_s(5));
        pair.forget();
        pair.write(0, 100 * MSS);
        assert_eq!(pair.sent[0].len(), if restart { 10 } else { 100 });
    }
}

#[test]
fn an_absence_is_no_idle_time_with_pvtcp() {
    for (filter_idle, acts, absence_ms, noted, keeps_window) in [
        (true, true, 60, 1, true),
        (true, false, 60, 1, false),
        (false, true, 60, 0, false),
        // Longer than TCP's usual least RTO: the window is stale.
        (true, true, 250, 0, false),
    ] {
        let mut pair = Pair::established(TcpConfig { rto_min: Duration::from_ms(1), ..TcpConfig::current(0) });
        pair.write(0, 200 * MSS);
        while pair.ends[0].info().in_flight > 0 {
            pair.run_for(Duration::from_ms(1));
        }
        let due = pair.now.us();
        pair.run_for(Duration::from_ms(absence_ms));
        let (mut vcpu, settings) = (Vcpu::default(), Settings { filter_idle, ..Settings::default() });
        assert!(vcpu.tick(&settings, due, pair.now.us(), 0));
        pair.pvtcp = Some((vcpu, settings, acts));
        pair.forget();
        pair.write(0, 100 * MSS);
        let (sent, found) = (pair.sent[0].len(), pair.count(0, |note| *note == Note::IdleFiltered));
        assert_eq!((sent == 100, found), (keeps_window, noted), "{sent} sent");
        assert!(keeps_window || sent < 50, "{sent} sent");
    }
}

#[test]
fn the_window_field_is_scaled_but_on_a_syn() {
    let receiver = TcpConfig { receive_buffer_bytes: 1 << 20, window_scale: 4, ..TcpConfig::current(0) };
    let mut pair = Pair::new(TcpConfig { initial_window_segments: 1000, ..TcpConfig::current(0) }, receiver);
    pair.connect();
    pair.write(0, 10_000_000);
    pair.run_for(Duration::from_ms(12));
    assert_eq!(pair.sent[1][0].1.segment.window, 65_535);
    assert_eq!(pair.ends[0].info().in_flight, 65_535 / 1448);
    pair.run_for(Duration::from_ms(9));
    assert_eq!(pair.sent[1][1].1.segment.window, (1 << 19 >> 4) as u16);
    pair.finish();
    assert_eq!(pair.ends[1].delivered(), 10_000_000);
}

/// The window of the ACK that completes the handshake is the server's first, whatever the SYN has offered.
#[test]
fn a_server_begins_with_the_window_of_the_handshakes_last_ack() {
    let mut pair = Pair::new(TcpConfig::current(0), TcpConfig::current(0));
    pair.judge = Box::new(|side, number, packet| {
        if (side, number) == (0, 1) {
            packet.segment.window = (2 * MSS).div_ceil(1 << 7) as u16;
        }
        Fate::default()
    });
    pair.connect();
    pair.run_for(Duration::from_ms(16));
    pair.write(1, 20 * MSS);
    pair.run_for(Duration::from_ms(1));
    assert_eq!(pair.ends[1].info().in_flight, 2, "the SYN's were 45");
    pair.finish();
    assert_eq!(pair.ends[0].delivered(), 20 * MSS);
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let mut pair = Pair::established(TcpConfig::current(0));
    pair.write(0, 3 * MSS);
    pair.run_for(Duration::from_ms(100));
    pair.forget();
    // A host between the two closes the server's window.
    pair.judge = Box::new(|side, _, packet| {
        if side == 1 {
            packet.segment.window = 0;
        }
        Fate::default()
    });
    pair.write(0, MSS);
    pair.run_for(Duration::from_ms(100));
    pair.write(0, 5 * MSS);
    assert_eq!(pair.timer(0), Some(TimerKind::Persist));
    pair.run_for(Duration::from_s(3));
    let probes = pair.ends[0].stats().window_probes;
    assert!((3..=5).contains(&probes), "{probes} with backoff");
    assert_eq!(pair.ends[1].delivered(), 4 * MSS);
    pair.judge = Box::new(|_, _, _| Fate::default());
    pair.run_for(Duration::from_s(10));
    assert_eq!((pair.ends[1].delivered(), pair.timer(0)), (9 * MSS, None));
}

#[test]
fn a_send_buffer_takes_what_fits_and_tells_of_room() {
    let mut pair = Pair::established(TcpConfig { send_buffer_bytes: Some(20_000), ..TcpConfig::current(0) });
    assert_eq!(pair.write(0, 50_000), 20_000);
    pair.run_for(Duration::from_ms(11));
    assert!(pair.notes[0].contains(&Note::Room(1448)));
    pair.finish();
    assert_eq!(pair.write(0, 50_000), 20_000);
}

#[test]
fn sequence_numbers_wrap() {
    let config = TcpConfig { initial_sequence: u32::MAX - 20_000, ..TcpConfig::current(0) };
    let mut pair = Pair::established(config);
    pair.judge = Box::new(|side, number, _| Fate { drop: side == 0 && number % 17 == 9, ..Fate::default() });
    pair.write(0, 500_000);
    pair.write(1, 500_000);
    pair.finish();
    assert!(pair.sent[0].iter().any(|(_, packet)| packet.segment.seq > 1 << 31));
    assert!(pair.sent[0].iter().any(|(_, packet)| packet.segment.seq < 1 << 20));
    assert_eq!((pair.ends[0].delivered(), pair.ends[1].delivered()), (500_000, 500_000));
}

#[test]
fn classic_ecn_halves_once_per_window_and_stops_the_echo_with_cwr() {
    let config = TcpConfig {
        ecn: EcnMode::Classic,
        congestion_control: CongestionControl::Reno,
        delayed_ack: false,
        initial_window_segments: 20,
        ..TcpConfig::current(0)
    };
    let mut pair = Pair::established(config);
    pair.judge = Box::new(|side, number, _| Fate { mark: side == 0 && (3..6).contains(&number), ..Fate::default() });
    pair.write(0, 60 * MSS);
    pair.finish();
    let stats = pair.ends[0].stats();
    assert_eq!((stats.ecn_reductions, stats.retransmitted, pair.ends[1].stats().marks_received), (1, 0, 3));
    assert!((10..=13).contains(&pair.ends[0].info().ssthresh), "{:?}", pair.ends[0].info());
    let with_cwr = pair.sent[0].iter().filter(|(_, packet)| packet.segment.flags.has(Flags::CWR)).count();
    assert_eq!(with_cwr, 1);
    assert!(!pair.sent[1].last().unwrap().1.segment.flags.has(Flags::ECE));
}

#[test]
fn dctcp_echoes_each_change_and_averages_the_share_of_marks() {
    let config =
        TcpConfig { ecn: EcnMode::Dctcp, congestion_control: CongestionControl::Dctcp, ..TcpConfig::current(0) };
    let mut pair = Pair::established(config);
    assert!(pair.sent.iter().flatten().all(|(_, packet)| packet.ecn == Ecn::Ect0));
    pair.write(0, 40 * MSS);
    pair.finish();
    pair.forget();
    let alpha = pair.ends[0].alpha().unwrap();
    assert!(alpha < 1024);
    let begin = pair.now;
    pair.judge = Box::new(|side, number, _| Fate { mark: side == 0 && number == 2, ..Fate::default() });
    pair.with(0, |end, env| end.write(env, 5 * MSS));
    pair.run_for(Duration::from_ms(6));
    let echoes: Vec<_> = pair.sent[1].iter().map(|(_, packet)| packet.segment.flags.has(Flags::ECE)).collect();
    // 0 and 1 together; 2 is marked: at once; 3 is not: at once; 4 waits.
    assert_eq!(acks(&pair, begin).iter().map(|ack| ack.0).collect::<Vec<_>>(), [42, 43, 44]);
    assert_eq!(echoes, [false, true, false]);
    pair.finish();
    pair.forget();
    // 0 waits when 1 comes with a mark: an ACK for what came before, without the echo, then one with it.
    pair.judge = Box::new(|side, number, _| Fate { mark: side == 0 && number == 1, ..Fate::default() });
    pair.write(0, 2 * MSS);
    pair.run_for(Duration::from_ms(6));
    let echoes: Vec<_> = pair.sent[1].iter().map(|(_, packet)| packet.segment.flags.has(Flags::ECE)).collect();
    assert_eq!(acks(&pair, begin).iter().map(|ack| ack.0).collect::<Vec<_>>(), [46, 47]);
    assert_eq!(echoes, [false, true]);
}
