//! Order of TCP sequence numbers, which wrap.

use crate::sys;

/// Whether `a` is before `b`; both lie within 2^31 of each other.
pub fn before(a: u32, b: u32) -> bool {
    // SAFETY: the C function is pure.
    unsafe { sys::seq_before(a, b) }
}

/// Whether `a` is after `b`.
pub fn after(a: u32, b: u32) -> bool {
    // SAFETY: as in `before`.
    unsafe { sys::seq_after(a, b) }
}

/// Whether `seq` lies in the half-open range.
pub fn within(seq: u32, start: u32, end: u32) -> bool {
    // SAFETY: as in `before`.
    unsafe { sys::seq_within(seq, start, end) }
}

/// The later of two.
pub fn max(a: u32, b: u32) -> u32 {
    // SAFETY: as in `before`.
    unsafe { sys::seq_max(a, b) }
}
