//! How the report is built, without a browser.

use evenkeel_report::{REPORT_FILE, ReportError, load, write_report};
use evenkeel_scenario::format::Plot;

use crate::common::{self, Sample};

/// The opening tags of the page's plots.
fn plots(html: &str) -> Vec<&str> {
    html.match_indices("<svg class=\"plot").map(|(at, _)| &html[at..at + html[at..].find('>').unwrap()]).collect()
}

fn attribute<'t>(tag: &'t str, name: &str) -> Option<&'t str> {
    let start = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    Some(&tag[start..start + tag[start..].find('"')?])
}

#[test]
fn every_plot_has_its_panels_and_points() {
    let html = Sample::everything().html();
    let kinds: Vec<&str> = plots(&html).iter().map(|tag| attribute(tag, "data-kind").unwrap()).collect();
    let count = |kind: &str| kinds.iter().filter(|known| **known == kind).count();
    // Panels: goodput by era; timeouts by RTO min and PVTCP; block time, and goodput over it, by era; factors by era
    // and RTO min; the rest by cell, the CDF six cells at most.
    assert_eq!(
        ["bars", "lines", "plane", "heat", "factors", "series", "cdf", "sequence"].map(count),
        [2 + 4, 2, 2, 1, 4, 8, 2, 8],
        "{kinds:?}"
    );
    for tag in plots(&html) {
        let points: usize =
            attribute(tag, "data-points").unwrap_or_else(|| panic!("no points: {tag}")).parse().unwrap();
        assert!(points > 0, "{tag}");
        assert!(!tag.contains("data-empty"), "{tag}");
    }
}

#[test]
fn a_plane_has_a_mark_per_cell_where_its_metrics_are() {
    let sample = Sample::everything();
    let html = sample.html();
    let tag = html.find("data-kind=\"plane\"").unwrap();
    let panel = &html[tag..tag + html[tag..].find("</svg>").unwrap()];
    assert!(panel.contains("data-points=\"4\""), "two axes of two labels each");
    let middle = |metric: &str| {
        let run = |record: &&evenkeel_scenario::result::RunRecord| record.cell[..] == sample.records[0].cell[..];
        let mut values: Vec<f64> = sample.records.iter().filter(run).map(|record| record.metrics[metric]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let figures = format!("smallest: {:.1} at {:.1}", middle("goodput_mbit"), middle("block_p99_ms"));
    assert!(panel.contains(&figures), "{figures} in {panel}");
    assert!(html.contains("Better is up and to the left. Marks grow along RTO min: smallest, 200 ms."));
}

#[test]
fn a_map_has_a_factor_for_each_pair_of_cells() {
    let sample = Sample::everything();
    let html = sample.html();
    let tag = html.find("data-kind=\"heat\"").unwrap();
    let panel = &html[tag..tag + html[tag..].find("</svg>").unwrap()];
    assert!(panel.contains("data-points=\"4\""), "two axes of two labels each: {panel}");
    let middle = |cell: &[(String, String)]| {
        let runs = sample.records.iter().filter(|record| record.cell == cell);
        let mut values: Vec<f64> = runs.map(|record| record.metrics["block_p99_ms"]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let off = &sample.records[0].cell;
    let on: Vec<_> = off
        .iter()
        .map(|(axis, label)| (axis.clone(), if axis == "PVTCP" { "on".to_owned() } else { label.clone() }))
        .collect();
    let factor = format!("smallest, paper&#39;s day: {:.2}", middle(&on) / middle(off));
    assert!(panel.contains(&factor), "{factor} in {panel}");
    assert!(html.contains("as a factor of what it is with PVTCP = off. Less is better."));
}

#[test]
fn factors_are_of_one_cell() {
    let sample = Sample::everything();
    let html = sample.html();
    let tag = html.find("data-kind=\"factors\"").unwrap();
    let panel = &html[tag..tag + html[tag..].find("</svg>").unwrap()];
    assert!(panel.contains("data-points=\"4\""), "two recorded metrics, with PVTCP and without: {panel}");
    let median = |rto_min: &str, pvtcp: &str| {
        let is_meant = |axis: &str, label: &str| match axis {
            "RTO min" => label == rto_min,
            "PVTCP" => label == pvtcp,
            _ => label == sample.records[0].cell[0].1,
        };
        let runs = sample.records.iter().filter(|run| run.cell.iter().all(|(axis, label)| is_meant(axis, label)));
        let mut values: Vec<f64> = runs.map(|run| run.metrics["block_p50_ms"]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let title = evenkeel_scenario::metric::Metric::BlockP50Ms.about().title;
    let factor = format!("{title}, on: {:.2}", median("smallest", "on") / median("200 ms", "off"));
    assert!(panel.contains(&factor), "{factor} in {panel}");
    assert!(html.contains("Medians, as factors of those with PVTCP = off, RTO min = 200 ms."));
}

#[test]
fn plots_can_stand_alone() {
    let sample = Sample::everything();
    let count = sample.scenario.report.plots.len();
    for number in 1..=count {
        let svg = evenkeel_report::render_svg(&sample.set, &sample.scenario, &sample.records, number).unwrap();
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        assert!(svg.contains("data-points=") && !svg.contains("data-empty"), "{number}");
    }
    for number in [0, count + 1] {
        assert!(evenkeel_report::render_svg(&sample.set, &sample.scenario, &sample.records, number).is_none());
    }
}

#[test]
fn a_page_has_its_pictures_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    Sample::everything().write(dir.path());
    let (results, page) = (load(dir.path()).unwrap(), dir.path().join("page.md"));
    let files = evenkeel_report::write_page(&results, &page).unwrap();
    let pictures = [4, 5, 6].map(|number| dir.path().join(format!("page-{number}.svg")));
    assert_eq!(files, [&pictures[..], std::slice::from_ref(&page)].concat());
    let text = std::fs::read_to_string(&page).unwrap();
    let table = evenkeel_report::render_markdown(&results.set, &results.scenario, &results.records);
    let titles = ["Goodput over block time", "Block times with PVTCP", "What each RTO min and PVTCP are worth"];
    let shown = titles.iter().zip(4..).map(|(title, number)| format!("\n![{title}](page-{number}.svg)\n"));
    assert_eq!(text, table + &shown.collect::<String>());
    let error = evenkeel_report::write_page(&results, &dir.path().join("none/page.md")).unwrap_err();
    assert!(matches!(error, ReportError::Write { .. }), "{error}");
}

#[test]
fn a_plot_without_data_says_so() {
    let mut sample = Sample::everything();
    for record in &mut sample.records {
        record.metrics.clear();
        record.series.clear();
        record.packets.clear();
    }
    let html = sample.html();
    let plots = plots(&html);
    assert!(plots.iter().all(|tag| attribute(tag, "data-empty") == Some("true")), "{plots:?}");
    assert_eq!(html.matches("no data\n</text>").count(), plots.len());
}

#[test]
fn one_empty_cell_is_one_empty_panel() {
    let mut sample = Sample::everything();
    sample.records.iter_mut().take(3).for_each(|record| record.packets.clear());
    let html = sample.html();
    let empty: Vec<&str> = plots(&html).into_iter().filter(|tag| tag.contains("data-empty")).collect();
    assert_eq!(empty.len(), 1);
    assert_eq!(attribute(empty[0], "data-kind"), Some("sequence"));
}

#[test]
fn a_plot_of_an_unknown_axis_is_empty_rather_than_wrong() {
    let mut sample = Sample::everything();
    sample.scenario = common::parse(&common::EVERYTHING.replace("x = \"era\"", "x = \"epoch\""));
    let html = sample.html();
    assert_eq!(plots(&html).iter().filter(|tag| tag.contains("data-empty")).count(), 1);
}

#[test]
fn the_page_asks_for_nothing_and_runs_nothing() {
    let html = Sample::everything().html();
    for forbidden in
        ["<script", "<link", "<img", "<iframe", "@import", "url(", "src=", "http://", "https://", "javascript:"]
    {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn untrusted_text_stays_text() {
    let hostile = "<script>alert(1)</script>\"'&\u{1b}[31m";
    let mut sample = Sample::everything();
    sample.scenario.title = hostile.to_owned();
    sample.scenario.name = hostile.to_owned();
    sample.scenario.description = hostile.to_owned();
    sample.scenario.source = hostile.to_owned();
    sample.set.scenario_toml = hostile.to_owned();
    sample.set.command = hostile.to_owned();
    sample.set.started = hostile.to_owned();
    sample.set.remarks = vec![hostile.to_owned()];
    if let Some(provenance) = &mut sample.set.provenance {
        provenance.host = hostile.to_owned();
        provenance.program.commit = Some(hostile.to_owned());
    }
    sample.set.versions = [(hostile.to_owned(), hostile.to_owned())].into();
    sample.scenario.axes[1].name = hostile.to_owned();
    sample.scenario.axes[1].labels[0] = hostile.to_owned();
    for paper in &mut sample.scenario.paper {
        paper.source = hostile.to_owned();
        paper.note = hostile.to_owned();
        paper.cell.clear();
    }
    for record in &mut sample.records {
        record.cell[1].0 = hostile.to_owned();
        if record.cell[1].1 == "smallest" {
            record.cell[1].1 = hostile.to_owned();
        }
        record.remarks.push(hostile.to_owned());
        record.series.iter_mut().for_each(|series| series.subject = hostile.to_owned());
    }
    for plot in &mut sample.scenario.report.plots {
        let (Plot::Bars { x, title, .. } | Plot::Lines { x, title, .. }) = plot else { continue };
        *title = hostile.to_owned();
        if x == "RTO min" {
            *x = hostile.to_owned();
        }
    }
    sample.scenario.report.columns.push(hostile.to_owned());
    let html = sample.html();
    assert!(!html.contains("<script"), "{}", &html[html.find("<script").unwrap().saturating_sub(200)..][..400]);
    assert!(!html.contains("\"'&"));
    assert!(!html.contains('\u{1b}'));
    // The text itself is there, to be read.
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

#[test]
fn a_cell_with_a_papers_figure_shows_both() {
    let html = Sample::everything().html();
    let row = &html[html.find("<tbody>").unwrap()..];
    let cell = &row[row.find("<td").unwrap()..row.find("</td>").unwrap()];
    for part in ["class=\"here\">609.2<", "class=\"range\">606.6\u{2013}626.3<", "paper 759.9", ">0.80\u{d7}<"] {
        assert!(cell.contains(part), "{part} in {cell}");
    }
    assert!(html.contains("2\u{d7} says that ours is twice the paper"));
}

#[test]
fn headers_have_a_scope_and_plots_a_name() {
    let html = Sample::everything().html();
    assert_eq!(html.matches("<th ").count() + html.matches("<th>").count(), html.matches("<th scope=").count());
    for tag in plots(&html) {
        let id = attribute(tag, "id").unwrap();
        assert_eq!(attribute(tag, "role"), Some("img"));
        assert_eq!(html.matches(&format!("id=\"{id}\"")).count(), 1);
        assert!(
            html.contains(&format!("<title id=\"{id}-title\">")) && html.contains(&format!("<desc id=\"{id}-desc\">"))
        );
    }
}

#[test]
fn the_report_holds_what_it_takes_to_judge_and_to_repeat() {
    let sample = Sample::everything();
    let html = sample.html();
    for part in [
        "TCG: no KVM on this machine",
        "evenkeel lab scenarios/pvtcp/everything.toml --out results",
        "6.12.38+deb13-amd64",
        "The receiver&#39;s capture lost 12 packets.",
        "Retransmission timeouts, all senders (TcpExtTCPTimeouts).",
        "block_kib = 1024",
        "20 senders, 1 Gbit/s",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn the_same_results_make_the_same_page() {
    assert_eq!(Sample::everything().html(), Sample::everything().html());
}

#[test]
fn a_directory_becomes_a_report() {
    let dir = tempfile::tempdir().unwrap();
    let sample = Sample::everything();
    sample.write(dir.path());
    let path = write_report(dir.path()).unwrap();
    assert_eq!(path, dir.path().join(REPORT_FILE));
    assert_eq!(std::fs::read_to_string(path).unwrap(), sample.html());
    assert_eq!(load(dir.path()).unwrap().records.len(), 24);
}

#[test]
fn what_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let message = |dir: &std::path::Path| write_report(dir).unwrap_err().to_string();
    assert!(message(dir.path()).contains("meta.json"));

    let mut sample = Sample::plain();
    sample.write(dir.path());
    let runs = dir.path().join("runs.jsonl");
    let good = std::fs::read_to_string(&runs).unwrap();
    std::fs::write(&runs, format!("{good}{{\"cell\": 7}}\n")).unwrap();
    assert!(message(dir.path()).contains("runs.jsonl:2"), "{}", message(dir.path()));

    std::fs::write(&runs, "").unwrap();
    assert!(matches!(write_report(dir.path()), Err(ReportError::NoRuns { .. })));

    sample.set.schema = 9;
    sample.write(dir.path());
    assert!(message(dir.path()).contains("schema 9"));

    sample.set.schema = 1;
    sample.set.scenario_toml = "schema = 2\nname = 3".to_owned();
    sample.write(dir.path());
    assert!(message(dir.path()).contains("meta.json: the scenario kept in it: "), "{}", message(dir.path()));
}
