//! What the kept runs of an engine say of a row.

use std::collections::BTreeMap;

use evenkeel_scenario::fingerprint;
use evenkeel_scenario::format::PaperFigures;
use evenkeel_scenario::metric::Better;
use evenkeel_scenario::result::Engine;

use super::Scorecard;
use super::judge::{Figures, Share, Tally, Verdict};
use super::rows::{Row, Scenarios};
use crate::changes::Changes;
use crate::claims::{Claim, Said, claims};
use crate::made::mark_of;
use crate::view::{Column, Here, View};
use crate::{ReportError, Results, load, number};

/// Most figures of a metric that a statement shows.
const MOST_SHOWN: usize = 4;

/// What there is of a row.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// How much holds.
    tally: Tally,
    /// A paper's statements that were run, each with whether it holds.
    stated: Vec<(Stated, bool)>,
    /// What each scenario says.
    pub sources: Vec<Source>,
}

/// What the runs of a scenario say of a row.
#[derive(Debug)]
pub(super) struct Source {
    /// A link to its page, as Markdown.
    pub link: String,
    /// Whether any runs are kept.
    pub is_kept: bool,
    /// In which ways they are of other code, or of another scenario, than now.
    pub old: Vec<String>,
    /// What a paper states, beside the runs.
    pub statements: Vec<Statement>,
}

/// What a paper states. The cell that it states it of is left out: scenarios name their axes as they like.
#[derive(Debug, Clone, PartialEq)]
struct Stated {
    source: String,
    metric: String,
    what: What,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    Figure(f64),
    Ratio { cells: [String; 2], paper: f64 },
    Order { cells: Vec<String>, over: Option<String> },
}

/// An experiment: cells that differ from those of a row in what is named.
#[derive(Debug)]
pub(super) struct Experiment {
    /// In what they differ.
    pub with: String,
    /// What the runs of these cells say of the row.
    pub evidence: Evidence,
    /// What all such runs say, of any row: a cause must not make other figures wrong.
    pub everywhere: Evidence,
}

/// A paper's statement, as plain text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// What is stated: a metric, or how cells compare.
    pub what: String,
    /// What the paper has.
    pub paper: String,
    /// What the runs have.
    pub here: String,
    /// What of it holds; empty where nothing is held.
    pub holds: String,
}

impl Evidence {
    /// What the rule makes of it.
    pub fn verdict(&self) -> Verdict {
        self.tally.verdict()
    }

    /// Whether all was run.
    pub fn is_whole(&self) -> bool {
        self.tally.missing + self.tally.partial == 0
    }

    /// Whether anything does not hold.
    pub fn has_failed(&self) -> bool {
        self.stated.iter().any(|(_, holds)| !holds)
    }

    /// Whether each statement that does not hold does in this experiment, in which all holds, of the same cells: it
    /// states it as often as is stated here, so that no cell is left out.
    pub fn is_mended_by(&self, experiment: &Experiment) -> bool {
        let mended = |stated: &Stated| experiment.evidence.times_stated(stated) >= self.times_stated(stated);
        experiment.holds() && self.stated.iter().filter(|(_, holds)| !holds).all(|(stated, _)| mended(stated))
    }

    fn times_stated(&self, stated: &Stated) -> usize {
        self.stated.iter().filter(|(other, _)| other == stated).count()
    }

    fn note(&mut self, stated: Stated, holds: Option<bool>) {
        self.stated.extend(holds.map(|holds| (stated, holds)));
    }

    /// Whether runs are of other code, or of another scenario, than now.
    pub fn is_old(&self) -> bool {
        self.sources.iter().any(|source| !source.old.is_empty())
    }

    /// How much of what is stated holds.
    pub fn in_words(&self) -> String {
        let Tally { sizes, directions, missing, partial, .. } = self.tally;
        let share =
            |name: &str, share: Share| (share.all > 0).then(|| format!("{name} {} of {}", share.held, share.all));
        let unmeasured = (missing > 0).then(|| format!("{missing} not run"));
        let lacking = (partial > 0).then(|| format!("{partial} not in all runs"));
        let words = [share("sizes", sizes), share("directions", directions), unmeasured, lacking];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// A scenario with the runs that are kept of it.
struct Kept {
    scenario: evenkeel_scenario::Scenario,
    results: Option<Results>,
    old: Vec<String>,
    link: Option<String>,
}

/// All that is kept, by the scenarios' names.
pub(super) struct Sets(BTreeMap<String, Kept>);

impl Experiment {
    /// Whether everything that is stated of such cells holds.
    pub fn holds(&self) -> bool {
        self.everywhere.verdict() == Verdict::ComesOut
    }
}

impl Sets {
    /// Reads what is kept of the scenarios that have a paper's figures.
    pub fn read(parts: &Scorecard<'_>, scenarios: Scenarios) -> Result<Self, ReportError> {
        let changes = Changes::read(parts.pages)?;
        let with_paper = scenarios.into_iter().filter(|(_, loaded)| !loaded.scenario.paper.is_empty());
        let of_scenario = |(name, loaded): (String, evenkeel_scenario::LoadedScenario)| {
            let directory =
                parts.results.iter().map(|root| root.join(&name)).find(|set| set.join("meta.json").exists());
            let results = directory.map(|directory| load(&directory)).transpose()?;
            let settings = fingerprint::of(&loaded)?;
            let old = match &results {
                None => Vec::new(),
                Some(results) => mark_of(&results.set).map_or_else(
                    || vec!["made before runs recorded their code".to_owned()],
                    |mark| mark.why_old(parts.codes, &changes, &name, &settings),
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
        let is_meant = |name: &&String| name.starts_with("sim/") == (engine == Engine::Sim);
        self.said(row.scenarios.iter().filter(is_meant), |paper| paper.with.is_empty() && row.counts(&paper.source))
    }

    /// The simulator's experiments on a row, in the order in which its scenarios state them.
    pub fn experiments(&self, row: &Row) -> Vec<Experiment> {
        let names = || row.scenarios.iter().chain(&row.experiments).filter(|name| name.starts_with("sim/"));
        let mut things: Vec<&str> = Vec::new();
        for paper in names().filter_map(|name| self.0.get(name)).flat_map(|kept| &kept.scenario.paper) {
            if !paper.with.is_empty() && row.counts(&paper.source) && !things.contains(&paper.with.as_str()) {
                things.push(&paper.with);
            }
        }
        let of_thing = |with: &str| {
            let is_of_row = |paper: &PaperFigures| paper.with == with && row.counts(&paper.source);
            let is_any = |paper: &PaperFigures| paper.with == with;
            Experiment {
                with: with.to_owned(),
                evidence: self.said(names().filter(|name| self.states(name, is_of_row)), is_of_row),
                everywhere: self.said(self.0.keys().filter(|name| self.states(name, is_any)), is_any),
            }
        };
        things.into_iter().map(of_thing).collect()
    }

    /// Whether a scenario has an entry of `[[paper]]` that is meant.
    fn states(&self, name: &str, is_meant: impl Fn(&PaperFigures) -> bool) -> bool {
        self.0.get(name).is_some_and(|kept| kept.scenario.paper.iter().any(is_meant))
    }

    /// What the runs of these scenarios say of the entries of `[[paper]]` that are meant.
    fn said<'a>(&self, names: impl Iterator<Item = &'a String>, is_meant: impl Fn(&PaperFigures) -> bool) -> Evidence {
        let mut evidence = Evidence::default();
        for name in names {
            let Some(kept) = self.0.get(name) else { continue };
            let link = kept.link.clone().unwrap_or_else(|| format!("`{name}`"));
            let mut source = Source { link, is_kept: false, old: Vec::new(), statements: Vec::new() };
            match &kept.results {
                None => evidence.tally.missing += 1,
                Some(results) => {
                    let view = View::new(&results.set, &kept.scenario, &results.records);
                    (source.is_kept, source.old) = (true, kept.old.clone());
                    source.statements = evidence.hold(&is_meant, &view);
                }
            }
            evidence.sources.push(source);
        }
        evidence
    }
}

impl Evidence {
    /// Adds what a scenario's runs say of the entries that are meant.
    fn hold(&mut self, is_meant: &impl Fn(&PaperFigures) -> bool, view: &View<'_>) -> Vec<Statement> {
        let claims = claims(view).into_iter().filter(|claim| is_meant(claim.paper));
        let mut statements: Vec<Statement> = claims.map(|claim| self.hold_claim(&claim)).collect();
        for column in &view.columns {
            let figures = figures(is_meant, view, column);
            if !figures.is_empty() {
                statements.push(self.hold_figures(column, &figures, view.set.engine == Engine::Sim));
            }
        }
        statements
    }

    fn hold_claim(&mut self, claim: &Claim<'_>) -> Statement {
        let stated = |what| Stated { source: claim.paper.source.clone(), metric: claim.column.name.clone(), what };
        let (paper, holds) = match &claim.said {
            Said::Ratio { cells, paper, here } => {
                self.tally.partial(*here);
                let holds = self.tally.ratio(*paper, here.map(|here| here.spread.median));
                self.note(stated(What::Ratio { cells: cells.clone(), paper: *paper }), holds);
                let holds = match holds {
                    Some(true) => "holds",
                    Some(false) => "does not hold",
                    None => "",
                };
                (number::times(*paper), holds.to_owned())
            }
            Said::Order { cells, over } => {
                cells.iter().for_each(|(_, here)| self.tally.partial(*here));
                let here: Vec<Option<f64>> =
                    cells.iter().map(|(_, here)| here.map(|here| here.spread.median)).collect();
                let pairs = self.tally.order(&here, claim.column.better != Better::Lower);
                let cells = cells.iter().map(|(title, _)| title.clone()).collect();
                let order = stated(What::Order { cells, over: over.clone() });
                self.note(order, (pairs.all > 0).then_some(pairs.held == pairs.all));
                ("this order".to_owned(), of_pairs(pairs))
            }
        };
        Statement { what: claim.stated(), paper, here: claim.here(), holds }
    }

    fn hold_figures(&mut self, column: &Column, figures: &[Figure<'_>], are_held: bool) -> Statement {
        figures.iter().for_each(|figure| self.tally.partial(figure.here));
        let pairs: Vec<(f64, Option<f64>)> =
            figures.iter().map(|figure| (figure.paper, figure.here.map(|here| here.spread.median))).collect();
        let Figures { sizes, directions, each } = self.tally.figures(&pairs, column.decimals, are_held);
        for (figure, holds) in figures.iter().zip(each) {
            let (source, metric) = (figure.source.to_owned(), column.name.clone());
            self.note(Stated { source, metric, what: What::Figure(figure.paper) }, holds);
        }
        let shown = &figures[..figures.len().min(MOST_SHOWN)];
        let here =
            |here: Option<Here>| here.map_or_else(|| "\u{2013}".to_owned(), |here| column.shown(here, "\u{2013}"));
        let more = if figures.len() > MOST_SHOWN {
            format!("; and {} more", figures.len() - MOST_SHOWN)
        } else {
            String::new()
        };
        let joined = |each: Vec<String>| each.join("; ") + &more;
        let of_sizes = (sizes.all > 0).then(|| format!("{} of {}", sizes.held, sizes.all));
        let of_directions = (directions.all > 0).then(|| of_pairs(directions));
        Statement {
            what: column.heading(),
            paper: joined(shown.iter().map(|figure| column.figure(figure.paper)).collect()),
            here: joined(shown.iter().map(|figure| here(figure.here)).collect()),
            holds: of_sizes.into_iter().chain(of_directions).collect::<Vec<_>>().join(", "),
        }
    }
}

fn of_pairs(pairs: Share) -> String {
    format!("{} of {} pairs", pairs.held, pairs.all)
}

/// A paper's figure and ours; that of a cell without a run has none.
struct Figure<'a> {
    source: &'a str,
    paper: f64,
    here: Option<Here>,
}

/// The paper's figures of a metric in the entries that are meant.
fn figures<'a>(is_meant: &impl Fn(&PaperFigures) -> bool, view: &View<'a>, column: &Column) -> Vec<Figure<'a>> {
    let papers: &'a [PaperFigures] = &view.scenario.paper;
    let measured = view.cells.iter().filter_map(|cell| {
        let figure = view.paper(cell, &column.name)?;
        let of = Figure { source: &papers[figure.entry].source, paper: figure.value, here: cell.here(&column.name) };
        is_meant(&papers[figure.entry]).then_some((figure.entry, of))
    });
    let (entries, mut figures): (Vec<usize>, Vec<Figure<'a>>) = measured.unzip();
    let missing = papers.iter().enumerate().filter(|(entry, paper)| !entries.contains(entry) && is_meant(paper));
    figures.extend(missing.filter_map(|(_, paper)| {
        let value = *paper.values.get(&column.name)?;
        Some(Figure { source: &paper.source, paper: value, here: None })
    }));
    figures
}
