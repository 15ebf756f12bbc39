//! What can go wrong with the datapath.

use std::io;
use std::path::PathBuf;

use evenkeel_quote::{path, shown};

use crate::common::libbpf;

/// Why the programs could not be loaded, attached or asked.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// The kernel or libbpf refused.
    #[error("{}: {}", shown(context), shown(why))]
    Bpf {
        /// What was tried.
        context: String,
        /// In libbpf's words, and the verifier's where it refused.
        why: String,
        /// Whether a privilege was missing.
        is_denied: bool,
    },
    /// The kernel lacks what the host's programs need.
    #[error("this kernel cannot run the host agent: {}", shown(lacks))]
    CannotRun {
        /// What is missing, and how that is known.
        lacks: String,
    },
    /// vFlood is asked for, and this kernel cannot hold packets.
    #[error("this kernel cannot hold packets for vFlood: {}", shown(lacks))]
    CannotHold {
        /// What is missing, and how that is known.
        lacks: String,
    },
    /// vFlood is asked for on a port where it does not work.
    #[error("no packets are held for vFlood on a port of another network namespace")]
    Elsewhere,
    /// No bpf file system to pin to.
    #[error("{} is not in a bpf file system", path(dir))]
    NoBpfFs {
        /// The directory.
        dir: PathBuf,
    },
    /// Pins of another version.
    #[error("the pinned datapath is of version {found}")]
    OtherVersion {
        /// The pins' version.
        found: u32,
    },
    /// The system refused.
    #[error("{}: {source}", shown(context))]
    Io {
        /// What was tried.
        context: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl DatapathError {
    pub(super) fn bpf(context: impl Into<String>, error: &libbpf_rs::Error) -> Self {
        let verdict = libbpf::take_verdict();
        // The verifier's "no" is EACCES, too.
        let is_denied = verdict.is_none() && error.kind() == libbpf_rs::ErrorKind::PermissionDenied;
        let why = verdict.map_or_else(|| error.to_string(), |verdict| format!("{error}: {verdict}"));
        Self::Bpf { context: context.into(), why, is_denied }
    }

    pub(super) fn io(context: impl Into<String>, source: io::Error) -> Self {
        Self::Io { context: context.into(), source }
    }

    /// What to do next, where that is known.
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::NoBpfFs { .. } => Some("mount -t bpf bpf /sys/fs/bpf"),
            Self::OtherVersion { .. } => Some("`evenkeel host --stop` removes it; then start again"),
            Self::CannotHold { .. } => {
                Some("set vflood.mode = \"off\", or boot a kernel with these options; all else works without")
            }
            Self::Elsewhere => Some("set vflood.mode = \"off\" for it; all else works"),
            Self::CannotRun { .. } => {
                Some("`evenkeel doctor --features` lists what this kernel has; what works inside of guests is apart")
            }
            Self::Bpf { is_denied: true, .. } => Some(
                "run it as root, or with the capabilities of the systemd unit: CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON",
            ),
            Self::Bpf { .. } => {
                Some("`evenkeel doctor` says what this kernel lacks; EVENKEEL_LOG=debug shows the verifier's trace")
            }
            Self::Io { .. } => None,
        }
    }
}
