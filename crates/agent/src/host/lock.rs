//! One host agent at a time.

use std::path::Path;

use super::error::HostError;
use crate::common::lock::{Lock, NotTaken};

/// The file's name in the run directory.
const FILE: &str = "host.lock";

/// Takes the lock, which is held while an agent runs, or while `--stop` removes what one left. Makes the run directory
/// if it is not there.
///
/// # Errors
/// [`HostError::Running`] if another process has it.
pub fn take(run_dir: &Path) -> Result<Lock, HostError> {
    let path = run_dir.join(FILE);
    Lock::take(&path).map_err(|why| match why {
        NotTaken::Held(pid) => HostError::Running { pid, lock: path },
        NotTaken::Failed(error) => HostError::io(format!("cannot lock {}", path.display()), error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let run_dir = directory.path().join("new");
        let lock = take(&run_dir).unwrap();
        let error = take(&run_dir).unwrap_err();
        assert!(matches!(error, HostError::Running { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
        drop(lock);
        take(&run_dir).unwrap();
    }
}
