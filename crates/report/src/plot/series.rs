//! Recorded series over time: one panel per cell.

use evenkeel_scenario::stats::Summary;

use super::canvas::{Canvas, no_data};
use super::decimate::decimate;
use super::scale::Scale;
use super::style::{Key, Look, Swatch};
use super::{About, Figure, Panel, full_title};
use crate::view::View;

const KIND: &str = "series";
/// Series this short get a mark per point.
const MARKED: usize = 60;
/// Series longer than this are drawn thin, so that others can be seen before them.
const DENSE: usize = 500;

/// One recorded series: which of the plot's names it has, and its points in seconds.
struct Curve {
    name: usize,
    subject: String,
    points: Vec<(f64, f64)>,
}

/// Draws the plot.
pub(super) fn figure(view: &View<'_>, position: usize, title: &str, names: &[String], log: bool) -> Figure {
    let cells: Vec<(String, Vec<Curve>)> = view
        .cells
        .iter()
        .map(|cell| {
            (view.cell_title(cell), cell.runs.first().map_or(Vec::new(), |run| curves(&run.series, names, log)))
        })
        .collect();
    let keys = names
        .iter()
        .enumerate()
        .map(|(index, name)| Key { label: describe(name).0.to_owned(), swatch: Swatch::Plain(Look(index)) });
    let keys: Vec<Key> = if names.len() > 1 { keys.collect() } else { Vec::new() };
    let subjects = cells.iter().map(|(_, curves)| curves.iter().filter(|curve| curve.name == 0).count()).max();
    let mut note = "First run of each cell; all panels have the same axes.".to_owned();
    if subjects.unwrap_or(0) > 1 {
        note.push_str(" One line per VM or flow.");
    }
    let axes = axes(&cells, names, log);
    let wide = cells.len() == 1;
    let panels = cells.iter().enumerate().map(|(index, (cell, curves))| {
        let title = full_title(title, cell);
        let about = About::new(position, index, KIND, &title);
        let svg = match &axes {
            Some((x, y)) => draw(curves, names, Canvas::new(wide, x.clone(), y.clone()), &about),
            None => no_data(wide, &about),
        };
        Panel { title: cell.clone(), svg, wide }
    });
    Figure { title: title.to_owned(), note, keys, panels: panels.collect() }
}

/// What a series' name stands for, and its unit.
pub(super) fn describe(name: &str) -> (&str, &str) {
    match name {
        "rtt_ms" => ("ping RTT", "ms"),
        "block_ms" => ("block time", "ms"),
        "meas_rtt_ms" => ("measured RTT", "ms"),
        "srtt_ms" => ("SRTT", "ms"),
        "rto_ms" => ("RTO", "ms"),
        "cwnd_segments" => ("congestion window", "segments"),
        "queue_segments" => ("bottleneck queue", "segments"),
        other => (other, ""),
    }
}

/// The measured time only; a logarithmic axis has no place for zero.
fn curves(series: &[evenkeel_scenario::result::Series], names: &[String], log: bool) -> Vec<Curve> {
    let of_name = |(index, name): (usize, &String)| {
        let named: Vec<Curve> = series
            .iter()
            .filter(|series| series.name == *name)
            .map(|series| {
                let shown =
                    series.points.iter().filter(|(at, value)| *at >= 0 && value.is_finite() && !(log && *value <= 0.0));
                let points = shown.map(|&(at, value)| (at as f64 / 1e6, value)).collect();
                Curve { name: index, subject: series.subject.clone(), points }
            })
            .filter(|curve| !curve.points.is_empty())
            .collect();
        named
    };
    names.iter().enumerate().flat_map(of_name).collect()
}

/// Axes that hold every panel's data, so that panels can be compared.
fn axes(cells: &[(String, Vec<Curve>)], names: &[String], log: bool) -> Option<(Scale, Scale)> {
    let points = || cells.iter().flat_map(|(_, curves)| curves).flat_map(|curve| &curve.points);
    let time = Summary::of(&points().map(|(at, _)| *at).collect::<Vec<_>>())?;
    let values = Summary::of(&points().map(|(_, value)| *value).collect::<Vec<_>>())?;
    let mut labels: Vec<String> = Vec::new();
    for name in names {
        let label = match (describe(name), names.len()) {
            ((what, ""), _) => what.to_owned(),
            ((what, unit), 1) => format!("{what} ({unit})"),
            ((_, unit), _) => unit.to_owned(),
        };
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let label = labels.join(", ");
    let y = if log {
        Scale::log(&label, values.min, values.max)
    } else {
        Scale::linear(&label, values.min.min(0.0), values.max, 4)
    };
    Some((Scale::exact("time (s)", 0.0, time.max, 5), y))
}

fn draw(curves: &[Curve], names: &[String], mut canvas: Canvas, about: &About<'_>) -> String {
    let mut description = String::new();
    for curve in curves {
        let look = Look(curve.name);
        let points = decimate(&curve.points);
        let drawn: Vec<(i32, i32)> = points.iter().filter_map(|&(x, y)| canvas.point(x, y)).collect();
        let alone = curves.iter().filter(|other| other.name == curve.name).count() == 1;
        canvas.marks(&look.class(), &look.dashes(), drawn.len(), |pen| {
            if drawn.len() > 1 {
                pen.path(&drawn, look.colour(), if alone && drawn.len() <= DENSE { 1.75 } else { 1.0 });
            }
        });
        if drawn.len() <= MARKED {
            canvas.marks(&look.class(), "", 0, |pen| {
                drawn.iter().for_each(|&at| pen.mark(look.shape(), at, 2.5, look.colour()));
            });
        }
        if let Some(spread) = Summary::of(&curve.points.iter().map(|(_, value)| *value).collect::<Vec<_>>()) {
            description.push_str(&format!(
                "{} of {}: {} points, smallest {:.2}, median {:.2}, largest {:.2}. ",
                names[curve.name],
                curve.subject,
                curve.points.len(),
                spread.min,
                spread.median,
                spread.max,
            ));
        }
    }
    canvas.finish(about, description.trim_end())
}
