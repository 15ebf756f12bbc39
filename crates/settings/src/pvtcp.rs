//! PVTCP's settings: the guest module's parameters.

use evenkeel_algo::pvtcp::{HOLD_MAX_US, HOLD_MIN_US, JIT_SEGMENTS, LATE_US, Settings};

use crate::table::settings;
use crate::value::{Bounded, Mode};

/// Delay from which a tick is late.
pub type LateUs = Bounded<{ LATE_US.least }, { LATE_US.most }>;
/// Shortest hold of timers.
pub type HoldMinUs = Bounded<{ HOLD_MIN_US.least }, { HOLD_MIN_US.most }>;
/// Longest hold of timers.
pub type HoldMaxUs = Bounded<{ HOLD_MAX_US.least }, { HOLD_MAX_US.most }>;
/// Segments.
pub type JitSegments = Bounded<{ JIT_SEGMENTS.least }, { JIT_SEGMENTS.most }>;

settings! {
    /// PVTCP: after a wake-up TCP's timers wait, RTT samples that span it are left out, and the first segments are
    /// acknowledged at once.
    pub struct Pvtcp, override PvtcpOverride;
    /// Whether it acts:
    mode: Mode = Mode::Enforce;
    /// A tick later than this is a wake-up.
    late_us: LateUs = Bounded::new(LATE_US.default);
    /// Hold retransmission timeouts after a wake-up.
    hold_rto: bool = true;
    /// Hold tail-loss probes after a wake-up.
    hold_tlp: bool = true;
    /// Hold RACK's reordering timer after a wake-up.
    hold_reo: bool = true;
    /// Held timers wait at least this long after a wake-up (1 ms in the paper).
    hold_min_us: HoldMinUs = Bounded::new(HOLD_MIN_US.default);
    /// Held timers wait at most this long for the backlog of packets; a value below hold_min_us counts as hold_min_us.
    hold_max_us: HoldMaxUs = Bounded::new(HOLD_MAX_US.default);
    /// Keep RTT samples that span a wake-up out of SRTT and RTTVAR.
    filter_rtt: bool = true;
    /// Do not count an absence as idle time of a connection, which would reset its congestion window (RFC 5681 4.1).
    filter_idle: bool = true;
    /// Segments acknowledged at once after a wake-up (PVTCP-slides 26).
    jit_segments: JitSegments = Bounded::new(JIT_SEGMENTS.default), note "0 acknowledges none at once";
}

impl Pvtcp {
    /// Settings of the algorithm.
    pub fn settings(&self) -> Settings {
        Settings {
            late_us: self.late_us.get(),
            hold_min_us: self.hold_min_us.get(),
            hold_max_us: self.hold_max_us.get(),
            jit_segments: self.jit_segments.get(),
            hold_rto: self.hold_rto,
            hold_tlp: self.hold_tlp,
            hold_reo: self.hold_reo,
            filter_rtt: self.filter_rtt,
            filter_idle: self.filter_idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logic_gets_what_is_set_and_the_modules_defaults_else() {
        let set = PvtcpOverride {
            jit_segments: Some(Bounded::new(0)),
            hold_tlp: Some(false),
            late_us: Some(Bounded::new(500)),
            ..PvtcpOverride::default()
        };
        let wanted = Settings { jit_segments: 0, hold_tlp: false, late_us: 500, ..Settings::default() };
        assert_eq!(set.in_scenario().settings(), wanted);
        assert_eq!(Pvtcp::default().settings(), Settings::default());
    }
}
