//! Who has the lock of a results directory, as it stands in the lock's file.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::time::Duration;

use nix::sys::utsname::uname;

/// How often the name of a holder is looked for: the holder writes it just after it has taken the lock.
const LOOKS: u32 = 50;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Who has a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// The machine that the process is on: the directory may be another's.
    pub host: String,
}

impl Holder {
    /// This process.
    pub(crate) fn own() -> Self {
        Self { pid: std::process::id(), host: host() }
    }

    /// Reads what the holder has written; nothing if it did not write in time.
    pub(crate) fn of(mut file: File) -> Option<Self> {
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

    /// Whether the holder may still run; of other machines nothing is known.
    fn may_live(&self) -> bool {
        self.host != host() || Path::new(&format!("/proc/{}", self.pid)).exists()
    }
}

fn host() -> String {
    uname().map(|names| names.nodename().to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_holder_that_has_written_nothing_is_somebody() {
        for text in ["", "77", "77 host", "x host\n", "4194305 "] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            assert_eq!(Holder::of(file), None, "{text:?}");
        }
    }
}
