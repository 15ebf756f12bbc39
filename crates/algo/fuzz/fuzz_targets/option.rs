//! What is read of a probe's option is what would be written. `make fuzz`, or in crates/algo:
//! `cargo +nightly fuzz run option`.
#![no_main]

use evenkeel_algo::proboscis::{OPTION_BYTES, ProbeOption};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: [u8; OPTION_BYTES]| {
    if let Some((option, tag)) = ProbeOption::read(&bytes) {
        assert_eq!(option.write(tag), bytes);
    }
});
