//! `evenkeel scenario`.

use std::path::PathBuf;

use evenkeel_quote::path;
use evenkeel_scenario::{Scenario, ScenarioError, schema, sweep};
use serde::Serialize;

use crate::cli;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

/// Checks files or prints the schema.
pub fn run(arguments: cli::Scenario) -> Result<(), CliError> {
    match arguments {
        cli::Scenario::Check { files, json } => check(&files, json),
        cli::Scenario::Schema => output::print_as_it_is(&schema::text()),
    }
}

/// What was found in a file.
#[derive(Debug, Serialize)]
struct Checked {
    file: PathBuf,
    valid: bool,
    cells: usize,
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct Problem {
    line: Option<usize>,
    key: String,
    message: String,
}

fn check(files: &[PathBuf], json: bool) -> Result<(), CliError> {
    let mut wrong = Vec::new();
    let mut checked = Vec::new();
    for file in files {
        let cells = Scenario::load(file).and_then(|loaded| sweep::cells(&loaded));
        let problems = match &cells {
            Ok(_) => Vec::new(),
            Err(error) => {
                wrong.push(error.to_string());
                problems(error)
            }
        };
        checked.push(Checked {
            file: file.clone(),
            valid: cells.is_ok(),
            cells: cells.map_or(0, |c| c.len()),
            problems,
        });
    }
    if json {
        output::print_json(&checked)?;
    } else {
        let fine = checked.iter().filter(|c| c.valid);
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let lines = fine.map(|c| format!("{}: valid, {} cell{}\n", path(&c.file), c.cells, plural(c.cells)));
        output::print(&lines.collect::<String>())?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(CliError::new(Exit::Usage, wrong.join("\n"))) }
}

fn problems(error: &ScenarioError) -> Vec<Problem> {
    match error {
        ScenarioError::Invalid(invalid) => invalid
            .problems
            .iter()
            .map(|p| Problem { line: p.line, key: p.key.clone(), message: p.message.clone() })
            .collect(),
        other => vec![Problem { line: None, key: String::new(), message: other.to_string() }],
    }
}
