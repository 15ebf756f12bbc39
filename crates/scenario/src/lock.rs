//! One writer of a results directory at a time: a lock that the kernel lets go when its holder ends, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::utsname::uname;

use crate::error::ScenarioError;

/// The file's name in the directory. It stays there.
pub const LOCK_FILE: &str = ".lock";

/// For so long it is looked for the name of a holder, which writes it just after it has the lock.
const LOOKS: u32 = 50;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Held by whoever writes results into a directory.
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
                let own = Holder { pid: std::process::id(), host: host() };
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

/// Who has a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// The machine that the process is on: the directory may be another's.
    pub host: String,
}

impl Holder {
    /// As the holder has written it; nothing if it did not in time.
    fn of(mut file: File) -> Option<Self> {
        for _ in 0..LOOKS {
            let mut text = String::new();
            if file.rewind().and_then(|()| file.read_to_string(&mut text)).is_err() {
                break;
            }
            // A holder that was killed is named there until the next has written.
            if let Some(holder) = Self::parse(&text).filter(Self::may_live) {
                return Some(holder);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        None
    }

    fn parse(text: &str) -> Option<Self> {
        let (pid, host) = text.strip_suffix('\n')?.split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, host: host.to_owned() })
    }

    /// Of other machines nothing is known.
    fn may_live(&self) -> bool {
        self.host != host() || Path::new(&format!("/proc/{}", self.pid)).exists()
    }
}

fn host() -> String {
    uname().map(|names| names.nodename().to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_it_and_the_others_are_told_who() {
        let directory = tempfile::tempdir().unwrap();
        let results = directory.path().join("a/b");
        // Of a process that is no more.
        fs::create_dir_all(&results).unwrap();
        fs::write(results.join(LOCK_FILE), "4194305 elsewhere\nrest of a longer name").unwrap();
        let lock = Lock::take(&results).unwrap();
        let own = Holder { pid: std::process::id(), host: host() };
        let error = Lock::take(&results).unwrap_err();
        assert!(matches!(&error, ScenarioError::InUse { holder: Some(holder), .. } if *holder == own), "{error}");
        assert!(error.to_string().contains(&format!("process {} on ", own.pid)), "{error}");
        drop(lock);
        Lock::take(&results).unwrap();
    }

    #[test]
    fn a_holder_that_has_written_nothing_is_somebody() {
        for text in ["", "77", "77 host", "x host\n", "4194305 "] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            assert_eq!(Holder::of(file), None, "{text:?}");
        }
    }
}
