//! The report: one self-contained HTML file.
//!
//! Everything that comes from scenario or result files is untrusted and goes through [`escape`]; the page's policy
//! allows neither scripts nor requests.

mod escape;
mod legend;
mod table;

use std::fmt::Write as _;

use evenkeel_scenario::result::Engine;

pub(crate) use escape::escape;
pub(crate) use legend::swatch;

use crate::plot::{self, Figure};
use crate::view::View;

const STYLE: &str = include_str!("style.css");

/// Renders the whole page.
pub(crate) fn render(view: &View<'_>) -> String {
    let mut body = String::new();
    header(&mut body, view);
    notes(&mut body, view);
    table::results(&mut body, view);
    plots(&mut body, view);
    again(&mut body, view);
    table::runs(&mut body, view);
    definitions(&mut body, view);
    scenario(&mut body, view);
    page(&view.scenario.title, &body)
}

/// A page with this title and body, which is HTML.
pub(crate) fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title} \u{b7} evenkeel</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// Writing into a string does not fail.
macro_rules! put {
    ($out:expr, $($args:tt)*) => {
        let _ = writeln!($out, $($args)*);
    };
}
pub(crate) use put;

fn header(out: &mut String, view: &View<'_>) {
    let engine = match view.set.engine {
        Engine::Lab => "Measured with real virtual machines",
        Engine::Sim => "Simulated",
    };
    put!(out, "<header>");
    put!(out, "<p class=\"kicker\">evenkeel \u{b7} <code>{}</code></p>", escape(&view.scenario.name));
    put!(out, "<h1>{}</h1>", escape(&view.scenario.title));
    let source = if view.scenario.source.is_empty() {
        String::new()
    } else {
        format!(" \u{b7} {}", escape(&view.scenario.source))
    };
    put!(out, "<p class=\"source\">{engine}, {}{source}</p>", escape(&view.set.started));
    for paragraph in view.scenario.description.split("\n\n").filter(|text| !text.trim().is_empty()) {
        put!(out, "<p>{}</p>", escape(paragraph.trim()));
    }
    put!(out, "</header>");
}

/// What the reader must know before judging the figures.
fn notes(out: &mut String, view: &View<'_>) {
    let mut notes = view.remarks();
    let troubled = view.cells.iter().flat_map(|cell| &cell.runs).filter(|run| !run.remarks.is_empty()).count();
    if troubled > 0 {
        let runs =
            if troubled == 1 { "1 run has a remark".to_owned() } else { format!("{troubled} runs have remarks") };
        notes.push(format!("{runs} of its own; see \u{201c}Every run\u{201d}."));
    }
    if notes.is_empty() {
        return;
    }
    put!(out, "<section class=\"notes\" aria-labelledby=\"notes\">\n<h2 id=\"notes\">Before you judge</h2>\n<ul>");
    notes.iter().for_each(|note| {
        put!(out, "<li>{}</li>", escape(note));
    });
    put!(out, "</ul>\n</section>");
}

fn plots(out: &mut String, view: &View<'_>) {
    if view.scenario.report.plots.is_empty() {
        return;
    }
    put!(out, "<section aria-labelledby=\"plots\">\n<h2 id=\"plots\">Plots</h2>");
    for (position, spec) in view.scenario.report.plots.iter().enumerate() {
        figure(out, &plot::figure(view, position, spec));
    }
    put!(out, "</section>");
}

fn figure(out: &mut String, figure: &Figure) {
    put!(out, "<figure>\n<figcaption>\n<h3>{}</h3>", escape(&figure.title));
    if !figure.note.is_empty() {
        put!(out, "<p class=\"note\">{}</p>", escape(&figure.note));
    }
    legend::legend(out, &figure.keys);
    put!(out, "</figcaption>\n<div class=\"panels\">");
    for panel in &figure.panels {
        put!(out, "<div class=\"panel{}\">", if panel.wide { " wide" } else { "" });
        if !panel.title.is_empty() {
            put!(out, "<h4>{}</h4>", escape(&panel.title));
        }
        let label = if panel.title.is_empty() { &figure.title } else { &panel.title };
        // Wide panels keep their size on a phone, inside a box of their own that scrolls.
        match panel.wide {
            true => {
                put!(
                    out,
                    "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Plot: {}\">",
                    escape(label)
                );
                put!(out, "{}\n</div>", panel.svg);
            }
            false => {
                put!(out, "{}", panel.svg);
            }
        }
        put!(out, "</div>");
    }
    put!(out, "</div>\n</figure>");
}

/// How to run it again, and what it ran on.
fn again(out: &mut String, view: &View<'_>) {
    put!(out, "<section aria-labelledby=\"again\">\n<h2 id=\"again\">Run it again</h2>");
    put!(out, "<pre class=\"command\"><code>{}</code></pre>", escape(&view.set.command));
    put!(out, "<p class=\"note\">Seed {}; first run started {}.</p>", view.scenario.seed, escape(&view.set.started));
    if let Some(provenance) = &view.set.provenance {
        let commit = escape(&provenance.program.commit_in_words());
        put!(out, "<p class=\"note\">Made by evenkeel, {commit}, on {}.</p>", escape(&provenance.host));
    }
    put!(out, "<dl class=\"versions\">");
    for (component, version) in &view.set.versions {
        put!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(component), escape(version));
    }
    put!(out, "</dl>\n</section>");
}

fn definitions(out: &mut String, view: &View<'_>) {
    put!(
        out,
        "<section aria-labelledby=\"definitions\">\n<h2 id=\"definitions\">What the columns mean</h2>\n\
         <dl class=\"metrics\">"
    );
    for column in &view.columns {
        let direction = match column.direction() {
            "" => String::new(),
            direction => format!(" <span class=\"note\">{direction}</span>"),
        };
        put!(out, "<dt>{}{direction}</dt>", escape(&column.heading()));
        put!(out, "<dd>{} <code>{}</code></dd>", escape(&column.description), escape(&column.name));
    }
    put!(out, "</dl>\n</section>");
}

fn scenario(out: &mut String, view: &View<'_>) {
    put!(out, "<section aria-labelledby=\"scenario\">\n<h2 id=\"scenario\">The scenario</h2>\n<details>");
    put!(out, "<summary>Show the scenario file, <code>{}.toml</code></summary>", escape(&view.scenario.name));
    put!(out, "<pre><code>{}</code></pre>\n</details>\n</section>", escape(&view.set.scenario_toml));
}
