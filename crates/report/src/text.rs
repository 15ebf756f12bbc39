//! The table for a terminal.

use evenkeel_quote::shown;
use unicode_width::UnicodeWidthStr;

use crate::view::View;
use crate::{claims, number};

/// Widest table that is printed in one piece.
const WIDTH: usize = 120;
/// Between columns.
const GAP: usize = 2;

/// A column of text: heading, unit, and a figure per cell.
struct TextColumn {
    heading: [String; 2],
    rows: Vec<String>,
    left: bool,
    /// Belongs to the column before it, and is not parted from it.
    follows: bool,
}

impl TextColumn {
    fn width(&self) -> usize {
        self.heading.iter().chain(&self.rows).map(|text| text.width()).max().unwrap_or(0)
    }
}

/// Renders title, table (in parts if it is wide), and what is to be known beside it.
pub(crate) fn render(view: &View<'_>) -> String {
    let mut out = String::new();
    prose(&mut out, &format!("{}: {}", view.scenario.name, view.scenario.title));
    let axes = axis_columns(view);
    for part in parts(&axes, metric_columns(view)) {
        out.push('\n');
        print_part(&mut out, &axes, &part);
    }
    out.push('\n');
    prose(&mut out, &view.reading());
    if !view.scenario.paper.is_empty() {
        let mut sources: Vec<&str> = Vec::new();
        for paper in &view.scenario.paper {
            if !sources.contains(&paper.source.as_str()) {
                sources.push(&paper.source);
            }
        }
        let sources = sources.join(", ");
        prose(&mut out, &format!("paper: {sources}; here/paper above 1: ours is the larger figure."));
    }
    for claim in claims::claims(view) {
        let [stated, paper, here] = [claim.stated(), claim.in_paper(), claim.here()];
        prose(&mut out, &format!("stated: {stated}; paper {paper}, here {here}"));
    }
    for remark in view.remarks() {
        prose(&mut out, &format!("note: {remark}"));
    }
    out
}

/// A sentence, broken into lines.
fn prose(out: &mut String, text: &str) {
    let text = shown(text).to_string();
    let mut used = 0;
    for word in text.split_whitespace() {
        let width = word.width();
        if used > 0 && used + 1 + width > WIDTH {
            out.push_str("\n  ");
            used = 2;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out.push('\n');
}

fn axis_columns(view: &View<'_>) -> Vec<TextColumn> {
    view.axes
        .iter()
        .enumerate()
        .map(|(index, axis)| TextColumn {
            heading: [shown(&axis.name).into(), String::new()],
            rows: view.cells.iter().map(|cell| shown(&cell.labels[index]).into()).collect(),
            left: true,
            follows: false,
        })
        .collect()
}

fn metric_columns(view: &View<'_>) -> Vec<TextColumn> {
    let mut columns = Vec::new();
    for column in &view.columns {
        let figures: Vec<_> = view.cells.iter().map(|cell| cell.here(&column.name)).collect();
        let rows = figures.iter().map(|here| here.map_or_else(|| "-".to_owned(), |here| column.shown(here, "-")));
        columns.push(TextColumn {
            heading: [shown(&column.title).into(), shown(&column.unit).into()],
            rows: align_ranges(rows.collect()),
            left: false,
            follows: false,
        });
        if !view.has_paper(&column.name) {
            continue;
        }
        let paper: Vec<_> = view.cells.iter().map(|cell| view.paper(cell, &column.name)).collect();
        columns.push(TextColumn {
            heading: ["paper".to_owned(), column.unit.clone()],
            rows: paper.iter().map(|paper| paper.map_or("-".to_owned(), |paper| column.figure(paper.value))).collect(),
            left: false,
            follows: true,
        });
        columns.push(TextColumn {
            heading: ["here/".to_owned(), "paper".to_owned()],
            rows: figures
                .iter()
                .zip(&paper)
                .map(|pair| match pair {
                    (Some(here), Some(paper)) => {
                        number::ratio(here.spread.median, paper.value).unwrap_or("-".to_owned())
                    }
                    _ => "-".to_owned(),
                })
                .collect(),
            left: false,
            follows: true,
        });
    }
    columns
}

/// Pads the ranges, so that the medians before them stand in one column.
fn align_ranges(rows: Vec<String>) -> Vec<String> {
    let range = |row: &str| row.find(" (").map_or(0, |at| row.len() - at);
    let widest = rows.iter().map(|row| range(row)).max().unwrap_or(0);
    rows.into_iter().map(|row| format!("{row}{}", " ".repeat(widest - range(&row)))).collect()
}

/// Groups the metric columns so that each group fits beside the axes.
fn parts(axes: &[TextColumn], metrics: Vec<TextColumn>) -> Vec<Vec<TextColumn>> {
    let room = WIDTH.saturating_sub(axes.iter().map(|axis| axis.width() + GAP).sum());
    let mut parts: Vec<(usize, Vec<TextColumn>)> = Vec::new();
    let mut blocks: Vec<Vec<TextColumn>> = Vec::new();
    for column in metrics {
        match blocks.last_mut() {
            Some(block) if column.follows => block.push(column),
            _ => blocks.push(vec![column]),
        }
    }
    for block in blocks {
        let width: usize = block.iter().map(|column| column.width() + GAP).sum();
        match parts.last_mut() {
            Some((used, part)) if *used + width <= room + GAP => {
                *used += width;
                part.extend(block);
            }
            _ => parts.push((width, block)),
        }
    }
    if parts.is_empty() { vec![Vec::new()] } else { parts.into_iter().map(|(_, part)| part).collect() }
}

fn print_part(out: &mut String, axes: &[TextColumn], metrics: &[TextColumn]) {
    let columns: Vec<&TextColumn> = axes.iter().chain(metrics).collect();
    let widths: Vec<usize> = columns.iter().map(|column| column.width()).collect();
    let mut line = |texts: Vec<&str>| {
        let mut text = String::new();
        for ((column, &width), cell) in columns.iter().zip(&widths).zip(texts) {
            let padding = " ".repeat(width - cell.width());
            let (before, after) = if column.left { ("", padding.as_str()) } else { (padding.as_str(), "") };
            text.push_str(&format!("{before}{cell}{after}{}", " ".repeat(GAP)));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    for row in 0..2 {
        if row == 0 || columns.iter().any(|column| !column.heading[row].is_empty()) {
            line(columns.iter().map(|column| column.heading[row].as_str()).collect());
        }
    }
    let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
    line(rules.iter().map(String::as_str).collect());
    for row in 0..columns.first().map_or(0, |column| column.rows.len()) {
        line(columns.iter().map(|column| column.rows[row].as_str()).collect());
    }
}
