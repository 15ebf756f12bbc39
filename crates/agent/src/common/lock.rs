//! One agent at a time: a lock that the kernel lets go when its holder ends, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Held while an agent runs or stops what one left.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes the lock of this file, and makes the file and its directory if they are not there.
    ///
    /// # Errors
    /// [`NotTaken`]
    pub fn take(path: &Path) -> Result<Self, NotTaken> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                // The number is for another agent's message, and for a program that is to end this one. On a full disk
                // the lock still counts.
                let _ = file.set_len(0).and_then(|()| file.rewind());
                let _ = write!(file, "{}", std::process::id());
                Ok(Self { _file: file })
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                // Without the number it is still true that somebody has it.
                let _ = file.read_to_string(&mut pid);
                Err(NotTaken::Held(pid.trim().parse().ok()))
            }
            Err((_, errno)) => Err(NotTaken::Failed(errno.into())),
        }
    }
}

/// Whether somebody holds a lock file, and who, if the file says so. The look holds the lock itself for a moment, in
/// which nobody else can take it.
pub fn holder(path: &Path) -> io::Result<Option<Option<u32>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => Ok(None),
        Err((_, Errno::EWOULDBLOCK)) => Ok(Some(fs::read_to_string(path)?.trim().parse().ok())),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// Why a lock could not be taken.
#[derive(Debug)]
pub enum NotTaken {
    /// A process has it: which, if it said so.
    Held(Option<u32>),
    /// The system's answer.
    Failed(io::Error),
}

impl From<io::Error> for NotTaken {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_it_and_the_others_are_told_who() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("new/lock");
        assert_eq!(holder(&file).unwrap(), None);
        let lock = Lock::take(&file).unwrap();
        assert!(matches!(Lock::take(&file), Err(NotTaken::Held(Some(pid))) if pid == std::process::id()));
        assert_eq!(holder(&file).unwrap(), Some(Some(std::process::id())));
        drop(lock);
        assert_eq!(holder(&file).unwrap(), None);
        Lock::take(&file).unwrap();
    }
}
