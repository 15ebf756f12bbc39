//! The report in a real browser: every plot draws something, nothing overlaps or is cut off, and the page fits a phone.

use std::path::{Path, PathBuf};

use evenkeel_report::{render_html, render_text};
use evenkeel_scenario::Scenario;

use crate::common::browser::{Page, problems, problems_of};
use crate::common::{self, Sample};

const DESKTOP: u32 = 1200;
const PHONE: u32 = 360;

#[test]
fn every_plot_is_drawn_on_a_desktop() {
    assert_eq!(problems(&Sample::everything().html(), DESKTOP), Vec::<String>::new());
}

#[test]
fn the_page_fits_a_phone() {
    assert_eq!(problems(&Sample::everything().html(), PHONE), Vec::<String>::new());
    assert_eq!(problems(&Sample::plain().html(), PHONE), Vec::<String>::new());
}

#[test]
fn long_names_do_not_break_the_page() {
    let mut sample = Sample::everything();
    let long = "an_axis_label_that_goes_on_and_on_without_a_single_space";
    sample.scenario.axes[1].labels[0] = long.to_owned();
    sample.set.command = format!("evenkeel lab {}", "scenarios/".repeat(40));
    sample.set.versions.insert("x".repeat(80), "y".repeat(300));
    for record in sample.records.iter_mut().filter(|record| record.cell[1].1 == "smallest") {
        record.cell[1].1 = long.to_owned();
    }
    assert_eq!(problems(&sample.html(), PHONE), Vec::<String>::new());
}

#[test]
fn a_plot_without_data_is_found() {
    let mut sample = Sample::everything();
    sample.records.iter_mut().for_each(|record| record.packets.clear());
    let found = problems(&sample.html(), DESKTOP);
    assert_eq!(found.len(), 8, "{found:?}");
    assert!(found.iter().all(|line| line.starts_with("empty plot: plot-9-")), "{found:?}");
}

#[test]
fn a_plot_that_claims_points_and_draws_none_is_found() {
    let html = Sample::plain().html();
    let start = html.find("<g class=\"marks").unwrap();
    let end = html.rfind("</g>\n</svg>").unwrap();
    // Both plots lose their marks, and keep their frames and their claims.
    let svg = html[start..].find("</svg>").unwrap() + start;
    let second = html[svg..].find("<g class=\"marks").unwrap() + svg;
    let emptied = [&html[..start], &html[svg..second], &html[end + "</g>\n".len()..]].concat();
    let found = problems(&emptied, DESKTOP);
    assert_eq!(found.iter().filter(|line| line.starts_with("nothing drawn: ")).count(), 2, "{found:?}");
}

#[test]
fn a_page_that_is_too_wide_is_found() {
    let html = Sample::plain().html().replace("<header>", "<header><div style=\"width:700px\">wide</div>");
    let found = problems(&html, PHONE);
    assert!(found.iter().any(|line| line.starts_with("the page scrolls sideways: ")), "{found:?}");
}

fn scenario_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            files.extend(scenario_files(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "toml") {
            files.push(entry);
        }
    }
    files.sort();
    files
}

/// From invented results: no plot is empty for want of an axis or a metric, no label runs into another.
#[test]
fn every_shipped_scenario_makes_a_good_report() {
    let files = scenario_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios"));
    assert!(!files.is_empty());
    let mut reports = Vec::new();
    for file in files {
        let loaded = Scenario::load(&file).unwrap();
        let (set, records) = common::invented::invent(&loaded);
        let text = render_text(&set, &loaded.scenario, &records);
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        reports.push((loaded.scenario.name.clone(), render_html(&set, &loaded.scenario, &records)));
    }
    for width in [1200, 360] {
        let pages: Vec<Page<'_>> = reports.iter().map(|(name, html)| Page { name, html, width }).collect();
        assert_eq!(problems_of(&pages), Vec::<String>::new(), "at {width} px");
    }
}
