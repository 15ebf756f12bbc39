//! Reads and writes a directory of results: [`META_FILE`] and [`RUNS_FILE`].

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use crate::error::ScenarioError;
use crate::replace::{self, Staged, Step};
use crate::result::{META_FILE, PARQUET_FILES, PARQUET_MANIFEST, RUNS_FILE, RunRecord, RunSet};

/// Version of the result schema that this code reads and writes.
pub const RESULT_SCHEMA: u32 = 1;

/// Makes the directory and begins a set of runs in it. Runs of an earlier set there are removed, whatever their format.
///
/// # Errors
/// [`ScenarioError::Write`].
pub fn create_results(directory: &Path, set: &RunSet) -> Result<(), ScenarioError> {
    fs::create_dir_all(directory).map_err(write_error(directory))?;
    let (runs, meta) = (directory.join(RUNS_FILE), directory.join(META_FILE));
    // Before `meta.json`, so that no run of the earlier set is ever read with this one's.
    File::create(&runs).map_err(write_error(&runs))?;
    replace::remove(&directory.join(PARQUET_MANIFEST))?;
    PARQUET_FILES.iter().try_for_each(|name| replace::remove(&directory.join(name)))?;
    replace::forget(directory)?;
    fs::write(&meta, set_bytes(set)?).map_err(write_error(&meta))
}

/// Makes the directory and puts finished results in it, in the place of any that are there, whatever their format.
///
/// # Errors
/// [`ScenarioError::Write`].
pub fn write_results(directory: &Path, set: &RunSet, records: &[RunRecord]) -> Result<(), ScenarioError> {
    stage_results(directory, set, records)?.finish()
}

/// As [`write_results`], up to where the present files are replaced.
///
/// # Errors
/// [`ScenarioError::Write`].
pub fn stage_results(directory: &Path, set: &RunSet, records: &[RunRecord]) -> Result<Staged, ScenarioError> {
    let staged = Staged::begin(directory)?;
    let bytes = set_bytes(set)?;
    staged.add_bytes(META_FILE, &bytes)?;
    staged.add(RUNS_FILE, |file| {
        let mut out = BufWriter::new(file);
        let mut all = records.iter().map(|record| out.write_all(&line(record)?));
        all.try_for_each(|written| written).and_then(|()| out.flush()).map_err(write_error(&directory.join(RUNS_FILE)))
    })?;
    // Runs of another set go before a `meta.json` that is not theirs. Of the same set they stay: there may be no other copy.
    let stale = fs::read(directory.join(META_FILE)).map_or(true, |present| present != bytes);
    let steps = [Step::Place(META_FILE), Step::Place(RUNS_FILE), Step::Remove(PARQUET_MANIFEST)];
    let tables = PARQUET_FILES.map(Step::Remove);
    Ok(staged.with_steps(stale.then_some(Step::Remove(RUNS_FILE)).into_iter().chain(steps).chain(tables)))
}

/// What [`META_FILE`] has in it.
///
/// # Errors
/// [`ScenarioError::Write`].
pub fn set_bytes(set: &RunSet) -> Result<Vec<u8>, ScenarioError> {
    let mut text = serde_json::to_vec_pretty(set).map_err(|e| write_error(Path::new(META_FILE))(e.into()))?;
    text.push(b'\n');
    Ok(text)
}

fn line(record: &RunRecord) -> std::io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    Ok(line)
}

/// Appends one run. The line is written whole, so that an interrupted set stays readable.
///
/// # Errors
/// [`ScenarioError::Write`].
pub fn append_record(directory: &Path, record: &RunRecord) -> Result<(), ScenarioError> {
    let file = directory.join(RUNS_FILE);
    let line = line(record).map_err(write_error(&file))?;
    let mut out = OpenOptions::new().append(true).create(true).open(&file).map_err(write_error(&file))?;
    out.write_all(&line).map_err(write_error(&file))
}

/// Reads a directory of results.
///
/// # Errors
/// [`ScenarioError::Read`], or [`ScenarioError::Result`] with file and line.
pub fn read_results(directory: &Path) -> Result<(RunSet, Vec<RunRecord>), ScenarioError> {
    Ok((read_set(&directory.join(META_FILE))?, read_records(&directory.join(RUNS_FILE))?))
}

/// Reads one [`META_FILE`].
///
/// # Errors
/// [`ScenarioError::Read`], or [`ScenarioError::Result`] with file and line.
pub fn read_set(file: &Path) -> Result<RunSet, ScenarioError> {
    let text = fs::read_to_string(file).map_err(read_error(file))?;
    let set: RunSet = serde_json::from_str(&text).map_err(|e| result_error(file, e.line(), &e))?;
    if set.schema != RESULT_SCHEMA {
        let why = format!("results of schema {}; this evenkeel reads schema {RESULT_SCHEMA}", set.schema);
        return Err(result_error(file, 1, &why));
    }
    Ok(set)
}

/// Reads one [`RUNS_FILE`].
///
/// # Errors
/// [`ScenarioError::Read`], or [`ScenarioError::Result`] with file and line.
pub fn read_records(file: &Path) -> Result<Vec<RunRecord>, ScenarioError> {
    let lines = BufReader::new(File::open(file).map_err(read_error(file))?).lines();
    let parse = |(index, line): (usize, std::io::Result<String>)| {
        let line = line.map_err(read_error(file))?;
        serde_json::from_str(&line).map_err(|e| result_error(file, index + 1, &e))
    };
    lines.enumerate().map(parse).collect()
}

fn read_error(file: &Path) -> impl Fn(std::io::Error) -> ScenarioError {
    let file = file.to_owned();
    move |source| ScenarioError::Read { file: file.clone(), source }
}

fn write_error(file: &Path) -> impl Fn(std::io::Error) -> ScenarioError {
    let file = file.to_owned();
    move |source| ScenarioError::Write { file: file.clone(), source }
}

fn result_error(file: &Path, line: usize, why: &dyn std::fmt::Display) -> ScenarioError {
    ScenarioError::Result { file: file.to_owned(), line: line.max(1), why: why.to_string() }
}
