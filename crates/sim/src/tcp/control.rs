//! Congestion control: the logic of `algo/`, and L2DCT, which serves only for comparison.

use evenkeel_algo::congestion::Path;
use evenkeel_algo::cubic::Cubic;
use evenkeel_algo::dctcp::{self, Dctcp};
use evenkeel_algo::hystart::Hystart;
use evenkeel_algo::reno::{self, Window};

use super::config::{CongestionControl, TcpConfig};
use super::rtt::Rtt;

/// An algorithm's state beside the window.
#[derive(Clone, Debug)]
pub(super) enum Control {
    Reno,
    Cubic(Cubic, Option<SlowStart>),
    Dctcp(Dctcp, u64),
    Lldct(Dctcp, u64),
}

/// HyStart, and its round trips.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowStart {
    hystart: Hystart,
    round_end: u64,
    is_round_over: bool,
}

impl Control {
    /// `floods`: with vFlood, the guest's RTTs depend on when it reads, so it has no HyStart.
    pub fn new(config: &TcpConfig, floods: bool) -> Self {
        let slow_start = (config.hystart && !floods).then(SlowStart::default);
        match config.congestion_control {
            CongestionControl::Reno => Self::Reno,
            CongestionControl::Cubic => Self::Cubic(Cubic::default(), slow_start),
            CongestionControl::Dctcp => Self::Dctcp(Dctcp::default(), 0),
            CongestionControl::Lldct => Self::Lldct(Dctcp::default(), 0),
        }
    }

    /// The connection floods no more: its slow start ends like a plain connection's.
    pub fn be_plain(&mut self, config: &TcpConfig) {
        if let Self::Cubic(_, slow_start) = self {
            *slow_start = config.hystart.then(SlowStart::default);
        }
    }

    /// The threshold after congestion. `loss`: lost segments show it, and not marks; `sent`: the flow's bytes so far.
    pub fn ssthresh(&mut self, cwnd: u32, loss: bool, sent: u64) -> u32 {
        match self {
            Self::Cubic(cubic, _) => cubic.ssthresh(cwnd),
            Self::Dctcp(dctcp, _) if !loss => dctcp.ssthresh(cwnd),
            Self::Lldct(dctcp, _) if !loss => lldct_ssthresh(dctcp.alpha(), sent, cwnd),
            Self::Reno | Self::Dctcp(..) | Self::Lldct(..) => reno::ssthresh(cwnd),
        }
    }

    /// Lets the window grow.
    pub fn acked(&mut self, window: &mut Window, segments: u32, now_us: u64, rtt: &Rtt, sent: u64) {
        match self {
            Self::Cubic(cubic, slow_start) => {
                if let Some(s) = slow_start.as_mut().filter(|_| window.in_slow_start()) {
                    let (srtt_us, min_rtt_us) = (rtt.srtt_us(), rtt.min_us);
                    let path = Path { now_us, srtt_us, min_rtt_us, round_over: s.is_round_over };
                    s.hystart.acked(window, &path);
                    s.is_round_over = false;
                }
                cubic.acked(window, segments, now_us, rtt.srtt_us());
            }
            Self::Lldct(..) if !window.in_slow_start() => {
                let per = u64::from(window.cwnd()) * u64::from(WEIGHT_MAX) / u64::from(weight(sent));
                window.grow(per.min(u64::from(u32::MAX)) as u32, segments);
            }
            Self::Reno | Self::Dctcp(..) | Self::Lldct(..) => window.acked(segments),
        }
    }

    /// Counts marks and round trips. A round trip ends when `una` reaches what `nxt` was at its beginning.
    pub fn count(&mut self, delivered: u32, echo: bool, una: u64, nxt: u64) {
        match self {
            Self::Dctcp(dctcp, window_end) | Self::Lldct(dctcp, window_end) => {
                dctcp.count(delivered, echo);
                if una >= *window_end {
                    dctcp.window_end();
                    *window_end = nxt;
                }
            }
            Self::Cubic(_, Some(slow_start)) if una >= slow_start.round_end => {
                slow_start.is_round_over = true;
                slow_start.round_end = nxt;
            }
            Self::Cubic(..) | Self::Reno => {}
        }
    }

    /// An RTT was measured.
    pub fn rtt(&mut self, rtt_us: u32) {
        if let Self::Cubic(_, Some(slow_start)) = self {
            slow_start.hystart.rtt(rtt_us);
        }
    }

    /// A window of data begins with the connection.
    pub fn begin(&mut self, nxt: u64) {
        if let Self::Dctcp(_, window_end) | Self::Lldct(_, window_end) = self {
            *window_end = nxt + 1;
        }
    }

    /// A timeout was judged to be real.
    pub fn timed_out(&mut self) {
        if let Self::Cubic(cubic, _) = self {
            cubic.reset();
        }
    }

    /// The window was set from outside: growth begins anew.
    pub fn set_window(&mut self) {
        if let Self::Cubic(cubic, _) = self {
            cubic.reset();
        }
    }

    /// Nothing was sent for this long.
    pub fn idle(&mut self, idle_us: u64) {
        if let Self::Cubic(cubic, _) = self {
            cubic.idle(idle_us);
        }
    }

    /// DCTCP's alpha, if there is one.
    pub fn alpha(&self) -> Option<u32> {
        match self {
            Self::Dctcp(dctcp, _) | Self::Lldct(dctcp, _) => Some(dctcp.alpha()),
            Self::Reno | Self::Cubic(..) => None,
        }
    }
}

/// Weight of a short flow, in eighths: 2.5.
const WEIGHT_MAX: u32 = 20;
/// A flow is short up to this size.
const SHORT_BYTES: u64 = 200_000;
/// A flow is long, with a weight of one eighth, from this size on.
const LONG_BYTES: u64 = 1_000_000;

/// L2DCT's weight in eighths: 2.5 falls to 0.125 as the flow sends.
fn weight(sent: u64) -> u32 {
    let beyond = sent.clamp(SHORT_BYTES, LONG_BYTES) - SHORT_BYTES;
    WEIGHT_MAX - (beyond * u64::from(WEIGHT_MAX - 1) / (LONG_BYTES - SHORT_BYTES)) as u32
}

/// Window * (1 - alpha^weight / 2).
fn lldct_ssthresh(alpha: u32, sent: u64, cwnd: u32) -> u32 {
    const ONE: u64 = 1 << 30;
    // The eighth root by three square roots, then a whole power of it.
    let mut root = u64::from(alpha) * (ONE / u64::from(dctcp::ONE));
    for _ in 0..3 {
        root = (root << 30).isqrt();
    }
    let penalty = (0..weight(sent)).fold(ONE, |power, _| (power * root) >> 30);
    let cut = ((u64::from(cwnd) * penalty) >> 31) as u32;
    (cwnd - cut).max(reno::MIN_CWND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_flows_give_way_to_short_ones() {
        assert_eq!((weight(0), weight(SHORT_BYTES), weight(LONG_BYTES), weight(u64::MAX)), (20, 20, 1, 1));
        assert_eq!(lldct_ssthresh(dctcp::ONE, 0, 100), 50);
        assert_eq!(lldct_ssthresh(0, 0, 100), 100);
        // 0.25^2.5 = 1/32, 0.25^0.125 = 0.84
        assert_eq!(lldct_ssthresh(dctcp::ONE / 4, 0, 1000), 1000 - 15);
        assert_eq!(lldct_ssthresh(dctcp::ONE / 4, LONG_BYTES, 1000), 1000 - 420);
    }
}
