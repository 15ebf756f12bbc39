//! What can go wrong with the guest agent, each with what to do next.

use std::io;
use std::path::PathBuf;

use evenkeel_quote::{path, shown};
use evenkeel_settings::ConfigError;

use crate::common::libbpf;

/// Why the agent could not start, run or be stopped.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another agent runs.
    #[error("another evenkeel guest agent runs{}", pid.map(|p| format!(" (process {p})")).unwrap_or_default())]
    Running {
        /// Its process, if it said so.
        pid: Option<u32>,
    },
    /// The file that says what was changed in this guest cannot be used.
    #[error("cannot use {}: {}", path(file), shown(why))]
    State {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// `--stop` could not put everything back.
    #[error("not everything is as it was before evenkeel: {why}")]
    Stays {
        /// What is not, and why, in errors' words.
        why: String,
    },
    /// This kernel or process lacks something.
    #[error("{}", shown(what))]
    Missing {
        /// What is missing.
        what: String,
        /// What to do next.
        help: String,
    },
    /// The kernel refused something about the programs.
    #[error("{}: {source}{}", shown(context), verdict.as_ref().map(|v| format!(": {}", shown(v))).unwrap_or_default())]
    Bpf {
        /// What was tried.
        context: String,
        /// The kernel's answer.
        source: libbpf_rs::Error,
        /// Why the verifier refused a program.
        verdict: Option<String>,
    },
    /// A configuration could not be taken, and the one before it holds in part only.
    #[error("{why}; and not all of those could be set again: {also}")]
    InPart {
        /// Why the new one could not be taken.
        why: Box<GuestError>,
        /// Why not all of the one before it holds.
        also: Box<GuestError>,
    },
    /// An operation of the system failed.
    #[error("{}: {source}", shown(context))]
    Io {
        /// What was tried.
        context: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl GuestError {
    pub(super) fn io(context: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { context: context.into(), source: source.into() }
    }

    pub(super) fn bpf(context: impl Into<String>, source: libbpf_rs::Error) -> Self {
        Self::Bpf { context: context.into(), source, verdict: libbpf::take_verdict() }
    }

    /// What to do next, where that is known.
    pub fn help(&self) -> Option<&str> {
        const PRINT: &str = "`evenkeel guest --print-config` prints a commented one with all keys and their bounds";
        match self {
            Self::Config(error @ ConfigError::Gone { .. }) => error.help(),
            Self::Config(ConfigError::Read { source, .. }) if source.kind() != io::ErrorKind::NotFound => None,
            Self::Config(_) => Some(PRINT),
            Self::Running { .. } => Some(
                "`evenkeel guest --status` shows what it does, `evenkeel guest --stop` ends it and undoes everything",
            ),
            Self::State { .. } => {
                Some("it says which settings to put back; put them back by hand (sysctl NAME=VALUE), then remove it")
            }
            Self::Stays { .. } => Some("what is left is noted: mend the cause, then run `evenkeel guest --stop` again"),
            Self::Missing { help, .. } => Some(help),
            Self::InPart { .. } => Some("once that is mended, have it read again, or restart the agent"),
            Self::Bpf { source, verdict: None, .. } if source.kind() == libbpf_rs::ErrorKind::PermissionDenied => {
                Some(CAPABILITIES)
            }
            Self::Bpf { .. } => {
                Some("EVENKEEL_LOG=debug shows the kernel's own words; `evenkeel doctor` says what this kernel lacks")
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Some(CAPABILITIES),
            Self::Io { .. } => None,
        }
    }
}

const CAPABILITIES: &str = "run it as root, or with the capabilities of the systemd unit: CAP_BPF, CAP_NET_ADMIN, \
    CAP_PERFMON, CAP_DAC_OVERRIDE";
