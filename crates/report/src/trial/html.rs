//! A trial as a page of its own.

use std::fmt::Write as _;

use super::{Compared, Estimate, LEAST_CHANGE, Row, Trial, change, left_out, others, time};
use crate::html::{escape, page, put};

/// Of the picture, in CSS pixels.
const WIDTH: f64 = 720.0;
const LINE: f64 = 26.0;
const LABELS: f64 = 190.0;
const RIGHT: f64 = 20.0;

pub(super) fn render(trial: &Trial) -> String {
    let mut body = String::new();
    header(&mut body, trial);
    notes(&mut body, trial);
    picture(&mut body, trial);
    times(&mut body, trial);
    rest(&mut body, trial);
    reading(&mut body, trial);
    page(&format!("{} on {}", trial.mechanism, trial.ports.join(", ")), &body)
}

fn header(out: &mut String, trial: &Trial) {
    put!(out, "<header>\n<p class=\"kicker\">evenkeel \u{b7} trial of <code>{}</code></p>", escape(&trial.mechanism));
    put!(out, "<h1>{}</h1>", escape(&trial.sentence()));
    put!(
        out,
        "<p class=\"source\">{} \u{b7} {:.0} s on {} \u{b7} {} pairs of slots</p>\n</header>",
        escape(&trial.started),
        trial.seconds,
        escape(&trial.ports.join(", ")),
        trial.judgement.pairs
    );
}

fn notes(out: &mut String, trial: &Trial) {
    put!(out, "<section class=\"notes\" aria-labelledby=\"notes\">\n<h2 id=\"notes\">Before you judge</h2>\n<ul>");
    for note in trial.notes.iter().chain([&left_out(&trial.judgement.left_out)]) {
        put!(out, "<li>{}</li>", escape(note));
    }
    put!(out, "</ul>\n</section>");
}

fn name(row: &Row) -> String {
    format!("{}, {}", row.direction.word(), row.class)
}

/// Ratios with their intervals, on a logarithmic scale that has 1 in its middle.
fn picture(out: &mut String, trial: &Trial) {
    let part = |row: &Row| Some((name(row), row.geometric.as_ref()?.change?, row.in_primary));
    let mut all: Vec<(String, Estimate, bool)> = trial.judgement.rows.iter().filter_map(part).collect();
    all.extend(trial.judgement.primary.map(|primary| ("all that count".to_owned(), primary, true)));
    let ends = all.iter().flat_map(|(_, e, _)| [e.low, e.high]).filter(|end| end.is_finite() && *end > 0.0);
    let reach = ends.map(|end| end.ln().abs()).fold(0.3, f64::max).min(5.0);
    if all.is_empty() {
        return;
    }
    let x = |ratio: f64| {
        let at = (ratio.max(1e-9).ln() / reach).clamp(-1.0, 1.0);
        LABELS + (WIDTH - LABELS - RIGHT) * (at + 1.0) / 2.0
    };
    let height = LINE * (all.len() as f64 + 1.5);
    put!(out, "<section aria-labelledby=\"ratios\">\n<h2 id=\"ratios\">Time with it, by time without</h2>");
    put!(out, "<p class=\"note\">Points left of 1 took less time with the mechanism; lines are 95 % intervals.</p>");
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Plot: ratios\">\n<svg class=\"plot wide\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Ratios of times with their intervals\">"
    );
    let bottom = height - LINE * 1.2;
    for tick in [0.01, 0.1, 0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 10.0, 100.0] {
        if f64::ln(tick).abs() > reach {
            continue;
        }
        let (x, stroke) = (x(tick), if tick == 1.0 { "var(--ink)" } else { "var(--line)" });
        put!(out, "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"4\" y2=\"{bottom:.1}\" stroke=\"{stroke}\"/>");
        let y = bottom + 18.0;
        put!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" font-size=\"13\">{tick}</text>");
    }
    for (line, (name, e, counts)) in all.iter().enumerate() {
        let y = LINE * (line as f64 + 0.7);
        let (low, value, high) = (x(e.low), x(e.value), x(e.high));
        let colour = if *counts { "var(--link)" } else { "var(--axis)" };
        put!(out, "<text x=\"0\" y=\"{:.1}\" font-size=\"13\">{}</text>", y + 4.0, escape(name));
        put!(
            out,
            "<line x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" \
             stroke-width=\"3\"/><circle cx=\"{value:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\"/>"
        );
    }
    put!(out, "</svg>\n</div>\n</section>");
}

fn table(out: &mut String, label: &str, headings: &[&str], rows: &[Vec<String>]) {
    put!(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table: {label}\">\n<table>");
    put!(out, "<thead><tr>");
    for heading in headings {
        put!(out, "<th scope=\"col\" class=\"figure\">{}</th>", escape(heading));
    }
    put!(out, "</tr></thead>\n<tbody>");
    for row in rows {
        let cells = row.iter().enumerate().map(|(at, cell)| match at {
            0 => format!("<th scope=\"row\">{}</th>", escape(cell)),
            _ => format!("<td data-label=\"{}\">{}</td>", escape(headings[at]), escape(cell)),
        });
        put!(out, "<tr>{}</tr>", cells.collect::<String>());
    }
    put!(out, "</tbody>\n</table>\n</div>");
}

fn times(out: &mut String, trial: &Trial) {
    let compared = |compared: &Option<Compared>| match compared {
        None => "\u{2013}".to_owned(),
        Some(c) => {
            format!("{} \u{2192} {}; {}", time(c.observe), time(c.enforce), change(c.change.as_ref(), true))
        }
    };
    let row = |row: &Row| {
        let mark = if row.in_primary { " *" } else { "" };
        let [observe, enforce] = row.exchanges;
        let first = [name(row) + mark, format!("{observe} / {enforce}")];
        first.into_iter().chain([&row.geometric, &row.median, &row.mean, &row.p99].map(compared)).collect()
    };
    let rows: Vec<Vec<String>> = trial.judgement.rows.iter().map(row).collect();
    put!(out, "<section class=\"landscape\" aria-labelledby=\"times\">\n<h2 id=\"times\">How long exchanges take</h2>");
    put!(
        out,
        "<p class=\"note\">observe \u{2192} enforce; ratio (95 % interval). * is what the verdict is made of.</p>"
    );
    table(out, "Times", &["the VM", "exchanges", "geometric mean", "median", "mean", "99th percentile"], &rows);
    put!(out, "</section>");
}

fn rest(out: &mut String, trial: &Trial) {
    let rows: Vec<Vec<String>> = others(&trial.judgement).into_iter().map(Vec::from).collect();
    put!(out, "<section aria-labelledby=\"rest\">\n<h2 id=\"rest\">Handshakes, and what was sent again</h2>");
    table(out, "Handshakes and repeats", &["", "observe", "enforce", "ratio or difference (95 % interval)"], &rows);
    put!(out, "</section>");
}

fn reading(out: &mut String, trial: &Trial) {
    put!(out, "<section aria-labelledby=\"rule\">\n<h2 id=\"rule\">The rule</h2>");
    put!(
        out,
        "<p>The mechanism was in <code>observe</code> and in <code>enforce</code> in turns, in pairs of slots of one \
         random length (mean {:.1} s) and in random order. An exchange is what a connection carries from its SYN, or \
         from the first data after silence or after the answer before, until all of it is acknowledged. It counts \
         if it began in the middle of a slot and ended in the same slot.</p>",
        trial.slot_seconds
    );
    put!(
        out,
        "<p>The verdict is of one figure, chosen beforehand: the ratio of times, as a geometric mean of the classes \
         marked *, compared within pairs. It is a gain or a harm if its 95 % interval, by bootstrap over pairs, is on \
         one side of 1 and the figure is {:.0} % or more away. All other figures are for reading: of twenty intervals, \
         one misses what is true.</p>",
        100.0 * LEAST_CHANGE
    );
    put!(out, "<pre class=\"command\"><code>{}</code></pre>", escape(&trial.command));
    put!(out, "<p class=\"note\">evenkeel {}, seed {}.</p>\n</section>", escape(&trial.version), trial.seed);
}
