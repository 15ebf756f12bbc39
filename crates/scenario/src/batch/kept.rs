//! Finished runs on disk, until all of a batch are there.
//!
//! A results directory has `sweep.json`, which says what is being run, and `unfinished/` with one file per finished
//! run. Each is written beside and renamed, so that a kill leaves whole files only; one that is damaged all the same
//! counts as not there.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use evenkeel_quote::{path as shown_path, shown};
use serde::{Deserialize, Serialize};

use super::shard::Shard;
use crate::lock::Lock;
use crate::result::{Engine, RunRecord, RunSet};

/// Name of the file that says what is being run.
pub const SWEEP_FILE: &str = "sweep.json";
/// Name of the directory with one file per finished run.
pub const UNFINISHED: &str = "unfinished";

/// What makes runs the same: a batch goes on only where all of this agrees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// What runs them.
    pub engine: Engine,
    /// Version of evenkeel.
    pub version: String,
    /// Digest of the code that decides the figures (see [`crate::provenance::Program`]).
    #[serde(default)]
    pub code: String,
    /// The scenario's text.
    pub scenario_toml: String,
    /// Labels of the cells.
    pub cells: Vec<Vec<(String, String)>>,
    /// Cells that are run one after the other, by their positions.
    pub groups: Vec<Vec<usize>>,
    /// How often each is run.
    pub repetitions: u32,
    /// The engine's options that say what a run leaves.
    pub options: Vec<String>,
    /// The part of all runs that is done here; none if all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

impl Identity {
    /// All runs in their order, each as the position of its cell and its repetition: group after group, in a group all
    /// cells of a repetition, then the next.
    pub fn order(&self) -> Vec<(usize, u32)> {
        let of = |repetition| move |cell: &usize| (*cell, repetition);
        let group = |group| (0..self.repetitions).flat_map(move |r| <[usize]>::iter(group).map(of(r)));
        self.groups.iter().flat_map(|cells| group(cells)).collect()
    }

    /// The runs to be done here, by their places in the order.
    pub fn wanted(&self) -> Vec<usize> {
        (0..self.order().len()).filter(|index| self.shard.is_none_or(|shard| shard.has(*index))).collect()
    }

    /// The batch that this is a shard of, or this.
    pub fn whole(&self) -> Self {
        Self { shard: None, ..self.clone() }
    }

    /// Whether a record is of this run.
    pub fn is_run(&self, (cell, repetition): (usize, u32), record: &RunRecord) -> bool {
        self.cells.get(cell) == Some(&record.cell) && record.repetition == repetition
    }

    /// How a batch that is there differs from a wanted one, if it does.
    pub fn difference(&self, wanted: &Self) -> Option<String> {
        if self.engine != wanted.engine {
            let name = if self.engine == Engine::Lab { "the lab" } else { "the simulator" };
            Some(format!("{name} made them"))
        } else if self.version != wanted.version {
            Some("another version of evenkeel made them".to_owned())
        } else if self.code != wanted.code {
            Some("evenkeel's code has changed since".to_owned())
        } else if self.scenario_toml != wanted.scenario_toml {
            Some("the scenario file has changed since".to_owned())
        } else if self.repetitions != wanted.repetitions {
            Some("with another number of repetitions".to_owned())
        } else if self.cells != wanted.cells {
            Some("with other cells (`--only`)".to_owned())
        } else if self.options != wanted.options {
            let some = if self.options.is_empty() { &wanted.options } else { &self.options };
            Some(format!("with other options (`{}`)", some.join("`, `")))
        } else if self.shard != wanted.shard {
            let part = |shard: Option<Shard>| shard.map_or("all runs".to_owned(), |shard| format!("shard {shard}"));
            Some(format!("it is of {}, not of {}", part(self.shard), part(wanted.shard)))
        } else {
            (self.groups != wanted.groups).then(|| "in another order".to_owned())
        }
    }
}

/// What [`SWEEP_FILE`] has in it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begun {
    /// What makes its runs the same.
    pub identity: Identity,
    /// What holds for all of them.
    pub set: RunSet,
}

fn file_stem(index: usize) -> String {
    format!("{index:06}")
}

/// Makes it no error that there was nothing to remove.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

impl Begun {
    /// Reads what was begun in a results directory, if anything was.
    ///
    /// # Errors
    /// [`KeptError::Damaged`] and [`KeptError::Io`].
    pub fn read(directory: &Path) -> Result<Option<Box<Self>>, KeptError> {
        read(&directory.join(SWEEP_FILE))
    }
}

/// What is in a results directory.
#[derive(Debug)]
pub enum State {
    /// Nothing to go on with.
    None(Lock),
    /// Runs are to be done.
    Open(Kept),
    /// All runs of this very batch are there. Nobody else writes there while the lock is held.
    Complete(Lock),
}

/// Why finished runs cannot be kept or gone on with.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The system says no.
    #[error("{what} {}: {source}", shown_path(path))]
    Io {
        /// What was tried.
        what: &'static str,
        /// The path it was tried on.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} is damaged: {source}", shown_path(path))]
    Damaged {
        /// The file's path.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The directory belongs to another batch.
    #[error("{} holds the runs of another sweep: {}", shown_path(directory), shown(differs))]
    Other {
        /// The directory's path.
        directory: PathBuf,
        /// What differs.
        differs: String,
    },
}

/// The finished runs of a batch.
#[derive(Debug)]
pub struct Kept {
    directory: PathBuf,
    begun: Box<Begun>,
    order: Vec<(usize, u32)>,
    wanted: Vec<usize>,
    finished: Mutex<BTreeSet<usize>>,
    lock: Lock,
}

impl Kept {
    /// Begins a batch in a results directory and forgets what an unfinished one has left there.
    ///
    /// # Errors
    /// [`KeptError::Io`].
    pub fn begin(directory: &Path, identity: Identity, set: RunSet, lock: Lock) -> Result<Self, KeptError> {
        let (file, unfinished) = (directory.join(SWEEP_FILE), directory.join(UNFINISHED));
        // The file goes first: without it nothing is taken for a batch, whenever this is killed.
        gone(fs::remove_file(&file)).map_err(failed("cannot remove", &file))?;
        gone(fs::remove_dir_all(&unfinished)).map_err(failed("cannot remove", &unfinished))?;
        fs::create_dir_all(&unfinished).map_err(failed("cannot make", &unfinished))?;
        let begun = Box::new(Begun { identity, set });
        write(&file, &*begun)?;
        Ok(Self::new(directory, begun, lock))
    }

    fn new(directory: &Path, begun: Box<Begun>, lock: Lock) -> Self {
        let (order, wanted) = (begun.identity.order(), begun.identity.wanted());
        Self { directory: directory.to_owned(), begun, order, wanted, finished: Mutex::default(), lock }
    }

    /// Looks for what a batch has left. Runs that cannot be read are not finished.
    ///
    /// # Errors
    /// [`KeptError::Other`] if the directory holds another batch, or another version's; [`KeptError::Damaged`] for a
    /// `sweep.json` that cannot be read; [`KeptError::Io`].
    pub fn find(directory: &Path, identity: &Identity, lock: Lock) -> Result<State, KeptError> {
        let Some(begun) = Begun::read(directory)? else { return Ok(State::None(lock)) };
        if let Some(differs) = begun.identity.difference(identity) {
            return Err(KeptError::Other { directory: directory.to_owned(), differs });
        }
        let unfinished = directory.join(UNFINISHED);
        let entries = match fs::read_dir(&unfinished) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::Complete(lock)),
            other => other.map_err(failed("cannot read", &unfinished))?,
        };
        let kept = Self::new(directory, begun, lock);
        for entry in entries {
            let path = entry.map_err(failed("cannot read", &unfinished))?.path();
            let Some(index) = kept.index_of(&path) else { continue };
            match read::<RunRecord>(&path) {
                Ok(Some(record)) if kept.is_run(index, &record) => kept.insert(index),
                Ok(_) | Err(KeptError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(State::Open(kept))
    }

    /// The same, if more runs would be made under what its set says.
    ///
    /// # Errors
    /// [`KeptError::Other`] if versions or remarks differ from those of `set`: of another machine, another kernel.
    pub fn with(self, set: &RunSet) -> Result<Self, KeptError> {
        match change(&self.begun.set, set) {
            Some(differs) => Err(KeptError::Other { directory: self.directory, differs }),
            None => Ok(self),
        }
    }

    /// What holds for all runs.
    pub fn set(&self) -> &RunSet {
        &self.begun.set
    }

    /// All runs in their order, each as the position of its cell and its repetition.
    pub fn order(&self) -> &[(usize, u32)] {
        &self.order
    }

    /// The runs to be done here, by their places in the order.
    pub fn wanted(&self) -> &[usize] {
        &self.wanted
    }

    /// Those that are finished.
    pub fn finished(&self) -> Vec<usize> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Where the results go.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The number of the run that a file is of, if it is one of this batch.
    fn index_of(&self, path: &Path) -> Option<usize> {
        let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
        name.parse().ok().filter(|index| self.wanted.binary_search(index).is_ok() && name == file_stem(*index))
    }

    /// Whether a record is of the run with this number.
    fn is_run(&self, index: usize, record: &RunRecord) -> bool {
        self.begun.identity.is_run(self.order[index], record)
    }

    fn insert(&self, index: usize) {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).insert(index);
    }

    /// Whether this run is there.
    pub fn is_finished(&self, index: usize) -> bool {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).contains(&index)
    }

    /// Keeps a finished run.
    ///
    /// # Errors
    /// [`KeptError::Io`].
    pub fn keep(&self, index: usize, record: &RunRecord) -> Result<(), KeptError> {
        write(&self.file(index), record)?;
        self.insert(index);
        Ok(())
    }

    /// Reads all finished runs, in their order.
    ///
    /// # Errors
    /// [`KeptError::Damaged`] and [`KeptError::Io`].
    pub fn records(&self) -> Result<Vec<RunRecord>, KeptError> {
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |path: &Path| failed("cannot read", path)(io::ErrorKind::NotFound.into());
        finished.iter().map(|index| self.file(*index)).map(|path| read(&path)?.ok_or_else(|| missing(&path))).collect()
    }

    /// Removes the single runs, which are no longer needed once the results are written elsewhere. Returns the lock,
    /// for what is still to be written.
    ///
    /// # Errors
    /// [`KeptError::Io`].
    pub fn complete(self) -> Result<Lock, KeptError> {
        let unfinished = self.directory.join(UNFINISHED);
        fs::remove_dir_all(&unfinished).map_err(failed("cannot remove", &unfinished))?;
        Ok(self.lock)
    }

    /// Leaves all as it is, and returns the lock for a batch that begins again.
    pub(super) fn into_lock(self) -> Lock {
        self.lock
    }

    fn file(&self, index: usize) -> PathBuf {
        self.directory.join(UNFINISHED).join(format!("{}.json", file_stem(index)))
    }
}

/// What has changed since a batch was begun, so that its set would not be true of more runs.
pub(super) fn change(begun: &RunSet, now: &RunSet) -> Option<String> {
    let mut names = begun.versions.keys().chain(now.versions.keys());
    if let Some(name) = names.find(|name| begun.versions.get(*name) != now.versions.get(*name)) {
        let [then, now] = [begun, now].map(|set| set.versions.get(name).map_or("none", String::as_str));
        return Some(format!("with another {name}: {then}, now {now}"));
    }
    let [then, wanted] = [begun, now].map(|set| set.provenance.as_ref().map(|by| &by.settings));
    if then != wanted {
        return Some("with other settings: a default has changed since".to_owned());
    }
    let gone = begun.remarks.iter().find(|remark| !now.remarks.contains(remark));
    let new = now.remarks.iter().find(|remark| !begun.remarks.contains(remark));
    let gone = gone.map(|remark| format!("made under what no longer holds: {remark}"));
    gone.or_else(|| new.map(|remark| format!("not made under what holds now: {remark}")))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeptError {
    let path = path.to_owned();
    move |source| KeptError::Io { what, path, source }
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), KeptError> {
    let unfinished = path.with_extension("part");
    let bytes = serde_json::to_vec(value).map_err(|error| failed("cannot write", path)(error.into()))?;
    // Synced before it gets its name: after a power cut, a file of that name is whole.
    let synced =
        fs::File::create(&unfinished).and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()));
    synced.and_then(|()| fs::rename(&unfinished, path)).map_err(failed("cannot write", path))
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, KeptError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("cannot read", path)(error)),
        Ok(bytes) => {
            let damaged = |source| KeptError::Damaged { path: path.to_owned(), source };
            serde_json::from_slice(&bytes).map(Some).map_err(damaged)
        }
    }
}
