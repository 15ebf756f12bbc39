//! `evenkeel scorecard`.

use std::path::Path;

use evenkeel_report::ReportError;

use crate::cli::Scorecard;
use crate::error::CliError;
use crate::{output, program};

/// Prints or writes the scorecard.
pub fn run(arguments: &Scorecard) -> Result<(), CliError> {
    let Scorecard { results, rows, scenarios, page } = arguments;
    let pages = rows.parent().unwrap_or(Path::new("."));
    let parts = evenkeel_report::Scorecard { rows, scenarios, results, pages, codes: &program::codes() };
    let text = evenkeel_report::scorecard(&parts)?;
    let Some(file) = page else { return output::print_as_it_is(&text) };
    std::fs::write(file, text).map_err(|source| ReportError::Write { file: file.clone(), source }.into())
}
