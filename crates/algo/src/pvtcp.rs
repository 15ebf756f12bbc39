//! PVTCP: TCP in a guest that does not take the hypervisor's scheduling for congestion.
//!
//! All times are microseconds of one monotonic clock that goes on while the vCPU does not.

use crate::sys;

/// How long to wait before asking [`Vcpu::release_us`] again, in microseconds.
pub const POLL_US: u32 = sys::PVTCP_POLL_US;

/// The longest idle time from which an absence is taken out, in microseconds.
pub const IDLE_MOST_US: u32 = sys::PVTCP_IDLE_MOST_US;

/// How many more wake-ups a vCPU gets for the timers that it holds.
pub const MAX_EXTENSIONS: u32 = sys::PVTCP_MAX_EXTENSIONS;

/// A setting's default and its bounds, both allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// If nothing else is set.
    pub default: u32,
    /// The smallest.
    pub least: u32,
    /// The largest.
    pub most: u32,
}

/// Of [`Settings::late_us`].
pub const LATE_US: Range =
    Range { default: sys::PVTCP_LATE_US, least: sys::PVTCP_LATE_US_LEAST, most: sys::PVTCP_LATE_US_MOST };
/// Of [`Settings::hold_min_us`].
pub const HOLD_MIN_US: Range =
    Range { default: sys::PVTCP_HOLD_MIN_US, least: sys::PVTCP_HOLD_MIN_US_LEAST, most: sys::PVTCP_HOLD_MIN_US_MOST };
/// Of [`Settings::hold_max_us`].
pub const HOLD_MAX_US: Range =
    Range { default: sys::PVTCP_HOLD_MAX_US, least: sys::PVTCP_HOLD_MAX_US_LEAST, most: sys::PVTCP_HOLD_MAX_US_MOST };
/// Of [`Settings::jit_segments`].
pub const JIT_SEGMENTS: Range = Range {
    default: sys::PVTCP_JIT_SEGMENTS,
    least: sys::PVTCP_JIT_SEGMENTS_LEAST,
    most: sys::PVTCP_JIT_SEGMENTS_MOST,
};

/// The timers that share TCP's retransmit timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The retransmission timeout.
    Rto,
    /// The tail-loss probe.
    Tlp,
    /// RACK's reordering window.
    Reo,
}

impl From<Timer> for sys::pvtcp_timer {
    fn from(timer: Timer) -> Self {
        match timer {
            Timer::Rto => Self::PVTCP_TIMER_RTO,
            Timer::Tlp => Self::PVTCP_TIMER_TLP,
            Timer::Reo => Self::PVTCP_TIMER_REO,
        }
    }
}

/// What the module's parameters set; the module loads with [`Settings::default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A tick later than this is a wake-up.
    pub late_us: u32,
    /// Held timers wait at least this long after a wake-up.
    pub hold_min_us: u32,
    /// Held timers wait no longer than this, or than `hold_min_us` if that is more.
    pub hold_max_us: u32,
    /// Segments of each connection acknowledged at once after a wake-up.
    pub jit_segments: u32,
    /// Whether to hold retransmission timeouts.
    pub hold_rto: bool,
    /// Whether to hold tail-loss probes.
    pub hold_tlp: bool,
    /// Whether to hold RACK's reordering timer.
    pub hold_reo: bool,
    /// Whether to replace spoilt RTT samples by neutral ones, near SRTT.
    pub filter_rtt: bool,
    /// Whether to take an absence out of a connection's idle time.
    pub filter_idle: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            late_us: LATE_US.default,
            hold_min_us: HOLD_MIN_US.default,
            hold_max_us: HOLD_MAX_US.default,
            jit_segments: JIT_SEGMENTS.default,
            hold_rto: true,
            hold_tlp: true,
            hold_reo: true,
            filter_rtt: true,
            filter_idle: true,
        }
    }
}

impl Settings {
    fn raw(&self) -> sys::pvtcp_settings {
        sys::pvtcp_settings {
            late_us: self.late_us,
            hold_min_us: self.hold_min_us,
            hold_max_us: self.hold_max_us,
            jit_segments: self.jit_segments,
            hold: [self.hold_rto, self.hold_tlp, self.hold_reo],
            filter_rtt: self.filter_rtt,
            filter_idle: self.filter_idle,
        }
    }
}

/// What is known of one vCPU.
#[derive(Clone, Debug, Default)]
pub struct Vcpu(sys::pvtcp_vcpu);

impl Vcpu {
    /// A clock event that was due at `due_us` runs at `now_us`. `steal_us` is the steal clock, 0 where there is none.
    /// True if the vCPU has just come back to its core.
    pub fn tick(&mut self, set: &Settings, due_us: u64, now_us: u64, steal_us: u64) -> bool {
        // SAFETY: both pointers are to live values for the length of the call; the C code keeps neither.
        unsafe { sys::pvtcp_tick(&mut self.0, &set.raw(), due_us, now_us, steal_us) }
    }

    /// Looks at the steal clock before a decision; true if it shows a wake-up that the tick did not.
    pub fn steal(&mut self, set: &Settings, now_us: u64, steal_us: u64) -> bool {
        // SAFETY: as in `tick`.
        unsafe { sys::pvtcp_steal(&mut self.0, &set.raw(), now_us, steal_us) }
    }

    /// Whether a wake-up is going on.
    pub fn is_waking(&self, set: &Settings, now_us: u64) -> bool {
        // SAFETY: as in `tick`.
        unsafe { sys::pvtcp_is_waking(&self.0, &set.raw(), now_us) }
    }

    /// When the last wake-up was seen.
    pub fn wake_us(&self) -> u64 {
        self.0.wake_us
    }

    /// How long the vCPU was off before it, as far as seen.
    pub fn off_us(&self) -> u64 {
        self.0.off_us
    }

    /// How many wake-ups it has had, modulo 2^32.
    pub fn wakes(&self) -> u32 {
        self.0.wakes
    }

    /// Whether to hold back this expired timer.
    pub fn hold(&self, set: &Settings, timer: Timer, now_us: u64) -> bool {
        // SAFETY: as in `tick`.
        unsafe { sys::pvtcp_hold(&self.0, &set.raw(), timer.into(), now_us) }
    }

    /// Whether timers that were first held when [`wakes`](Self::wakes) was `since` may be held any longer.
    pub fn holds_on(&self, since: u32) -> bool {
        // SAFETY: as in `tick`.
        unsafe { sys::pvtcp_holds_on(&self.0, since) }
    }

    /// `None` if timers held since then shall run now, else the time after which to ask again.
    pub fn release_us(&self, set: &Settings, since: u32, now_us: u64, backlog_in: bool) -> Option<u32> {
        // SAFETY: as in `tick`.
        match unsafe { sys::pvtcp_release_us(&self.0, &set.raw(), since, now_us, backlog_in) } {
            0 => None,
            wait_us => Some(wait_us),
        }
    }

    /// An RTT sample, or if the wake-up has spoilt it, a neutral one: SRTT plus or minus the mean deviation. Negative
    /// samples mean "none".
    pub fn filter_rtt(&self, set: &Settings, now_us: u64, srtt_us: u32, mdev_us: u32, sample_us: i64) -> i64 {
        // SAFETY: as in `tick`.
        unsafe { sys::pvtcp_filter_rtt(&self.0, &set.raw(), now_us, &sys::pvtcp_rtt { sample_us, srtt_us, mdev_us }) }
    }

    /// How long a connection that sent nothing for `idle_us` counts as idle: up to [`IDLE_MOST_US`], the last absence
    /// is taken out if it fell into that time.
    pub fn idle_us(&self, set: &Settings, now_us: u64, idle_us: u64) -> u64 {
        // SAFETY: as in `tick`.
        unsafe { sys::pvtcp_idle_us(&self.0, &set.raw(), now_us, idle_us) }
    }

    /// How many segments to acknowledge at once when a segment comes in `idle_us` (in whole ticks) after the
    /// connection's previous one.
    pub fn jit_segments(&self, set: &Settings, now_us: u64, idle_us: u64, tick_us: u32) -> u32 {
        // SAFETY: as in `tick`.
        unsafe { sys::pvtcp_jit_segments(&self.0, &set.raw(), now_us, idle_us, tick_us) }
    }
}
