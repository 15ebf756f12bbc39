//! The scorecard as Markdown.

use super::Judged;
use super::evidence::Evidence;
use super::judge::{Verdict, rule};
use super::rows::MechanismPage;
use crate::markdown::escape;

/// Has an anchor for each key of a paper.
const BIBLIOGRAPHY: &str = "../bibliography.md";

/// The whole page.
pub(super) fn render(figures: &[Judged<'_>], claims: &[Judged<'_>], pages: &[MechanismPage]) -> String {
    let mut out = "# Scorecard\n\nEvery figure and table of the papers that shows a result, and what their abstracts \
                   claim, beside the runs that are kept here. Made by `make scorecard`; what the papers say stands \
                   in the scenarios' `[[paper]]` tables, which rows there are in `scorecard.toml`.\n\n"
        .to_owned();
    counts(&mut out, figures, claims);
    out.push_str(&format!("\n## The rule\n\n{}", rule()));
    let mut paper = "";
    for judged in figures {
        let key = judged.row.paper();
        if key != paper {
            paper = key;
            let anchor = key.to_lowercase();
            let page = pages.iter().find(|page| page.papers.iter().any(|of_page| of_page == key));
            let statements =
                page.map_or_else(String::new, |page| format!("; statement by statement: [{0}.md]({0}.md)", page.name));
            heading(&mut out, &format!("[{}]({BIBLIOGRAPHY}#{anchor}){statements}", escape(key)));
        }
        line(&mut out, judged);
    }
    heading(&mut out, "Headline claims");
    claims.iter().for_each(|judged| line(&mut out, judged));
    out
}

/// How many rows have which verdict, and how many of these by old runs.
fn counts(out: &mut String, figures: &[Judged<'_>], claims: &[Judged<'_>]) {
    let words = Verdict::ALL.map(Verdict::words).join(" | ");
    let columns = "---:|".repeat(Verdict::ALL.len() + 1);
    out.push_str(&format!("| | {words} | all |\n|---|{columns}\n"));
    for (name, rows) in [("figures and tables", figures), ("headline claims", claims)] {
        let cell = |verdict: Verdict| {
            let of: Vec<_> = rows.iter().filter(|judged| judged.verdict() == verdict).collect();
            let old = of.iter().filter(|judged| judged.is_old()).count();
            if old > 0 { format!("{} ({old} old)", of.len()) } else { of.len().to_string() }
        };
        let cells = Verdict::ALL.map(cell).join(" | ");
        out.push_str(&format!("| {name} | {cells} | {} |\n", rows.len()));
    }
}

fn heading(out: &mut String, text: &str) {
    out.push_str(&format!("\n## {text}\n\n| | simulator | lab | verdict |\n|---|---|---|---|\n"));
}

fn line(out: &mut String, judged: &Judged<'_>) {
    let Judged { row, sim, lab, .. } = judged;
    let old = if judged.is_old() { ", old" } else { "" };
    let what = format!("**{}**: {}", escape(&row.cite), escape(&row.shows));
    let [sim, lab] = [sim, lab].map(entry);
    out.push_str(&format!("| {what} | {sim} | {lab} | **{}**{old} |\n", judged.verdict().words()));
}

fn entry(evidence: &Evidence) -> String {
    if evidence.sources.is_empty() {
        return "\u{2013}".to_owned();
    }
    let links: Vec<&str> = evidence.sources.iter().map(|source| source.link.as_str()).collect();
    let words = evidence.in_words();
    let words = if words.is_empty() { String::new() } else { format!("<br>{words}") };
    format!("*{}*: {}{words}", evidence.verdict().words(), links.join(", "))
}
