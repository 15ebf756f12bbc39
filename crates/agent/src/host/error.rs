//! What can go wrong with the host agent, each with what to do next.

use std::io;
use std::path::PathBuf;

use evenkeel_quote::{path, shown};
use evenkeel_settings::ConfigError;

use crate::datapath::DatapathError;

/// Why the agent could not start, run, be asked or be stopped.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another agent runs.
    #[error("another evenkeel host agent runs{}", pid.map(|p| format!(" (process {p})")).unwrap_or_default())]
    Running {
        /// Its process, if it said so.
        pid: Option<u32>,
        /// The lock that it holds.
        lock: PathBuf,
    },
    /// No agent answers.
    #[error("no evenkeel host agent answers at {}: {}", path(socket), shown(why))]
    NotRunning {
        /// Where it was looked for.
        socket: PathBuf,
        /// The system's answer.
        why: String,
    },
    /// The agent's answer could not be understood, or was a refusal.
    #[error("the agent at {} {}", path(socket), shown(why))]
    Answer {
        /// Its socket.
        socket: PathBuf,
        /// What was wrong.
        why: String,
    },
    /// The file that says what was changed on this host cannot be used.
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
    /// This machine lacks something.
    #[error("{}", shown(what))]
    Missing {
        /// What is missing.
        what: String,
        /// What to do next.
        help: String,
    },
    /// The packet path could not be loaded, attached or asked.
    #[error(transparent)]
    Datapath(#[from] DatapathError),
    /// The kernel refused something over netlink.
    #[error("{}: {source}", shown(context))]
    Netlink {
        /// What was tried.
        context: String,
        /// The kernel's answer.
        source: io::Error,
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

impl HostError {
    /// An I/O error with what was tried.
    pub(super) fn io(context: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { context: context.into(), source: source.into() }
    }

    /// A netlink error with what was tried.
    pub(super) fn netlink(context: impl Into<String>, source: io::Error) -> Self {
        Self::Netlink { context: context.into(), source }
    }

    /// Whether the device that was to be changed is gone: devices of VMs go at any time, and that is no error.
    pub fn is_gone(&self) -> bool {
        let Self::Netlink { source, .. } = self else { return false };
        matches!(source.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
    }

    /// What to do next, where that is known.
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::Config(error @ ConfigError::Gone { .. }) => error.help(),
            Self::Config(ConfigError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Some("`evenkeel host --print-config` prints a commented one with all keys")
            }
            Self::Config(ConfigError::Read { .. }) => None,
            Self::Config(ConfigError::Invalid { .. }) => {
                Some("`evenkeel host --print-config` prints all keys with their bounds")
            }
            Self::Datapath(error) => error.help(),
            Self::Running { .. } => {
                Some("`evenkeel status` shows what it does, `evenkeel host --stop` ends it and removes everything")
            }
            Self::NotRunning { .. } => Some(
                "start it with `systemctl start evenkeel-host` or `evenkeel host`; --socket says where to ask, and \
                 wants root or the socket's group",
            ),
            Self::State { .. } => Some(
                "it says which queue lengths to put back; put them back by hand (`ip link set DEVICE txqueuelen N`), \
                 then remove it",
            ),
            Self::Stays { .. } => Some(
                "what is left is noted: mend the cause, then run `evenkeel host --stop` again, which needs no agent",
            ),
            Self::Missing { help, .. } => Some(help),
            Self::Netlink { source, .. } | Self::Io { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some(
                    "run it as root, or with the capabilities of the systemd unit: CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON",
                )
            }
            _ => None,
        }
    }
}
