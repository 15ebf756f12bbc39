//! Whatever probes come, a first window is within its bounds. `make fuzz`, or in crates/algo:
//! `cargo +nightly fuzz run train`.
#![no_main]

use evenkeel_algo::proboscis::{Train, WindowSettings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|probes: Vec<(u8, u8, u8, bool)>| {
    let settings = WindowSettings { k_percent: 50, k2_permille: 500, icwnd_segments: 10, b3_us: 1000 };
    let mut train = Train::default();
    for (number, index, total, marked) in probes {
        train.count(number, index, total, marked);
        assert!(train.marked() <= train.seen() && train.seen() <= train.total());
        assert!(train.first_window(&settings, 1448).1 <= 14480);
    }
});
