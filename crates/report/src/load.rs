//! Reading a results directory.

use std::path::Path;

use evenkeel_scenario::Scenario;
use evenkeel_scenario::result::{META_FILE, RUNS_FILE, RunRecord, RunSet};

use crate::ReportError;

/// Version of the result schema that this crate reads.
const SCHEMA: u32 = 1;

/// What a results directory holds.
#[derive(Debug, Clone)]
pub struct Results {
    /// What holds for all runs.
    pub set: RunSet,
    /// The scenario, parsed from the text kept in the set.
    pub scenario: Scenario,
    /// The runs.
    pub records: Vec<RunRecord>,
}

/// Reads `meta.json` and `runs.jsonl`.
pub fn load(results_dir: &Path) -> Result<Results, ReportError> {
    let meta = results_dir.join(META_FILE);
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|source| ReportError::Read { path: path.to_owned(), source })
    };
    let set: RunSet = serde_json::from_str(&read(&meta)?).map_err(|source| ReportError::Parse {
        path: meta.clone(),
        line: None,
        source,
    })?;
    if set.schema != SCHEMA {
        return Err(ReportError::Schema { path: meta, found: set.schema, expected: SCHEMA });
    }
    let scenario = toml::from_str(&set.scenario_toml)
        .map_err(|source| ReportError::Scenario { path: meta.clone(), source: Box::new(source) })?;
    let runs = results_dir.join(RUNS_FILE);
    let records = read(&runs)?
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|source| ReportError::Parse {
                path: runs.clone(),
                line: Some(index + 1),
                source,
            })
        })
        .collect::<Result<Vec<RunRecord>, _>>()?;
    if records.is_empty() {
        return Err(ReportError::NoRuns { path: runs });
    }
    Ok(Results { set, scenario, records })
}
