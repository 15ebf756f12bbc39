//! Any text is answered, and what is valid expands. In crates/scenario: `cargo +nightly fuzz run load fuzz/corpus
//! ../../scenarios`.
#![no_main]

use evenkeel_scenario::{Scenario, sweep};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(loaded) = Scenario::from_str(text, "fuzz.toml") {
        sweep::cells(&loaded).expect("a valid scenario expands");
    }
});
