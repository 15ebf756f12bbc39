//! Lines of one metric over an axis, with marks and whiskers.

use super::canvas::{Canvas, no_data};
use super::grid::{Grid, GridPanel, Paper, Spec};
use super::scale::Scale;
use super::style::{Look, Shape, Swatch, UNIT};
use super::{About, Figure, Panel, full_title};
use crate::view::View;

const KIND: &str = "lines";
/// Numbers stand at even distances if two of them are closer than their span divided by this.
const CLOSEST: f64 = 20.0;
/// Half the distance between two series at one place.
const ASIDE: i32 = 3 * UNIT / 2;

/// Draws the plot.
pub(super) fn figure(view: &View<'_>, position: usize, spec: &Spec<'_>) -> Figure {
    let title = spec.title;
    let Some(grid) = Grid::new(view, spec) else {
        let panel =
            Panel { title: String::new(), svg: no_data(true, &About::new(position, 0, KIND, title)), wide: true };
        return Figure { title: title.to_owned(), note: String::new(), keys: Vec::new(), panels: vec![panel] };
    };
    let wide = grid.panels.len() == 1 || grid.x.len() > 8;
    let panels = grid.panels.iter().enumerate().map(|(index, panel)| {
        let title = full_title(title, &panel.title);
        let about = About::new(position, index, KIND, &title);
        Panel { title: panel.title.clone(), svg: draw(&grid, panel, wide, &about), wide }
    });
    Figure { title: title.to_owned(), note: grid.note(view), keys: grid.keys(Swatch::Line), panels: panels.collect() }
}

/// Labels that are all numbers, and not too close for their marks, stand at their value; others at even distances.
fn abscissa(grid: &Grid) -> (Scale, Vec<f64>) {
    let numbers: Option<Vec<f64>> = grid.x.iter().map(|label| label.parse().ok()).collect();
    if let Some(numbers) = numbers.filter(|numbers| apart(numbers)) {
        let points: Vec<(f64, String)> = numbers.iter().copied().zip(grid.x.iter().cloned()).collect();
        return (Scale::points(&grid.x_name, &points), numbers);
    }
    (Scale::categories(&grid.x_name, &grid.x), (0..grid.x.len()).map(|place| place as f64).collect())
}

fn apart(numbers: &[f64]) -> bool {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(&low), Some(&high)) = (sorted.first(), sorted.last()) else { return false };
    sorted.windows(2).all(|pair| pair[1] - pair[0] >= (high - low) / CLOSEST)
        && high > low
        && high.is_finite()
        && low.is_finite()
}

fn draw(grid: &Grid, panel: &GridPanel, wide: bool, about: &About<'_>) -> String {
    let (x, places) = abscissa(grid);
    let mut canvas = Canvas::new(wide, x, Scale::linear(&grid.column.heading(), 0.0, grid.top, 4));
    for (row, values) in panel.values.iter().enumerate() {
        let look = Look(row);
        // Side by side, so that the whiskers of one place do not hide each other.
        let aside = (2 * row as i32 + 1 - grid.series.len() as i32) * ASIDE;
        let point = |x: f64, y: f64| canvas.point(x, y).map(|(x, y)| (x + aside, y));
        let points: Vec<_> = values
            .iter()
            .zip(&places)
            .filter_map(|(value, &x)| {
                let here = value.here?;
                let range = (point(x, here.min)?.1, point(x, here.max)?.1);
                Some((point(x, here.median)?, range, value.paper.and_then(|paper| point(x, paper))))
            })
            .collect();
        canvas.marks(&look.class(), &look.dashes(), 0, |pen| {
            if points.len() > 1 {
                pen.path(&points.iter().map(|(at, ..)| *at).collect::<Vec<_>>(), look.colour(), 2.0);
            }
        });
        canvas.marks(&look.class(), "", points.len(), |pen| {
            for &((x, y), (min, max), _) in &points {
                if min != max {
                    pen.whisker(x, min, max, look.colour());
                }
                pen.mark(look.shape(), (x, y), 4.0, look.colour());
            }
        });
        if grid.paper == Paper::Marks {
            canvas.marks(&look.class(), "", 0, |pen| {
                points
                    .iter()
                    .filter_map(|(.., paper)| *paper)
                    .for_each(|at| pen.mark(Shape::Hollow, at, 5.0, look.colour()));
            });
        }
    }
    canvas.finish(about, &grid.description(panel))
}
