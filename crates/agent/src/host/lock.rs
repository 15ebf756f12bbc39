//! One agent at a time: a lock that the kernel lets go when its holder ends, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::error::HostError;

/// The file's name in the run directory.
const FILE: &str = "host.lock";

/// Held while an agent runs or stops what one left.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes the lock, and makes the run directory if it is not there.
    ///
    /// # Errors
    /// [`HostError::Running`] if another process has it.
    pub fn take(run_dir: &Path) -> Result<Self, HostError> {
        let path = run_dir.join(FILE);
        let failed = |error| HostError::io(format!("cannot lock {}", path.display()), error);
        fs::create_dir_all(run_dir).map_err(failed)?;
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                // Only for the message that another agent gives.
                let note = |file: &mut File| {
                    file.set_len(0)?;
                    file.rewind()?;
                    write!(file, "{}", std::process::id())
                };
                note(&mut file).map_err(failed)?;
                Ok(Self { _file: file })
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                // Without the number the message is still true.
                let _ = file.read_to_string(&mut pid);
                Err(HostError::Running { pid: pid.trim().parse().ok(), lock: path })
            }
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let run_dir = directory.path().join("new");
        let lock = Lock::take(&run_dir).unwrap();
        let error = Lock::take(&run_dir).unwrap_err();
        assert!(matches!(error, HostError::Running { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
        drop(lock);
        Lock::take(&run_dir).unwrap();
    }
}
