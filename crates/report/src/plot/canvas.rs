//! A panel's SVG: the frame with axes and ticks, and groups of marks above it, drawn by plotters.

use evenkeel_quote::shown;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::About;
use super::scale::Scale;
use super::style::{AXIS, FONT, GRID, INK, Shape, UNIT};
use crate::html::escape;

/// Size of a panel of many, in CSS pixels: a phone's width, so that its text needs no scaling there.
const NARROW: (i32, i32) = (328, 250);
/// Size of a panel that has the page's width.
const WIDE: (i32, i32) = (720, 340);
/// Height of a line of text.
const LINE: i32 = FONT + 3;

/// A panel under construction.
pub(crate) struct Canvas {
    size: (i32, i32),
    /// Left, top, right, bottom of the plotting area, in units.
    area: (i32, i32, i32, i32),
    x: Scale,
    y: Scale,
    frame: String,
    groups: String,
    points: usize,
}

/// Draws onto one group of marks; positions are in units of the view box.
pub(crate) struct Pen<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

impl Canvas {
    /// A frame with these axes. Tick labels of `x` that are long (names of categories) are broken into lines; where
    /// there is no room for all of them, some are left out.
    pub fn new(wide: bool, mut x: Scale, y: Scale) -> Self {
        let (width, height) = panel_size(wide);
        let labels = y.ticks.iter().map(|(_, label)| text_width(label)).max().unwrap_or(0);
        let left = (labels + 12).max(34);
        // A label at the very end stands half beyond it.
        let at_end = x.ticks.iter().filter(|(at, _)| *at >= x.range.1).map(|(_, label)| text_width(label) / 2 + 2);
        let right = at_end.max().unwrap_or(0).max(14);
        x.thin(f64::from(label_room(&x)) / f64::from(width - left - right));
        let spacing = tick_spacing(&x, width - left - right);
        let x_labels: Vec<Vec<String>> = x.ticks.iter().map(|(_, label)| wrap(label, spacing - 6)).collect();
        let lines = x_labels.iter().map(Vec::len).max().unwrap_or(1) as i32;
        let (top, bottom) = (LINE + 16, 8 + lines * LINE + LINE + 4);
        let area = (left * UNIT, top * UNIT, (width - right) * UNIT, (height - bottom) * UNIT);
        let mut canvas = Self {
            size: (width * UNIT, height * UNIT),
            area,
            frame: String::new(),
            groups: String::new(),
            points: 0,
            x,
            y,
        };
        canvas.frame = layer(canvas.size, |root| canvas.draw_frame(root));
        canvas.frame.push_str(&layer(canvas.size, |root| {
            let pen = Pen { area: root.clone() };
            pen.text(&canvas.y.label, (2 * UNIT, 2 * UNIT), HPos::Left, VPos::Top);
            let middle = (area.0 + area.2) / 2;
            pen.text(&canvas.x.label, (middle, (height - 3) * UNIT), HPos::Center, VPos::Bottom);
            for ((at, _), lines) in canvas.x.ticks.iter().zip(&x_labels) {
                for (index, line) in lines.iter().enumerate() {
                    let y = area.3 + (7 + index as i32 * LINE) * UNIT;
                    pen.text(line, (canvas.x_unit(*at), y), HPos::Center, VPos::Top);
                }
            }
        }));
        canvas
    }

    /// Grid, axes and the labels of `y`, by plotters' mesh.
    fn draw_frame(&self, root: &DrawingArea<SVGBackend<'_>, Shift>) {
        let (left, top, right, bottom) = self.area;
        let mut chart = ChartBuilder::on(root)
            .margin_top(top)
            .margin_right(self.size.0 - right)
            .set_label_area_size(LabelAreaPosition::Left, left)
            .set_label_area_size(LabelAreaPosition::Bottom, self.size.1 - bottom)
            .build_cartesian_2d(self.x.clone(), self.y.clone())
            .expect(IN_MEMORY);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(UNIT as u32))
            .axis_style(AXIS.stroke_width(UNIT as u32))
            .label_style(font())
            .set_tick_mark_size(LabelAreaPosition::Left, 4 * UNIT)
            .set_tick_mark_size(LabelAreaPosition::Bottom, 4 * UNIT)
            .x_label_formatter(&|_| String::new())
            .draw()
            .expect(IN_MEMORY);
    }

    /// Where a position on the abscissa is drawn.
    pub fn x_unit(&self, at: f64) -> i32 {
        self.x.map(&at, (self.area.0, self.area.2))
    }

    /// Where a position on the ordinate is drawn.
    pub fn y_unit(&self, at: f64) -> i32 {
        self.y.map(&at, (self.area.3, self.area.1))
    }

    /// Where a point is drawn; nothing for one that the axes do not hold.
    pub fn point(&self, x: f64, y: f64) -> Option<(i32, i32)> {
        Some((self.x_unit(self.x.position(x)?), self.y_unit(self.y.position(y)?)))
    }

    /// Top and bottom of the plotting area.
    pub fn span(&self) -> (i32, i32) {
        (self.area.1, self.area.3)
    }

    /// Adds a group of marks that stand for `points` data points. `dashes` applies to lines that are drawn in it.
    pub fn marks(&mut self, class: &str, dashes: &str, points: usize, draw: impl FnOnce(&Pen<'_>)) {
        self.group(&format!("marks {class}"), dashes, draw);
        self.points += points;
    }

    /// Adds a group that is not data: shades.
    pub fn backdrop(&mut self, class: &str, draw: impl FnOnce(&Pen<'_>)) {
        self.group(class, "", draw);
    }

    fn group(&mut self, class: &str, dashes: &str, draw: impl FnOnce(&Pen<'_>)) {
        let drawn = layer(self.size, |root| draw(&Pen { area: root.clone() }));
        let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        self.groups.push_str(&format!("<g class=\"{class}\"{dashes}>\n{drawn}</g>\n"));
    }

    /// The finished SVG. Without a single data point it says so, for readers and for tests.
    pub fn finish(self, about: &About<'_>, description: &str) -> String {
        if self.points == 0 {
            return empty(self.size, about);
        }
        let Self { size, frame, groups, points, .. } = self;
        let data = format!("data-points=\"{points}\"");
        svg(size, about, &data, description, &format!("<g class=\"frame\">\n{frame}</g>\n{groups}"))
    }
}

/// Width and height of a panel, in CSS pixels.
pub(crate) fn panel_size(wide: bool) -> (i32, i32) {
    if wide { WIDE } else { NARROW }
}

/// A panel that says that there is nothing to draw.
pub(crate) fn no_data(wide: bool, about: &About<'_>) -> String {
    let (width, height) = panel_size(wide);
    empty((width * UNIT, height * UNIT), about)
}

fn empty(size: (i32, i32), about: &About<'_>) -> String {
    let body = layer(size, |root| {
        let pen = Pen { area: root.clone() };
        let (low, high) = ((UNIT * 2, UNIT * 2), (size.0 - UNIT * 2, size.1 - UNIT * 2));
        pen.path(&[low, (high.0, low.1), high, (low.0, high.1), low], AXIS, 1.0);
        pen.text("no data", (size.0 / 2, size.1 / 2), HPos::Center, VPos::Center);
    });
    svg(
        size,
        about,
        "data-empty=\"true\"",
        "No data was recorded for this plot.",
        &format!("<g class=\"frame\">\n{body}</g>\n"),
    )
}

fn svg(size: (i32, i32), about: &About<'_>, data: &str, description: &str, body: &str) -> String {
    let (id, kind, title) = (&about.id, about.kind, escape(about.title));
    let wide = if size.0 == WIDE.0 * UNIT { " wide" } else { "" };
    format!(
        "<svg class=\"plot{wide}\" id=\"{id}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{id}-title \
         {id}-desc\" data-kind=\"{kind}\" {data}>\n<title id=\"{id}-title\">{title}</title>\n\
         <desc id=\"{id}-desc\">{}</desc>\n{body}</svg>",
        size.0,
        size.1,
        escape(description),
    )
}

impl Pen<'_> {
    /// A line through these points; `width` in CSS pixels.
    pub fn path(&self, points: &[(i32, i32)], colour: RGBColor, width: f64) {
        let style = colour.stroke_width((width * f64::from(UNIT)) as u32);
        self.area.draw(&PathElement::new(points.to_vec(), style)).expect(IN_MEMORY);
    }

    /// A filled box between two corners.
    pub fn bar(&self, from: (i32, i32), to: (i32, i32), colour: RGBColor) {
        self.area.draw(&Rectangle::new([from, to], colour.filled())).expect(IN_MEMORY);
    }

    /// A vertical line with feet, from `low` to `high`.
    pub fn whisker(&self, x: i32, low: i32, high: i32, colour: RGBColor) {
        let foot = 3 * UNIT;
        self.path(&[(x, low), (x, high)], colour, 1.25);
        self.path(&[(x - foot, low), (x + foot, low)], colour, 1.25);
        self.path(&[(x - foot, high), (x + foot, high)], colour, 1.25);
    }

    /// A mark of this shape; `radius` in CSS pixels.
    pub fn mark(&self, shape: Shape, (x, y): (i32, i32), radius: f64, colour: RGBColor) {
        let r = (radius * f64::from(UNIT)) as i32;
        let diamond = vec![(x, y - r * 5 / 4), (x + r * 5 / 4, y), (x, y + r * 5 / 4), (x - r * 5 / 4, y)];
        let corners = match shape {
            Shape::Circle => {
                self.area.draw(&Circle::new((x, y), r, colour.filled())).expect(IN_MEMORY);
                return;
            }
            Shape::Cross => {
                self.path(&[(x - r, y - r), (x + r, y + r)], colour, 1.75);
                self.path(&[(x - r, y + r), (x + r, y - r)], colour, 1.75);
                return;
            }
            Shape::Hollow => {
                self.area.draw(&Polygon::new(diamond.clone(), WHITE.filled())).expect(IN_MEMORY);
                let closed = [diamond.as_slice(), &diamond[..1]].concat();
                self.path(&closed, colour, 1.75);
                return;
            }
            Shape::Square => vec![(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)],
            Shape::Triangle => vec![(x, y - r * 5 / 4), (x + r * 5 / 4, y + r), (x - r * 5 / 4, y + r)],
            Shape::Diamond => diamond,
        };
        self.area.draw(&Polygon::new(corners, colour.filled())).expect(IN_MEMORY);
    }

    /// A text in the middle of something.
    pub fn label(&self, text: &str, at: (i32, i32)) {
        self.text(text, at, HPos::Center, VPos::Center);
    }

    fn text(&self, text: &str, at: (i32, i32), h: HPos, v: VPos) {
        let style = font().pos(Pos::new(h, v));
        self.area.draw(&Text::new(String::from(shown(text)), at, style)).expect(IN_MEMORY);
    }
}

/// Drawing goes into a string; there is nothing that could fail.
const IN_MEMORY: &str = "drawing into memory does not fail";

fn font() -> TextStyle<'static> {
    // The SVG backend divides sizes by 1.24.
    ("sans-serif", f64::from(FONT * UNIT) * 1.24).into_font().color(&INK)
}

/// Draws onto an SVG of its own and returns what is inside its outermost element.
fn layer(size: (i32, i32), draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>)) -> String {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (size.0 as u32, size.1 as u32)).into_drawing_area();
        draw(&root);
        root.present().expect(IN_MEMORY);
    }
    let start = text.find(">\n").map_or(0, |at| at + 2);
    let end = text.rfind("</svg>").unwrap_or(text.len());
    text[start..end].to_owned()
}

/// About how wide a text is, in CSS pixels: there are no font files to measure by.
fn text_width(text: &str) -> i32 {
    unicode_width::UnicodeWidthStr::width(text) as i32 * 8
}

/// Room that a tick label on the abscissa needs: numbers cannot be shortened, names can, down to three letters.
fn label_room(x: &Scale) -> i32 {
    let numbers = x.ticks.iter().all(|(_, label)| label.parse::<f64>().is_ok());
    let widest = x.ticks.iter().map(|(_, label)| text_width(label)).max().unwrap_or(0);
    6 + if numbers { widest } else { widest.min(3 * 8) }
}

/// Room of one tick label on the abscissa.
fn tick_spacing(x: &Scale, width: i32) -> i32 {
    let mut positions: Vec<f64> = x.ticks.iter().map(|(at, _)| *at).collect();
    positions.sort_by(f64::total_cmp);
    let closest = positions.windows(2).map(|pair| pair[1] - pair[0]).fold(x.range.1 - x.range.0, f64::min);
    (closest / (x.range.1 - x.range.0) * f64::from(width)) as i32
}

/// Breaks a label at spaces into at most three lines of `width`, and shortens what does not fit.
fn wrap(label: &str, width: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in label.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line) + text_width(word) + 8 <= width => line.push_str(&format!(" {word}")),
            _ => lines.push(word.to_owned()),
        }
    }
    if lines.len() > 3 {
        let rest = lines.split_off(2).join(" ");
        lines.push(rest);
    }
    lines.into_iter().map(|line| shorten(line, width)).collect()
}

fn shorten(text: String, width: i32) -> String {
    let most = (width / 8).max(3) as usize;
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most - 1).chain(['\u{2026}']).collect()
}
