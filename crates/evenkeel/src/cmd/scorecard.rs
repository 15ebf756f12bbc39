//! `evenkeel scorecard`.

use std::path::Path;

use evenkeel_report::ReportError;

use crate::cli::Scorecard;
use crate::error::CliError;
use crate::{output, program};

/// Prints the scorecard, or writes it and the mechanisms' pages.
pub fn run(arguments: &Scorecard) -> Result<(), CliError> {
    let Scorecard { results, rows, scenarios, page } = arguments;
    let pages = rows.parent().unwrap_or(Path::new("."));
    let parts = evenkeel_report::Scorecard { rows, scenarios, results, pages, codes: &program::codes() };
    let made = evenkeel_report::scorecard(&parts)?;
    let Some(file) = page else { return output::print_as_it_is(&made.card) };
    let beside = |name: &String| file.with_file_name(name);
    let mechanisms = made.mechanisms.iter().map(|(name, text)| (beside(name), text));
    for (file, text) in std::iter::once((file.clone(), &made.card)).chain(mechanisms) {
        std::fs::write(&file, text).map_err(|source| ReportError::Write { file, source })?;
    }
    Ok(())
}
