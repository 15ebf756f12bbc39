//! Plots: every [`Plot`] of a scenario becomes a [`Figure`] of one or more SVG panels.

mod bars;
mod canvas;
mod cdf;
mod decimate;
mod factors;
mod grid;
mod heat;
mod lines;
mod plane;
mod scale;
mod sequence;
mod series;
mod style;

use evenkeel_scenario::format::Plot;

pub(crate) use canvas::panel_size;
pub(crate) use style::{Key, Shape, Swatch};

use crate::view::View;

/// A plot, ready for the page.
pub(crate) struct Figure {
    /// Heading, as the scenario has it.
    pub title: String,
    /// How to read it, in a sentence or two.
    pub note: String,
    /// What colours and marks mean.
    pub keys: Vec<Key>,
    /// The panels, each an SVG of its own so that they reflow.
    pub panels: Vec<Panel>,
}

/// One panel of a figure.
pub(crate) struct Panel {
    /// Heading; empty for a figure of one panel.
    pub title: String,
    /// The SVG element.
    pub svg: String,
    /// Whether it takes the page's full width.
    pub wide: bool,
}

/// What identifies a panel: for its id in the page, and for those who cannot see it.
pub(crate) struct About<'t> {
    /// Unique in the page.
    pub id: String,
    /// Kind of the plot, as in scenario files.
    pub kind: &'static str,
    /// What is drawn.
    pub title: &'t str,
}

/// Draws the plot with this position in the report.
pub(crate) fn figure(view: &View<'_>, position: usize, plot: &Plot) -> Figure {
    match plot {
        Plot::Bars { title, metric, x, series } => {
            bars::figure(view, position, &grid::Spec { title, metric, x, series: series.as_deref() })
        }
        Plot::Lines { title, metric, x, series } => {
            lines::figure(view, position, &grid::Spec { title, metric, x, series: series.as_deref() })
        }
        Plot::Plane { title, x_metric, y_metric, series, along, log } => {
            let along = along.as_deref();
            plane::figure(view, position, &plane::Spec { title, x_metric, y_metric, series, along, log: *log })
        }
        Plot::Heat { title, metric, x, y, series, baseline } => {
            heat::figure(view, position, &heat::Spec { title, metric, x, y, series, baseline })
        }
        Plot::Factors { title, metrics, y, baseline } => {
            factors::figure(view, position, &factors::Spec { title, metrics, y, baseline })
        }
        Plot::Series { title, series, log } => series::figure(view, position, title, series, *log),
        Plot::Cdf { title, series } => cdf::figure(view, position, title, series),
        Plot::Sequence { title } => sequence::figure(view, position, title),
    }
}

impl<'t> About<'t> {
    /// Of panel `panel` of the plot at `position`.
    fn new(position: usize, panel: usize, kind: &'static str, title: &'t str) -> Self {
        Self { id: format!("plot-{}-{}", position + 1, panel + 1), kind, title }
    }
}

/// `title`, and which panel of it.
fn full_title(title: &str, panel: &str) -> String {
    if panel.is_empty() { title.to_owned() } else { format!("{title} ({panel})") }
}
