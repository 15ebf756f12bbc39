//! CUBIC (RFC 9438).

use crate::reno::Window;
use crate::sys;

/// CUBIC's own state beside the window.
#[derive(Clone, Debug, Default)]
pub struct Cubic(sys::cubic);

impl Cubic {
    /// The threshold after a loss.
    pub fn ssthresh(&mut self, cwnd: u32) -> u32 {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::cubic_ssthresh(&mut self.0, cwnd) }
    }

    /// A timeout was real: growth begins anew.
    pub fn reset(&mut self) {
        // SAFETY: as in `ssthresh`.
        unsafe { sys::cubic_reset(&mut self.0) }
    }

    /// Nothing was sent for this long.
    pub fn idle(&mut self, idle_us: u64) {
        // SAFETY: as in `ssthresh`.
        unsafe { sys::cubic_idle(&mut self.0, idle_us) }
    }

    /// New data was acknowledged while the window limited the sender.
    pub fn acked(&mut self, window: &mut Window, segments: u32, now_us: u64, srtt_us: u32) {
        // SAFETY: as in `ssthresh`; the two values are distinct.
        unsafe { sys::cubic_acked(&mut self.0, &mut window.0, segments, now_us, srtt_us) }
    }
}

/// Integer cube root, rounded down.
pub fn root(x: u64) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::cubic_root(x) }
}
