//! Grouped bars with whiskers.

use super::canvas::{Canvas, no_data};
use super::grid::{Grid, GridPanel, Paper, Spec};
use super::scale::Scale;
use super::style::{INK, Look, Shape, Swatch, UNIT};
use super::{About, Figure, Panel, full_title};
use crate::view::View;

const KIND: &str = "bars";
/// More bars than this need the page's width.
const NARROW_BARS: usize = 10;

/// Draws the plot.
pub(super) fn figure(view: &View<'_>, position: usize, spec: &Spec<'_>) -> Figure {
    let title = spec.title;
    let Some(grid) = Grid::new(view, spec) else {
        let panel =
            Panel { title: String::new(), svg: no_data(true, &About::new(position, 0, KIND, title)), wide: true };
        return Figure { title: title.to_owned(), note: String::new(), keys: Vec::new(), panels: vec![panel] };
    };
    let wide = grid.panels.len() == 1 || grid.x.len() * grid.series.len() > NARROW_BARS;
    let panels = grid.panels.iter().enumerate().map(|(index, panel)| {
        let title = full_title(title, &panel.title);
        let about = About::new(position, index, KIND, &title);
        Panel { title: panel.title.clone(), svg: draw(&grid, panel, wide, &about), wide }
    });
    Figure { title: title.to_owned(), note: grid.note(view), keys: grid.keys(Swatch::Box), panels: panels.collect() }
}

fn draw(grid: &Grid, panel: &GridPanel, wide: bool, about: &About<'_>) -> String {
    let y = Scale::linear(&grid.column.heading(), 0.0, grid.top, 4);
    let mut canvas = Canvas::new(wide, Scale::categories(&grid.x_name, &grid.x), y);
    let base = canvas.y_unit(0.0);
    let slot = canvas.x_unit(1.0) - canvas.x_unit(0.0);
    // Bars stay slim where there are few of them.
    let width = (slot * 3 / 4 / grid.series.len() as i32).min(54 * UNIT);
    let left = |place: usize, row: usize| {
        canvas.x_unit(place as f64) - width * grid.series.len() as i32 / 2 + width * row as i32
    };
    let mut groups = Vec::new();
    for (row, values) in panel.values.iter().enumerate() {
        let bars: Vec<_> = values
            .iter()
            .enumerate()
            .filter_map(|(place, value)| Some((left(place, row), value.here?, value.paper)))
            .collect();
        groups.push((Look(row), bars));
    }
    for (look, bars) in groups {
        let heights: Vec<_> = bars
            .iter()
            .filter_map(|&(left, here, paper)| {
                let units =
                    [canvas.point(0.0, here.median)?.1, canvas.point(0.0, here.min)?.1, canvas.point(0.0, here.max)?.1];
                Some((left, units, paper.and_then(|paper| canvas.point(0.0, paper))))
            })
            .collect();
        canvas.marks(&look.class(), "", heights.len(), |pen| {
            for &(left, [median, ..], _) in &heights {
                // A figure of zero still gets a line that can be seen.
                pen.bar((left + UNIT, median.min(base - UNIT)), (left + width - UNIT, base), look.colour());
            }
        });
        canvas.marks("over", "", 0, |pen| {
            for &(left, [_, min, max], paper) in &heights {
                let middle = left + width / 2;
                if min != max {
                    pen.whisker(middle, min, max, INK);
                }
                if let (Paper::Marks, Some((_, y))) = (grid.paper, paper) {
                    pen.mark(Shape::Hollow, (middle, y), 5.0, INK);
                }
            }
        });
    }
    canvas.finish(about, &grid.description(panel))
}
