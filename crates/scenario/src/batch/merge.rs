//! The shards of a batch, put together: the same results as of a batch that was not divided.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_quote::{path, shown};

use super::kept::{self, Begun, Identity, Kept, KeptError, State, UNFINISHED};
use super::shard::Shard;
use crate::error::ScenarioError;
use crate::io;
use crate::lock::Lock;
use crate::result::{RUNS_FILE, RunRecord};

/// Why shards cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A directory is in use, or cannot be read or written.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A file of a shard is damaged, or the results' directory holds another batch.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// They are not all shards of one batch, one of each.
    #[error("{0}")]
    Foreign(String),
    /// Runs are missing: one line for each shard, or run of a shard.
    #[error("{}", .0.join("\n"))]
    Incomplete(Vec<String>),
}

/// All runs of the shards, and the whole batch that they now belong to. When the results are written, see
/// [`Kept::complete`].
#[derive(Debug)]
pub struct Merged {
    /// In the batch's order.
    pub records: Vec<RunRecord>,
    /// The whole batch, in the results' directory.
    pub kept: Kept,
}

/// Puts shards together. Each of `directories` is one, or has some in it; the results will go to `out`, where nothing
/// is touched unless all runs are there. `replace`: other results that are there may be replaced.
///
/// # Errors
/// [`MergeError`].
pub fn merge(directories: &[PathBuf], out: &Path, replace: bool) -> Result<Merged, MergeError> {
    let mut parts = Vec::new();
    for directory in shard_directories(directories)? {
        parts.push(Part::open(directory)?);
    }
    let Some(first) = parts.first() else {
        let places = directories.iter().map(|directory| path(directory).to_string()).collect::<Vec<_>>().join(", ");
        return Err(MergeError::Foreign(format!("there is no shard in {places}")));
    };
    let (shard, whole) = (first.shard, first.begun.identity.whole());
    let by_number = numbered(&parts)?;
    let mut problems = Vec::new();
    let mut runs = BTreeMap::new();
    for number in 1..=shard.of() {
        match by_number.get(&number) {
            Some(part) => part.take(&whole, &mut runs, &mut problems)?,
            None => problems.push(format!("shard {} is not there", shard.sibling(number))),
        }
    }
    if !problems.is_empty() {
        return Err(MergeError::Incomplete(problems));
    }
    let mut set = first.begun.set.clone();
    if let Some(started) = parts.iter().map(|part| &part.begun.set.started).min() {
        set.started.clone_from(started);
    }
    let mut lock = Lock::take(out)?;
    if !replace {
        lock = match Kept::find(out, &whole, lock)? {
            State::None(lock) | State::Complete(lock) => lock,
            State::Open(kept) => kept.into_lock(),
        };
    }
    let kept = Kept::begin(out, whole, set, lock)?;
    Ok(Merged { records: runs.into_values().collect(), kept })
}

/// The directories themselves, or the shards' directories in them.
fn shard_directories(directories: &[PathBuf]) -> Result<Vec<PathBuf>, ScenarioError> {
    let mut found = Vec::new();
    for directory in directories {
        let failed = |source| ScenarioError::Read { file: directory.clone(), source };
        let mut inside = Vec::new();
        for entry in fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?.path();
            // A shard that was killed before it began has no such file: it is missing.
            if is_shard_name(&entry) && entry.join(kept::SWEEP_FILE).exists() {
                inside.push(entry);
            }
        }
        inside.sort();
        if inside.is_empty() && directory.join(kept::SWEEP_FILE).exists() {
            inside.push(directory.clone());
        }
        found.extend(inside);
    }
    Ok(found)
}

/// The directory of the batch whose shards these directories are or contain; none if there is not just one.
pub fn whole_directory(directories: &[PathBuf]) -> Option<PathBuf> {
    let whole = |directory: &PathBuf| match directory.parent() {
        Some(above) if is_shard_name(directory) => above.to_owned(),
        _ => directory.clone(),
    };
    let first = whole(directories.first()?);
    directories.iter().all(|directory| whole(directory) == first).then_some(first)
}

fn is_shard_name(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("shard-"));
    let shard = name.and_then(|name| name.replacen("-of-", "/", 1).parse::<Shard>().ok());
    shard.is_some_and(|shard| directory.ends_with(shard.directory_name()))
}

/// The shards by number: one of each, all of the first one's batch.
fn numbered(parts: &[Part]) -> Result<BTreeMap<u32, &Part>, MergeError> {
    let first = &parts[0];
    let mut by_number: BTreeMap<u32, &Part> = BTreeMap::new();
    for part in parts {
        let between = |why: &dyn fmt::Display| {
            let (one, other) = (path(&first.directory), path(&part.directory));
            MergeError::Foreign(format!("{one} and {other} are not of one sweep: {why}"))
        };
        if part.shard.of() != first.shard.of() {
            return Err(between(&format!("they are shards {} and {}", first.shard, part.shard)));
        }
        if let Some(differs) = part.begun.identity.whole().difference(&first.begun.identity.whole()) {
            return Err(between(&shown(&differs)));
        }
        if let Some(differs) = kept::change(&part.begun.set, &first.begun.set) {
            return Err(between(&shown(&differs)));
        }
        if let Some(other) = by_number.insert(part.shard.number(), part) {
            let (one, other) = (path(&other.directory), path(&part.directory));
            return Err(MergeError::Foreign(format!("shard {} is there twice: {one} and {other}", part.shard)));
        }
    }
    Ok(by_number)
}

/// A shard on disk, which nobody else writes meanwhile.
struct Part {
    directory: PathBuf,
    shard: Shard,
    begun: Box<Begun>,
    state: PartState,
}

enum PartState {
    Open(Kept),
    Complete { records: Vec<RunRecord>, _lock: Lock },
}

impl Part {
    fn open(directory: PathBuf) -> Result<Self, MergeError> {
        let lock = Lock::take(&directory)?;
        let no_shard = || MergeError::Foreign(format!("{} is no shard of a sweep", path(&directory)));
        let begun = Begun::read(&directory)?.ok_or_else(no_shard)?;
        let shard = begun.identity.shard.ok_or_else(no_shard)?;
        let state = match Kept::find(&directory, &begun.identity, lock)? {
            State::Open(kept) => PartState::Open(kept),
            State::None(lock) | State::Complete(lock) => {
                let (_, records) = io::read_results(&directory)?;
                PartState::Complete { records, _lock: lock }
            }
        };
        Ok(Self { directory, shard, begun, state })
    }

    /// Adds the shard's runs to `runs`, and what is missing to `problems`.
    fn take(
        &self,
        whole: &Identity,
        runs: &mut BTreeMap<usize, RunRecord>,
        problems: &mut Vec<String>,
    ) -> Result<(), KeptError> {
        let order = whole.order();
        let wanted: Vec<usize> = (0..order.len()).filter(|index| self.shard.has(*index)).collect();
        let (present, place): (BTreeMap<usize, RunRecord>, _) = match &self.state {
            PartState::Open(kept) => (kept.finished().into_iter().zip(kept.records()?).collect(), UNFINISHED),
            PartState::Complete { records, .. } => {
                let is_run = |(index, record): &(usize, &RunRecord)| whole.is_run(order[*index], record);
                let whole = wanted.iter().copied().zip(records).take_while(is_run);
                (whole.map(|(index, record)| (index, record.clone())).collect(), RUNS_FILE)
            }
        };
        let missing: Vec<usize> = wanted.iter().copied().filter(|index| !present.contains_key(index)).collect();
        if !missing.is_empty() {
            let file = self.directory.join(place);
            let (missing, all) = (missing.len(), wanted.len());
            problems.push(format!("shard {}: {missing} of {all} runs are not in {}", self.shard, path(&file)));
        }
        for (cell, repetition) in missing.into_iter().map(|index| order[index]) {
            let labels = whole.cells.get(cell).into_iter().flatten();
            let labels: String = labels.map(|(axis, label)| format!("{} = {}, ", shown(axis), shown(label))).collect();
            problems.push(format!("shard {}: missing: {labels}repetition {}", self.shard, repetition + 1));
        }
        runs.extend(present);
        Ok(())
    }
}
