//! What can go wrong on the way to a report.

use std::path::PathBuf;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A results file is missing or unreadable.
    #[error("cannot read {}: {source}; is this the directory that `evenkeel lab` or `evenkeel sim` wrote?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A results file is not what this version writes.
    #[error("{}{}: {source}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Counted from 1, for files of lines.
        line: Option<usize>,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// The scenario kept in `meta.json` cannot be read.
    #[error("{}: the scenario kept in it cannot be read: {source}", path.display())]
    Scenario {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        source: Box<toml::de::Error>,
    },
    /// The results are of another version of the schema.
    #[error("{}: result schema {found}, this version reads {expected}; run the scenario again or use the evenkeel that wrote it", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The version it carries.
        found: u32,
        /// The version that can be read.
        expected: u32,
    },
    /// There is not one run to report.
    #[error("{} holds no run; the experiment ended before its first repetition was over", path.display())]
    NoRuns {
        /// The file.
        path: PathBuf,
    },
    /// The report cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
