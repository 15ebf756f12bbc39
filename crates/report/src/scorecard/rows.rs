//! Which rows a scorecard has, and the scenarios that speak of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use evenkeel_quote::{quoted, shown};
use evenkeel_scenario::format::PaperFigures;
use evenkeel_scenario::{LoadedScenario, Scenario};
use serde::Deserialize;

use crate::ReportError;

/// All rows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rows {
    /// Figures and tables of papers.
    pub figures: Vec<Row>,
    /// What papers claim in their abstracts and conclusions.
    pub claims: Vec<Row>,
    /// What no paper has.
    #[serde(default)]
    pub own: Vec<OwnRow>,
    /// A page for each mechanism.
    #[serde(default)]
    pub pages: Vec<MechanismPage>,
}

/// A page with the results of a mechanism.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MechanismPage {
    /// Its file, without `.md`.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What stands below the heading, as Markdown.
    pub intro: String,
    /// The papers whose figures and claims it has, by their keys in the bibliography.
    #[serde(default)]
    pub papers: Vec<String>,
}

/// A result that no paper has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OwnRow {
    /// The page that it is on.
    pub page: String,
    /// What is claimed.
    pub shows: String,
    /// Pages of results that show it, without `.md`.
    pub results: Vec<String>,
    /// What to know before it is believed, as Markdown of at most [`MOST_CAVEAT_CHARS`].
    #[serde(default)]
    pub caveat: String,
}

/// Some five lines of prose.
const MOST_CAVEAT_CHARS: usize = 800;

/// A figure, a table or a claim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// How it is cited, as in `PVTCP Table I`; its first word is the paper's key in the bibliography.
    pub cite: String,
    /// What it shows.
    pub shows: String,
    /// Scenarios that have something to say of it, by their names.
    #[serde(default)]
    pub scenarios: Vec<String>,
    /// The sources in their `[[paper]]` tables that count. Empty: `cite`.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Further scenarios with experiments on why it does not come out: entries of `[[paper]]` that say `with` what.
    #[serde(default)]
    pub experiments: Vec<String>,
    /// Why it does not come out, or what to know before it is believed, as Markdown of at most [`MOST_CAVEAT_CHARS`].
    #[serde(default)]
    pub caveat: String,
}

impl Row {
    /// The key of its paper.
    pub fn paper(&self) -> &str {
        self.cite.split(' ').next().unwrap_or_default()
    }

    /// Whether an entry of `[[paper]]` with this source counts. What follows a key may be a part of the figure or a
    /// place in the text (`PVTCP Fig. 4b`, `vFlood Fig. 6, §5.1`), but not a longer number.
    pub fn counts(&self, source: &str) -> bool {
        let begins = |key: &str| {
            let goes_on = |c: char| c.is_ascii_digit() || c.is_ascii_uppercase();
            source.strip_prefix(key).is_some_and(|rest| !rest.starts_with(goes_on))
        };
        match &self.sources[..] {
            [] => begins(&self.cite),
            sources => sources.iter().any(|key| begins(key)),
        }
    }
}

/// Scenarios by their names.
pub(super) type Scenarios = BTreeMap<String, LoadedScenario>;

/// Reads the rows and the scenarios below a directory, and checks that they agree: every scenario that a row names
/// exists and has an entry for it, and every entry has a row.
pub(super) fn read(file: &Path, directory: &Path) -> Result<(Rows, Scenarios), ReportError> {
    let text = fs::read_to_string(file).map_err(|source| ReportError::Read { file: file.to_owned(), source })?;
    let wrong = |why: String| ReportError::Rows { file: file.to_owned(), why };
    let line = |error: &toml::de::Error| text[..error.span().map_or(0, |span| span.start)].matches('\n').count() + 1;
    let rows: Rows =
        toml::from_str(&text).map_err(|error| wrong(format!("line {}: {}", line(&error), shown(error.message()))))?;
    let mut scenarios = Scenarios::new();
    collect(directory, &mut scenarios)?;
    check(&rows, &scenarios).map_err(wrong)?;
    Ok((rows, scenarios))
}

fn collect(directory: &Path, scenarios: &mut Scenarios) -> Result<(), ReportError> {
    let failed = |source| ReportError::Read { file: directory.to_owned(), source };
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            collect(&path, scenarios)?;
        } else if path.extension().is_some_and(|end| end == "toml") {
            let loaded = Scenario::load(&path)?;
            scenarios.insert(loaded.scenario.name.clone(), loaded);
        }
    }
    Ok(())
}

fn check(rows: &Rows, scenarios: &Scenarios) -> Result<(), String> {
    let all = || rows.figures.iter().chain(&rows.claims);
    let caveats = all().map(|row| (&row.cite, &row.caveat)).chain(rows.own.iter().map(|row| (&row.shows, &row.caveat)));
    for (name, caveat) in caveats {
        let chars = caveat.chars().count();
        if chars > MOST_CAVEAT_CHARS {
            let name = quoted(name);
            return Err(format!("{name}: its caveat has {chars} characters, at most {MOST_CAVEAT_CHARS} are allowed"));
        }
    }
    if let Some(row) = rows.own.iter().find(|row| !rows.pages.iter().any(|page| page.name == row.page)) {
        return Err(format!("{}: no page is called {}", quoted(&row.shows), quoted(&row.page)));
    }
    for row in all() {
        let named = row.scenarios.iter().map(|name| (name, false));
        for (name, is_experiment) in named.chain(row.experiments.iter().map(|name| (name, true))) {
            let Some(loaded) = scenarios.get(name) else {
                return Err(format!("{}: no scenario is called {}", quoted(&row.cite), quoted(name)));
            };
            let is_of_it = |paper: &PaperFigures| row.counts(&paper.source) && paper.with.is_empty() != is_experiment;
            if !loaded.scenario.paper.iter().any(is_of_it) {
                let without = if is_experiment { " that says `with` what" } else { "" };
                let [cite, name] = [&row.cite, name].map(|text| quoted(text));
                return Err(format!("{cite}: no `[[paper]]` table{without} of {name} is of it"));
            }
        }
    }
    for (name, loaded) in scenarios {
        let has_row = |source: &str| all().any(|row| row.counts(source));
        if let Some(paper) = loaded.scenario.paper.iter().find(|paper| !has_row(&paper.source)) {
            return Err(format!("no row is of {}, a source in {}", quoted(&paper.source), quoted(name)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_figure_is_not_another_figure() {
        let row = |cite: &str, sources: &[&str]| Row {
            cite: cite.to_owned(),
            shows: String::new(),
            scenarios: Vec::new(),
            sources: sources.iter().map(|source| (*source).to_owned()).collect(),
            experiments: Vec::new(),
            caveat: String::new(),
        };
        let table = row("PVTCP Table I", &[]);
        assert!(table.counts("PVTCP Table I") && table.counts("PVTCP Table I (text)"));
        assert!(!table.counts("PVTCP Table II") && !table.counts("PVTCP Table IV"));
        let figure = row("PVTCP Fig. 1", &[]);
        assert!(figure.counts("PVTCP Fig. 1b") && figure.counts("PVTCP Fig. 1, §5") && !figure.counts("PVTCP Fig. 13"));
        assert!(row("PVTCP Fig. 5", &["PVTCP Table I"]).counts("PVTCP Table I"));
        assert!(!row("PVTCP Fig. 5", &["PVTCP Table I"]).counts("PVTCP Fig. 5"));
    }
}
