//! The table for a terminal and the one for the docs.

use evenkeel_report::{render_markdown, render_text};
use evenkeel_scenario::result::{Engine, RunRecord, RunSet};
use proptest::prelude::*;

use crate::common::{EVERYTHING, Sample, parse};

#[test]
fn text_of_everything() {
    let Sample { set, scenario, records } = Sample::everything();
    let text = render_text(&set, &scenario, &records);
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn text_without_axes() {
    let Sample { set, scenario, records } = Sample::plain();
    insta::assert_snapshot!(render_text(&set, &scenario, &records));
}

#[test]
fn markdown_of_everything() {
    let Sample { set, scenario, records } = Sample::everything();
    insta::assert_snapshot!(render_markdown(&set, &scenario, &records));
}

#[test]
fn the_order_of_the_records_does_not_matter() {
    let Sample { set, scenario, mut records } = Sample::everything();
    let before = render_text(&set, &scenario, &records);
    records.reverse();
    assert_eq!(before, render_text(&set, &scenario, &records));
}

#[test]
fn cells_without_a_run_are_named() {
    let Sample { set, scenario, mut records } = Sample::everything();
    records.truncate(21);
    let text = render_text(&set, &scenario, &records);
    assert!(
        text.contains("note: 1 of 8 cells have no run: era: current \u{b7} RTO min: 200 ms \u{b7} PVTCP: on."),
        "{text}"
    );
}

#[test]
fn how_many_runs_have_a_figure_is_said_where_some_lack_it() {
    let Sample { set, scenario, mut records } = Sample::everything();
    let all = |sample: &Sample| {
        let Sample { set, scenario, records } = sample;
        [render_text(set, scenario, records), render_markdown(set, scenario, records), sample.html()]
    };
    let whole = Sample { set: set.clone(), scenario: scenario.clone(), records: records.clone() };
    assert!(all(&whole).iter().all(|page| !page.contains("2 of 3 runs")));
    assert!(records[0].metrics.remove("goodput_mbit").is_some());
    let lacking = Sample { set, scenario, records };
    let [text, markdown, html] = all(&lacking);
    assert!(text.contains(", 2 of 3 runs)"), "{text}");
    assert!(markdown.contains(", 2 of 3 runs)"), "{markdown}");
    assert_eq!(html.matches("<span class=\"range\">2 of 3 runs</span>").count(), 1);
}

#[test]
fn runs_on_a_full_cpu_are_counted() {
    let Sample { mut set, scenario, mut records } = Sample::everything();
    let says = |set: &RunSet, records: &[RunRecord]| {
        let page = render_markdown(set, &scenario, records);
        page.lines().find(|line| line.contains("virtual CPU")).map(str::to_owned)
    };
    set.engine = Engine::Lab;
    records.iter_mut().for_each(|run| {
        run.metrics.insert("receiver_cpu".to_owned(), 95.0);
    });
    assert_eq!(says(&set, &records), None);
    records[2].metrics.insert("receiver_cpu".to_owned(), 99.7);
    let all = records.len();
    let said = says(&set, &records).expect("one run is counted");
    assert!(
        said.starts_with(&format!("- In 1 of {all} runs the receiver's virtual CPU was busy for more than 95%")),
        "{said}"
    );
    // The model's machines are what they are said to be.
    set.engine = Engine::Sim;
    assert_eq!(says(&set, &records), None);
}

#[test]
fn scenario_text_does_not_steer_the_terminal() {
    let Sample { set, mut scenario, records } = Sample::everything();
    scenario.title = "red \u{1b}[31m alert".to_owned();
    assert!(!render_text(&set, &scenario, &records).contains('\u{1b}'));
}

#[test]
fn markdown_shows_markup_as_text() {
    let Sample { set, mut scenario, records } = Sample::everything();
    scenario.title = "a|b <img> [x](y)".to_owned();
    assert!(render_markdown(&set, &scenario, &records).starts_with("### a\\|b \\<img\\> \\[x\\](y)\n"));
}

/// Results with this text wherever text comes from a scenario, a machine or a record.
fn named(text: &str) -> Sample {
    let escaped: String = text.chars().map(|c| format!("\\U{:08x}", u32::from(c))).collect();
    let Sample { mut set, mut records, .. } = Sample::everything();
    let mut scenario = parse(&EVERYTHING.replace("RTO min", &escaped).replace("200 ms", &format!("{escaped}2")));
    scenario.title = text.to_owned();
    scenario.source = text.to_owned();
    scenario.paper.iter_mut().for_each(|paper| paper.note = text.to_owned());
    set.command = text.to_owned();
    set.remarks = vec![text.to_owned()];
    set.versions.insert("cpu".to_owned(), text.to_owned());
    for record in &mut records {
        for (axis, label) in record.cell.iter_mut().filter(|(axis, _)| axis == "RTO min") {
            *axis = text.to_owned();
            *label = label.replace("200 ms", &format!("{text}2"));
        }
        record.remarks = vec![text.to_owned()];
        record.series.iter_mut().for_each(|series| series.subject = text.to_owned());
    }
    Sample { set, scenario, records }
}

/// The page's own structure: lines, cells of tables, marks of HTML.
fn shape(sample: &Sample) -> (Vec<usize>, [usize; 2]) {
    let Sample { set, scenario, records } = sample;
    let markdown = render_markdown(set, scenario, records);
    let bars = |line: &str| line.replace("\\\\", "").replace("\\|", "").matches('|').count();
    let html = sample.html();
    (markdown.lines().map(bars).collect(), ["<", ">"].map(|mark| html.matches(mark).count()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_text_changes_what_is_around_it(text in "q[a-z|<>&\"'`\\\\\\n\\r\\t\u{1b}\u{202e}\u{2028}# -]{0,8}z") {
        let sample = named(&text);
        let Sample { set, scenario, records } = &sample;
        let of_text = render_text(set, scenario, records);
        prop_assert!(!of_text.contains(|c: char| c != '\n' && (c.is_control() || c == '\u{202e}')), "{of_text:?}");
        prop_assert_eq!(shape(&sample), shape(&named("qz")), "{:?}", text);
    }
}
