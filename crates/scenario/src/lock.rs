//! One writer of a results directory at a time: a lock that the kernel lets go when its holder ends, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::ScenarioError;
use crate::holder::Holder;

/// The file's name in the directory. It stays there.
pub const LOCK_FILE: &str = ".lock";

/// Held while a process writes results into a directory.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes the lock of a results directory, and makes the directory if it is not there.
    ///
    /// # Errors
    /// [`ScenarioError::InUse`] if another process has it, [`ScenarioError::Write`].
    pub fn take(directory: &Path) -> Result<Self, ScenarioError> {
        let path = directory.join(LOCK_FILE);
        let failed = |source: io::Error| ScenarioError::Write { file: path.clone(), source };
        fs::create_dir_all(directory).map_err(failed)?;
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        match Flock::lock(open.map_err(failed)?, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                let own = Holder::own();
                let write = |file: &mut File| file.set_len(0).and_then(|()| writeln!(file, "{} {}", own.pid, own.host));
                write(&mut file).map_err(failed)?;
                Ok(Self { _file: file })
            }
            Err((file, Errno::EWOULDBLOCK)) => {
                Err(ScenarioError::InUse { directory: directory.to_owned(), holder: Holder::of(file) })
            }
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_it_and_the_others_are_told_who() {
        let directory = tempfile::tempdir().unwrap();
        let results = directory.path().join("a/b");
        // The lock file of a process that is gone.
        fs::create_dir_all(&results).unwrap();
        fs::write(results.join(LOCK_FILE), "4194305 elsewhere\nrest of a longer name").unwrap();
        let lock = Lock::take(&results).unwrap();
        let own = Holder::own();
        let error = Lock::take(&results).unwrap_err();
        assert!(matches!(&error, ScenarioError::InUse { holder: Some(holder), .. } if *holder == own), "{error}");
        assert!(error.to_string().contains(&format!("process {} on ", own.pid)), "{error}");
        drop(lock);
        Lock::take(&results).unwrap();
    }
}
