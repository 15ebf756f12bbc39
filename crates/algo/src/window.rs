//! The window field: its scale, its checksum, and the arbiter.

use crate::sys;

/// The mechanism whose limit a window follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The receiver's own: nothing was lowered.
    Receiver,
    /// ProBoSCIS's.
    Proboscis,
    /// CERA's.
    Cera,
    /// What vFlood grants.
    Vflood,
}

/// The mechanisms' limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offers {
    /// ProBoSCIS's limit.
    pub proboscis_bytes: Option<u32>,
    /// CERA's limit.
    pub cera_bytes: Option<u32>,
    /// vFlood's grant, which replaces the receiver's window.
    pub vflood_bytes: Option<u32>,
    /// What the sender has sent beyond the ACK: no limit takes that back.
    pub in_flight_bytes: u32,
}

/// The window field of an ACK, and whose limit won: see `window_arbitrate()` in `algo/base/window.h`.
///
/// `offered` is the field as the receiver sent it, `scale` the receiver's (0 in a SYN-ACK).
pub fn arbitrate(offers: Offers, offered: u16, scale: u8, mss: u32) -> (u16, By) {
    let mut limits = sys::window_limits::default();
    limits.bytes[sys::window_by_WINDOW_BY_PROBOSCIS as usize] = offers.proboscis_bytes.unwrap_or(0);
    limits.bytes[sys::window_by_WINDOW_BY_CERA as usize] = offers.cera_bytes.unwrap_or(0);
    limits.bytes[sys::window_by_WINDOW_BY_VFLOOD as usize] = offers.vflood_bytes.unwrap_or(0);
    limits.in_flight_bytes = offers.in_flight_bytes;
    let mut field = 0;
    // SAFETY: both pointers are to live values for the length of the call; the C code does not keep them.
    let by = unsafe { sys::window_arbitrate(&limits, offered, scale, mss, &mut field) };
    let by = match by {
        sys::window_by_WINDOW_BY_PROBOSCIS => By::Proboscis,
        sys::window_by_WINDOW_BY_CERA => By::Cera,
        sys::window_by_WINDOW_BY_VFLOOD => By::Vflood,
        _ => By::Receiver,
    };
    (field, by)
}

/// The least limit that still has room for `bytes` when it is rounded down to the scale.
pub fn with_room(bytes: u32, scale: u8) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::window_with_room(bytes, scale) }
}

/// A checksum after one 16-bit word of what it covers has changed (RFC 1624 eq. 3).
pub fn csum_replace(check: u16, old_word: u16, new_word: u16) -> u16 {
    // SAFETY: the C function is pure.
    unsafe { sys::window_csum_replace(check, old_word, new_word) }
}
