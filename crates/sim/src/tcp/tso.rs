//! TSO as in Linux 6.18 (`net/ipv4/tcp_output.c`, `tcp_input.c`): how large the packets are that a guest leaves to
//! others to cut, and when it waits to send a larger one.

use super::config::TcpConfig;
use super::sender::State;
use super::{Connection, Env};
use crate::time::Duration;

/// `sk_gso_max_size`: 64 KB less room for headers (`sk_dst_gso_max_size()`).
const GSO_MAX_BYTES: u64 = 65_215;
/// `tcp_min_tso_segs`.
const MIN_SEGMENTS: u64 = 2;
/// `sk_pacing_shift`: a packet holds what is sent in about 2^-10 s.
const PACING_SHIFT: u32 = 10;
/// `tcp_tso_rtt_log`: a packet may hold more by an amount that halves with each 512 us of the least RTT.
const RTT_LOG: u32 = 9;
/// `tcp_tso_win_divisor`.
const WIN_DIVISOR: u64 = 3;
/// `tcp_pacing_ss_ratio`, in percent.
const SLOW_START_RATIO: u64 = 200;
/// `tcp_pacing_ca_ratio`, in percent.
const AVOIDANCE_RATIO: u64 = 120;
/// A sender that has not sent for this long, or whose next ACK is further away than this, does not wait.
const PATIENCE: Duration = Duration::from_ms(1);

impl Connection {
    /// Most segments in the next packet of new data: `tcp_tso_segs()`, and half of the window (`tcp_cwnd_test()`).
    pub(crate) fn packet_segments(&self, config: &TcpConfig) -> u32 {
        if !config.sizes_packets {
            return config.gso_segments;
        }
        self.largest_packet(config).min((self.window.cwnd() / 2).max(1))
    }

    /// `tcp_tso_autosize()`.
    fn largest_packet(&self, config: &TcpConfig) -> u32 {
        let paced = self.pacing_rate().map_or(GSO_MAX_BYTES, |bytes_per_s| bytes_per_s >> PACING_SHIFT);
        let near = GSO_MAX_BYTES.checked_shr(self.rtt.min_us >> RTT_LOG).unwrap_or(0);
        let bytes = paced.saturating_add(near).min(GSO_MAX_BYTES);
        let segments = (bytes / u64::from(self.mss)).max(MIN_SEGMENTS);
        segments.min(u64::from(config.gso_segments)) as u32
    }

    /// `sk_pacing_rate`, in bytes per second (`tcp_update_pacing_rate()`); `None` before the first RTT sample.
    fn pacing_rate(&self) -> Option<u64> {
        let srtt_us = u64::from(self.rtt.srtt_us());
        let cwnd = self.window.cwnd();
        let ratio = if cwnd < self.window.ssthresh() / 2 { SLOW_START_RATIO } else { AVOIDANCE_RATIO };
        let in_window = u64::from(self.mss) * u64::from(cwnd.max(self.snd.board.out()));
        (in_window * (ratio * 10_000)).checked_div(srtt_us)
    }

    /// `Some` if new data waits for room for a larger packet; true if the congestion window is what limits it:
    /// `tcp_tso_should_defer()`. The receiver and `cwnd` have room for the next segment.
    pub(super) fn defers(&self, env: &Env, cwnd: u32) -> Option<bool> {
        let mss = u64::from(self.mss);
        let unsent = self.snd.end - self.snd.nxt;
        let is_recent = env.now.since(self.snd.last_send) <= PATIENCE;
        if !env.config.sizes_packets || unsent <= mss || self.state >= State::Recovery || !is_recent {
            return None;
        }
        let of_receiver = self.snd.edge - self.snd.nxt;
        let of_window = u64::from(cwnd.saturating_sub(self.snd.board.in_flight())) * mss;
        let room = of_receiver.min(of_window);
        let largest = u64::from(self.largest_packet(env.config)) * mss;
        let window = (self.snd.edge - self.snd.una).min(u64::from(cwnd) * mss);
        if room >= largest || room >= window / WIN_DIVISOR {
            return None;
        }
        let head = self.snd.board.queue.front()?;
        let srtt = Duration::from_us(u64::from(self.rtt.srtt_us()));
        // The next ACK is too far away to wait for.
        if (head.at + srtt).since(env.now) > Duration::from_ps(srtt.ps() / 2).min(PATIENCE) {
            return None;
        }
        Some(of_window < of_receiver && of_window <= unsent.min(largest))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Role;
    use super::*;

    /// Segments of the largest packet that the RTT allows, and of the next packet, for an end with this window.
    fn segments(cwnd: u32, rtt_us: Option<u32>, gso_segments: u32) -> [u32; 2] {
        let config = TcpConfig { sizes_packets: true, gso_segments, ..TcpConfig::current(0) };
        let mut end = Connection::new(&config, Role::Client);
        end.window.set_cwnd(cwnd);
        if let Some(us) = rtt_us {
            end.rtt.sample(&config, us, 0, 0);
            end.rtt.min_us = us;
        }
        [end.largest_packet(&config), end.packet_segments(&config)]
    }

    #[test]
    fn packets_are_what_is_paced_in_a_millisecond_and_more_where_the_peer_is_near() {
        assert_eq!(segments(10, None, u32::MAX), [45, 5], "64 KB, and half of the window");
        assert_eq!(segments(1, None, u32::MAX), [45, 1]);
        // In slow start twice the window in an RTT: 2.9 MB/s.
        assert_eq!(segments(10, Some(10_000), u32::MAX), [2, 2]);
        assert_eq!(segments(100, Some(10_000), u32::MAX), [19, 19]);
        assert_eq!(segments(10, Some(511), u32::MAX)[0], 45);
        // 51,230 bytes in 2^-10 s, and half of 64 KB; then an eighth.
        assert_eq!(segments(10, Some(552), u32::MAX)[0], 45);
        assert_eq!(segments(2, Some(552), u32::MAX)[0], 29);
        assert_eq!(segments(2, Some(1_600), u32::MAX)[0], 8);
        assert_eq!(segments(100, Some(100), 16), [16, 16]);
    }

    #[test]
    fn who_does_not_size_packets_has_what_is_set() {
        let config = TcpConfig { gso_segments: 16, ..TcpConfig::current(0) };
        assert_eq!(Connection::new(&config, Role::Client).packet_segments(&config), 16);
    }
}
