//! A scenario together with the file that it comes from.

use std::path::PathBuf;

use crate::format::Scenario;

/// A valid scenario with the text it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedScenario {
    /// The scenario before any axis is applied.
    pub scenario: Scenario,
    /// The file's text.
    pub text: String,
    /// The file, as the caller named it.
    pub file: PathBuf,
}
