//! The host's congestion control: Reno, CUBIC or Vegas behind one interface.

use crate::sys;

/// Which algorithm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Reno (RFC 5681).
    #[default]
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// Vegas.
    Vegas,
}

impl Kind {
    pub(crate) fn raw(self) -> u32 {
        match self {
            Self::Reno => sys::congestion_kind_CONGESTION_RENO,
            Self::Cubic => sys::congestion_kind_CONGESTION_CUBIC,
            Self::Vegas => sys::congestion_kind_CONGESTION_VEGAS,
        }
    }
}

/// What is known of the path when new data is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// The time.
    pub now_us: u64,
    /// Smoothed RTT.
    pub srtt_us: u32,
    /// Least RTT; 0: slow start goes on until there is a loss.
    pub min_rtt_us: u32,
    /// A round trip has passed since this was last true.
    pub round_over: bool,
}

impl Path {
    pub(crate) fn raw(&self) -> sys::congestion_path {
        let &Self { now_us, srtt_us, min_rtt_us, round_over } = self;
        sys::congestion_path { now_us, srtt_us, min_rtt_us, round_over }
    }
}

/// A window, and what its algorithm remembers.
#[derive(Debug, Clone)]
pub struct Congestion(sys::congestion);

impl Congestion {
    /// At the start of slow start.
    pub fn new(kind: Kind, initial_window: u32) -> Self {
        let mut state = sys::congestion::default();
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::congestion_begin(&mut state, kind.raw(), initial_window) }
        Self(state)
    }

    /// Segments that may be in flight.
    pub fn cwnd(&self) -> u32 {
        self.0.window.cwnd
    }

    /// The slow-start threshold.
    pub fn ssthresh(&self) -> u32 {
        self.0.window.ssthresh
    }

    /// An RTT was measured.
    pub fn rtt(&mut self, rtt_us: u32) {
        // SAFETY: as in `new`.
        unsafe { sys::congestion_rtt(&mut self.0, rtt_us) }
    }

    /// New data was acknowledged while the window limited the sender.
    pub fn acked(&mut self, segments: u32, path: &Path) {
        // SAFETY: as in `new`.
        unsafe { sys::congestion_acked(&mut self.0, segments, &path.raw()) }
    }

    /// A segment was lost.
    pub fn lost(&mut self) {
        // SAFETY: as in `new`.
        unsafe { sys::congestion_lost(&mut self.0) }
    }

    /// A timeout.
    pub fn timed_out(&mut self) {
        // SAFETY: as in `new`.
        unsafe { sys::congestion_timed_out(&mut self.0) }
    }

    /// Nothing was sent for this long, which is longer than a timeout.
    pub fn idle(&mut self, idle_us: u64, timeout_us: u32, initial_window: u32) {
        // SAFETY: as in `new`.
        unsafe { sys::congestion_idle(&mut self.0, idle_us, timeout_us, initial_window) }
    }
}
