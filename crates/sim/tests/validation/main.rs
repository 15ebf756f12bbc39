//! The simulator's results beside those of ns-3 and of the lab. docs/validation.md has the tables and what does not
//! agree, with the reasons.

mod lab;
mod mechanisms;
mod peer;

use std::path::PathBuf;

use evenkeel_scenario::LoadedScenario;
use evenkeel_scenario::RunRecord;
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::Scenario;
use evenkeel_sim::run::Go;

fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn loaded(file: &str) -> LoadedScenario {
    Scenario::load(&top().join(file)).unwrap_or_else(|e| panic!("{e}"))
}

fn run(cell: &Cell, repetition: u32) -> RunRecord {
    evenkeel_sim::run::run(cell, repetition, &mut |_| Go::On).unwrap_or_else(|e| panic!("{e}")).record
}
