//! The congestion window in segments, and how Reno moves it (RFC 5681).

use crate::sys;

/// Least congestion window after a loss.
pub const MIN_CWND: u32 = sys::RENO_MIN_CWND;

/// Largest congestion window.
pub const MAX_CWND: u32 = 1 << 24;

/// A congestion window.
#[derive(Clone, Debug)]
pub struct Window(pub(crate) sys::reno_window);

impl Window {
    /// A window at the start of slow start.
    pub fn new(cwnd: u32) -> Self {
        Self(sys::reno_window { cwnd, ssthresh: u32::MAX, credit: 0 })
    }

    /// Segments that may be in flight.
    pub fn cwnd(&self) -> u32 {
        self.0.cwnd
    }

    /// Sets the window, at least one segment.
    pub fn set_cwnd(&mut self, cwnd: u32) {
        self.0.cwnd = cwnd.clamp(1, MAX_CWND);
    }

    /// The slow-start threshold.
    pub fn ssthresh(&self) -> u32 {
        self.0.ssthresh
    }

    /// Sets the slow-start threshold.
    pub fn set_ssthresh(&mut self, ssthresh: u32) {
        self.0.ssthresh = ssthresh;
    }

    /// Acknowledged segments that have not yet made the window grow.
    pub fn credit(&self) -> u32 {
        self.0.credit
    }

    /// Sets the acknowledged segments that have not yet made the window grow.
    pub fn set_credit(&mut self, credit: u32) {
        self.0.credit = credit;
    }

    /// Whether the window is below the threshold.
    pub fn in_slow_start(&self) -> bool {
        self.0.cwnd < self.0.ssthresh
    }

    /// Reno's growth.
    pub fn acked(&mut self, segments: u32) {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::reno_acked(&mut self.0, segments) }
    }

    /// One segment for each `per` acknowledged ones.
    pub fn grow(&mut self, per: u32, segments: u32) {
        // SAFETY: as in `acked`.
        unsafe { sys::reno_grow(&mut self.0, per, segments) }
    }
}

/// Reno's threshold after a loss.
pub fn ssthresh(cwnd: u32) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::reno_ssthresh(cwnd) }
}
