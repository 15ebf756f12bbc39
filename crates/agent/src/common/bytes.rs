//! Structures of the programs (`intf.h` of either side) as bytes.

/// The bytes of a C structure.
pub fn as_bytes<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: intf.h spells out all padding, so every byte is initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), std::mem::size_of::<T>()) }
}

/// A C structure of numbers out of its bytes; `None` if there are too few.
pub fn from_bytes<T: Copy>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < std::mem::size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, and every pattern of them is a value.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}
