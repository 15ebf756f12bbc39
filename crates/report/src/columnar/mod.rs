//! Runs as Parquet tables, for tools that read columns: DuckDB, pandas, Polars, R.
//!
//! Six tables ([`PARQUET_FILES`]) hold what `runs.jsonl` holds, no more and no less; `meta.json` is the same beside both. Every table has a
//! column `run`, the row of `runs.parquet` (from 0) that a row belongs to:
//!
//! | table | columns |
//! |---|---|
//! | `runs` | `run`, `repetition`, `seed`, `duration_us`, `axis.NAME` per axis (its label), then a column per metric |
//! | `counters` | `run`, `vm`, `counter`, `increase` |
//! | `flows` | `run`, `from`, `to`, `bytes`, `start_us`, `duration_us` |
//! | `series` | `run`, `series` (from 0 in each run), `name`, `subject`, `t_us`, `value` |
//! | `packets` | `run`, `t_us`, `at`, `data`, `seq`, `len`, `retransmission`, `descheduled` |
//! | `remarks` | `run`, `remark` |
//!
//! A metric that a run has not is null. So are `counter` and `increase` in the one row of a VM without counters, and `t_us` and `value` in
//! the one row of a series without points.

mod rows;
mod table;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use evenkeel_scenario::io;
use evenkeel_scenario::result::{PARQUET_FILES, RUNS_FILE, RunRecord, RunSet};

use crate::ReportError;
use table::Table;

/// Name of the table with a row per run.
pub(crate) const RUNS_TABLE: &str = PARQUET_FILES[0];

/// Writes `meta.json` and the tables. Runs of an earlier set in the directory are removed, whatever their format.
///
/// # Errors
/// [`ReportError::Results`], [`ReportError::Write`], [`ReportError::Table`].
pub fn write_parquet(results_dir: &Path, set: &RunSet, records: &[RunRecord]) -> Result<(), ReportError> {
    io::write_set(results_dir, set)?;
    for (name, table) in PARQUET_FILES.iter().zip(rows::TO_TABLES) {
        let path = results_dir.join(name);
        // One after the other: a table of all flows or points is as large as the records.
        let table = table(records).map_err(|why| ReportError::Table { file: path.clone(), why })?;
        // Written beside and renamed, so that a reader never sees half a table.
        let unfinished = results_dir.join(format!(".{name}.unfinished"));
        table.write(&unfinished)?;
        fs::rename(&unfinished, &path).map_err(|source| ReportError::Write { file: path, source })?;
    }
    let lines = results_dir.join(RUNS_FILE);
    match fs::remove_file(&lines) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(ReportError::Write { file: lines, source }),
        _ => Ok(()),
    }
}

/// Reads the tables.
///
/// # Errors
/// [`ReportError::Results`], [`ReportError::Table`].
pub(crate) fn read_parquet(results_dir: &Path) -> Result<Vec<RunRecord>, ReportError> {
    let path = results_dir.join(RUNS_TABLE);
    let mut records = rows::runs(Table::read(&path)?).map_err(|why| ReportError::Table { file: path, why })?;
    for (name, fill) in PARQUET_FILES.iter().skip(1).zip(rows::FROM_TABLES) {
        let path = results_dir.join(name);
        let table = Table::read(&path)?;
        fill(&mut records, table).map_err(|why| ReportError::Table { file: path, why })?;
    }
    Ok(records)
}
