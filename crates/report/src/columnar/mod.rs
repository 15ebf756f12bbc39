//! Runs as Parquet tables, for tools that read columns: DuckDB, pandas, Polars, R.
//!
//! Six tables ([`TABLES`]) hold what `runs.jsonl` holds, no more and no less; `meta.json` is the same beside both.
//! `tables.json`, written last, has every file's size and checksum: tables without it are not results, and a file that
//! differs from it is damaged. For users, docs/results-format.md has all of this, and the columns from [`TABLES`].

mod columns;
mod manifest;
mod rows;
mod table;
#[cfg(test)]
mod tests;
mod value;

use std::path::Path;

use evenkeel_scenario::io;
use evenkeel_scenario::replace::{Staged, Step};
use evenkeel_scenario::result::{META_FILE, PARQUET_FILES, PARQUET_MANIFEST, RUNS_FILE, RunRecord, RunSet};

use crate::{ReportError, TableError};
pub use columns::{ColumnFormat, TABLES, TableFormat};
use manifest::{Content, Manifest};
use rows::ToTable;
pub use table::Table;
pub use value::{Kind, Values};

/// Replaces the results that the directory has, whatever their format, by `meta.json`, the tables and their manifest.
///
/// # Errors
/// [`ReportError::Results`], [`ReportError::Table`].
pub fn write_parquet(results_dir: &Path, set: &RunSet, records: &[RunRecord]) -> Result<(), ReportError> {
    Ok(stage_parquet(results_dir, set, records)?.finish()?)
}

/// As [`write_parquet`], up to where the present files are replaced.
fn stage_parquet(results_dir: &Path, set: &RunSet, records: &[RunRecord]) -> Result<Staged, ReportError> {
    let staged = Staged::begin(results_dir)?;
    let meta = io::set_bytes(set)?;
    staged.add_bytes(META_FILE, &meta)?;
    let mut files = vec![(META_FILE, Content::of(&meta))];
    for (name, table) in PARQUET_FILES.iter().zip(rows::TO_TABLES) {
        // One after the other: a table of all flows or points is as large as the records.
        let content = staged.add(name, |file| {
            let content = table(records).and_then(|table| table.encode(&mut *file));
            files.push((name, content.map_err(|problem| failed(results_dir, name, problem))?));
            Ok::<_, ReportError>(())
        });
        content?;
    }
    let manifest = Manifest::new(files).to_bytes();
    let failed = |why: serde_json::Error| ReportError::Manifest {
        file: results_dir.join(PARQUET_MANIFEST),
        why: why.to_string(),
    };
    staged.add_bytes(PARQUET_MANIFEST, &manifest.map_err(failed)?)?;
    // Lines left over beside valid tables go first: they would count once the manifest is gone. Other lines go last:
    // they may be the only copy.
    let stale = results_dir.join(PARQUET_MANIFEST).exists().then_some(Step::Remove(RUNS_FILE));
    let tables = [Step::Remove(PARQUET_MANIFEST)].into_iter().chain(PARQUET_FILES.map(Step::Place));
    // Between these two, the manifest names another `meta.json` than is there, unless it is the same.
    let valid = [Step::Place(PARQUET_MANIFEST), Step::Place(META_FILE), Step::Remove(RUNS_FILE)];
    Ok(staged.with_steps(stale.into_iter().chain(tables).chain(valid)))
}

/// Makes a table in memory; `file` is what [`TABLES`] call it. None if there is no such table.
pub fn maker(file: &str) -> Option<ToTable> {
    PARQUET_FILES.iter().zip(rows::TO_TABLES).find(|(name, _)| **name == file).map(|(_, make)| make)
}

/// Reads the tables, after checking all files against the manifest.
///
/// # Errors
/// [`ReportError::Results`], [`ReportError::Manifest`], [`ReportError::Damaged`], [`ReportError::Table`].
pub(crate) fn read_parquet(results_dir: &Path) -> Result<Vec<RunRecord>, ReportError> {
    Manifest::check(results_dir)?;
    read_tables(results_dir)
}

/// Reads the tables as they are.
fn read_tables(results_dir: &Path) -> Result<Vec<RunRecord>, ReportError> {
    let open = |name: &str| -> Result<Table, ReportError> {
        let file = Table::open(&results_dir.join(name))?;
        Table::decode(file).map_err(|problem| failed(results_dir, name, problem))
    };
    let name = PARQUET_FILES[0];
    let mut records = rows::runs(open(name)?).map_err(|problem| failed(results_dir, name, problem))?;
    for (name, fill) in PARQUET_FILES.iter().skip(1).zip(rows::FROM_TABLES) {
        let mut table = open(name)?;
        let filled = fill(&mut records, &mut table).and_then(|()| table.finish());
        filled.map_err(|problem| failed(results_dir, name, problem))?;
    }
    Ok(records)
}

fn failed(results_dir: &Path, name: &str, problem: TableError) -> ReportError {
    let table = name.strip_suffix(".parquet").unwrap_or(name).to_owned();
    ReportError::Table { file: results_dir.join(name), table, problem }
}
