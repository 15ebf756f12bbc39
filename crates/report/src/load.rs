//! Reading a results directory.

use std::path::Path;

use evenkeel_scenario::Scenario;
use evenkeel_scenario::io::{read_records, read_set};
use evenkeel_scenario::result::{META_FILE, RUNS_FILE, RunRecord, RunSet};

use crate::ReportError;
use crate::columnar::{self, RUNS_TABLE};

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

/// Reads `meta.json`, and `runs.jsonl` or the Parquet tables.
///
/// # Errors
/// [`ReportError::Results`], [`ReportError::Table`], [`ReportError::Scenario`], or [`ReportError::NoRuns`].
pub fn load(results_dir: &Path) -> Result<Results, ReportError> {
    let set = read_set(&results_dir.join(META_FILE))?;
    let (lines, table) = (results_dir.join(RUNS_FILE), results_dir.join(RUNS_TABLE));
    let (file, records) = match is_parquet(results_dir) {
        true => (table, columnar::read_parquet(results_dir)?),
        false => (lines.clone(), read_records(&lines)?),
    };
    if records.is_empty() {
        return Err(ReportError::NoRuns { file });
    }
    // Parsed, not checked: results stay readable when a later version asks more of a scenario.
    let scenario = toml::from_str(&set.scenario_toml)
        .map_err(|source| ReportError::Scenario { file: results_dir.join(META_FILE), source: Box::new(source) })?;
    Ok(Results { set, scenario, records })
}

/// Whether the runs are there as Parquet tables. JSON lines come first: whoever writes tables removes them last.
pub fn is_parquet(results_dir: &Path) -> bool {
    !results_dir.join(RUNS_FILE).exists() && results_dir.join(RUNS_TABLE).exists()
}
