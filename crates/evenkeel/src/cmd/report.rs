//! `evenkeel report`.

use evenkeel_quote::path;

use crate::cli::Report;
use crate::error::CliError;
use crate::{output, show};

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
    show::write_and_show(&arguments.directory, &evenkeel_report::load(&arguments.directory)?, arguments.json)
}
