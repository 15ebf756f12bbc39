//! Reading a results directory.

use std::path::Path;

use evenkeel_scenario::Scenario;
use evenkeel_scenario::io::{read_results, read_set};
use evenkeel_scenario::result::{META_FILE, PARQUET_FILES, PARQUET_MANIFEST, RUNS_FILE, RunRecord, RunSet};

use crate::ReportError;
use crate::columnar;

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
/// [`ReportError::Results`], [`ReportError::Unfinished`], [`ReportError::Manifest`], [`ReportError::Damaged`],
/// [`ReportError::Table`], [`ReportError::Scenario`], or [`ReportError::NoRuns`].
pub fn load(results_dir: &Path) -> Result<Results, ReportError> {
    let (meta, lines) = (results_dir.join(META_FILE), results_dir.join(RUNS_FILE));
    let (set, file, records) = if is_parquet(results_dir) {
        let records = columnar::read_parquet(results_dir)?;
        (read_set(&meta)?, results_dir.join(PARQUET_FILES[0]), records)
    } else if !lines.exists() && PARQUET_FILES.iter().any(|name| results_dir.join(name).exists()) {
        return Err(ReportError::Unfinished { file: results_dir.join(PARQUET_MANIFEST) });
    } else {
        let (set, records) = read_results(results_dir)?;
        (set, lines, records)
    };
    if records.is_empty() {
        return Err(ReportError::NoRuns { file });
    }
    // Parsed, not checked: results stay readable when a later version asks more of a scenario.
    let scenario = toml::from_str(&set.scenario_toml)
        .map_err(|source| ReportError::Scenario { file: meta, source: Box::new(source) })?;
    Ok(Results { set, scenario, records })
}

/// Whether the runs are there as Parquet tables. Lines beside tables that are complete are left over: their removal is
/// the last step.
pub fn is_parquet(results_dir: &Path) -> bool {
    results_dir.join(PARQUET_MANIFEST).exists()
}
