//! Reports in a real browser: headless Chromium lays the page out, and a script beside it measures what it drew.

use std::path::Path;
use std::process::{Command, Stdio};

const CHECK: &str = include_str!("check.js");

/// A report to be looked at in a frame of `width` CSS pixels.
pub struct Page<'h> {
    pub name: &'h str,
    pub html: &'h str,
    pub width: u32,
}

/// What is wrong with one page, one line each; none for a good page.
pub fn problems(html: &str, width: u32) -> Vec<String> {
    let found = problems_of(&[Page { name: "", html, width }]);
    found.into_iter().map(|line| line.trim_start_matches(": ").to_owned()).collect()
}

/// What is wrong with the pages, one line each, with the page's name before it.
///
/// The pages themselves are not changed: the script stands in the document around their frames.
pub fn problems_of(pages: &[Page<'_>]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let around = dir.path().join("around.html");
    let mut text = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><title>check</title><pre id=\"outcome\"></pre><script>{CHECK}</script>"
    );
    for Page { name, html, width } in pages {
        let quoted = html.replace('&', "&amp;").replace('"', "&quot;");
        text.push_str(&format!(
            "<iframe name=\"{name}\" onload=\"report(this)\" style=\"border:0;width:{width}px;height:4000px\" \
             srcdoc=\"{quoted}\"></iframe>"
        ));
    }
    std::fs::write(&around, text).unwrap();
    let dom = dump_dom(&around);
    let start = dom.find("<pre id=\"outcome\">").expect("the outcome's place") + "<pre id=\"outcome\">".len();
    let outcome = &dom[start..start + dom[start..].find("</pre>").unwrap()];
    let (measured, problems): (Vec<&str>, Vec<&str>) =
        outcome.lines().filter(|line| !line.trim().is_empty()).partition(|line| line.ends_with(": measured"));
    assert_eq!(measured.len(), pages.len(), "the script did not finish:\n{outcome}");
    problems.into_iter().map(str::to_owned).collect()
}

/// The document's DOM once its scripts have run.
fn dump_dom(page: &Path) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--virtual-time-budget=10000", "--window-size=1400,1000", "--hide-scrollbars", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => panic!("cannot run `chromium`, which checks the report: {error}; `make deps-test` installs it"),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "chromium failed with {}:\n{stderr}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
