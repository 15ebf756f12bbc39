//! One plot as an SVG file of its own, with heading, legend and reading: for pages that cannot show the HTML report.

use std::fmt::Write as _;

use crate::html::{escape, swatch};
use crate::plot::{Figure, panel_size};

/// Room around everything, in CSS pixels.
const MARGIN: i32 = 8;
/// Width of the page, and of a panel that fills it.
const WIDTH: i32 = 720;
const HEADING: i32 = 24;
const LINE: i32 = 18;
const KEY_WIDTH: i32 = 240;
/// Letters of a note in a line.
const LETTERS: usize = 116;

/// Renders a figure.
pub(crate) fn render(figure: &Figure) -> String {
    let mut body = String::new();
    let mut y = MARGIN;
    put(&mut body, (MARGIN, y + 16), "font-size=\"16\" font-weight=\"bold\"", &figure.title);
    y += HEADING;
    for row in figure.keys.chunks((WIDTH / KEY_WIDTH) as usize) {
        for (column, key) in row.iter().enumerate() {
            let x = MARGIN + column as i32 * KEY_WIDTH;
            body.push_str(&placed(&swatch(key.swatch), (x, y + 1), (28, 16)));
            put(&mut body, (x + 34, y + 14), "font-size=\"13\"", &key.label);
        }
        y += LINE;
    }
    for line in lines(&figure.note) {
        put(&mut body, (MARGIN, y + 14), "font-size=\"13\" fill=\"#555555\"", &line);
        y += LINE;
    }
    let (mut x, mut row_height) = (0, 0);
    for panel in &figure.panels {
        let (width, height) = panel_size(panel.wide);
        if x > 0 && x + width > WIDTH {
            (x, y, row_height) = (0, y + row_height, 0);
        }
        let heading = if panel.title.is_empty() { 0 } else { LINE };
        if heading > 0 {
            put(&mut body, (MARGIN + x, y + 14), "font-size=\"13\" font-weight=\"bold\"", &panel.title);
        }
        body.push_str(&placed(&panel.svg, (MARGIN + x, y + heading), (width, height)));
        x += width;
        row_height = row_height.max(height + heading);
    }
    let (width, height) = (WIDTH + 2 * MARGIN, y + row_height + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
         {height}\" font-family=\"sans-serif\" fill=\"#222222\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n{body}</svg>\n"
    )
}

/// An SVG element at a place in another.
fn placed(svg: &str, (x, y): (i32, i32), (width, height): (i32, i32)) -> String {
    let inside = svg.strip_prefix("<svg").unwrap_or(svg);
    format!("<svg x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"{inside}\n")
}

fn put(out: &mut String, (x, y): (i32, i32), look: &str, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" {look}>{}</text>", escape(text));
}

/// A text in lines, broken at spaces.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < LETTERS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
