//! `evenkeel report`, and what `evenkeel lab` and `evenkeel sim` print at their end.

use std::path::Path;

use evenkeel_quote::path;
use evenkeel_report::Results;
use serde_json::json;

use crate::cli::Report;
use crate::error::CliError;
use crate::output;

/// Prints a results directory.
pub fn run(arguments: &Report) -> Result<(), CliError> {
    if arguments.markdown {
        let results = evenkeel_report::load(&arguments.directory)?;
        return output::print_as_it_is(&evenkeel_report::render_markdown(
            &results.set,
            &results.scenario,
            &results.records,
        ));
    }
    if let Some(file) = &arguments.page {
        let files = evenkeel_report::write_page(&evenkeel_report::load(&arguments.directory)?, file)?;
        let lines: Vec<String> = files.iter().map(|file| format!("{}\n", path(file))).collect();
        return output::print(&lines.concat());
    }
    show(&arguments.directory, arguments.json)
}

/// Prints a results directory that is complete already.
pub fn show(directory: &Path, json: bool) -> Result<(), CliError> {
    write_and_show(directory, &evenkeel_report::load(directory)?, json)
}

/// Writes the HTML report and prints the results.
pub fn write_and_show(directory: &Path, results: &Results, json: bool) -> Result<(), CliError> {
    let report = evenkeel_report::write_report(directory)?;
    // Absolute, so that it can be opened from anywhere.
    let report = report.canonicalize().unwrap_or(report);
    if json {
        return output::print_json(&json!({ "report": report, "set": results.set, "runs": results.records }));
    }
    let table = evenkeel_report::render_text(&results.set, &results.scenario, &results.records);
    output::print(&format!("{table}\nreport: {}\n", path(&report)))
}
