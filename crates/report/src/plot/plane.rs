//! One metric over another: a mark for each cell, and a line through those that differ in one axis only.

use evenkeel_scenario::metric::Better;
use evenkeel_scenario::stats::Summary;

use super::canvas::{Canvas, no_data};
use super::scale::Scale;
use super::style::{Key, Look, Swatch};
use super::{About, Figure, Panel, full_title};
use crate::view::{Column, View};

const KIND: &str = "plane";
/// Radius of marks, in CSS pixels. Along an axis: the first label's, by how much each next one is larger, and the
/// largest.
const RADIUS: f64 = 4.5;
const SMALLEST: f64 = 2.5;
const LARGER: f64 = 1.1;
const LARGEST: f64 = 8.0;

/// What a plot's table says.
pub(super) struct Spec<'t> {
    pub title: &'t str,
    pub x_metric: &'t str,
    pub y_metric: &'t str,
    pub series: &'t str,
    pub along: Option<&'t str>,
    pub log: bool,
}

/// One cell.
struct Point {
    series: usize,
    /// Place of its label along the line.
    place: usize,
    x: Summary,
    y: Summary,
}

/// Draws the plot.
pub(super) fn figure(view: &View<'_>, position: usize, spec: &Spec<'_>) -> Figure {
    let (x, y) = (Column::of(spec.x_metric), Column::of(spec.y_metric));
    let panels = panels(view, spec);
    let all = || panels.iter().flat_map(|(_, points)| points);
    let Some((x_scale, y_scale)) = scales(all(), &x, &y, spec.log) else {
        let about = About::new(position, 0, KIND, spec.title);
        let panel = Panel { title: String::new(), svg: no_data(true, &about), wide: true };
        return Figure { title: spec.title.to_owned(), note: String::new(), keys: Vec::new(), panels: vec![panel] };
    };
    let labels =
        |axis: Option<&str>| axis.and_then(|name| view.axis(name)).map(|axis| view.axes[axis].labels.as_slice());
    let names = labels(Some(spec.series)).unwrap_or_default();
    let along = labels(spec.along).unwrap_or_default();
    let keys = names
        .iter()
        .enumerate()
        .map(|(index, label)| Key { label: format!("{}: {label}", spec.series), swatch: Swatch::Line(Look(index)) });
    let wide = panels.len() == 1;
    let drawn = panels.iter().enumerate().map(|(index, (name, points))| {
        let title = full_title(spec.title, name);
        let about = About::new(position, index, KIND, &title);
        let mut canvas = Canvas::new(wide, x_scale.clone(), y_scale.clone());
        draw(&mut canvas, points, !along.is_empty());
        Panel { title: name.clone(), svg: canvas.finish(&about, &description(points, names, along, &x, &y)), wide }
    });
    let note = note(view, spec, along, (&x, &y), y_scale.range.0 > 0.0);
    Figure { title: spec.title.to_owned(), note, keys: keys.collect(), panels: drawn.collect() }
}

/// Cells that have both metrics, by the labels of axes that are neither in the legend nor along the lines.
fn panels(view: &View<'_>, spec: &Spec<'_>) -> Vec<(String, Vec<Point>)> {
    let along = spec.along.map(|name| view.axis(name));
    let (Some(series), Some(along)) = (view.axis(spec.series), along.map_or(Some(None), |axis| axis.map(Some))) else {
        return Vec::new();
    };
    let others: Vec<usize> = (0..view.axes.len()).filter(|&axis| axis != series && Some(axis) != along).collect();
    let mut panels: Vec<(String, Vec<Point>)> = Vec::new();
    for cell in &view.cells {
        let place_of = |axis: usize| view.axes[axis].labels.iter().position(|label| *label == cell.labels[axis]);
        let (Some(x), Some(y)) = (cell.spread(spec.x_metric), cell.spread(spec.y_metric)) else { continue };
        let (Some(row), Some(place)) = (place_of(series), along.map_or(Some(0), place_of)) else { continue };
        let point = Point { series: row, place, x, y };
        let name = view.title_of(&cell.labels, &others);
        match panels.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => panels.push((name, vec![point])),
        }
    }
    for (_, points) in &mut panels {
        points.sort_by_key(|point| (point.series, point.place));
    }
    panels
}

/// Axes that hold all panels. They begin at 0 unless that would press all marks to one end; linear ones span at least a
/// tenth of the largest figure, so that small differences look small.
fn scales<'p>(points: impl Iterator<Item = &'p Point>, x: &Column, y: &Column, log: bool) -> Option<(Scale, Scale)> {
    let (xs, ys): (Vec<Summary>, Vec<Summary>) = points.map(|point| (point.x, point.y)).unzip();
    let ends = |of: &[Summary]| -> Option<(f64, f64)> {
        let low = of.iter().map(|spread| spread.min).reduce(f64::min)?;
        Some((low, of.iter().map(|spread| spread.max).reduce(f64::max)?))
    };
    let linear = |column: &Column, (low, high): (f64, f64)| {
        let low = if low > high / 2.0 { low.min(high * 0.9) } else { low.min(0.0) };
        Scale::linear(&column.heading(), low, high, 4)
    };
    let (x_ends, y_ends) = (ends(&xs)?, ends(&ys)?);
    let x_scale = match log && x_ends.0 > 0.0 {
        true => Scale::log(&x.heading(), x_ends.0, x_ends.1),
        false => linear(x, x_ends),
    };
    Some((x_scale, linear(y, y_ends)))
}

fn draw(canvas: &mut Canvas, points: &[Point], grows: bool) {
    for line in points.chunk_by(|one, next| one.series == next.series) {
        let look = Look(line[0].series);
        let middles: Vec<_> = line
            .iter()
            .filter_map(|point| {
                let radius = if grows { (SMALLEST + LARGER * point.place as f64).min(LARGEST) } else { RADIUS };
                Some((canvas.point(point.x.median, point.y.median)?, radius))
            })
            .collect();
        let spans: Vec<_> = line
            .iter()
            .filter_map(|p| {
                let (left, low) = canvas.point(p.x.min, p.y.min)?;
                let (right, high) = canvas.point(p.x.max, p.y.max)?;
                Some(((left, right), (low, high), canvas.point(p.x.median, p.y.median)?))
            })
            .collect();
        canvas.marks(&look.class(), &look.dashes(), 0, |pen| {
            if middles.len() > 1 {
                pen.path(&middles.iter().map(|(at, _)| *at).collect::<Vec<_>>(), look.colour(), 1.5);
            }
        });
        canvas.marks(&look.class(), "", middles.len(), |pen| {
            for ((left, right), (low, high), (x, y)) in spans {
                if left != right {
                    pen.path(&[(left, y), (right, y)], look.colour(), 1.25);
                }
                if low != high {
                    pen.path(&[(x, low), (x, high)], look.colour(), 1.25);
                }
            }
            for &(at, radius) in &middles {
                pen.mark(look.shape(), at, radius, look.colour());
            }
        });
    }
}

/// How to read the plot.
fn note(view: &View<'_>, spec: &Spec<'_>, along: &[String], (x, y): (&Column, &Column), is_cut: bool) -> String {
    let mut note = "Median per cell".to_owned();
    if view.repetitions().1 > 1 {
        note.push_str("; thin lines from the smallest to the largest run");
    }
    note.push('.');
    let sideways = match x.better {
        Better::Lower => "to the left",
        Better::Higher => "to the right",
        Better::Neutral => "",
    };
    let upwards = match y.better {
        Better::Lower => "down",
        Better::Higher => "up",
        Better::Neutral => "",
    };
    let better = [upwards, sideways].into_iter().filter(|way| !way.is_empty()).collect::<Vec<_>>().join(" and ");
    if !better.is_empty() {
        note.push_str(&format!(" Better is {better}."));
    }
    if let (Some(name), true) = (spec.along, along.len() > 1) {
        note.push_str(&format!(" Marks grow along {name}: {}.", along.join(", ")));
    }
    if is_cut {
        note.push_str(" The ordinate does not begin at 0.");
    }
    note
}

/// A panel in words: every figure drawn.
fn description(points: &[Point], names: &[String], along: &[String], x: &Column, y: &Column) -> String {
    let mut text = format!("{} over {}.", y.heading(), x.heading());
    for line in points.chunk_by(|one, next| one.series == next.series) {
        let figures = line.iter().map(|point| {
            let place = along.get(point.place).map_or(String::new(), |label| format!("{label}: "));
            format!("{place}{} at {}", y.figure(point.y.median), x.figure(point.x.median))
        });
        let name = names.get(line[0].series).map_or("", String::as_str);
        text.push_str(&format!(" {name}: {}.", figures.collect::<Vec<_>>().join("; ")));
    }
    text
}
