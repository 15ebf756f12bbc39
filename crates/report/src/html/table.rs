//! The table of results with the paper's figures, and the table of every run.

use std::fmt::Write as _;

use evenkeel_scenario::metric::Better;

use super::{escape, put};
use crate::claims::claims;
use crate::number::{grouped, ratio};
use crate::view::{Cell, Column, View};

/// With more columns than this, print takes the sheet's long side.
const PORTRAIT_COLUMNS: usize = 6;

/// Writes the main table: one row per cell, the paper's figure below ours.
pub(super) fn results(out: &mut String, view: &View<'_>) {
    let sources = Sources::new(view);
    open(out, view, "results", "Results", view.columns.len());
    put!(out, "<p class=\"note\">{}{}</p>", view.reading(), sources.legend());
    region(out, "Results", " class=\"results\"");
    put!(out, "<thead><tr>");
    axis_headings(out, view);
    for column in &view.columns {
        let below = [escape(&column.unit), arrow(column)].join(" ");
        put!(
            out,
            "<th scope=\"col\" class=\"figure\">{} <span class=\"unit\">{}</span></th>",
            escape(&column.title),
            below.trim()
        );
    }
    put!(out, "</tr></thead>\n<tbody>");
    let mut previous: Option<&Cell<'_>> = None;
    for cell in &view.cells {
        // A rule where the first of several axes turns over.
        let turned = view.axes.len() > 1 && previous.is_some_and(|previous| previous.labels[0] != cell.labels[0]);
        put!(out, "<tr{}>", if turned { " class=\"turn\"" } else { "" });
        row_headings(out, view, cell);
        for column in &view.columns {
            // The label stands before the figure where a narrow screen has no room for a heading.
            put!(out, "<td data-label=\"{}\">{}</td>", escape(&column.heading()), entry(view, cell, column, &sources));
        }
        put!(out, "</tr>");
        previous = Some(cell);
    }
    put!(out, "</tbody>\n</table>\n</div>");
    stated(out, view);
    sources.list(out);
    put!(out, "</section>");
}

/// Ratios and orders that papers state.
fn stated(out: &mut String, view: &View<'_>) {
    let claims = claims(view);
    if claims.is_empty() {
        return;
    }
    region(out, "What papers state", "");
    put!(out, "<thead><tr><th scope=\"col\">stated</th><th scope=\"col\">by</th>");
    put!(out, "<th scope=\"col\" class=\"figure\">paper</th><th scope=\"col\" class=\"figure\">here</th>");
    put!(out, "</tr></thead>\n<tbody>");
    for claim in claims {
        put!(out, "<tr><th scope=\"row\">{}</th>", escape(&claim.stated()));
        let cells = [claim.paper.cited(), claim.in_paper(), claim.here()];
        cells.iter().for_each(|text| {
            put!(out, "<td>{}</td>", escape(text));
        });
        put!(out, "</tr>");
    }
    put!(out, "</tbody>\n</table>\n</div>");
}

/// Writes the table of every run, with its seed and remarks.
pub(super) fn runs(out: &mut String, view: &View<'_>) {
    let remarks = view.cells.iter().flat_map(|cell| &cell.runs).any(|run| !run.remarks.is_empty());
    open(out, view, "runs", "Every run", view.columns.len() + 3 + usize::from(remarks) * 2);
    put!(out, "<details{}>\n<summary>Show the figures of every run</summary>", if remarks { " open" } else { "" });
    region(out, "Every run", "");
    put!(out, "<thead><tr>");
    axis_headings(out, view);
    for heading in ["run", "seed", "measured <span class=\"unit\">s</span>"] {
        put!(out, "<th scope=\"col\" class=\"figure\">{heading}</th>");
    }
    for column in &view.columns {
        put!(
            out,
            "<th scope=\"col\" class=\"figure\">{} <span class=\"unit\">{}</span></th>",
            escape(&column.title),
            escape(&column.unit)
        );
    }
    if remarks {
        put!(out, "<th scope=\"col\">remarks</th>");
    }
    put!(out, "</tr></thead>\n<tbody>");
    for cell in &view.cells {
        for (index, run) in cell.runs.iter().enumerate() {
            put!(out, "<tr{}>", if index == 0 { " class=\"turn\"" } else { "" });
            row_headings(out, view, cell);
            put!(
                out,
                "<td>{}</td><td>{}</td><td>{:.1}</td>",
                run.repetition + 1,
                run.seed,
                run.duration_us as f64 / 1e6
            );
            for column in &view.columns {
                let figure = run.metrics.get(&column.name).map(|value| grouped(&column.figure(*value)));
                put!(out, "<td>{}</td>", figure.unwrap_or("\u{2013}".to_owned()));
            }
            if remarks {
                put!(out, "<td class=\"remark\">{}</td>", escape(&run.remarks.join(" ")));
            }
            put!(out, "</tr>");
        }
    }
    put!(out, "</tbody>\n</table>\n</div>\n</details>\n</section>");
}

fn open(out: &mut String, view: &View<'_>, id: &str, heading: &str, columns: usize) {
    let class = if view.axes.len() + columns > PORTRAIT_COLUMNS { " class=\"landscape\"" } else { "" };
    put!(out, "<section{class} aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{heading}</h2>");
}

/// The box that a wide table scrolls in.
fn region(out: &mut String, label: &str, class: &str) {
    put!(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table: {label}\">\n<table{class}>");
}

fn axis_headings(out: &mut String, view: &View<'_>) {
    view.axes.iter().for_each(|axis| {
        put!(out, "<th scope=\"col\">{}</th>", escape(&axis.name));
    });
}

fn row_headings(out: &mut String, view: &View<'_>, cell: &Cell<'_>) {
    view.axes.iter().zip(&cell.labels).for_each(|(axis, label)| {
        put!(out, "<th scope=\"row\" data-label=\"{}\">{}</th>", escape(&axis.name), escape(label));
    });
}

fn arrow(column: &Column) -> String {
    let arrow = match column.better {
        Better::Higher => "\u{2191}",
        Better::Lower => "\u{2193}",
        Better::Neutral => return String::new(),
    };
    format!(
        "<span class=\"arrow\" aria-hidden=\"true\" title=\"{0}\">{arrow}</span><span class=\"hidden\">({0})</span>",
        column.direction()
    )
}

fn entry(view: &View<'_>, cell: &Cell<'_>, column: &Column, sources: &Sources<'_>) -> String {
    let here = cell.here(&column.name);
    let mut text = match here {
        None => "<span class=\"here\">\u{2013}</span>".to_owned(),
        Some(here) => {
            let spread = here.spread;
            let mut text = format!("<span class=\"here\">{}</span>", grouped(&column.figure(spread.median)));
            if column.range(spread, "").is_some() {
                let (min, max) = (grouped(&column.figure(spread.min)), grouped(&column.figure(spread.max)));
                let _ = write!(text, "<span class=\"range\">{min}\u{2013}{max}</span>");
            }
            if let Some(some) = here.some_of() {
                let _ = write!(text, "<span class=\"range\">{some}</span>");
            }
            text
        }
    };
    if let Some(paper) = view.paper(cell, &column.name) {
        let ratio = here.and_then(|here| ratio(here.spread.median, paper.value));
        let ratio =
            ratio.map_or(String::new(), |ratio| format!(" <span class=\"ratio\">{}\u{d7}</span>", escape(&ratio)));
        let figure = grouped(&column.figure(paper.value));
        let _ = write!(text, "<span class=\"paper\">paper {figure}{}{ratio}</span>", sources.mark(paper.entry));
    }
    text
}

/// Where the paper's figures come from: distinct pairs of source and note, numbered.
struct Sources<'v> {
    /// Number of each entry of `[[paper]]`, from 0.
    of_entry: Vec<usize>,
    distinct: Vec<(String, &'v str)>,
}

impl<'v> Sources<'v> {
    fn new(view: &'v View<'_>) -> Self {
        let mut distinct: Vec<(String, &str)> = Vec::new();
        let number = |paper: &'v evenkeel_scenario::format::PaperFigures| {
            let source = (paper.cited(), paper.note.as_str());
            distinct.iter().position(|known| *known == source).unwrap_or_else(|| {
                distinct.push(source);
                distinct.len() - 1
            })
        };
        let of_entry = view.scenario.paper.iter().map(number).collect();
        Self { of_entry, distinct }
    }

    /// How to read the paper's lines in the table.
    fn legend(&self) -> &'static str {
        if self.distinct.is_empty() {
            ""
        } else {
            " Below ours, the paper\u{2019}s figure; 2\u{d7} says that ours is twice the paper\u{2019}s."
        }
    }

    fn mark(&self, entry: usize) -> String {
        if self.distinct.len() < 2 {
            return String::new();
        }
        let number = self.of_entry[entry] + 1;
        format!("\u{a0}<a href=\"#paper-{number}\">[{number}]</a>")
    }

    fn list(&self, out: &mut String) {
        if self.distinct.is_empty() {
            return;
        }
        put!(out, "<p class=\"note\">The paper\u{2019}s figures are from:</p>\n<ol class=\"sources\">");
        for (index, (source, note)) in self.distinct.iter().enumerate() {
            let note = if note.is_empty() { String::new() } else { format!(". {}", escape(note)) };
            put!(out, "<li id=\"paper-{}\">{}{note}</li>", index + 1, escape(source));
        }
        put!(out, "</ol>");
    }
}
