//! Sequence numbers: 64 bits inside, so that nothing wraps; the low 32 of them on the wire.

/// The number nearest to `near` whose low half is `wire`.
pub(super) fn unwrap(near: u64, wire: u32) -> u64 {
    near.wrapping_add_signed(i64::from(wire.wrapping_sub(near as u32) as i32))
}

/// The number of the SYN: far enough from 0 that nothing before it goes below.
pub(super) fn initial(wire: u32) -> u64 {
    (1 << 33) + u64::from(wire)
}
