//! A results directory for the user: the HTML report, and a table or JSON on standard output.

use std::path::Path;

use evenkeel_quote::path;
use evenkeel_report::Results;
use serde_json::json;

use crate::error::CliError;
use crate::output;

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
