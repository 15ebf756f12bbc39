//! Which pages were made with the scenarios and the code as they are now.

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_scenario::result::RunSet;
use evenkeel_scenario::{Scenario, fingerprint};
use serde::Serialize;

use crate::ReportError;
use crate::changes::Changes;
use crate::made::{self, Codes, Mark, find_mark};
use crate::markdown::escape;

/// The end of a line that says that a page is old.
const OLD: &str = " <!-- old -->";

/// A page with results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Page {
    /// The file.
    pub file: PathBuf,
    /// The scenario that it is of.
    pub scenario: String,
    /// In which ways it is old; none if it is current.
    pub old: Vec<String>,
    /// Changes of the code since then that no figure depends on, by their reasons.
    pub since: Vec<String>,
}

/// The pages that a directory has, in the order of their names. `scenarios` is the directory of the scenario files.
///
/// # Errors
/// [`ReportError::Read`], [`ReportError::Changes`].
pub fn check_pages(directory: &Path, scenarios: &Path, codes: &Codes) -> Result<Vec<Page>, ReportError> {
    let changes = Changes::read(directory)?;
    let mut pages = Vec::new();
    for file in page_files(directory)? {
        let text = read_page(&file)?;
        if let Some(scenario) = scenario_of(&text) {
            let mark = find_mark(&text);
            let passing = changes.for_scenario(scenario);
            let since = mark.as_ref().and_then(|mark| mark.since(codes, &passing)).unwrap_or_default();
            let since = since.into_iter().map(str::to_owned).collect();
            let old = why_old(mark.as_ref(), scenario, scenarios, codes, &changes);
            pages.push(Page { old, since, scenario: scenario.to_owned(), file });
        }
    }
    Ok(pages)
}

/// Writes below a page's heading that it is old and why, or removes that; returns whether the file was changed.
///
/// # Errors
/// [`ReportError::Read`], [`ReportError::Write`].
pub fn mark_page(page: &Page) -> Result<bool, ReportError> {
    let text = read_page(&page.file)?;
    let mut lines: Vec<&str> = text.lines().collect();
    if let Some(at) = lines.iter().position(|line| line.ends_with(OLD)) {
        lines.drain(at..lines.len().min(at + 2));
    }
    let word = format!("**Old**: {}.{OLD}", escape(&page.old.join("; ")));
    if !page.old.is_empty() {
        let at = lines.len().min(2);
        lines.splice(at..at, [word.as_str(), ""]);
    }
    let marked = lines.join("\n") + "\n";
    if marked == text {
        return Ok(false);
    }
    fs::write(&page.file, marked).map_err(|source| ReportError::Write { file: page.file.clone(), source })?;
    Ok(true)
}

/// Updates the pages of a scenario that were made of a set as it was `before`: their sentence and mark become those of
/// the set as it is `now`. Returns the pages that were changed.
///
/// # Errors
/// [`ReportError::Read`], [`ReportError::Write`].
pub(crate) fn tell_pages(
    directory: &Path,
    scenario: &str,
    [before, now]: [&RunSet; 2],
) -> Result<Vec<PathBuf>, ReportError> {
    let lines = |set: &RunSet| Some((escape(&made::in_words(set)), made::mark(set)?));
    let (Some(old), Some(new)) = (lines(before), lines(now)) else { return Ok(Vec::new()) };
    let mut changed = Vec::new();
    for file in page_files(directory)? {
        let text = read_page(&file)?;
        let told = text.replace(&old.0, &new.0).replace(&old.1, &new.1);
        // Sets of two scenarios may have been begun in the same second.
        if scenario_of(&text) == Some(scenario) && text.contains(&old.1) && told != text {
            fs::write(&file, told).map_err(|source| ReportError::Write { file: file.clone(), source })?;
            changed.push(file);
        }
    }
    Ok(changed)
}

fn page_files(directory: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let read = |source| ReportError::Read { file: directory.to_owned(), source };
    let entries = fs::read_dir(directory).map_err(read)?.collect::<Result<Vec<_>, _>>().map_err(read)?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "md"));
    files.sort();
    Ok(files)
}

fn read_page(file: &Path) -> Result<String, ReportError> {
    fs::read_to_string(file).map_err(|source| ReportError::Read { file: file.to_owned(), source })
}

/// The scenario that a page names, if it is a page that was made of results.
fn scenario_of(text: &str) -> Option<&str> {
    let name = text.lines().find_map(|line| line.strip_prefix("Scenario `"))?.split('`').next()?;
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '/';
    (name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_plain)).then_some(name)
}

fn why_old(mark: Option<&Mark>, scenario: &str, scenarios: &Path, codes: &Codes, changes: &Changes) -> Vec<String> {
    let file = scenarios.join(format!("{scenario}.toml"));
    let settings = Scenario::load(&file).and_then(|loaded| fingerprint::of(&loaded));
    let why = match (mark, settings) {
        (_, Err(_)) if !file.exists() => "its scenario is no longer there",
        (_, Err(_)) => "its scenario is no longer valid",
        (None, Ok(_)) => "made before pages recorded their code",
        (Some(mark), Ok(settings)) => return mark.why_old(codes, changes, scenario, &settings),
    };
    vec![why.to_owned()]
}
