//! Finished runs on disk, until all of a sweep are there.
//!
//! A results directory has `sweep.json`, which says what is being run, and `unfinished/` with one file per finished
//! run. Each is written beside and renamed, so that a kill leaves whole files only; one that is damaged all the same
//! counts as not there.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use evenkeel_quote::path as shown_path;
use evenkeel_scenario::lock::Lock;
use evenkeel_scenario::{RunRecord, ScenarioError};
use serde::{Deserialize, Serialize};

/// Name of the file that says what a sweep runs.
pub const SWEEP_FILE: &str = "sweep.json";
/// Name of the directory with one file per finished run.
pub const UNFINISHED: &str = "unfinished";

/// What makes runs the same: a sweep goes on only where all of this agrees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Version of evenkeel.
    pub version: String,
    /// The scenario's text.
    pub scenario_toml: String,
    /// Labels of the cells.
    pub cells: Vec<Vec<(String, String)>>,
    /// How often each is run.
    pub repetitions: u32,
}

impl Identity {
    /// The number of the run that a file is of, if it is one of this sweep.
    fn index_of(&self, path: &Path) -> Option<usize> {
        let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
        let runs = self.cells.len() * self.repetitions as usize;
        name.parse().ok().filter(|index| *index < runs && name == file_stem(*index))
    }

    /// Whether a record is of the run with this number.
    fn is_run(&self, index: usize, record: &RunRecord) -> bool {
        let cell = self.cells.get(index % self.cells.len().max(1));
        cell == Some(&record.cell) && record.repetition as usize == index / self.cells.len().max(1)
    }
}

fn file_stem(index: usize) -> String {
    format!("{index:06}")
}

/// That there is nothing to remove is no error.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// What is in a results directory.
#[derive(Debug)]
pub enum State {
    /// Runs are to be done.
    Open(Kept),
    /// All runs of this very sweep are there. Nobody else writes there while the lock is held.
    Complete(Lock),
}

/// Why finished runs cannot be kept or gone on with.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// Another process works in the directory, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] ScenarioError),
    /// The system says no.
    #[error("{what} {}: {source}", shown_path(path))]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} is damaged: {source}", shown_path(path))]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The directory belongs to another sweep.
    #[error("{} holds the runs of another sweep: {differs}", shown_path(directory))]
    Other {
        /// Which.
        directory: PathBuf,
        /// What differs.
        differs: &'static str,
    },
}

/// The finished runs of a sweep.
#[derive(Debug)]
pub struct Kept {
    directory: PathBuf,
    finished: Mutex<BTreeSet<usize>>,
    lock: Lock,
}

impl Kept {
    /// Begins a sweep in a results directory and forgets what an unfinished one has left there.
    ///
    /// # Errors
    /// [`KeptError::Lock`] if another process works there, [`KeptError::Io`].
    pub fn restart(directory: &Path, identity: &Identity) -> Result<Self, KeptError> {
        Self::begin(directory, identity, Lock::take(directory)?)
    }

    fn begin(directory: &Path, identity: &Identity, lock: Lock) -> Result<Self, KeptError> {
        let (file, unfinished) = (directory.join(SWEEP_FILE), directory.join(UNFINISHED));
        // The file goes first: without it nothing is taken for a sweep, whenever this is killed.
        gone(fs::remove_file(&file)).map_err(failed("cannot remove", &file))?;
        gone(fs::remove_dir_all(&unfinished)).map_err(failed("cannot remove", &unfinished))?;
        fs::create_dir_all(&unfinished).map_err(failed("cannot make", &unfinished))?;
        write(&file, identity)?;
        Ok(Self { directory: directory.to_owned(), finished: Mutex::default(), lock })
    }

    /// Goes on with a sweep, or begins it. Runs that cannot be read are not finished.
    ///
    /// # Errors
    /// [`KeptError::Lock`] if another process works there; [`KeptError::Other`] if the directory holds another sweep,
    /// or another version's; [`KeptError::Damaged`] for a `sweep.json` that cannot be read; [`KeptError::Io`].
    pub fn go_on(directory: &Path, identity: &Identity) -> Result<State, KeptError> {
        let lock = Lock::take(directory)?;
        let Some(present) = read::<Identity>(&directory.join(SWEEP_FILE))? else {
            return Ok(State::Open(Self::begin(directory, identity, lock)?));
        };
        if let Some(differs) = difference(&present, identity) {
            return Err(KeptError::Other { directory: directory.to_owned(), differs });
        }
        let unfinished = directory.join(UNFINISHED);
        let entries = match fs::read_dir(&unfinished) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::Complete(lock)),
            other => other.map_err(failed("cannot read", &unfinished))?,
        };
        let mut finished = BTreeSet::new();
        for entry in entries {
            let path = entry.map_err(failed("cannot read", &unfinished))?.path();
            let Some(index) = identity.index_of(&path) else { continue };
            match read::<RunRecord>(&path) {
                Ok(Some(record)) if identity.is_run(index, &record) => _ = finished.insert(index),
                Ok(_) | Err(KeptError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(State::Open(Self { directory: directory.to_owned(), finished: Mutex::new(finished), lock }))
    }

    /// Whether this run is there.
    pub fn is_finished(&self, index: usize) -> bool {
        self.finished.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).contains(&index)
    }

    /// Keeps a finished run.
    ///
    /// # Errors
    /// [`KeptError::Io`].
    pub fn keep(&self, index: usize, record: &RunRecord) -> Result<(), KeptError> {
        write(&self.file(index), record)?;
        self.finished.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(index);
        Ok(())
    }

    /// Reads all runs, in their order.
    ///
    /// # Errors
    /// [`KeptError::Damaged`] and [`KeptError::Io`].
    pub fn records(&self) -> Result<Vec<RunRecord>, KeptError> {
        let finished = self.finished.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let missing = |path: &Path| failed("cannot read", path)(io::ErrorKind::NotFound.into());
        finished.iter().map(|index| self.file(*index)).map(|path| read(&path)?.ok_or_else(|| missing(&path))).collect()
    }

    /// The results are written elsewhere: the single runs are no longer needed. The lock, for what is still to be
    /// written.
    ///
    /// # Errors
    /// [`KeptError::Io`].
    pub fn complete(self) -> Result<Lock, KeptError> {
        let unfinished = self.directory.join(UNFINISHED);
        fs::remove_dir_all(&unfinished).map_err(failed("cannot remove", &unfinished))?;
        Ok(self.lock)
    }

    fn file(&self, index: usize) -> PathBuf {
        self.directory.join(UNFINISHED).join(format!("{}.json", file_stem(index)))
    }
}

fn difference(present: &Identity, wanted: &Identity) -> Option<&'static str> {
    if present.version != wanted.version {
        Some("another version of evenkeel made them")
    } else if present.scenario_toml != wanted.scenario_toml {
        Some("the scenario file has changed since")
    } else if present.repetitions != wanted.repetitions {
        Some("with another number of repetitions")
    } else {
        (present.cells != wanted.cells).then_some("with other cells (`--only`)")
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeptError {
    let path = path.to_owned();
    move |source| KeptError::Io { what, path, source }
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), KeptError> {
    let unfinished = path.with_extension("part");
    let bytes = serde_json::to_vec(value).map_err(|error| failed("cannot write", path)(error.into()))?;
    // Synced before it gets its name: after a power cut, what has the name is whole.
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
