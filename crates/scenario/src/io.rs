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
    // Runs of another set go before a `meta.json` that is not theirs is placed. Runs of the same set stay: there may be
    // no other copy.
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

/// Appends one run. If a full disk takes only a part of it, that part is removed, so that the next run begins a line.
///
/// # Errors
/// [`ScenarioError::Write`].
pub fn append_record(directory: &Path, record: &RunRecord) -> Result<(), ScenarioError> {
    let file = directory.join(RUNS_FILE);
    let line = line(record).map_err(write_error(&file))?;
    let mut out = OpenOptions::new().append(true).create(true).open(&file).map_err(write_error(&file))?;
    let before = out.metadata().map_err(write_error(&file))?.len();
    out.write_all(&line).map_err(|error| {
        // If that fails, reading leaves the part out.
        let _ = out.set_len(before);
        write_error(&file)(error)
    })
}

/// Reads a directory of results. A last line that a kill or a power cut left incomplete is left out, and a remark says
/// so.
///
/// # Errors
/// [`ScenarioError::Read`], or [`ScenarioError::Result`] with file and line.
pub fn read_results(directory: &Path) -> Result<(RunSet, Vec<RunRecord>), ScenarioError> {
    let mut set = read_set(&directory.join(META_FILE))?;
    let (records, cut_line) = read_records(&directory.join(RUNS_FILE))?;
    set.remarks.extend(cut_line.map(|number| {
        format!("The last line of {RUNS_FILE}, line {number}, was not written to its end: the run in it is left out.")
    }));
    Ok((set, records))
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

/// Reads one [`RUNS_FILE`], and the number of a last line that is cut short.
fn read_records(file: &Path) -> Result<(Vec<RunRecord>, Option<usize>), ScenarioError> {
    let mut lines = BufReader::new(File::open(file).map_err(read_error(file))?);
    let (mut records, mut line) = (Vec::new(), Vec::new());
    while lines.read_until(b'\n', &mut line).map_err(read_error(file))? > 0 {
        match serde_json::from_slice(&line) {
            Ok(record) => records.push(record),
            // Lines are written with their end: only the last can lack it.
            Err(_) if line.last() != Some(&b'\n') => {
                let number = records.len() + 1;
                return Ok((records, Some(number)));
            }
            Err(error) => return Err(result_error(file, records.len() + 1, &error)),
        }
        line.clear();
    }
    Ok((records, None))
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
