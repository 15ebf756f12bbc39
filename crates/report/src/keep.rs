//! Small sets of results, to be kept in a repository.

use std::fs;
use std::path::Path;

use evenkeel_scenario::result::{META_FILE, PARQUET_FILES, PARQUET_MANIFEST, RunRecord, RunSet};

use crate::{ReportError, Results, write_parquet};

/// Most bytes of a set that is kept.
pub const MOST_KEPT_BYTES: u64 = 200_000;

/// What is left out, one part after the other, until the rest is small enough: a part's name, and what removes it.
type Part = (&'static str, fn(&mut RunRecord));
const PARTS: [Part; 3] = [
    ("series and packets", |record| {
        record.series.clear();
        record.packets.clear();
    }),
    ("flows", |record| record.flows.clear()),
    ("counters", |record| record.counters.clear()),
];

/// How the remark begins that says what was left out.
const WITHOUT: &str = "Kept without ";

/// Removes from a record what was left out of the set when it was kept.
pub(crate) fn leave_out(set: &RunSet, record: &mut RunRecord) {
    let said = set.remarks.iter().filter_map(|remark| remark.strip_prefix(WITHOUT)?.split_once(';'));
    let names: Vec<&str> = said.flat_map(|(names, _)| names.split(", ")).collect();
    PARTS.iter().filter(|(name, _)| names.contains(name)).for_each(|(_, leave_out)| leave_out(record));
}

/// What became of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Bytes of its files.
    pub bytes: u64,
    /// What was left out to stay below [`MOST_KEPT_BYTES`].
    pub left_out: Vec<&'static str>,
}

/// Writes results as Parquet tables into `directory`, in the place of a set that is there. What makes them too large is
/// left out: series and packets first, then flows, then counters. Nothing is kept if the rest is too large still.
///
/// # Errors
/// Those of [`write_parquet`]; [`ReportError::Read`] and [`ReportError::Write`] for its files.
pub fn keep(results: &Results, directory: &Path) -> Result<Option<Kept>, ReportError> {
    let mut records = results.records.clone();
    let mut left_out = Vec::new();
    let mut rest = PARTS.iter();
    loop {
        let mut set = results.set.clone();
        if !left_out.is_empty() {
            set.remarks.push(format!("{WITHOUT}{}; the command makes them again.", left_out.join(", ")));
        }
        write_parquet(directory, &set, &records)?;
        let bytes = size(directory)?;
        if bytes <= MOST_KEPT_BYTES {
            return Ok(Some(Kept { bytes, left_out }));
        }
        let Some((name, leave_out)) = rest.next() else {
            return remove(directory).map(|()| None);
        };
        records.iter_mut().for_each(leave_out);
        left_out.push(*name);
    }
}

fn files() -> impl Iterator<Item = &'static str> {
    // The manifest goes first: without it, what is left does not count as results.
    [PARQUET_MANIFEST, META_FILE].into_iter().chain(PARQUET_FILES)
}

fn size(directory: &Path) -> Result<u64, ReportError> {
    let size = |file| match fs::metadata(&file) {
        Ok(metadata) => Ok(metadata.len()),
        Err(source) => Err(ReportError::Read { file, source }),
    };
    files().map(|name| size(directory.join(name))).sum()
}

fn remove(directory: &Path) -> Result<(), ReportError> {
    let failed = |file: &Path| {
        let file = file.to_owned();
        move |source| ReportError::Write { file, source }
    };
    for file in files().map(|name| directory.join(name)) {
        fs::remove_file(&file).map_err(failed(&file))?;
    }
    fs::remove_dir(directory).map_err(failed(directory))
}
