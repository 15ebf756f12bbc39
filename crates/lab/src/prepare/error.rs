//! What can go wrong while images are made.

use std::path::PathBuf;

use evenkeel_quote::{lines, path as shown_path, quoted, shown};

use super::KernelSeries;

/// Why kernels, build root, module or initramfs could not be made, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The user may not do this.
    #[error("making the lab's kernels and images needs root (chroot and mounts); run evenkeel with sudo")]
    NotRoot,
    /// Not a machine that Debian's cloud kernels for x86-64 run on.
    #[error("the lab boots x86-64 kernels; this machine is {arch}, which it does not support yet")]
    Architecture {
        /// What the machine is.
        arch: &'static str,
    },
    /// No such kernel series.
    #[error("there is no kernel series {}; choose 6.1, 6.12 or newest", quoted(text))]
    UnknownSeries {
        /// What was asked for.
        text: String,
    },
    /// A program is not installed.
    #[error("{program} is not installed; run `make deps` or `apt-get install {package}`, then try again")]
    MissingProgram {
        /// The program.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The disk is full.
    #[error(
        "no room for kernels and images: {} has {have_mb} MB free and {need_mb} MB are needed; free some, or set \
         EVENKEEL_CACHE to a folder on a larger disk",
        shown_path(dir)
    )]
    NoRoom {
        /// The cache folder.
        dir: PathBuf,
        /// Free, in MB.
        have_mb: u64,
        /// Needed, in MB.
        need_mb: u64,
    },
    /// The evenkeel binary would not run in a VM.
    #[error(
        "{} needs shared libraries ({interpreter}), which the lab's VMs do not have; build it with `make build`, which \
         links it statically",
        shown_path(path)
    )]
    NotStatic {
        /// The binary.
        path: PathBuf,
        /// Its program interpreter.
        interpreter: String,
    },
    /// The evenkeel binary is not a program for this machine.
    #[error("{} is not an x86-64 ELF program; give the path of the evenkeel binary", shown_path(path))]
    NotElf {
        /// The file.
        path: PathBuf,
    },
    /// apt offers no such kernel.
    #[error(
        "Debian's archive offers no {series} kernel to this machine ({package} resolves to nothing in {suites}); see \
         {}",
        shown_path(log)
    )]
    NoKernel {
        /// What was asked for.
        series: KernelSeries,
        /// The meta package.
        package: &'static str,
        /// Where it was looked for.
        suites: String,
        /// What apt said.
        log: PathBuf,
    },
    /// A kernel package does not hold what it should.
    #[error("the {series} kernel in {} has no {what}; remove that folder and try again", shown_path(dir))]
    BadKernel {
        /// What was asked for.
        series: KernelSeries,
        /// Where it was unpacked.
        dir: PathBuf,
        /// What is missing.
        what: String,
    },
    /// The module's sources were not there when evenkeel was built.
    #[error(
        "this evenkeel was built without the guest module's sources ({what}); build it from a complete source tree"
    )]
    NoModule {
        /// What is missing.
        what: &'static str,
    },
    /// A command failed.
    #[error("could not {}: {}\n(the whole output is in {})", shown(what), lines(said), shown_path(log))]
    Command {
        /// What it was for.
        what: String,
        /// The last lines it printed.
        said: String,
        /// The log.
        log: PathBuf,
    },
    /// An operation of the system failed.
    #[error("could not {}: {source}", shown(what))]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// Says what was tried when an I/O operation fails.
pub(super) trait Trying<T> {
    /// `what` completes "could not ...".
    fn trying(self, what: impl FnOnce() -> String) -> Result<T, PrepareError>;
}

impl<T, E: Into<std::io::Error>> Trying<T> for Result<T, E> {
    fn trying(self, what: impl FnOnce() -> String) -> Result<T, PrepareError> {
        self.map_err(|source| PrepareError::Io { what: what(), source: source.into() })
    }
}
