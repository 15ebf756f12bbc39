//! What the kept runs of an engine say of a row.

use std::collections::BTreeMap;

use evenkeel_scenario::fingerprint;
use evenkeel_scenario::metric::Better;
use evenkeel_scenario::result::Engine;
use evenkeel_scenario::stats::Summary;

use super::Scorecard;
use super::judge::{Share, Tally, Verdict};
use super::rows::{Row, Scenarios};
use crate::claims::{Claim, Said, claims};
use crate::made::mark_of;
use crate::markdown::escape;
use crate::view::{Column, View};
use crate::{ReportError, Results, load, number};

/// Most figures of a metric that a row shows.
const MOST_SHOWN: usize = 4;

/// What there is of a row.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// What holds.
    tally: Tally,
    /// Each statement with ours, as Markdown.
    pub lines: Vec<String>,
    /// Links to the pages, as Markdown.
    pub links: Vec<String>,
    /// Whether runs are of other code, or of another scenario, than now.
    pub is_old: bool,
}

impl Evidence {
    /// What the rule makes of it.
    pub fn verdict(&self) -> Verdict {
        self.tally.verdict()
    }
}

/// A scenario with the runs that are kept of it.
struct Kept {
    scenario: evenkeel_scenario::Scenario,
    results: Option<Results>,
    old: Vec<&'static str>,
    link: Option<String>,
}

/// All that is kept, by the scenarios' names.
pub(super) struct Sets(BTreeMap<String, Kept>);

impl Sets {
    /// Reads what is kept of the scenarios that have a paper's figures.
    pub fn read(parts: &Scorecard<'_>, scenarios: Scenarios) -> Result<Self, ReportError> {
        let with_paper = scenarios.into_iter().filter(|(_, loaded)| !loaded.scenario.paper.is_empty());
        let of_scenario = |(name, loaded): (String, evenkeel_scenario::LoadedScenario)| {
            let directory =
                parts.results.iter().map(|root| root.join(&name)).find(|set| set.join("meta.json").exists());
            let results = directory.map(|directory| load(&directory)).transpose()?;
            let settings = fingerprint::of(&loaded)?;
            let old = match &results {
                None => Vec::new(),
                Some(results) => mark_of(&results.set).map_or_else(
                    || vec!["made before runs recorded their code"],
                    |mark| mark.why_old(parts.codes, &settings),
                ),
            };
            let page = format!("{}.md", name.replace('/', "-"));
            let link = parts.pages.join(&page).exists().then(|| format!("[{name}]({page})"));
            Ok((name, Kept { scenario: loaded.scenario, results, old, link }))
        };
        with_paper.map(of_scenario).collect::<Result<_, _>>().map(Self)
    }

    /// What an engine's runs say of a row.
    pub fn of(&self, row: &Row, engine: Engine) -> Evidence {
        let mut evidence = Evidence::default();
        let is_meant = |name: &&String| name.starts_with("sim/") == (engine == Engine::Sim);
        for name in row.scenarios.iter().filter(is_meant) {
            let Some(kept) = self.0.get(name) else { continue };
            evidence.links.push(kept.link.clone().unwrap_or_else(|| format!("`{name}`")));
            let Some(results) = &kept.results else {
                evidence.lines.push(format!("`{name}`: no runs are kept"));
                evidence.tally.missing += 1;
                continue;
            };
            if !kept.old.is_empty() {
                evidence.is_old = true;
                evidence.lines.push(format!("`{name}`: old, {}", kept.old.join("; ")));
            }
            evidence.add(row, &View::new(&results.set, &kept.scenario, &results.records));
        }
        evidence
    }
}

impl Evidence {
    fn add(&mut self, row: &Row, view: &View<'_>) {
        let before = self.lines.len();
        for claim in claims(view).into_iter().filter(|claim| row.counts(&claim.paper.source)) {
            self.claim(&claim);
        }
        for column in &view.columns {
            let figures = figures(row, view, column);
            if !figures.is_empty() {
                self.figures(column, &figures, view.set.engine == Engine::Sim);
            }
        }
        if self.lines.len() == before {
            self.lines.push(format!("`{}`: nothing is stated that can be held", view.scenario.name));
        }
    }

    fn claim(&mut self, claim: &Claim<'_>) {
        let how = match &claim.said {
            Said::Ratio { paper, here, .. } => {
                let holds = match self.tally.ratio(*paper, *here) {
                    Some(true) => "; holds",
                    Some(false) => "; does not hold",
                    None => "",
                };
                format!("paper {}{holds}", number::times(*paper))
            }
            Said::Order { cells } => {
                let here: Vec<Option<f64>> = cells.iter().map(|(_, here)| here.map(|here| here.median)).collect();
                let pairs = self.tally.order(&here, claim.column.better != Better::Lower);
                format!("{} as in the paper", of_pairs(pairs))
            }
        };
        self.lines.push(escape(&format!("{}: {}; {how}", claim.stated(), claim.here())));
    }

    fn figures(&mut self, column: &Column, figures: &[(f64, Option<Summary>)], are_held: bool) {
        let pairs: Vec<(f64, Option<f64>)> =
            figures.iter().map(|(paper, here)| (*paper, here.map(|here| here.median))).collect();
        let [sizes, directions] = self.tally.figures(&pairs, column.decimals, are_held);
        let each = figures.iter().take(MOST_SHOWN).map(|(paper, here)| {
            let here = here.map_or_else(
                || "\u{2013}".to_owned(),
                |here| match column.range(here, "\u{2013}") {
                    None => column.figure(here.median),
                    Some(range) => format!("{} ({range})", column.figure(here.median)),
                },
            );
            format!("{here}, paper {}", column.figure(*paper))
        });
        let mut line = format!("{}: {}", column.heading(), each.collect::<Vec<_>>().join("; "));
        if figures.len() > MOST_SHOWN {
            line.push_str(&format!("; and {} more", figures.len() - MOST_SHOWN));
        }
        if sizes.all > 0 {
            line.push_str(&format!("; {} of {} hold", sizes.held, sizes.all));
        }
        if directions.all > 0 {
            line.push_str(&format!("; {} as in the paper", of_pairs(directions)));
        }
        self.lines.push(escape(&line));
    }
}

fn of_pairs(pairs: Share) -> String {
    format!("{} of {} pairs", pairs.held, pairs.all)
}

/// The paper's figures of a metric that count for a row, and ours; those of cells without a run have none.
fn figures(row: &Row, view: &View<'_>, column: &Column) -> Vec<(f64, Option<Summary>)> {
    let of_entry = |entry: usize| &view.scenario.paper[entry];
    let measured = view.cells.iter().filter_map(|cell| {
        let figure = view.paper(cell, &column.name)?;
        row.counts(&of_entry(figure.entry).source).then(|| (figure.entry, figure.value, cell.spread(&column.name)))
    });
    let measured: Vec<(usize, f64, Option<Summary>)> = measured.collect();
    let is_missing = |entry: &usize| !measured.iter().any(|(other, ..)| other == entry);
    let missing =
        (0..view.scenario.paper.len()).filter(is_missing).filter(|entry| row.counts(&of_entry(*entry).source));
    let missing = missing.filter_map(|entry| Some((*of_entry(entry).values.get(&column.name)?, None)));
    measured.iter().map(|(_, paper, here)| (*paper, *here)).chain(missing).collect()
}
