//! The one cell of a scenario that a command is about.

use std::path::Path;

use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::select::select;
use evenkeel_scenario::sweep::cells;
use evenkeel_scenario::{LoadedScenario, Scenario};

use crate::error::CliError;
use crate::exit::Exit;

/// The cell with these labels, each as `AXIS=LABEL`, and the scenario that it is of.
pub fn one_cell(scenario: &Path, only: &[String]) -> Result<(Cell, LoadedScenario), CliError> {
    let loaded = Scenario::load(scenario)?;
    let mut cells = select(cells(&loaded)?, only, &loaded)?;
    match (cells.pop(), cells.len()) {
        (Some(cell), 0) => Ok((cell, loaded)),
        (None, _) => Err(CliError::new(Exit::Usage, "no cell has all labels that --only names")),
        (Some(_), others) => {
            let axes = loaded.scenario.axes.iter().map(|axis| format!("--only '{}=LABEL'", axis.name));
            let help = format!("name it: {}", axes.collect::<Vec<_>>().join(" "));
            Err(CliError::new(Exit::Usage, format!("{} cells; this takes one", others + 1)).help(help))
        }
    }
}
