//! `evenkeel report`, and what `evenkeel lab` prints at its end.

use std::path::Path;

use evenkeel_report::Results;
use serde_json::json;

use crate::cli::Report;
use crate::error::CliError;
use crate::output;

/// Prints a results directory.
pub fn run(arguments: &Report) -> Result<(), CliError> {
    let results = evenkeel_report::load(&arguments.directory)?;
    if arguments.markdown {
        return output::print(&evenkeel_report::render_markdown(&results.set, &results.scenario, &results.records));
    }
    write_and_show(&arguments.directory, &results, arguments.json)
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
    output::print(&format!("{table}\nreport: {}\n", report.display()))
}
