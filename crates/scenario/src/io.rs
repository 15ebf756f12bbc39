//! Reads and writes a directory of results: [`META_FILE`] and [`RUNS_FILE`].

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;

use crate::error::ScenarioError;
use crate::result::{META_FILE, PARQUET_FILES, RUNS_FILE, RunRecord, RunSet};

/// Version of the result schema that this code reads and writes.
pub const RESULT_SCHEMA: u32 = 1;

/// Makes the directory and begins a set of runs in it. Runs of an earlier set there are removed, whatever their format.
///
/// # Errors
/// [`ScenarioError::Write`].
pub fn create_results(directory: &Path, set: &RunSet) -> Result<(), ScenarioError> {
    fs::create_dir_all(directory).map_err(write_error(directory))?;
    let runs = directory.join(RUNS_FILE);
    File::create(&runs).map_err(write_error(&runs))?;
    for table in PARQUET_FILES.map(|name| directory.join(name)) {
        match fs::remove_file(&table) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(write_error(&table)(error)),
            _ => {}
        }
    }
    write_set(directory, set)
}

/// Makes the directory and writes its [`META_FILE`].
///
/// # Errors
/// [`ScenarioError::Write`].
pub fn write_set(directory: &Path, set: &RunSet) -> Result<(), ScenarioError> {
    fs::create_dir_all(directory).map_err(write_error(directory))?;
    let meta = directory.join(META_FILE);
    let mut text = serde_json::to_string_pretty(set).map_err(|e| write_error(&meta)(e.into()))?;
    text.push('\n');
    fs::write(&meta, text).map_err(write_error(&meta))
}

/// Appends one run. The line is written whole, so that an interrupted set stays readable.
///
/// # Errors
/// [`ScenarioError::Write`].
pub fn append_record(directory: &Path, record: &RunRecord) -> Result<(), ScenarioError> {
    let file = directory.join(RUNS_FILE);
    let mut line = serde_json::to_vec(record).map_err(|e| write_error(&file)(e.into()))?;
    line.push(b'\n');
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
