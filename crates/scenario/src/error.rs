//! What can be wrong with scenario and result files.

use std::fmt;
use std::io;
use std::path::PathBuf;

use evenkeel_quote::{path, shown};

use crate::holder::Holder;

/// One thing that is wrong in a scenario file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Line of the key, from 1; unknown for what is missing in the whole file.
    pub line: Option<usize>,
    /// Dotted path of the key, as in `vms.sender.count` or `axes[0].values[1]`; empty for the file as a whole.
    pub key: String,
    /// What is wrong and what is allowed.
    pub message: String,
    /// The same for programs: the words or keys that are allowed here, or one sentence on a range or a form. Empty
    /// where the problem is of several keys together, or of single cells.
    pub allowed: Vec<String>,
}

impl Problem {
    /// A problem at a key whose line is not known yet.
    pub(crate) fn at(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { line: None, key: key.into(), message: message.into(), allowed: Vec::new() }
    }

    /// With what is allowed there.
    pub(crate) fn allowing(self, allowed: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { allowed: allowed.into_iter().map(Into::into).collect(), ..self }
    }
}

/// A setting that an engine cannot honour.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", shown(key), shown(why))]
pub struct Refused {
    /// The key, as in `vms.sender.vcpus`.
    pub key: String,
    /// Why not, and what to do.
    pub why: String,
}

/// All that is wrong in one scenario file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The file, as the caller named it.
    pub file: PathBuf,
    /// At least one, in the order of lines.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}:", path(&self.file))?;
            if let Some(line) = problem.line {
                write!(f, "{line}:")?;
            }
            if !problem.key.is_empty() {
                write!(f, " {}:", shown(&problem.key))?;
            }
            write!(f, " {}", shown(&problem.message))?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}

/// Why a scenario or result file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path(file))]
    Read {
        /// The file's path.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file or directory cannot be written.
    #[error("cannot write {}: {source}", path(file))]
    Write {
        /// The file's path.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another process writes results into a directory.
    #[error("{} is in use: {} writes results into it", path(directory), named(holder))]
    InUse {
        /// The directory's path.
        directory: PathBuf,
        /// Who, if it said so.
        holder: Option<Holder>,
    },
    /// A scenario file is not valid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A result file does not hold what it should.
    #[error("{}:{line}: {}", path(file), shown(why))]
    Result {
        /// The file's path.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

fn named(holder: &Option<Holder>) -> String {
    let named = |Holder { pid, host }: &Holder| format!("process {pid} on {}", shown(host));
    holder.as_ref().map_or_else(|| "another process".to_owned(), named)
}
