//! Replaces the files of a results directory, so that a kill at any time leaves the old results, the new ones, or what
//! is read as neither.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::ScenarioError;

/// Name of the directory where new files wait.
const STAGING: &str = ".new";

/// One step of a replacement. Each is atomic: it has happened or it has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A waiting file gets its name, and replaces a file of that name.
    Place(&'static str),
    /// A file is removed, if it is there.
    Remove(&'static str),
}

/// New files, waiting beside those that they replace.
#[derive(Debug)]
pub struct Staged {
    directory: PathBuf,
    steps: Vec<Step>,
}

impl Staged {
    /// Makes the results directory, and an empty one in it for new files. What a killed process has left there is
    /// removed.
    ///
    /// # Errors
    /// [`ScenarioError::Write`].
    pub fn begin(directory: &Path) -> Result<Self, ScenarioError> {
        let staged = Self { directory: directory.to_owned(), steps: Vec::new() };
        forget(directory)?;
        let staging = staged.staging();
        fs::create_dir_all(&staging).map_err(write_error(&staging))?;
        Ok(staged)
    }

    /// Writes a file that waits, and syncs it: a power cut cannot leave its name without its content.
    ///
    /// # Errors
    /// What `write` says, or [`ScenarioError::Write`].
    pub fn add<E: From<ScenarioError>>(
        &self,
        name: &'static str,
        write: impl FnOnce(&mut File) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = self.staging().join(name);
        let mut file = File::create(&path).map_err(write_error(&path))?;
        write(&mut file)?;
        file.sync_all().map_err(write_error(&path)).map_err(E::from)
    }

    /// As [`Self::add`], of bytes.
    ///
    /// # Errors
    /// [`ScenarioError::Write`].
    pub fn add_bytes(&self, name: &'static str, bytes: &[u8]) -> Result<(), ScenarioError> {
        self.add(name, |file| file.write_all(bytes).map_err(write_error(&self.directory.join(name))))
    }

    /// Says in which steps the waiting files replace the present ones.
    pub fn with_steps(self, steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), ..self }
    }

    /// How many steps [`Self::finish`] takes.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Takes all steps.
    ///
    /// # Errors
    /// [`ScenarioError::Write`].
    pub fn finish(self) -> Result<(), ScenarioError> {
        self.take(0..self.steps.len())?;
        forget(&self.directory)?;
        // The names are on disk too before anyone removes what the results were made of.
        File::open(&self.directory).and_then(|it| it.sync_all()).map_err(write_error(&self.directory))
    }

    /// Takes the steps in this range, as far as they exist. A process that is killed has taken the first ones only.
    ///
    /// # Errors
    /// [`ScenarioError::Write`].
    pub fn take(&self, steps: Range<usize>) -> Result<(), ScenarioError> {
        let staging = self.staging();
        self.steps.iter().take(steps.end).skip(steps.start).try_for_each(|step| match step {
            Step::Place(name) => {
                let path = self.directory.join(name);
                fs::rename(staging.join(name), &path).map_err(write_error(&path))
            }
            Step::Remove(name) => remove(&self.directory.join(name)),
        })
    }

    fn staging(&self) -> PathBuf {
        self.directory.join(STAGING)
    }
}

/// Removes the directory of new files, with any that a killed process has left there.
pub(crate) fn forget(directory: &Path) -> Result<(), ScenarioError> {
    let staging = directory.join(STAGING);
    gone(fs::remove_dir_all(&staging)).map_err(write_error(&staging))
}

/// Removes a file, if it is there.
pub(crate) fn remove(file: &Path) -> Result<(), ScenarioError> {
    gone(fs::remove_file(file)).map_err(write_error(file))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn write_error(file: &Path) -> impl FnOnce(io::Error) -> ScenarioError + use<> {
    let file = file.to_owned();
    move |source| ScenarioError::Write { file, source }
}
