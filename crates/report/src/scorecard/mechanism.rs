//! A mechanism's page: each result as claim, table or picture, caveat.

use std::fs;
use std::path::Path;

use super::Judged;
use super::evidence::{Evidence, Source, Statement};
use super::rows::{MechanismPage, OwnRow};
use crate::markdown::escape;

/// Most statements of a scenario that are shown; its own page has all.
const MOST_STATEMENTS: usize = 12;

/// The page: the papers' claims, their figures, and what no paper has.
pub(super) fn render(
    page: &MechanismPage,
    claims: &[Judged<'_>],
    figures: &[Judged<'_>],
    own: &[&OwnRow],
    pages: &Path,
) -> String {
    let mut out = format!("# {}\n\n{}\n", escape(&page.title), page.intro.trim());
    let is_meant = |judged: &&Judged<'_>| page.papers.iter().any(|key| key == judged.row.paper());
    claims.iter().chain(figures).filter(is_meant).for_each(|judged| of_paper(&mut out, judged, pages));
    own.iter().for_each(|row| of_ours(&mut out, row, pages));
    out
}

fn of_paper(out: &mut String, judged: &Judged<'_>, pages: &Path) {
    let Judged { row, sim, lab, experiments } = judged;
    let old = if judged.is_old() { ", old" } else { "" };
    out.push_str(&format!("\n## {}: {}\n\n", escape(&row.cite), escape(&row.shows)));
    out.push_str(&format!("**{}**{old}.", capital(judged.verdict().words())));
    [("Simulator", sim), ("Lab", lab)].into_iter().for_each(|(name, evidence)| engine(out, name, evidence));
    out.push('\n');
    table(out, [sim, lab].into_iter().flat_map(shown).collect());
    for experiment in experiments {
        out.push_str(&format!("\nWith {}:", escape(&experiment.with)));
        engine(out, "Simulator", &experiment.evidence);
        if !experiment.holds() {
            out.push_str(&format!(" No cause: with it, {} of all that is stated.", experiment.everywhere.in_words()));
        }
        out.push('\n');
        table(out, shown(&experiment.evidence));
    }
    let names: Vec<&str> = row.scenarios.iter().map(String::as_str).collect();
    picture(out, &names, pages);
    caveat(out, &row.caveat);
}

/// Statements, each beside what the runs have, under the links to the scenarios' pages.
fn table(out: &mut String, statements: Vec<(&Source, &Statement)>) {
    if !statements.is_empty() {
        out.push_str("\n| | paper | here | holds |\n|---|---|---|---|\n");
    }
    let mut source = "";
    for (of, Statement { what, paper, here, holds }) in statements {
        if of.link != source {
            source = &of.link;
            out.push_str(&format!("| *{source}* | | | |\n"));
        }
        let [what, paper, here, holds] = [what, paper, here, holds].map(|text| escape(text));
        out.push_str(&format!("| {what} | {paper} | {here} | {holds} |\n"));
    }
}

/// What an engine has: its pages, how much holds, and which runs are old or missing.
fn engine(out: &mut String, name: &str, evidence: &Evidence) {
    if evidence.sources.is_empty() {
        return;
    }
    let links: Vec<&str> = evidence.sources.iter().map(|source| source.link.as_str()).collect();
    let mut troubles: Vec<String> = evidence.sources.iter().filter_map(trouble).collect();
    troubles.dedup();
    let troubles: String = troubles.iter().map(|trouble| format!("; {trouble}")).collect();
    let words = evidence.in_words();
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    out.push_str(&format!(" {name} ({}{troubles}){words}.", links.join(", ")));
}

fn trouble(source: &Source) -> Option<String> {
    match (source.is_kept, &source.old[..]) {
        (false, _) => Some("no runs are kept".to_owned()),
        (true, []) => None,
        (true, old) => Some(format!("old: {}", escape(&old.join("; ")))),
    }
}

fn shown(evidence: &Evidence) -> Vec<(&Source, &Statement)> {
    let of = |source| -> Vec<(&Source, &Statement)> {
        let Source { statements, .. }: &Source = source;
        statements.iter().take(MOST_STATEMENTS).map(|statement| (source, statement)).collect()
    };
    evidence.sources.iter().flat_map(of).collect()
}

fn of_ours(out: &mut String, row: &OwnRow, pages: &Path) {
    let links: Vec<String> = row.results.iter().map(|name| format!("[{name}]({name}.md)")).collect();
    out.push_str(&format!("\n## {}\n\n{}.\n", escape(&row.shows), links.join(", ")));
    let names: Vec<&str> = row.results.iter().map(String::as_str).collect();
    picture(out, &names, pages);
    caveat(out, &row.caveat);
}

/// The first picture beside the pages of these results.
fn picture(out: &mut String, names: &[&str], pages: &Path) {
    let first = |name: &&str| {
        let stem = name.replace('/', "-");
        (1..=9).map(|number| format!("{stem}-{number}.svg")).find(|file| fs::exists(pages.join(file)).unwrap_or(false))
    };
    if let Some(file) = names.iter().find_map(first) {
        out.push_str(&format!("\n![{file}]({file})\n"));
    }
}

fn caveat(out: &mut String, text: &str) {
    if !text.trim().is_empty() {
        out.push_str(&format!("\n{}\n", text.trim()));
    }
}

fn capital(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
