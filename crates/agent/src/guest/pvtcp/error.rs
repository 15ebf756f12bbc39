//! What can go wrong with the module, each with what to do next.

use std::path::PathBuf;

use evenkeel_quote::{lines, path, quoted, shown};

/// Why the module could not be loaded, set, asked or unloaded.
#[derive(Debug, thiserror::Error)]
pub enum PvtcpError {
    /// The module has no such parameter.
    #[error("PVTCP has no parameter {}; it has {known}", quoted(name))]
    UnknownParameter {
        /// What was asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// A value that the module would not take.
    #[error("{name}={}: {allowed} is allowed", shown(value))]
    BadValue {
        /// The parameter.
        name: &'static str,
        /// What was asked for.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// The file is no kernel module as the kernel wants it.
    #[error("{} is {what}", path(file))]
    NotAModule {
        /// The file.
        file: PathBuf,
        /// What it is instead.
        what: &'static str,
        /// What to do next.
        help: &'static str,
    },
    /// This process or this kernel cannot load modules.
    #[error("{}", shown(what))]
    Missing {
        /// What is missing.
        what: String,
        /// What to do next.
        help: String,
    },
    /// The kernel or the module said no.
    #[error("the kernel did not take the module: {}", shown(why))]
    Refused {
        /// In the module's own words where it gave any.
        why: String,
    },
    /// The loaded module lacks a parameter that this program knows.
    #[error("the loaded module has no parameter `{name}`: it is older than this evenkeel")]
    OldModule {
        /// The parameter.
        name: &'static str,
    },
    /// The loaded module did not take a value.
    #[error("the loaded module shows {name}={}, not {}", shown(found), shown(wanted))]
    NotTaken {
        /// The parameter.
        name: &'static str,
        /// What was asked for.
        wanted: String,
        /// What it shows.
        found: String,
    },
    /// The module is needed by something, so it cannot be unloaded.
    #[error("the module is in use")]
    InUse,
    /// A package has put the module's sources there.
    #[error(
        "{} was not made by `evenkeel guest pvtcp install`: a package has the module, or somebody else",
        path(folder)
    )]
    Packaged {
        /// The sources.
        folder: PathBuf,
    },
    /// A program that builds or installs the module failed.
    #[error("`{}` failed:\n{}", shown(command), lines(said))]
    NotBuilt {
        /// The program with its arguments.
        command: String,
        /// The end of what it said.
        said: String,
    },
    /// An operation of the system failed.
    #[error("{}: {source}", shown(context))]
    Io {
        /// What was tried.
        context: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl PvtcpError {
    /// An I/O error with what was tried.
    pub(super) fn io(context: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Io { context: context.into(), source: source.into() }
    }

    /// What to do next, where that is known.
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::NotAModule { help, .. } => Some(help),
            Self::Missing { help, .. } => Some(help),
            Self::Refused { .. } => {
                Some("TCP is as it was; `evenkeel doctor` says what this kernel lacks, `dmesg` has all messages")
            }
            Self::OldModule { .. } => {
                Some("install the module that belongs to this evenkeel, `evenkeel guest pvtcp unload`, then load again")
            }
            Self::Packaged { .. } => Some(
                "a package keeps its module up to date by itself (`dkms status`); to have this one instead, remove \
                 the package",
            ),
            Self::NotBuilt { .. } => Some("docs/pvtcp.md says which kernels the module fits (6.1 to 7.3)"),
            Self::InUse => Some("`lsmod` says by what; end that and try again"),
            _ => None,
        }
    }
}
