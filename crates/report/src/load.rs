//! Reading a results directory.

use std::path::Path;

use evenkeel_scenario::Scenario;
use evenkeel_scenario::io::read_results;
use evenkeel_scenario::result::{META_FILE, RUNS_FILE, RunRecord, RunSet};

use crate::ReportError;

/// What a results directory holds.
#[derive(Debug, Clone)]
pub struct Results {
    /// What holds for all runs.
    pub set: RunSet,
    /// The scenario, parsed from the text kept in the set.
    pub scenario: Scenario,
    /// The runs; at least one.
    pub records: Vec<RunRecord>,
}

/// Reads `meta.json` and `runs.jsonl`.
///
/// # Errors
/// [`ReportError::Results`], [`ReportError::Scenario`], or [`ReportError::NoRuns`].
pub fn load(results_dir: &Path) -> Result<Results, ReportError> {
    let (set, records) = read_results(results_dir)?;
    if records.is_empty() {
        return Err(ReportError::NoRuns { file: results_dir.join(RUNS_FILE) });
    }
    // Parsed, not checked: results stay readable when a later version asks more of a scenario.
    let scenario = toml::from_str(&set.scenario_toml)
        .map_err(|source| ReportError::Scenario { file: results_dir.join(META_FILE), source: Box::new(source) })?;
    Ok(Results { set, scenario, records })
}
