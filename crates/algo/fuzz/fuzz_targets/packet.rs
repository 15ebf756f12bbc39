//! Any frame is answered, and what is said to be TCP lies within it. `make fuzz`, or in crates/algo:
//! `cargo +nightly fuzz run packet`.
#![no_main]

use evenkeel_algo::packet::{self, HEAD_BYTES, Kind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    if let Kind::Tcp(packet, _) = packet::parse(frame) {
        let end = usize::from(packet.l4) + usize::from(packet.tcp_bytes);
        assert!(end <= frame.len().min(HEAD_BYTES));
        assert!(end + packet.payload_bytes as usize <= frame.len());
    }
});
