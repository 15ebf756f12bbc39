//! The table for a terminal and the one for the docs.

use evenkeel_report::{render_markdown, render_text};

use crate::common::Sample;

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
