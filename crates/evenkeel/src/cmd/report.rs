//! `evenkeel report`.

use std::path::Path;

use evenkeel_quote::path;
use evenkeel_report::{MOST_KEPT_BYTES, Results};

use crate::cli::Report;
use crate::error::CliError;
use crate::{output, program, show};

/// Prints a results directory.
pub fn run(arguments: &Report) -> Result<(), CliError> {
    if arguments.check {
        return check(arguments);
    }
    let results = evenkeel_report::load(&arguments.directory)?;
    if arguments.markdown {
        return output::print_as_it_is(&evenkeel_report::render_markdown(
            &results.set,
            &results.scenario,
            &results.records,
        ));
    }
    let Report { page, keep: kept, trace, flent, .. } = arguments;
    if [page, kept, trace, flent].iter().all(|file| file.is_none()) {
        return show::write_and_show(&arguments.directory, &results, arguments.json);
    }
    let mut lines = String::new();
    if let Some(file) = page {
        let files = evenkeel_report::write_page(&results, file)?;
        files.iter().for_each(|file| lines.push_str(&format!("{}\n", path(file))));
    }
    if let Some(file) = trace {
        let events = evenkeel_report::trace::write_records(&results, file)?;
        lines.push_str(&format!("{}: {events} events\n", path(file)));
    }
    if let Some(file) = flent {
        let files = evenkeel_report::trace::write_flent(&results, file)?;
        files.iter().for_each(|file| lines.push_str(&format!("{}\n", path(file))));
    }
    if let Some(directory) = kept {
        lines.push_str(&keep(&results, directory)?);
    }
    output::print(&lines)
}

/// Keeps the runs, and says what became of them.
fn keep(results: &Results, directory: &Path) -> Result<String, CliError> {
    let (place, most) = (path(directory), MOST_KEPT_BYTES / 1000);
    Ok(match evenkeel_report::keep(results, directory)? {
        None => format!("{place}: not kept, more than {most} KB even without flows, series, packets and counters\n"),
        Some(kept) if kept.left_out.is_empty() => format!("{place}: {} KB\n", kept.bytes / 1000),
        Some(kept) => format!("{place}: {} KB, without {}\n", kept.bytes / 1000, kept.left_out.join(", ")),
    })
}

/// Says which pages are old.
fn check(arguments: &Report) -> Result<(), CliError> {
    let pages = evenkeel_report::check_pages(&arguments.directory, &arguments.scenarios, &program::codes())?;
    if arguments.mark {
        pages.iter().try_for_each(|page| evenkeel_report::mark_page(page).map(drop))?;
    }
    if arguments.json {
        return output::print_json(&pages);
    }
    let mut lines = String::new();
    for page in &pages {
        let state = match (page.old.is_empty(), page.since.is_empty()) {
            (true, true) => "current".to_owned(),
            (true, false) => format!("current; since then {}", page.since.join("; ")),
            (false, _) => format!("old: {}", page.old.join("; ")),
        };
        lines.push_str(&format!("{}: {state}\n", path(&page.file)));
    }
    let current = pages.iter().filter(|page| page.old.is_empty()).count();
    output::print(&format!("{lines}{current} of {} pages are current\n", pages.len()))
}
