//! What can go wrong in the lab, each with what to do next.

use std::path::PathBuf;

use evenkeel_quote::{lines, path, quoted, shown};

/// Why a lab could not start or finish.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Something the lab needs of this machine is missing.
    #[error("{}", shown(what))]
    Missing {
        /// What is missing.
        what: String,
        /// What to do next.
        help: String,
    },
    /// A VM ended or failed while it was needed.
    #[error("VM {}: {}", shown(name), lines(why))]
    Vm {
        /// The VM.
        name: String,
        /// What happened, with the last lines of its console where that helps.
        why: String,
    },
    /// The host agent failed, or left something behind.
    #[error("host agent: {}", lines(why))]
    Agent {
        /// What happened, with what it said.
        why: String,
    },
    /// The lab's network is dead.
    #[error(
        "nothing passes from {} to {}: no echo request was answered; what each device has counted is in {}",
        shown(from),
        shown(to),
        path(file)
    )]
    NothingPasses {
        /// The machines that had no answer.
        from: String,
        /// The machine that they asked.
        to: String,
        /// What devices have counted.
        file: PathBuf,
    },
    /// Flows are planned ahead, and the last began before the measured time was over.
    #[error(
        "flows had been planned for {lead_ms} ms more than the run takes, and the last began {late_ms} ms before the \
         measured time was over: its counters were read too slowly"
    )]
    TooLate {
        /// How long before the end of the measured time the last flow began.
        late_ms: u64,
        /// How much more time than the run takes the plan covers.
        lead_ms: u64,
    },
    /// A host command failed.
    #[error("{} failed: {}", quoted(command), lines(why))]
    Command {
        /// The command line.
        command: String,
        /// Its error output.
        why: String,
    },
    /// The user interrupted the run.
    #[error("interrupted")]
    Interrupted,
    /// Kernels, build root or initramfs could not be made.
    #[error(transparent)]
    Prepare(#[from] crate::prepare::PrepareError),
    /// An operation of the system failed.
    #[error("{}: {source}", shown(context))]
    Io {
        /// What was tried.
        context: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl LabError {
    /// An I/O error with what was tried.
    pub fn io(context: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Io { context: context.into(), source: source.into() }
    }

    /// What to do next, where that is known.
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::Missing { help, .. } => Some(help),
            Self::Vm { .. } => {
                Some("run again with EVENKEEL_LOG=debug to see the VM's console; --resume keeps what is finished")
            }
            Self::TooLate { .. } => {
                Some("the machine, or a driver domain, has more to do than it can: a lower rate or load, or fewer VMs")
            }
            Self::NothingPasses { .. } => Some(
                "the last run in the results may be cut short by it: remove the newest file in `unfinished` beside \
                 them, and go on with --resume",
            ),
            _ => None,
        }
    }
}
