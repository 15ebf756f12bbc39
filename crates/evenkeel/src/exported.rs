//! A scenario as another simulator's input.

use std::path::Path;

use evenkeel_quote::path;
use evenkeel_scenario::{Refused, Scenario};

use crate::error::CliError;
use crate::exit::Exit;
use crate::one_cell::one_cell;

/// Makes the input of a cell's scenario.
pub type Peer = fn(&Scenario) -> Result<String, Refused>;

/// Writes the input for one cell.
pub fn export(scenario: &Path, only: &[String], file: &Path, peer: Peer) -> Result<(), CliError> {
    let (cell, _) = one_cell(scenario, only)?;
    let input =
        peer(&cell.scenario).map_err(|refused| CliError::new(Exit::Usage, format!("{}: {refused}", path(scenario))))?;
    let labels = cell.labels.iter().map(|(axis, label)| format!(", {axis} {label}"));
    let comment = format!("# Written by evenkeel from {}{}.", cell.scenario.name, labels.collect::<String>());
    std::fs::write(file, format!("{}\n{input}", evenkeel_quote::shown(&comment)))
        .map_err(|error| CliError::new(Exit::Failed, format!("cannot write {}: {error}", path(file))))
}
