//! SipHash-2-4 over whole 64-bit words.

use crate::sys;

/// A key, as 16 bytes.
#[derive(Clone, Copy)]
pub struct Key(pub [u8; 16]);

/// The hash of a message whose length is a multiple of eight; bytes beyond the last whole word are not read.
pub fn hash(key: Key, message: &[u8]) -> u64 {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let key = sys::siphash_key { k0: word(&key.0[..8]), k1: word(&key.0[8..]) };
    let mut state = sys::siphash::default();
    // SAFETY: all pointers are to live values for the length of the calls; the C code does not keep them.
    unsafe {
        sys::siphash_start(&mut state, &key);
        for bytes in message.chunks_exact(8) {
            sys::siphash_word(&mut state, sys::siphash_load(bytes.as_ptr()));
        }
        sys::siphash_end(&mut state)
    }
}
