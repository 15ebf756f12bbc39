//! A map of one metric over two axes, as a factor of what it is with one label of a third: where something gains, where
//! it does not, and where it harms.

use evenkeel_scenario::metric::Better;
use plotters::style::RGBColor;

use super::canvas::{Canvas, no_data};
use super::scale::Scale;
use super::style::UNIT;
use super::{About, Figure, Panel, full_title};
use crate::view::{Cell, Column, View};

const KIND: &str = "heat";
/// More fields than this, or longer labels beside them, need the page's width.
const NARROW_FIELDS: usize = 5;
const NARROW_LETTERS: usize = 12;

/// What a plot's table says.
pub(super) struct Spec<'t> {
    pub title: &'t str,
    pub metric: &'t str,
    pub x: &'t str,
    pub y: &'t str,
    pub series: &'t str,
    pub baseline: &'t str,
}

/// Where fields change their colour: the factor by which they are better or worse, and the colours for both from there
/// on. Colours are the blue and the orange of Okabe and Ito, lighter towards the middle.
const STEPS: [(f64, RGBColor, RGBColor); 3] = [
    (2.0, RGBColor(0x4f, 0x9f, 0xd3), RGBColor(0xe0, 0x80, 0x3a)),
    (1.25, RGBColor(0x93, 0xc5, 0xe6), RGBColor(0xee, 0xac, 0x7d)),
    (1.05, RGBColor(0xcb, 0xe3, 0xf3), RGBColor(0xf8, 0xd5, 0xbd)),
];
const SAME: RGBColor = RGBColor(0xee, 0xee, 0xee);

/// One panel: what each field's metric is, as a factor of the baseline's.
pub(super) struct Map {
    pub title: String,
    /// Places along `x` and `y`, and the factor.
    pub fields: Vec<(usize, usize, f64)>,
}

/// Maps with the same axes.
pub(super) struct Maps<'t> {
    pub kind: &'static str,
    pub title: &'t str,
    pub note: String,
    pub maps: Vec<Map>,
    /// Heading and labels.
    pub x: (&'t str, &'t [String]),
    pub y: (&'t str, &'t [String]),
    /// By place along `x`.
    pub better: Vec<Better>,
}

impl Maps<'_> {
    /// The figure; without a field it says that there is nothing to show.
    pub fn figure(self, position: usize) -> Figure {
        if self.maps.iter().all(|map| map.fields.is_empty()) {
            return nothing(position, self.kind, self.title);
        }
        let ((x_title, x), (y_title, y)) = (self.x, self.y);
        let has_long_labels = y.iter().any(|label| label.chars().count() > NARROW_LETTERS);
        let wide = self.maps.len() == 1 || x.len() > NARROW_FIELDS || has_long_labels;
        let panels = self.maps.iter().enumerate().map(|(index, map)| {
            let title = full_title(self.title, &map.title);
            let about = About::new(position, index, self.kind, &title);
            let mut canvas = Canvas::new(wide, Scale::categories(x_title, x), Scale::categories(y_title, y));
            draw(&mut canvas, map, &self.better);
            Panel { title: map.title.clone(), svg: canvas.finish(&about, &description(map, x, y)), wide }
        });
        let panels = panels.collect();
        Figure { title: self.title.to_owned(), note: self.note, keys: Vec::new(), panels }
    }
}

/// A figure with nothing in it.
pub(super) fn nothing(position: usize, kind: &'static str, title: &str) -> Figure {
    let about = About::new(position, 0, kind, title);
    let panel = Panel { title: String::new(), svg: no_data(true, &about), wide: true };
    Figure { title: title.to_owned(), note: String::new(), keys: Vec::new(), panels: vec![panel] }
}

/// Draws the plot.
pub(super) fn figure(view: &View<'_>, position: usize, spec: &Spec<'_>) -> Figure {
    let column = Column::of(spec.metric);
    let maps = maps(view, spec);
    let Some((maps, (x, y))) = maps.zip(labels(view, spec.x).zip(labels(view, spec.y))) else {
        return nothing(position, KIND, spec.title);
    };
    let (note, better) = (note(spec, &column), vec![column.better; x.len()]);
    let (x, y) = ((spec.x, x), (spec.y, y));
    Maps { kind: KIND, title: spec.title, note, maps, x, y, better }.figure(position)
}

pub(super) fn labels<'v>(view: &'v View<'_>, axis: &str) -> Option<&'v [String]> {
    Some(view.axes[view.axis(axis)?].labels.as_slice())
}

/// A map for each label of `series` but the baseline, and each combination of the other axes.
fn maps(view: &View<'_>, spec: &Spec<'_>) -> Option<Vec<Map>> {
    let (x, y, series) = (view.axis(spec.x)?, view.axis(spec.y)?, view.axis(spec.series)?);
    let named: Vec<usize> = (0..view.axes.len()).filter(|&axis| axis != x && axis != y).collect();
    let mut maps: Vec<Map> = Vec::new();
    for cell in view.cells.iter().filter(|cell| cell.labels[series] != spec.baseline) {
        let is_beside = |other: &&Cell<'_>| {
            other.labels[series] == spec.baseline
                && (0..view.axes.len()).all(|axis| axis == series || other.labels[axis] == cell.labels[axis])
        };
        let title = view.title_of(&cell.labels, &named);
        let map = match maps.iter().position(|map| map.title == title) {
            Some(known) => &mut maps[known],
            None => {
                maps.push(Map { title, fields: Vec::new() });
                let last = maps.len() - 1;
                &mut maps[last]
            }
        };
        let place = |axis: usize| view.axes[axis].labels.iter().position(|label| *label == cell.labels[axis]);
        let base = view.cells.iter().find(is_beside).and_then(|other| other.spread(spec.metric));
        let (Some(here), Some(base)) = (cell.spread(spec.metric), base) else { continue };
        let factor = here.median / base.median;
        if let (Some(column), Some(row), true) = (place(x), place(y), factor.is_finite()) {
            map.fields.push((column, row, factor));
        }
    }
    Some(maps)
}

fn draw(canvas: &mut Canvas, map: &Map, better: &[Better]) {
    let fields: Vec<_> = map
        .fields
        .iter()
        .map(|&(column, row, factor)| {
            let better = better.get(column).copied().unwrap_or(Better::Neutral);
            let (column, row) = (column as f64, row as f64);
            let corners = (
                (canvas.x_unit(column - 0.5) + UNIT, canvas.y_unit(row + 0.5) + UNIT),
                (canvas.x_unit(column + 0.5) - UNIT, canvas.y_unit(row - 0.5) - UNIT),
            );
            (corners, (canvas.x_unit(column), canvas.y_unit(row)), (factor, better))
        })
        .collect();
    canvas.marks("heat", "", fields.len(), |pen| {
        for &((from, to), middle, (factor, better)) in &fields {
            pen.bar(from, to, colour(factor, better));
            pen.label(&format!("{factor:.2}"), middle);
        }
    });
}

fn colour(factor: f64, better: Better) -> RGBColor {
    let gain = if better == Better::Lower { 1.0 / factor } else { factor };
    let step = |(from, gains, harms): &(f64, RGBColor, RGBColor)| {
        if gain >= *from { Some(*gains) } else { (gain <= 1.0 / from).then_some(*harms) }
    };
    STEPS.iter().find_map(step).unwrap_or(SAME)
}

/// What colours mean.
pub(super) const COLOURS: &str = "Blue is better by 5, 25 and 100%, orange worse by as much.";

/// How to read the plot.
fn note(spec: &Spec<'_>, column: &Column) -> String {
    let better = match column.better {
        Better::Lower => " Less is better.",
        Better::Higher => " More is better.",
        Better::Neutral => "",
    };
    format!(
        "{}, median per cell, as a factor of what it is with {} = {}.{better} {COLOURS}",
        column.heading(),
        spec.series,
        spec.baseline,
    )
}

/// A panel in words: every factor drawn.
fn description(map: &Map, x: &[String], y: &[String]) -> String {
    let fields = map.fields.iter().map(|&(column, row, factor)| format!("{}, {}: {factor:.2}", x[column], y[row]));
    fields.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_blue_whichever_way_the_metric_goes() {
        let [strong, middle, light] = STEPS;
        assert_eq!(colour(2.0, Better::Higher), strong.1);
        assert_eq!(colour(0.5, Better::Lower), strong.1);
        assert_eq!(colour(0.75, Better::Higher), middle.2);
        assert_eq!(colour(1.1, Better::Lower), light.2);
        assert_eq!([0.97, 1.0, 1.04].map(|factor| colour(factor, Better::Higher)), [SAME; 3]);
    }
}
