//! Runs other programs, with what they print kept in a log.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::{PrepareError, Trying};

/// How many lines of a failed program's output go into the error.
const TAIL_LINES: usize = 6;

/// The programs that everything here rests on, with their packages.
const PROGRAMS: [(&str, &str); 6] = [
    ("apt-get", "apt"),
    ("dpkg", "dpkg"),
    ("unshare", "util-linux"),
    ("chroot", "coreutils"),
    ("flock", "util-linux"),
    ("debootstrap", "debootstrap"),
];

/// Checks that this machine and this user can make images at all.
pub(super) fn check_machine() -> Result<(), PrepareError> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(PrepareError::Architecture { arch: std::env::consts::ARCH });
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(PrepareError::NotRoot);
    }
    for (program, package) in PROGRAMS {
        if find_program(program).is_none() {
            return Err(PrepareError::MissingProgram { program, package });
        }
    }
    Ok(())
}

/// Where `program` is, also when the sbin folders are missing from PATH.
fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

/// A program to run for a purpose, in English without surprises from the terminal.
pub(super) struct Run {
    command: Command,
    what: String,
}

impl Run {
    /// `what` completes "could not ...".
    pub(super) fn new(program: &str, what: impl Into<String>) -> Self {
        let mut command = Command::new(find_program(program).unwrap_or_else(|| program.into()));
        // The caller's TMPDIR may not exist for programs that run in the root.
        command.env_remove("TMPDIR").env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        Self { command, what: what.into() }
    }

    /// Adds an argument.
    pub(super) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub(super) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets a variable.
    pub(super) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it in `dir`.
    pub(super) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Runs it to its end and gives what it printed on its standard output; all it printed goes into `log`.
    pub(super) fn output(mut self, log: &Path) -> Result<String, PrepareError> {
        let result =
            self.command.output().trying(|| format!("run `{:?}` to {}", self.command.get_program(), self.what))?;
        let stdout = String::from_utf8_lossy(&result.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&result.stderr);
        append(log, &format!("$ {:?}\n{stdout}{stderr}", self.command));
        if result.status.success() {
            return Ok(stdout);
        }
        let all = format!("{stdout}{stderr}");
        let lines: Vec<_> = all.lines().filter(|line| !line.trim().is_empty()).collect();
        let said = match lines.len() {
            0 => format!("it ended with {} and said nothing", result.status),
            count => lines[count.saturating_sub(TAIL_LINES)..].join("\n"),
        };
        Err(PrepareError::Command { what: self.what, said, log: log.to_path_buf() })
    }
}

/// Adds to a log. A log that cannot be written is no reason to fail.
fn append(log: &Path, text: &str) {
    let _ = log.parent().map(fs::create_dir_all);
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(log) {
        let _ = writeln!(file, "{}", text.trim_end());
    }
}
