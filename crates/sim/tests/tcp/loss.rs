//! Losses, reordering, and timeouts that were for nothing.

use evenkeel_algo::pvtcp::{Settings, Vcpu};
use evenkeel_sim::tcp::{Note, SpuriousResponse, TcpConfig, TimerKind, UndoKind, UndoOf};
use evenkeel_sim::time::Duration;

use crate::pair::{Fate, Pair, drop_data};

const MSS: u64 = 1448;

fn plain() -> TcpConfig {
    let old =
        TcpConfig { timestamps: false, eifel: false, rack: false, tail_loss_probe: false, ..TcpConfig::current(0) };
    TcpConfig { hystart: false, ..old }
}

#[test]
fn three_duplicate_acks_bring_a_fast_retransmission() {
    for sack in [true, false] {
        let mut pair = Pair::established(TcpConfig { sack, ..plain() });
        pair.judge = drop_data(1448, &[(2, 1)]);
        pair.write(0, 10 * MSS);
        pair.run_for(Duration::from_ms(40));
        assert_eq!(pair.trace(0), "0 1 2 3 4 5 6 7 8 9 2r");
        let stats = pair.ends[0].stats();
        assert_eq!((stats.fast_recoveries, stats.timeouts, stats.dup_acks_received), (1, 0, 7));
        assert_eq!((pair.ends[1].delivered(), pair.ends[0].info().ssthresh), (10 * MSS, 8), "0.7 of 12");
    }
}

/// New data keeps coming in, and is SACKed; the head, lost with its retransmission, must not wait until that ends.
#[test]
fn a_head_lost_twice_times_out_while_sacks_come_in() {
    for config in [TcpConfig::paper(0), plain()] {
        let mss = u64::from(config.mss_bytes);
        let mut pair = Pair::established(config);
        pair.judge = drop_data(mss as u32, &[(0, 2)]);
        pair.write(0, 2000 * mss);
        pair.run_for(Duration::from_ms(300));
        let stats = pair.ends[0].stats();
        assert_eq!((stats.fast_recoveries >= 1, stats.timeouts), (true, 1));
        assert!(pair.ends[1].delivered() > 30 * mss, "{}", pair.ends[1].delivered());
    }
}

#[test]
fn limited_transmit_sends_new_data_on_the_first_two_duplicates() {
    let mut pair = Pair::established(TcpConfig { initial_window_segments: 4, ..plain() });
    pair.judge = drop_data(1448, &[(0, 1)]);
    pair.write(0, 8 * MSS);
    pair.run_for(Duration::from_ms(12));
    assert_eq!(pair.trace(0), "0 1 2 3 4 5 0r");
}

#[test]
fn sack_repairs_several_holes_in_one_recovery() {
    for rack in [true, false] {
        let mut pair = Pair::established(TcpConfig { rack, ..plain() });
        pair.judge = drop_data(1448, &[(1, 1), (3, 1), (4, 1)]);
        pair.write(0, 10 * MSS);
        pair.run_for(Duration::from_ms(60));
        assert_eq!(pair.trace(0), "0 1 2 3 4 5 6 7 8 9 1r 3r 4r");
        assert_eq!((pair.ends[0].stats().fast_recoveries, pair.ends[0].stats().timeouts), (1, 0));
        assert_eq!(pair.ends[1].delivered(), 10 * MSS);
    }
}

#[test]
fn a_lost_tail_waits_for_the_rto_or_for_a_probe() {
    let mut pair = Pair::established(plain());
    pair.judge = drop_data(1448, &[(8, 1), (9, 1)]);
    pair.write(0, 10 * MSS);
    pair.run_for(Duration::from_ms(400));
    assert_eq!((pair.ends[0].stats().timeouts, pair.ends[1].delivered()), (1, 10 * MSS));
    assert_eq!(pair.trace(0), "0 1 2 3 4 5 6 7 8 9 8r 9r");

    let config = TcpConfig { tail_loss_probe: true, rack: true, ..plain() };
    let mut pair = Pair::established(config);
    pair.judge = drop_data(1448, &[(8, 1), (9, 1)]);
    pair.write(0, 10 * MSS);
    pair.run_for(Duration::from_ms(100));
    assert_eq!(pair.trace(0), "0 1 2 3 4 5 6 7 8 9 9r 8r", "the probe's SACK shows the other hole");
    let stats = pair.ends[0].stats();
    assert_eq!((stats.timeouts, stats.loss_probes, stats.fast_recoveries), (0, 1, 1));
    assert_eq!(pair.ends[1].delivered(), 10 * MSS);
}

#[test]
fn a_probe_that_repairs_the_only_loss_costs_half_the_window() {
    let mut pair = Pair::established(TcpConfig { tail_loss_probe: true, rack: true, ..plain() });
    pair.judge = drop_data(1448, &[(9, 1)]);
    pair.write(0, 10 * MSS);
    pair.run_for(Duration::from_ms(300));
    pair.write(0, MSS);
    pair.run_for(Duration::from_ms(300));
    assert_eq!((pair.ends[0].stats().loss_probes, pair.ends[0].stats().loss_probe_recoveries), (1, 1));
}

#[test]
fn rack_waits_for_a_late_segment_once_it_has_seen_one() {
    let config = TcpConfig { rack: true, ..plain() };
    let mut pair = Pair::established(config);
    let late = |number: u64| number == 1 || number == 9;
    pair.judge = Box::new(move |side, number, _| Fate {
        late: if side == 0 && late(number) { Duration::from_us(1_500) } else { Duration::ZERO },
        ..Fate::default()
    });
    pair.write(0, 3 * MSS);
    pair.run_for(Duration::from_ms(30));
    pair.write(0, 20 * MSS);
    pair.run_for(Duration::from_ms(11));
    assert_eq!(pair.timer(0), Some(TimerKind::Reo), "a quarter of the RTT");
    pair.run_for(Duration::from_ms(100));
    assert_eq!((pair.ends[0].stats().retransmitted, pair.ends[0].stats().timeouts), (0, 0));
}

/// The client is off while the ACKs of a full window come in; its timer runs first when it is back.
fn spurious(config: TcpConfig) -> Pair {
    let mut pair = Pair::established(TcpConfig { rto_min: Duration::from_ms(5), delayed_ack: false, ..config });
    pair.write(0, 40 * MSS);
    pair.run_for(Duration::from_ms(100));
    pair.forget();
    pair.write(0, 400 * MSS);
    pair.client_off_until = pair.now + Duration::from_ms(60);
    pair.run_for(Duration::from_ms(60));
    pair
}

#[test]
fn f_rto_finds_a_spurious_timeout_and_undoes_it_or_halves() {
    for (response, kept) in [(SpuriousResponse::Undo, true), (SpuriousResponse::RateHalving, false)] {
        for paper in [false, true] {
            let base = if paper { TcpConfig { mss_bytes: 1448, ..TcpConfig::paper(0) } } else { plain() };
            let mut pair = spurious(TcpConfig { dsack: false, spurious_response: response, ..base });
            pair.run_for(Duration::from_ms(2));
            let (stats, info) = (pair.ends[0].stats(), pair.ends[0].info());
            assert_eq!((stats.timeouts, stats.spurious_rtos, stats.retransmitted), (1, 1, 1), "{paper}");
            assert_eq!(stats.undone[UndoOf::Loss], u32::from(kept));
            // No threshold was set before; rate halving sets half of the window of 19 or 20.
            assert_eq!(info.ssthresh > 14, kept, "{info:?}");
            assert!(info.cwnd >= 19 || !kept || paper, "{info:?}");
            pair.finish();
            assert_eq!(pair.ends[1].delivered(), 440 * MSS);
        }
    }
}

#[test]
fn eifel_undoes_by_timestamps_alone() {
    let config = TcpConfig { timestamps: true, eifel: true, f_rto: false, dsack: false, ..plain() };
    let mut pair = spurious(config);
    pair.run_for(Duration::from_ms(2));
    let stats = pair.ends[0].stats();
    assert_eq!((stats.timeouts, stats.retransmitted, stats.undone[UndoOf::Loss]), (1, 1, 1));
    assert!(pair.ends[0].info().cwnd >= 19 && pair.ends[0].info().ssthresh > 19);
}

#[test]
fn dsack_undoes_once_every_retransmission_was_superfluous() {
    // A loss shows where there was only reordering.
    let mut pair = Pair::established(plain());
    pair.judge = Box::new(|side, number, _| Fate {
        late: if side == 0 && number == 2 { Duration::from_ms(3) } else { Duration::ZERO },
        ..Fate::default()
    });
    pair.write(0, 10 * MSS);
    pair.run_for(Duration::from_ms(60));
    let stats = pair.ends[0].stats();
    assert_eq!((stats.retransmitted, stats.dsacks_received, stats.undone[UndoOf::Dsack]), (1, 1, 1));
    assert!(pair.ends[0].info().cwnd >= 10);
}

/// A late segment looks lost; its own ACK's timestamp tells, when all is in or while another is missing.
#[test]
fn a_fast_recovery_that_timestamps_undo_is_no_undone_timeout() {
    let config = TcpConfig { timestamps: true, eifel: true, dsack: false, ..plain() };
    for (later, of) in [(None, UndoOf::Full), (Some(8), UndoOf::Partial)] {
        let mut pair = Pair::established(config.clone());
        pair.judge = Box::new(move |side, number, _| Fate {
            late: match number {
                2 if side == 0 => Duration::from_ms(3),
                _ if side == 0 && later == Some(number) => Duration::from_ms(4),
                _ => Duration::ZERO,
            },
            ..Fate::default()
        });
        pair.write(0, 10 * MSS);
        pair.run_for(Duration::from_ms(60));
        let stats = pair.ends[0].stats();
        assert_eq!((stats.timeouts, stats.fast_recoveries, stats.retransmitted), (0, 1, 1), "{of:?}");
        assert_eq!(pair.count(0, |note| *note == Note::Undone(UndoKind::Eifel)), 1);
        assert_eq!((stats.undone[of], stats.undone.total()), (1, 1), "{of:?}: {:?}", stats.undone);
    }
}

#[test]
fn without_any_detection_all_is_sent_again() {
    let mut pair = spurious(TcpConfig { f_rto: false, dsack: false, ..plain() });
    pair.finish();
    assert!(pair.ends[0].stats().retransmitted > 5);
    assert_eq!(pair.ends[0].stats().undone.total(), 0);
    assert_eq!(pair.ends[1].delivered(), 440 * MSS);
}

#[test]
fn karn_and_backoff() {
    let mut pair = Pair::established(TcpConfig { rto_min: Duration::from_ms(50), ..plain() });
    let rto = pair.ends[0].info().rto;
    let srtt = pair.ends[0].info().srtt_us;
    pair.judge = drop_data(1448, &[(0, 3)]);
    let begin = pair.now;
    pair.write(0, MSS);
    pair.run_for(Duration::from_s(2));
    let waits: Vec<u64> = pair.sent[0].iter().map(|(at, _)| at.since(begin).us() / rto.us()).collect();
    assert_eq!(waits, [0, 1, 3, 7]);
    assert_eq!(pair.count(0, |note| matches!(note, Note::RttSample { .. })), 0, "ambiguous");
    assert_eq!((pair.ends[0].info().rto, pair.ends[0].info().srtt_us), (rto * 8, srtt), "kept until a valid sample");
    pair.write(0, MSS);
    pair.run_for(Duration::from_ms(100));
    assert!(pair.ends[0].info().rto < rto * 2);
}

#[test]
fn a_spoilt_sample_is_replaced_as_the_module_does() {
    let mut pair = Pair::established(TcpConfig { ..plain() });
    let before = pair.ends[0].info();
    let mut vcpu = Vcpu::default();
    let settings = Settings::default();
    pair.write(0, MSS);
    pair.client_off_until = pair.now + Duration::from_ms(60);
    let (due, back) = (pair.now.us(), pair.client_off_until.us());
    assert!(vcpu.tick(&settings, due, back, 0));
    pair.pvtcp = Some((vcpu, settings, true));
    pair.run_for(Duration::from_ms(70));
    let Some(Note::RttSample { measured_us, used_us, .. }) = pair.notes[0].first().copied() else { panic!() };
    assert_eq!(measured_us, 60_000);
    assert!(used_us < 2 * before.srtt_us);
    assert!(pair.ends[0].info().rto < before.rto * 2);
}
