//! HyStart: slow start ends before it loses segments.

use crate::congestion::Path;
use crate::reno::Window;
use crate::sys;

/// What HyStart remembers of a round trip.
#[derive(Clone, Debug, Default)]
pub struct Hystart(sys::hystart);

impl Hystart {
    /// An RTT was measured.
    pub fn rtt(&mut self, rtt_us: u32) {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::hystart_rtt(&mut self.0, rtt_us) }
    }

    /// New data was acknowledged in slow start: ends it where the path is full.
    pub fn acked(&mut self, window: &mut Window, path: &Path) {
        // SAFETY: as in `rtt`; the two values are distinct.
        unsafe { sys::hystart_acked(&mut self.0, &mut window.0, &path.raw()) }
    }
}
