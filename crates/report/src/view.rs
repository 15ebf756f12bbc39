//! What the results say, put in order: axes, cells, columns, and the paper's figures beside them.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_scenario::Scenario;
use evenkeel_scenario::format::Axis;
use evenkeel_scenario::metric::{About, Better, Metric};
use evenkeel_scenario::result::{Engine, RunRecord, RunSet};
use evenkeel_scenario::stats::Summary;

/// A virtual CPU that is busy for more than this percentage of the time is saturated: queues grow in front of it,
/// whatever the network does.
const FULL_CPU_PERCENT: f64 = 95.0;

/// The results of one scenario, ordered for showing.
pub(crate) struct View<'a> {
    /// What holds for all runs.
    pub set: &'a RunSet,
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Axes in the scenario's order.
    pub axes: Vec<AxisView>,
    /// Cells that were run, in the order of the axes' labels.
    pub cells: Vec<Cell<'a>>,
    /// Labels of cells that have no run.
    pub missing: Vec<String>,
    /// Metrics shown as columns.
    pub columns: Vec<Column>,
}

/// An axis and its labels.
pub(crate) struct AxisView {
    /// Heading.
    pub name: String,
    /// Labels in the scenario's order.
    pub labels: Vec<String>,
}

/// All runs of one cell.
pub(crate) struct Cell<'a> {
    /// One label per axis.
    pub labels: Vec<String>,
    /// The runs, by repetition.
    pub runs: Vec<&'a RunRecord>,
}

/// One metric as a column.
pub(crate) struct Column {
    /// Name in result files.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Unit, empty for counts.
    pub unit: String,
    /// What is better.
    pub better: Better,
    /// Digits after the point.
    pub decimals: u8,
    /// What it counts.
    pub description: String,
}

/// A metric over the runs that have it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Here {
    /// Median and range.
    pub spread: Summary,
    /// All runs, also those that lack it: in some, nothing ends.
    pub runs: usize,
}

/// A figure that the paper reports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PaperFigure {
    /// The figure, in the metric's unit.
    pub value: f64,
    /// Which entry of `[[paper]]` it is from.
    pub entry: usize,
}

impl Column {
    /// The column of a metric; an unknown name becomes a column all the same, so that nothing recorded is hidden.
    pub fn of(name: &str) -> Self {
        let (workload, metric) = Metric::split(name);
        match Metric::named(metric).map(Metric::about) {
            Some(&About { title, unit, better, decimals, description, .. }) => Self {
                name: name.to_owned(),
                title: workload.map_or_else(|| title.to_owned(), |workload| format!("{workload}: {title}")),
                unit: unit.to_owned(),
                better,
                decimals,
                description: match workload {
                    Some(workload) => format!("Of the workload {workload}: {description}"),
                    None => description.to_owned(),
                },
            },
            None => Self {
                name: name.to_owned(),
                title: name.to_owned(),
                unit: String::new(),
                better: Better::Neutral,
                decimals: 2,
                description: "Not described in this version of evenkeel.".to_owned(),
            },
        }
    }

    /// Heading with the unit, as an axis of a plot is labelled.
    pub fn heading(&self) -> String {
        if self.unit.is_empty() { self.title.clone() } else { format!("{} ({})", self.title, self.unit) }
    }

    /// `higher is better`, `lower is better`, or nothing.
    pub fn direction(&self) -> &'static str {
        match self.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
            Better::Neutral => "",
        }
    }

    /// A figure of this metric as text.
    pub fn figure(&self, value: f64) -> String {
        crate::number::figure(value, self.decimals)
    }

    /// The median as text; in brackets the range, with `dash` between, and how many runs have it if others lack it.
    pub fn shown(&self, here: Here, dash: &str) -> String {
        bracketed(self.figure(here.spread.median), [self.range(here.spread, dash), here.some_of()])
    }

    /// The range as text, with `dash` between; nothing where all runs read the same.
    pub fn range(&self, spread: Summary, dash: &str) -> Option<String> {
        let (min, max) = (self.figure(spread.min), self.figure(spread.max));
        (min != max).then(|| format!("{min}{dash}{max}"))
    }
}

impl Here {
    /// Whether some runs lack the metric.
    pub fn is_partial(self) -> bool {
        self.spread.n < self.runs
    }

    /// `2 of 3 runs`; nothing where all have the metric.
    pub fn some_of(self) -> Option<String> {
        self.is_partial().then(|| format!("{} of {} runs", self.spread.n, self.runs))
    }
}

/// A figure with what there is to say of it in brackets.
pub(crate) fn bracketed(figure: String, notes: [Option<String>; 2]) -> String {
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    if notes.is_empty() { figure } else { format!("{figure} ({})", notes.join(", ")) }
}

impl Cell<'_> {
    /// The metric over this cell's runs, or nothing if no run has it.
    pub fn spread(&self, metric: &str) -> Option<Summary> {
        let values: Vec<f64> = self.runs.iter().filter_map(|run| run.metrics.get(metric).copied()).collect();
        Summary::of(&values)
    }

    /// As [`Self::spread`], with the number of runs.
    pub fn here(&self, metric: &str) -> Option<Here> {
        self.spread(metric).map(|spread| Here { spread, runs: self.runs.len() })
    }
}

impl<'a> View<'a> {
    /// Puts the records in order.
    pub fn new(set: &'a RunSet, scenario: &'a Scenario, records: &'a [RunRecord]) -> Self {
        let axes: Vec<AxisView> = scenario.axes.iter().map(AxisView::of).collect();
        let mut cells: Vec<Cell<'a>> =
            product(&axes).into_iter().map(|labels| Cell { labels, runs: Vec::new() }).collect();
        // Thousands of cells, each with many runs, are not searched one by one.
        let mut places: BTreeMap<Vec<String>, usize> =
            cells.iter().enumerate().map(|(place, cell)| (cell.labels.clone(), place)).collect();
        for record in records {
            let labels: Vec<String> = axes.iter().map(|axis| label_of(record, &axis.name).to_owned()).collect();
            // A record of an older version of the scenario is shown after those that fit.
            let place = *places.entry(labels).or_insert_with_key(|labels| {
                cells.push(Cell { labels: labels.clone(), runs: Vec::new() });
                cells.len() - 1
            });
            cells[place].runs.push(record);
        }
        for cell in &mut cells {
            cell.runs.sort_by_key(|run| run.repetition);
        }
        let (cells, empty): (Vec<_>, Vec<_>) = cells.into_iter().partition(|cell| !cell.runs.is_empty());
        let mut view = Self { set, scenario, axes, cells, missing: Vec::new(), columns: columns(scenario, records) };
        view.missing = empty.iter().map(|cell| view.cell_title(cell)).collect();
        view
    }

    /// `era: current · PVTCP: off`, of the axes that vary; empty if none does.
    pub fn cell_title(&self, cell: &Cell<'_>) -> String {
        let every: Vec<usize> = (0..self.axes.len()).collect();
        self.title_of(&cell.labels, &every)
    }

    /// As [`Self::cell_title`], of the axes with these indices only.
    pub fn title_of(&self, labels: &[String], axes: &[usize]) -> String {
        let parts: Vec<String> = axes
            .iter()
            .filter(|&&index| self.axes[index].labels.len() > 1)
            .map(|&index| format!("{}: {}", self.axes[index].name, labels[index]))
            .collect();
        parts.join(" \u{b7} ")
    }

    /// Position of the axis of that name.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes.iter().position(|axis| axis.name == name)
    }

    /// The paper's figure for a metric of a cell; of several entries that match, the one that names most axes.
    pub fn paper(&self, cell: &Cell<'_>, metric: &str) -> Option<PaperFigure> {
        let mut best: Option<(usize, PaperFigure)> = None;
        for (entry, paper) in self.scenario.paper.iter().enumerate() {
            let matches =
                paper.cell.iter().all(|(name, label)| self.axis(name).is_some_and(|axis| cell.labels[axis] == *label));
            if let (true, Some(&value)) = (matches, paper.values.get(metric)) {
                if best.is_none_or(|(named, _)| paper.cell.len() > named) {
                    best = Some((paper.cell.len(), PaperFigure { value, entry }));
                }
            }
        }
        best.map(|(_, figure)| figure)
    }

    /// Whether the paper has a figure for this metric in any cell shown.
    pub fn has_paper(&self, metric: &str) -> bool {
        self.cells.iter().any(|cell| self.paper(cell, metric).is_some())
    }

    /// Fewest and most runs that a cell has.
    pub fn repetitions(&self) -> (usize, usize) {
        let counts = self.cells.iter().map(|cell| cell.runs.len());
        (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0))
    }

    /// How the figures are to be read, in one sentence.
    pub fn reading(&self) -> String {
        let runs = match self.repetitions() {
            (_, 1) => return "One run per cell, so no spread is known.".to_owned(),
            (least, most) if least == most => format!("{most} runs"),
            (least, most) => format!("{least} to {most} runs"),
        };
        format!("Median of {runs} per cell, with smallest and largest where they differ.")
    }

    /// What a reader must know of all runs before judging the figures.
    pub fn remarks(&self) -> Vec<String> {
        let own = [self.missing_sentence(), self.full_cpu_sentence()];
        own.into_iter().flatten().chain(self.set.remarks.iter().cloned()).collect()
    }

    /// Counts the lab's runs in which the receiver's virtual CPU was saturated, if there are any.
    fn full_cpu_sentence(&self) -> Option<String> {
        let runs = || self.cells.iter().flat_map(|cell| &cell.runs);
        let is_full =
            |run: &&&RunRecord| run.metrics.get(Metric::ReceiverCpu.name()).is_some_and(|p| *p > FULL_CPU_PERCENT);
        let full = runs().filter(is_full).count();
        (full > 0 && self.set.engine == Engine::Lab).then(|| {
            format!(
                "In {full} of {} runs the receiver's virtual CPU was busy for more than {FULL_CPU_PERCENT:.0}% of the \
                 time: what they show may be this machine's want of cores.",
                runs().count()
            )
        })
    }

    /// Names the cells that have no run, if there are any.
    fn missing_sentence(&self) -> Option<String> {
        if self.missing.is_empty() {
            return None;
        }
        let shown: Vec<&str> = self.missing.iter().take(6).map(String::as_str).collect();
        let more = match self.missing.len() - shown.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let all = self.cells.len() + self.missing.len();
        Some(format!("{} of {all} cells have no run: {}{more}.", self.missing.len(), shown.join("; ")))
    }
}

impl AxisView {
    fn of(axis: &Axis) -> Self {
        Self { name: axis.name.clone(), labels: axis.points().into_iter().map(|point| point.label).collect() }
    }
}

fn label_of<'r>(record: &'r RunRecord, axis: &str) -> &'r str {
    record.cell.iter().find(|(name, _)| name == axis).map_or("?", |(_, label)| label)
}

/// Every combination of labels, the last axis turning fastest.
fn product(axes: &[AxisView]) -> Vec<Vec<String>> {
    axes.iter().fold(vec![Vec::new()], |rows, axis| {
        rows.iter()
            .flat_map(|row| axis.labels.iter().map(move |label| [row.as_slice(), std::slice::from_ref(label)].concat()))
            .collect()
    })
}

/// Where a metric stands among all: the run's own first, then each workload's, in their order.
fn place(name: &str) -> Option<(Option<&str>, usize)> {
    let (workload, metric) = Metric::split(name);
    Some((workload, Metric::ALL.iter().position(|known| known.name() == metric)?))
}

/// The scenario's columns, then metrics that the paper has a figure for; without any, all that were recorded.
fn columns(scenario: &Scenario, records: &[RunRecord]) -> Vec<Column> {
    let mut names: Vec<&str> = scenario.report.columns.iter().map(String::as_str).collect();
    for paper in &scenario.paper {
        let compared = paper.compared().map(|(_, metric)| metric);
        for name in paper.values.keys().map(String::as_str).chain(compared) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if names.is_empty() {
        let recorded: BTreeSet<&str> =
            records.iter().flat_map(|record| record.metrics.keys()).map(String::as_str).collect();
        names = recorded.into_iter().filter(|name| place(name).is_some()).collect();
        names.sort_by_key(|name| place(name));
    }
    names.into_iter().map(Column::of).collect()
}
