//! What papers state of how cells compare, beside what the runs say: ratios and orders.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_scenario::format::{Labels, PaperFigures, PaperOrder, PaperRatio};
use evenkeel_scenario::metric::Better;
use evenkeel_scenario::stats::Summary;

use crate::number;
use crate::view::{AxisView, Cell, Column, Here, View, bracketed};

/// A statement of a paper.
pub(crate) struct Claim<'a> {
    /// The entry of `[[paper]]` that it is from.
    pub paper: &'a PaperFigures,
    /// Of which cells it is said: axis name to label.
    place: Labels,
    /// Its metric.
    pub column: Column,
    /// What it says.
    pub said: Said,
}

/// What a statement says, and what the runs do.
pub(crate) enum Said {
    /// One cell's figure over another's.
    Ratio {
        /// The two cells, as in `vFlood / vanilla`.
        cells: [String; 2],
        /// The paper's.
        paper: f64,
        /// The runs', from the two runs of each repetition; none where a cell has no run or a divisor is zero.
        here: Option<Here>,
    },
    /// Cells from best to worst.
    Order {
        /// The cells in the paper's order, and our figures.
        cells: Vec<(String, Option<Here>)>,
        /// The cell by whose figures these are divided, if they are gains.
        over: Option<String>,
    },
}

/// The statements of all entries, in their order; one about every label of an axis comes once for each label.
pub(crate) fn claims<'a>(view: &View<'a>) -> Vec<Claim<'a>> {
    let of_entry = |paper: &'a PaperFigures| {
        let ratios = paper.ratios.iter().flat_map(|stated| ratio(view, paper, stated));
        ratios.chain(paper.orders.iter().flat_map(|stated| order(view, paper, stated))).collect::<Vec<_>>()
    };
    view.scenario.paper.iter().flat_map(of_entry).collect()
}

fn ratio<'a>(view: &View<'_>, paper: &'a PaperFigures, stated: &PaperRatio) -> Vec<Claim<'a>> {
    let of_place = |place: Labels| {
        let [of, to] = [&stated.of, &stated.to].map(|own| cell(view, &place, own));
        let here = of.zip(to).and_then(|(of, to)| quotient(of, to, &stated.metric));
        let cells = [&stated.of, &stated.to].map(title);
        Claim {
            paper,
            place,
            column: Column::of(&stated.metric),
            said: Said::Ratio { cells, paper: stated.value, here },
        }
    };
    places(view, paper, &stated.of).into_iter().map(of_place).collect()
}

fn order<'a>(view: &View<'_>, paper: &'a PaperFigures, stated: &PaperOrder) -> Vec<Claim<'a>> {
    let of_place = |place: Labels| {
        let mut base = place.clone();
        base.extend(stated.over.clone());
        let over = (!stated.over.is_empty()).then(|| title(&stated.over));
        let here = |own| {
            let of = cell(view, &place, own)?;
            if over.is_some() { quotient(of, cell(view, &base, own)?, &stated.metric) } else { of.here(&stated.metric) }
        };
        let cells = stated.cells.iter().map(|own| (title(own), here(own))).collect();
        Claim { paper, place, column: Column::of(&stated.metric), said: Said::Order { cells, over } }
    };
    stated.cells.first().map_or_else(Vec::new, |first| places(view, paper, first).into_iter().map(of_place).collect())
}

/// Where a statement holds: what `cell` says, with every label of the axes that are open.
fn places(view: &View<'_>, paper: &PaperFigures, own: &Labels) -> Vec<Labels> {
    let is_open = |axis: &&AxisView| !own.contains_key(&axis.name) && !paper.cell.contains_key(&axis.name);
    let open = view.axes.iter().filter(|axis| axis.labels.len() > 1).filter(is_open);
    open.fold(vec![paper.cell.clone()], |places, axis| {
        let with = |place: &Labels, label: &String| {
            let mut place = place.clone();
            place.insert(axis.name.clone(), label.clone());
            place
        };
        places.iter().flat_map(|place| axis.labels.iter().map(move |label| with(place, label))).collect()
    })
}

/// Divides runs of the same repetition, which have the same draws. With a divisor of zero there is no ratio: a median
/// of the others would be one of chosen runs. A repetition of which a cell lacks the figure, or the run, counts as a
/// run without one.
fn quotient(of: &Cell<'_>, to: &Cell<'_>, metric: &str) -> Option<Here> {
    let runs = of.runs.iter().chain(&to.runs).map(|run| run.repetition).collect::<BTreeSet<_>>().len();
    let figures = |cell: &Cell<'_>| -> BTreeMap<u32, f64> {
        cell.runs.iter().filter_map(|run| Some((run.repetition, *run.metrics.get(metric)?))).collect()
    };
    let (of, to) = (figures(of), figures(to));
    let both = of.iter().filter_map(|(repetition, figure)| Some(figure / to.get(repetition)?));
    let ratios: Vec<f64> = both.collect();
    let spread = Summary::of(&ratios).filter(|_| ratios.iter().all(|ratio| ratio.is_finite()))?;
    Some(Here { spread, runs })
}

/// The cell with these labels, if it was run; axes that are not named have one label.
fn cell<'v, 'a>(view: &'v View<'a>, place: &Labels, own: &Labels) -> Option<&'v Cell<'a>> {
    let has = |cell: &Cell<'_>, axis: &str, label: &String| view.axis(axis).is_some_and(|at| cell.labels[at] == *label);
    view.cells.iter().find(|cell| place.iter().chain(own).all(|(axis, label)| has(cell, axis, label)))
}

fn title(labels: &Labels) -> String {
    labels.values().map(String::as_str).collect::<Vec<_>>().join(", ")
}

impl Claim<'_> {
    /// Whether it is a ratio, not an order.
    pub fn is_ratio(&self) -> bool {
        matches!(self.said, Said::Ratio { .. })
    }

    /// What is stated, as in `goodput: vFlood / vanilla (core: shared)`.
    pub fn stated(&self) -> String {
        let context: Vec<String> = self.place.iter().map(|(axis, label)| format!("{axis}: {label}")).collect();
        let context = if context.is_empty() { String::new() } else { format!(" ({})", context.join(", ")) };
        let what = match &self.said {
            Said::Ratio { cells: [of, to], .. } => format!(": {of} / {to}"),
            Said::Order { cells, over } => {
                let over = over.as_ref().map_or_else(String::new, |over| format!(", times that of {over}"));
                let titles: Vec<&str> = cells.iter().map(|(title, _)| title.as_str()).collect();
                format!("{over}: {}", titles.join(" > "))
            }
        };
        format!("{}{what}{context}", self.column.title)
    }

    /// What the paper has: a ratio, or which end of the order is better.
    pub fn in_paper(&self) -> String {
        match (&self.said, self.column.better) {
            (Said::Ratio { paper, .. }, _) => number::times(*paper),
            (Said::Order { .. }, Better::Lower) => "best first (least)".to_owned(),
            (Said::Order { .. }, _) => "best first (most)".to_owned(),
        }
    }

    /// What the runs have: the median with its range and, if some runs lack the figure, how many have it, or the cells
    /// in the runs' order; a dash where nothing was run.
    pub fn here(&self) -> String {
        match &self.said {
            Said::Ratio { here: None, .. } => "\u{2013}".to_owned(),
            Said::Ratio { here: Some(here), .. } => times(*here),
            Said::Order { cells, over } => {
                let figures: Option<Vec<(&str, Here)>> =
                    cells.iter().map(|(title, here)| Some((title.as_str(), (*here)?))).collect();
                let Some(mut figures) = figures else { return "\u{2013}".to_owned() };
                figures.sort_by(|(_, one), (_, other)| match self.column.better {
                    Better::Lower => one.spread.median.total_cmp(&other.spread.median),
                    _ => other.spread.median.total_cmp(&one.spread.median),
                });
                let each = figures.iter().map(|(title, here)| match over {
                    Some(_) => format!("{title} {}", times(*here)),
                    None => format!("{title} {}", self.column.shown(*here, "\u{2013}")),
                });
                each.collect::<Vec<_>>().join(" > ")
            }
        }
    }
}

/// A ratio with its range.
fn times(ratio: Here) -> String {
    let Summary { median, min, max, .. } = ratio.spread;
    let [median, min, max] = [median, min, max].map(number::times);
    let range = (min != max).then(|| format!("{min}\u{2013}{max}"));
    bracketed(median, [range, ratio.some_of()])
}
