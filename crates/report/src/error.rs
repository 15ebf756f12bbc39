//! What can go wrong on the way to a report.

use std::path::PathBuf;

use evenkeel_scenario::ScenarioError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The results cannot be read.
    #[error(transparent)]
    Results(#[from] ScenarioError),
    /// The scenario kept with the results cannot be read.
    #[error("{}: the scenario kept in it: {source}", file.display())]
    Scenario {
        /// The file.
        file: PathBuf,
        /// What does not fit.
        source: Box<toml::de::Error>,
    },
    /// There is not one run to report.
    #[error("{} holds no run: the experiment ended before its first repetition was over", file.display())]
    NoRuns {
        /// The file.
        file: PathBuf,
    },
    /// A Parquet table cannot be made, or does not hold what it should.
    #[error("{}: {why}", file.display())]
    Table {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The report or a table cannot be written.
    #[error("cannot write {}: {source}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
