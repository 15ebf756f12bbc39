//! Tables, plots and the self-contained HTML report.
//!
//! A results directory holds `meta.json` ([`RunSet`]) and `runs.jsonl` ([`RunRecord`] per line) or Parquet tables
//! ([`write_parquet`]). [`render_text`] prints the table for a terminal, [`render_markdown`] the same for the docs,
//! [`render_html`] one file with tables and plots that needs nothing else.

mod changes;
mod claims;
pub mod columnar;
mod error;
mod html;
mod keep;
mod load;
mod made;
mod markdown;
mod number;
mod pages;
mod plot;
mod scorecard;
mod svg;
mod text;
pub mod trace;
pub mod trial;
mod verify;
mod view;

use std::path::{Path, PathBuf};

use evenkeel_scenario::Scenario;
use evenkeel_scenario::format::Plot;
use evenkeel_scenario::result::{RunRecord, RunSet};

pub use columnar::write_parquet;
pub use error::{ReportError, TableError};
pub use keep::{Kept, MOST_KEPT_BYTES, keep};
pub use load::{Results, is_parquet, load};
pub use made::Codes;
pub use pages::{Page, check_pages, mark_page};
pub use scorecard::{Pages, Scorecard, scorecard};
pub use verify::{difference, note_again, sample};

/// Name of the file that [`write_report`] leaves in the results directory.
pub const REPORT_FILE: &str = "report.html";

/// The table for a terminal, at most 120 columns wide where the labels allow it.
pub fn render_text(set: &RunSet, scenario: &Scenario, records: &[RunRecord]) -> String {
    text::render(&view::View::new(set, scenario, records))
}

/// The table as Markdown, for the results pages of the docs.
pub fn render_markdown(set: &RunSet, scenario: &Scenario, records: &[RunRecord]) -> String {
    markdown::render(&view::View::new(set, scenario, records))
}

/// The report: one HTML file without scripts or outside requests.
pub fn render_html(set: &RunSet, scenario: &Scenario, records: &[RunRecord]) -> String {
    html::render(&view::View::new(set, scenario, records))
}

/// A plot of the scenario as an SVG file of its own; `number` counts from 1. Nothing if there are not so many.
pub fn render_svg(set: &RunSet, scenario: &Scenario, records: &[RunRecord], number: usize) -> Option<String> {
    let position = number.checked_sub(1)?;
    let plot = scenario.report.plots.get(position)?;
    Some(svg::render(&plot::figure(&view::View::new(set, scenario, records), position, plot)))
}

/// Writes the table as Markdown to `file`, and a picture of each plot of the kinds `plane`, `heat` and `factors` beside
/// it. Returns the paths of all.
///
/// # Errors
/// [`ReportError::Write`]
pub fn write_page(results: &Results, file: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let Results { set, scenario, records } = results;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut page = render_markdown(set, scenario, records);
    let mut files = Vec::new();
    for (position, plot) in scenario.report.plots.iter().enumerate() {
        let (Plot::Plane { title, .. } | Plot::Heat { title, .. } | Plot::Factors { title, .. }) = plot else {
            continue;
        };
        let name = format!("{stem}-{}.svg", position + 1);
        let svg = render_svg(set, scenario, records, position + 1).unwrap_or_default();
        files.push((file.with_file_name(&name), svg));
        page.push_str(&format!("\n![{}]({name})\n", markdown::escape(title)));
    }
    files.push((file.to_owned(), page));
    let write = |(path, text): (PathBuf, String)| match std::fs::write(&path, text) {
        Ok(()) => Ok(path),
        Err(source) => Err(ReportError::Write { file: path, source }),
    };
    files.into_iter().map(write).collect()
}

/// Reads `results_dir`, writes [`REPORT_FILE`] into it and returns its path.
///
/// # Errors
/// Those of [`load`], or [`ReportError::Write`].
pub fn write_report(results_dir: &Path) -> Result<PathBuf, ReportError> {
    let results = load(results_dir)?;
    let path = results_dir.join(REPORT_FILE);
    // Written beside and renamed, so that a reader never sees half a report.
    let unfinished = results_dir.join(format!(".{REPORT_FILE}.{}", std::process::id()));
    std::fs::write(&unfinished, render_html(&results.set, &results.scenario, &results.records))
        .and_then(|()| std::fs::rename(&unfinished, &path))
        .map_err(|source| ReportError::Write { file: path.clone(), source })?;
    Ok(path)
}
