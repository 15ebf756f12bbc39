//! DCTCP (RFC 8257).

use crate::sys;

/// What alpha is a fraction of.
pub const ONE: u32 = sys::DCTCP_ONE;

/// The sender's estimate of the share of marked segments.
#[derive(Clone, Debug)]
pub struct Dctcp(sys::dctcp);

impl Default for Dctcp {
    fn default() -> Self {
        let mut state = sys::dctcp::default();
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::dctcp_init(&mut state) }
        Self(state)
    }
}

impl Dctcp {
    /// The averaged share of marked segments, of [`ONE`].
    pub fn alpha(&self) -> u32 {
        self.0.alpha
    }

    /// `segments` were acknowledged, with or without an echo of marks.
    pub fn count(&mut self, segments: u32, echo: bool) {
        // SAFETY: as in `default`.
        unsafe { sys::dctcp_count(&mut self.0, segments, echo) }
    }

    /// A window of data has been acknowledged.
    pub fn window_end(&mut self) {
        // SAFETY: as in `default`.
        unsafe { sys::dctcp_window_end(&mut self.0) }
    }

    /// The threshold after a window with marks.
    pub fn ssthresh(&self, cwnd: u32) -> u32 {
        // SAFETY: as in `default`.
        unsafe { sys::dctcp_ssthresh(&self.0, cwnd) }
    }
}

/// The receiver's state machine: true if earlier segments are to be acknowledged first, with the echo as it is. Then
/// the caller asks again.
pub fn ack_earlier_first(echo: &mut bool, ce: bool, ack_pending: bool) -> bool {
    // SAFETY: as in `Dctcp::default`.
    unsafe { sys::dctcp_received(echo, ce, ack_pending) == sys::dctcp_ack::DCTCP_ACK_EARLIER_FIRST }
}
