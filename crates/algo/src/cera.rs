//! CERA: one window for a host, divided among its VMs and among the flows of each.

mod client;
mod controller;
mod pace;
mod trip;

use crate::sys;

pub use client::{Client, client_far, client_sets, flow_window, next};
pub use controller::{Controller, LeastRtt, Meter, Traffic, Verdict, Vm};
pub use pace::{LONGEST_PAUSE_US, PAUSE_MEMORY, Pace, Pause, Seen, Shown, enough_room, is_full};
pub use trip::{Far, Loop, Trip};

/// Least window of a flow, in segments.
pub const LEAST_SEGMENTS: u32 = sys::CERA_LEAST_SEGMENTS;
/// What a client leaves a flow above its share, in segments.
pub const CLIENT_SLACK: u32 = sys::CERA_CLIENT_SLACK;
/// Most epochs over which traffic is counted.
pub const MAX_EPOCHS: u32 = sys::CERA_MAX_EPOCHS;
/// Largest weight.
pub const MAX_WEIGHT: u32 = sys::CERA_MAX_WEIGHT;
/// Delta where none is given: 1 ms, and on links below 1 Gbit/s longer in proportion. `bytes_per_s` is 0 if unknown.
pub fn usual_epoch_us(bytes_per_s: u64) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::cera_usual_epoch_us(bytes_per_s) }
}

/// Largest window, in segments.
pub const MAX_WINDOW: u32 = sys::CERA_MAX_WINDOW;
/// Most VMs of one host.
pub const MAX_VMS: usize = sys::CERA_MAX_VMS as usize;

/// How much is to wait at the uplink, and how often that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// T_u: windows are cut when more waits.
    pub high_segments: u32,
    /// T_l: how much is to wait after a cut.
    pub low_segments: u32,
    /// Length of an epoch.
    pub epoch_us: u32,
    /// M: epochs over which a VM's traffic is counted.
    pub epochs: u32,
    /// S: bytes of a full segment on the wire.
    pub segment_bytes: u32,
    /// Shares as CERA eq. 2 prints them, and not by what VMs need.
    pub printed: bool,
}

/// The defaults, with the segments of Ethernet.
pub const DEFAULTS: Settings = Settings {
    high_segments: sys::CERA_HIGH_SEGMENTS,
    low_segments: sys::CERA_LOW_SEGMENTS,
    epoch_us: sys::CERA_EPOCH_US,
    epochs: sys::CERA_EPOCHS,
    segment_bytes: 1538,
    printed: false,
};

impl Settings {
    fn raw(&self) -> sys::cera_settings {
        sys::cera_settings {
            high_segments: self.high_segments,
            low_segments: self.low_segments,
            epoch_us: self.epoch_us,
            segment_bytes: self.segment_bytes,
            printed: u32::from(self.printed),
        }
    }

    /// How many epochs make up a slot, in which a [`Meter`] counts flows. `rtt_us` is the RTT with the time in the
    /// queue.
    pub fn stride(&self, rtt_us: u32) -> u32 {
        // SAFETY: as in `window`.
        unsafe { sys::cera_stride(&self.raw(), rtt_us) }
    }

    /// CERA eq. 1: segments in flight that keep a link of `bytes_per_s` busy and T_l waiting.
    pub fn window(&self, bytes_per_s: u64, rtt_us: u32) -> u32 {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::cera_window(&self.raw(), bytes_per_s, rtt_us) }
    }
}
