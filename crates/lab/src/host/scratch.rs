//! The directory of a booted lab, for sockets, consoles and captures, and those that killed labs have left behind.

use std::fs::{DirEntry, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use tempfile::TempDir;

use crate::error::LabError;

/// How the names of these directories begin.
const PREFIX: &str = "evenkeel-lab-";
/// The file that a living lab has locked; the kernel lets go of it when the lab ends, however it ends.
const LOCK: &str = "lock";

/// A lab's directory; removed when dropped, and by the next lab if this one is killed.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
    /// Dropped after the directory.
    _lock: Flock<File>,
}

impl Scratch {
    /// An empty one.
    pub fn make() -> Result<Self, LabError> {
        Self::make_in(&std::env::temp_dir()).map_err(|e| LabError::io("making a temporary directory", e))
    }

    fn make_in(parent: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // The lock has its name only when it is held: another lab must not find it free.
        let unnamed = directory.path().join("new");
        let lock = lock(OpenOptions::new().write(true).create_new(true).open(&unnamed)?)?;
        std::fs::rename(unnamed, directory.path().join(LOCK))?;
        Ok(Self { directory, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the directories of this user's labs that were killed.
pub fn remove_leftovers() {
    remove_leftovers_in(&std::env::temp_dir());
}

fn remove_leftovers_in(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let Some(_lock) = left_over(&entry) else { continue };
        let path = entry.path();
        if let Err(error) = std::fs::remove_dir_all(&path) {
            tracing::debug!(directory = %path.display(), %error, "the directory of an earlier lab stays");
        }
    }
}

/// The lock of a directory whose lab is gone. Others may write to a directory for temporary files: what is not a
/// directory of this user's own is left alone.
fn left_over(entry: &DirEntry) -> Option<Flock<File>> {
    let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
    // Of the entry itself, not of what a link leads to.
    let about = entry.metadata().ok().filter(|about| is_named && about.is_dir())?;
    if about.uid() != nix::unistd::geteuid().as_raw() {
        return None;
    }
    let no_link = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    lock(OpenOptions::new().write(true).custom_flags(no_link).open(entry.path().join(LOCK)).ok()?).ok()
}

fn lock(file: File) -> io::Result<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_living_lab_owns_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().expect("a directory");
        let living = Scratch::make_in(parent.path()).expect("made");
        let Scratch { directory, _lock: lock } = Scratch::make_in(parent.path()).expect("made");
        let killed = directory.keep();
        std::fs::create_dir(killed.join("agent")).expect("made");
        std::fs::write(killed.join("agent/host.log"), "no").expect("written");
        // What has another name, what has no lock, and a link to what is elsewhere.
        let others = ["other", "evenkeel-lab-files", "evenkeel-lab-link"].map(|name| parent.path().join(name));
        for other in &others[..2] {
            std::fs::create_dir(other).expect("made");
        }
        std::fs::write(others[0].join(LOCK), "").expect("written");
        std::os::unix::fs::symlink(&others[0], &others[2]).expect("made");
        remove_leftovers_in(parent.path());
        assert!(killed.join("agent/host.log").exists(), "its lock is held");
        drop(lock);
        remove_leftovers_in(parent.path());
        assert!(!killed.exists());
        assert!(living.path().join(LOCK).exists() && others[0].join(LOCK).exists());
        assert!(others.iter().all(|other| other.symlink_metadata().is_ok()));
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }
}
