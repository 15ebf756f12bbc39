//! Cumulative distribution of a recorded series' values: one line per cell.

use super::canvas::{Canvas, no_data};
use super::scale::Scale;
use super::series::describe;
use super::style::{Key, Look, Swatch};
use super::{About, Figure, Panel, full_title};
use crate::view::{Cell, View};

const KIND: &str = "cdf";
/// More lines than this in one panel cannot be told apart.
const LINES: usize = 6;
/// Steps of a line at most.
const STEPS: usize = 600;
/// If the largest value is more than this many times the smallest, the abscissa is logarithmic.
const LOG_SPAN: f64 = 50.0;

/// The values of one cell, sorted.
struct Curve {
    label: String,
    values: Vec<f64>,
}

/// Draws the plot. Cells are parted into panels by the leading axes until no panel has too many lines.
pub(super) fn figure(view: &View<'_>, position: usize, title: &str, series: &str) -> Figure {
    let leading = (0..view.axes.len()).find(|&leading| groups(view, leading).iter().all(|group| group.len() <= LINES));
    let leading = leading.unwrap_or(view.axes.len().saturating_sub(1));
    let before: Vec<usize> = (0..leading).collect();
    let within: Vec<usize> = (leading..view.axes.len()).collect();
    let panels: Vec<(String, Vec<Curve>)> = groups(view, leading)
        .into_iter()
        .map(|cells| {
            let heading = cells.first().map_or(String::new(), |cell| view.title_of(&cell.labels, &before));
            let curve =
                |cell: &&Cell<'_>| Curve { label: view.title_of(&cell.labels, &within), values: values(cell, series) };
            (heading, cells.iter().map(curve).collect())
        })
        .collect();
    let mut labels: Vec<String> = Vec::new();
    for curve in panels.iter().flat_map(|(_, curves)| curves).filter(|curve| !curve.label.is_empty()) {
        if !labels.contains(&curve.label) {
            labels.push(curve.label.clone());
        }
    }
    let axis = abscissa(&panels, series);
    let wide = panels.len() <= 1;
    let drawn = panels.iter().enumerate().map(|(index, (heading, curves))| {
        let title = full_title(title, heading);
        let about = About::new(position, index, KIND, &title);
        let svg = match &axis {
            Some(x) => {
                draw(curves, &labels, Canvas::new(wide, x.clone(), Scale::linear("share (%)", 0.0, 100.0, 4)), &about)
            }
            None => no_data(wide, &about),
        };
        Panel { title: heading.clone(), svg, wide }
    });
    let panels = drawn.collect();
    let keys = labels
        .into_iter()
        .enumerate()
        .map(|(index, label)| Key { label, swatch: Swatch::Plain(Look(index)) })
        .collect();
    let note = "Share of values not above the abscissa, all runs and flows of a cell together.".to_owned();
    Figure { title: title.to_owned(), note, keys, panels }
}

/// Cells with the same labels on the first `leading` axes.
fn groups<'v, 'a>(view: &'v View<'a>, leading: usize) -> Vec<Vec<&'v Cell<'a>>> {
    let mut groups: Vec<Vec<&Cell<'_>>> = Vec::new();
    for cell in &view.cells {
        match groups.iter_mut().find(|group| group[0].labels[..leading] == cell.labels[..leading]) {
            Some(group) => group.push(cell),
            None => groups.push(vec![cell]),
        }
    }
    groups
}

fn values(cell: &Cell<'_>, series: &str) -> Vec<f64> {
    let all = cell.runs.iter().flat_map(|run| &run.series).filter(|recorded| recorded.name == series);
    let measured = all.flat_map(|recorded| &recorded.points).filter(|(at, value)| *at >= 0 && value.is_finite());
    let mut values: Vec<f64> = measured.map(|(_, value)| *value).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn abscissa(panels: &[(String, Vec<Curve>)], series: &str) -> Option<Scale> {
    let curves = || panels.iter().flat_map(|(_, curves)| curves);
    let low = curves().filter_map(|curve| curve.values.first()).copied().reduce(f64::min)?;
    let high = curves().filter_map(|curve| curve.values.last()).copied().reduce(f64::max)?;
    let label = match describe(series) {
        (what, "") => what.to_owned(),
        (what, unit) => format!("{what} ({unit})"),
    };
    Some(if low > 0.0 && high / low > LOG_SPAN {
        Scale::log(&label, low, high)
    } else {
        Scale::linear(&label, low.min(0.0), high, 5)
    })
}

fn draw(curves: &[Curve], labels: &[String], mut canvas: Canvas, about: &About<'_>) -> String {
    let mut description = String::new();
    for curve in curves.iter().filter(|curve| !curve.values.is_empty()) {
        let look = Look(labels.iter().position(|label| *label == curve.label).unwrap_or(0));
        let count = curve.values.len();
        let kept = count.min(STEPS);
        let mut path = Vec::with_capacity(kept * 2 + 1);
        path.extend(canvas.point(curve.values[0], 0.0));
        for step in 1..=kept {
            let index = step * count / kept - 1;
            let share = (index + 1) as f64 / count as f64 * 100.0;
            if let (Some(at), Some(&(_, last))) = (canvas.point(curve.values[index], share), path.last()) {
                path.extend([(at.0, last), at]);
            }
        }
        canvas.marks(&look.class(), &look.dashes(), count, |pen| pen.path(&path, look.colour(), 2.0));
        let quantile = |share: f64| curve.values[((count - 1) as f64 * share).round() as usize];
        let name = if curve.label.is_empty() { String::new() } else { format!("{}: ", curve.label) };
        description.push_str(&format!(
            "{name}{count} values, median {:.2}, 90% not above {:.2}, largest {:.2}. ",
            quantile(0.5),
            quantile(0.9),
            curve.values[count - 1],
        ));
    }
    canvas.finish(about, description.trim_end())
}
