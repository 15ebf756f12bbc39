//! What must hold for any network and any segment.

use evenkeel_sim::packet::{Flags, SackBlocks, Segment};
use evenkeel_sim::tcp::{CongestionControl, Connection, EcnMode, Env, Role, SpuriousResponse, TcpConfig};
use evenkeel_sim::time::{Duration, Instant};
use proptest::prelude::*;

use crate::pair::{Fate, Pair};

fn config() -> impl Strategy<Value = TcpConfig> {
    let switches = prop::array::uniform10(any::<bool>());
    (switches, 0..4usize, 0..3usize, 0..3usize, any::<u32>(), prop_oneof![Just(64u32 << 10), Just(6 << 20)]).prop_map(
        |(switch, cc, ecn, hz, initial_sequence, receive_buffer_bytes)| {
            let [paper, sack, dsack, timestamps, f_rto, undo, tlp, rack, delayed_ack, small] = switch;
            let hz = [0, 250, 1000][hz];
            TcpConfig {
                sack,
                dsack,
                timestamps,
                eifel: timestamps,
                f_rto,
                spurious_response: if undo { SpuriousResponse::Undo } else { SpuriousResponse::RateHalving },
                tail_loss_probe: tlp,
                rack,
                delayed_ack,
                rto_min: Duration::from_ms(if small { 1 } else { 200 }),
                congestion_control: [
                    CongestionControl::Reno,
                    CongestionControl::Cubic,
                    CongestionControl::Dctcp,
                    CongestionControl::Lldct,
                ][cc],
                ecn: [EcnMode::Off, EcnMode::Classic, EcnMode::Dctcp][ecn],
                initial_sequence,
                receive_buffer_bytes,
                ..if paper { TcpConfig::paper(hz) } else { TcpConfig::current(hz) }
            }
        },
    )
}

fn segment() -> impl Strategy<Value = (Segment, bool, u64)> {
    let near = prop_oneof![0..20_000u32, any::<u32>()];
    let block = (near.clone(), near.clone());
    (
        (near.clone(), near, 0..4000u32, any::<u16>(), 0..16u8, 0..64u8, any::<u32>(), any::<u32>()),
        prop::array::uniform3(block),
        0..6u8,
        any::<bool>(),
        0..400_000u64,
    )
        .prop_map(
            |((seq, ack, payload_bytes, window, window_scale, flags, ts_val, ts_ecr), blocks, count, ce, wait)| {
                let sack = SackBlocks { blocks, count };
                let flags = Flags(flags);
                (Segment { seq, ack, payload_bytes, window, window_scale, flags, ts_val, ts_ecr, sack }, ce, wait)
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn everything_arrives_once_whatever_the_network_does(
        client in config(), server in config(),
        fates in prop::collection::vec((0..100u8, 0..20_000u64), 0..300),
        writes in prop::collection::vec((0..2usize, 1..200_000u64, 0..300_000u64), 1..6),
    ) {
        let mut pair = Pair::new(client, server);
        let mut number = 0;
        pair.judge = Box::new(move |_, _, _| {
            let Some(&(kind, late_us)) = fates.get(number) else { return Fate::default() };
            number += 1;
            Fate {
                drop: kind < 15,
                duplicate: (15..20).contains(&kind),
                mark: (20..40).contains(&kind),
                late: if (40..55).contains(&kind) { Duration::from_us(late_us) } else { Duration::ZERO },
            }
        });
        pair.connect();
        let mut total = [0, 0];
        for (side, bytes, wait_us) in writes {
            total[side] += pair.write(side, bytes);
            pair.run_for(Duration::from_us(wait_us));
        }
        let until = pair.now + Duration::from_s(3000);
        loop {
            for end in &pair.ends {
                prop_assert!(!end.is_established() || end.remaining() == 0 || end.next_timer().is_some(), "{:?}", end);
            }
            if !pair.step(until) {
                break;
            }
        }
        for (side, &total) in total.iter().enumerate() {
            prop_assert_eq!(pair.ends[1 - side].delivered(), total);
            prop_assert_eq!((pair.ends[side].acked(), pair.ends[side].remaining()), (total, 0));
            prop_assert_eq!(pair.ends[side].info().in_flight, 0);
        }
    }

    #[test]
    fn no_segment_makes_it_panic(
        mut config in config(),
        role in any::<bool>(),
        segments in prop::collection::vec(segment(), 1..60),
    ) {
        config.initial_sequence = 0;
        let mut end = Connection::new(&config, if role { Role::Client } else { Role::Server });
        let (mut out, mut notes) = (Vec::new(), Vec::new());
        let mut now = Instant::START;
        for (number, (mut segment, ce, wait_us)) in segments.into_iter().enumerate() {
            now += Duration::from_us(wait_us);
            let mut env = Env { now, config: &config, out: &mut out, notes: &mut notes, pvtcp: None };
            end.on_timer(&mut env);
            if number == 0 {
                end.connect(&mut env);
                segment = Segment { ack: 1, flags: Flags(segment.flags.0 | if role { 3 } else { 1 }), ..segment };
            }
            if number == 1 && !role {
                segment = Segment { ack: 1, flags: Flags::ACK, ..segment };
            }
            end.on_segment(&mut env, &segment, ce);
            end.on_read(&mut env);
            end.write(&mut env, 5000);
            out.clear();
            notes.clear();
        }
    }
}
