//! Several metrics, each as a factor of what it is in one cell: what something costs, or gains, all at a glance.

use std::collections::BTreeMap;

use super::Figure;
use super::heat::{COLOURS, Map, Maps, labels, nothing};
use crate::view::{Cell, Column, View};

const KIND: &str = "factors";

/// What a plot's table says.
pub(super) struct Spec<'t> {
    pub title: &'t str,
    pub metrics: &'t [String],
    pub y: &'t str,
    pub baseline: &'t BTreeMap<String, String>,
}

/// Draws the plot.
pub(super) fn figure(view: &View<'_>, position: usize, spec: &Spec<'_>) -> Figure {
    let columns: Vec<Column> = spec.metrics.iter().map(|metric| Column::of(metric)).collect();
    let Some((maps, y)) = maps(view, spec).zip(labels(view, spec.y)) else {
        return nothing(position, KIND, spec.title);
    };
    let x: Vec<String> = columns.iter().map(|column| column.title.clone()).collect();
    let better = columns.iter().map(|column| column.better).collect();
    let (x, y) = (("", x.as_slice()), (spec.y, y));
    Maps { kind: KIND, title: spec.title, note: note(spec), maps, x, y, better }.figure(position)
}

/// A map for each combination of the axes that are not `y`.
fn maps(view: &View<'_>, spec: &Spec<'_>) -> Option<Vec<Map>> {
    let y = view.axis(spec.y)?;
    let others: Vec<usize> = (0..view.axes.len()).filter(|axis| *axis != y).collect();
    let mut maps: Vec<Map> = Vec::new();
    for cell in &view.cells {
        let Some(base) = baseline(view, spec, cell) else { continue };
        let title = view.title_of(&cell.labels, &others);
        let place = maps.iter().position(|map| map.title == title).unwrap_or_else(|| {
            maps.push(Map { title, fields: Vec::new() });
            maps.len() - 1
        });
        let Some(row) = view.axes[y].labels.iter().position(|label| *label == cell.labels[y]) else { continue };
        for (column, metric) in spec.metrics.iter().enumerate() {
            let Some((here, base)) = cell.spread(metric).zip(base.spread(metric)) else { continue };
            let factor = here.median / base.median;
            if factor.is_finite() {
                maps[place].fields.push((column, row, factor));
            }
        }
    }
    Some(maps)
}

/// The cell that one is compared with: it has the labels that the plot names, and the same ones on other axes.
fn baseline<'v, 'a>(view: &'v View<'a>, spec: &Spec<'_>, cell: &Cell<'_>) -> Option<&'v Cell<'a>> {
    let wanted = |axis: usize| spec.baseline.get(&view.axes[axis].name).unwrap_or(&cell.labels[axis]);
    view.cells.iter().find(|other| (0..view.axes.len()).all(|axis| other.labels[axis] == *wanted(axis)))
}

/// How to read the plot.
fn note(spec: &Spec<'_>) -> String {
    let named = spec.baseline.iter().map(|(axis, label)| format!("{axis} = {label}"));
    format!("Medians, as factors of those with {}. {COLOURS}", named.collect::<Vec<_>>().join(", "))
}
