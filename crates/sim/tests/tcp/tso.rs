//! A sender that waits until it can send a larger packet.

use evenkeel_sim::tcp::TcpConfig;
use evenkeel_sim::time::{Duration, Instant};

use crate::pair::Pair;

const MSS: u32 = 1448;
const SEGMENTS: u32 = 600;

/// An end that has sent all it has, to a receiver with room for `room_segments` segments.
fn sent(room_segments: u32, sizes_packets: bool) -> Pair {
    let gso_segments = if sizes_packets { u32::MAX } else { 1 };
    let receive_buffer_bytes = 2 * room_segments * MSS;
    let config =
        TcpConfig { sizes_packets, gso_segments, receive_buffer_bytes, window_scale: 0, ..TcpConfig::current(0) };
    let mut pair = Pair::new(config.clone(), config);
    pair.delay = Duration::from_us(100);
    pair.connect();
    pair.run_for(Duration::from_ms(10));
    pair.forget();
    pair.write(0, u64::from(SEGMENTS * MSS));
    pair.run_for(Duration::from_s(5));
    assert_eq!(pair.ends[1].delivered(), u64::from(SEGMENTS * MSS), "{room_segments}");
    assert_eq!(pair.ends[0].stats().timeouts, 0, "{room_segments}");
    pair
}

/// How many segments left together, each time.
fn bursts(pair: &Pair) -> Vec<u32> {
    let mut bursts: Vec<(Instant, u32)> = Vec::new();
    for (at, packet) in &pair.sent[0] {
        let segments = packet.segment.payload_bytes.div_ceil(MSS);
        match bursts.last_mut() {
            Some((last, sum)) if last == at => *sum += segments,
            _ => bursts.push((*at, segments)),
        }
    }
    bursts.into_iter().map(|(_, segments)| segments).filter(|segments| *segments > 0).collect()
}

#[test]
fn a_third_of_the_window_leaves_together() {
    for room_segments in [12, 30, 44] {
        let waits = bursts(&sent(room_segments, true));
        // After slow start, and without the last burst, which is what is left.
        let later = &waits[waits.len() / 3..waits.len() - 1];
        assert!(later.iter().all(|burst| burst * 3 >= room_segments), "{room_segments}: {waits:?}");
        let mut at_once = bursts(&sent(room_segments, false));
        at_once.sort_unstable();
        assert!(at_once[at_once.len() / 2] <= 2, "{room_segments}: {at_once:?}");
    }
}

#[test]
fn nobody_waits_in_vain() {
    // With room for one segment, any sender waits for the delayed ACK.
    for room_segments in 2..45 {
        sent(room_segments, true);
    }
}
