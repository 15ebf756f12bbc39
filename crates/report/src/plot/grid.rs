//! What bars and lines share: one metric of every cell, arranged by abscissa, series and panel.

use evenkeel_scenario::stats::Summary;

use super::style::{Key, Look, Swatch};
use crate::view::{Column, View};

/// What is drawn of a metric by the labels of one or two axes.
pub(super) struct Spec<'p> {
    /// Heading of the plot.
    pub title: &'p str,
    /// The metric.
    pub metric: &'p str,
    /// The axis along the abscissa.
    pub x: &'p str,
    /// The axis that has a colour for each label.
    pub series: Option<&'p str>,
}

/// One metric, arranged for drawing.
pub(super) struct Grid {
    /// The metric.
    pub column: Column,
    /// Heading of the abscissa.
    pub x_name: String,
    /// Labels along the abscissa.
    pub x: Vec<String>,
    /// Heading of the series, empty where the plot has none.
    pub series_name: String,
    /// Labels of the series; one without a name where the plot has none.
    pub series: Vec<String>,
    /// The panels.
    pub panels: Vec<GridPanel>,
    /// Largest figure shown.
    pub top: f64,
    /// How the paper's figures are shown.
    pub paper: Paper,
}

/// How the paper's figures are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paper {
    /// There are none.
    None,
    /// As marks beside ours.
    Marks,
    /// Not in the plot: they would squeeze ours.
    TooFar,
}

/// One panel: a value per series and position.
pub(super) struct GridPanel {
    /// Labels of the axes that are neither abscissa nor series.
    pub title: String,
    /// By series, then by position along the abscissa.
    pub values: Vec<Vec<Value>>,
}

/// What is known of one cell.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Value {
    /// Ours.
    pub here: Option<Summary>,
    /// The paper's.
    pub paper: Option<f64>,
}

impl Grid {
    /// Arranges `metric`; nothing if the scenario lacks one of the axes or no cell has the metric.
    pub fn new(view: &View<'_>, spec: &Spec<'_>) -> Option<Self> {
        let Spec { metric, x, series, .. } = *spec;
        let x_axis = view.axis(x)?;
        let series_axis = match series {
            Some(name) => Some(view.axis(name)?),
            None => None,
        };
        let x_labels = view.axes[x_axis].labels.clone();
        let series_labels = series_axis.map_or(vec![String::new()], |axis| view.axes[axis].labels.clone());
        let others: Vec<usize> =
            (0..view.axes.len()).filter(|&axis| axis != x_axis && Some(axis) != series_axis).collect();
        let mut keys: Vec<Vec<&str>> = Vec::new();
        let mut panels: Vec<GridPanel> = Vec::new();
        let (mut top, mut paper_top) = (0.0f64, 0.0f64);
        for cell in &view.cells {
            let key: Vec<&str> = others.iter().map(|&axis| cell.labels[axis].as_str()).collect();
            let at = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                keys.push(key);
                let values = vec![vec![Value::default(); x_labels.len()]; series_labels.len()];
                panels.push(GridPanel { title: view.title_of(&cell.labels, &others), values });
                panels.len() - 1
            });
            let row = series_axis.map_or(Some(0), |axis| series_labels.iter().position(|l| *l == cell.labels[axis]));
            let place = x_labels.iter().position(|label| *label == cell.labels[x_axis]);
            if let (Some(row), Some(place)) = (row, place) {
                let value =
                    Value { here: cell.spread(metric), paper: view.paper(cell, metric).map(|paper| paper.value) };
                top = top.max(value.here.map_or(0.0, |here| here.max));
                paper_top = paper_top.max(value.paper.unwrap_or(0.0));
                panels[at].values[row][place] = value;
            }
        }
        let paper = match () {
            () if paper_top == 0.0 => Paper::None,
            () if paper_top <= top * 2.0 => Paper::Marks,
            () => Paper::TooFar,
        };
        let any = panels.iter().flat_map(|panel| panel.values.iter().flatten()).any(|value| value.here.is_some());
        any.then(|| Self {
            column: Column::of(metric),
            x_name: view.axes[x_axis].name.clone(),
            x: x_labels,
            series_name: series.unwrap_or_default().to_owned(),
            series: series_labels,
            panels,
            top: if paper == Paper::Marks { top.max(paper_top) } else { top },
            paper,
        })
    }

    /// The legend: series, and the paper's mark.
    pub fn keys(&self, swatch: impl Fn(Look) -> Swatch) -> Vec<Key> {
        let named = self.series.iter().enumerate().filter(|(_, label)| !label.is_empty());
        let mut keys: Vec<Key> = named
            .map(|(index, label)| Key { label: format!("{}: {label}", self.series_name), swatch: swatch(Look(index)) })
            .collect();
        if self.paper == Paper::Marks {
            keys.push(Key { label: "the paper's figure".to_owned(), swatch: Swatch::Paper });
        }
        keys
    }

    /// How to read the plot.
    pub fn note(&self, view: &View<'_>) -> String {
        let mut note = "Median per cell".to_owned();
        if view.repetitions().1 > 1 {
            note.push_str("; whiskers from the smallest to the largest run");
        }
        note.push('.');
        if !self.column.direction().is_empty() {
            let direction = self.column.direction();
            note.push_str(&format!(" {}{}.", direction[..1].to_uppercase(), &direction[1..]));
        }
        if self.paper == Paper::TooFar {
            note.push_str(" The paper's figures are too far from ours to be drawn; see the table.");
        }
        note
    }

    /// A panel in words: every figure drawn.
    pub fn description(&self, panel: &GridPanel) -> String {
        let mut text = format!("{} over {}.", self.column.heading(), self.x_name);
        for (label, values) in self.series.iter().zip(&panel.values) {
            let figures: Vec<String> = self
                .x
                .iter()
                .zip(values)
                .filter_map(|(x, value)| {
                    let here = value.here?;
                    let range = self.column.range(here, " to ").map_or(String::new(), |range| format!(" ({range})"));
                    let paper =
                        value.paper.map_or(String::new(), |paper| format!(", paper {}", self.column.figure(paper)));
                    Some(format!("{x}: {}{range}{paper}", self.column.figure(here.median)))
                })
                .collect();
            let name = if label.is_empty() { String::new() } else { format!(" {label}:") };
            text.push_str(&format!("{name} {}.", figures.join("; ")));
        }
        text
    }
}
