//! Why a batch has ended early.

use std::fmt;
use std::path::PathBuf;

use evenkeel_quote::{path, shown};

use super::kept::KeptError;
use crate::error::{Refused, ScenarioError};

/// Why a batch has ended early. `E` is the engine's.
#[derive(Debug)]
pub enum BatchError<E> {
    /// The scenario is not valid, the directory in use, or results cannot be written.
    Scenario(ScenarioError),
    /// The engine cannot honour a setting.
    Refused {
        /// The scenario file.
        file: PathBuf,
        /// The setting.
        refused: Refused,
        /// The cell that has it, axis and label, if an axis sets it.
        cell: Vec<(String, String)>,
    },
    /// Finished runs cannot be kept or gone on with.
    Kept(KeptError),
    /// The engine cannot run anything.
    Engine(E),
    /// A run failed.
    Run {
        /// The scenario file.
        file: PathBuf,
        /// Which: axis and label.
        cell: Vec<(String, String)>,
        /// Its repetition, from 0.
        repetition: u32,
        /// Why.
        error: E,
    },
    /// The user wanted it to end; finished runs are kept.
    Stopped {
        /// Runs that are finished; none if nothing was begun, so that the directory is as it was.
        finished: Option<usize>,
    },
}

impl<E> From<ScenarioError> for BatchError<E> {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error)
    }
}

impl<E> From<KeptError> for BatchError<E> {
    fn from(error: KeptError) -> Self {
        Self::Kept(error)
    }
}

impl<E: fmt::Display> fmt::Display for BatchError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = |cell: &[(String, String)]| -> Vec<String> {
            cell.iter().map(|(axis, label)| format!("{} = {}", shown(axis), shown(label))).collect()
        };
        match self {
            Self::Scenario(error) => error.fmt(f),
            Self::Refused { file, refused, cell } => {
                write!(f, "{}: {refused}", path(file))?;
                if cell.is_empty() { Ok(()) } else { write!(f, " (in the cell {})", labels(cell).join(", ")) }
            }
            Self::Kept(error) => error.fmt(f),
            Self::Engine(error) => error.fmt(f),
            Self::Run { file, cell, repetition, error } => {
                write!(f, "{}: ", path(file))?;
                labels(cell).iter().try_for_each(|label| write!(f, "{label}, "))?;
                write!(f, "repetition {}: {error}", repetition + 1)
            }
            Self::Stopped { finished: Some(finished) } => write!(f, "interrupted; {finished} finished runs are kept"),
            Self::Stopped { finished: None } => f.write_str("interrupted"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for BatchError<E> {}
