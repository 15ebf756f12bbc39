//! The window field: its scale, its checksum, and the arbiter.

use crate::sys;

/// Whose limit a window follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The receiver's own: nothing was lowered.
    Receiver,
    /// ProBoSCIS's.
    Proboscis,
    /// CERA's.
    Cera,
}

/// The window field of an ACK, and who won: see `window_arbitrate()` in `algo/window.h`.
///
/// `offered` is the field as the receiver sent it, `scale` the receiver's (0 in a SYN-ACK).
pub fn arbitrate(proboscis_bytes: Option<u32>, offered: u16, scale: u8, mss: u32) -> (u16, By) {
    decide(sys::window_by_WINDOW_BY_PROBOSCIS, proboscis_bytes, offered, scale, mss)
}

/// The same with CERA's limit.
pub fn arbitrate_cera(cera_bytes: Option<u32>, offered: u16, scale: u8, mss: u32) -> (u16, By) {
    decide(sys::window_by_WINDOW_BY_CERA, cera_bytes, offered, scale, mss)
}

/// The least limit that leaves room for so many bytes when it is rounded down to the scale.
pub fn with_room(bytes: u32, scale: u8) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::window_with_room(bytes, scale) }
}

fn decide(by: sys::window_by, bytes: Option<u32>, offered: u16, scale: u8, mss: u32) -> (u16, By) {
    let mut limits = sys::window_limits::default();
    limits.bytes[by as usize] = bytes.unwrap_or(0);
    let mut field = 0;
    // SAFETY: both pointers are to live values for the length of the call; the C code does not keep them.
    let by = unsafe { sys::window_arbitrate(&limits, offered, scale, mss, &mut field) };
    let by = match by {
        sys::window_by_WINDOW_BY_PROBOSCIS => By::Proboscis,
        sys::window_by_WINDOW_BY_CERA => By::Cera,
        _ => By::Receiver,
    };
    (field, by)
}

/// A checksum after one 16-bit word of what it covers has changed (RFC 1624, eq. 3).
pub fn csum_replace(check: u16, old_word: u16, new_word: u16) -> u16 {
    // SAFETY: the C function is pure.
    unsafe { sys::window_csum_replace(check, old_word, new_word) }
}
