//! The scenario files that come with evenkeel, and the schema beside them.

use std::path::{Path, PathBuf};

use evenkeel_scenario::result::META_FILE;
use evenkeel_scenario::{LoadedScenario, Scenario, io, schema, sweep};

mod reference;

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn toml_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            toml_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "toml") {
            found.push(path);
        }
    }
}

fn all() -> Vec<PathBuf> {
    let mut found = Vec::new();
    toml_files(&scenarios(), &mut found);
    found.sort();
    assert!(found.len() > 10, "{found:?}");
    found
}

#[test]
fn every_file_is_valid() {
    for file in all() {
        let loaded = Scenario::load(&file).unwrap_or_else(|e| panic!("{e}"));
        let cells = sweep::cells(&loaded).unwrap();
        let product: usize = loaded.scenario.axes.iter().map(|a| a.points().len()).product();
        assert_eq!(cells.len(), product, "{}", file.display());
    }
}

#[test]
fn every_file_is_named_by_its_path_and_names_its_schema() {
    for file in all() {
        let name = file.strip_prefix(scenarios()).unwrap().with_extension("");
        let loaded = Scenario::load(&file).unwrap();
        assert_eq!(Path::new(&loaded.scenario.name), name);
        let up = match name.components().count() {
            1 => "./".to_owned(),
            deep => "../".repeat(deep - 1),
        };
        let first = loaded.text.lines().next().unwrap();
        assert_eq!(first, format!("#:schema {up}scenario.schema.json"), "{}", file.display());
    }
}

#[test]
fn every_paper_figure_has_a_source_that_is_shown() {
    for file in all() {
        let scenario = Scenario::load(&file).unwrap().scenario;
        for figures in &scenario.paper {
            // Ratios, orders and notes are shown as they are.
            let is_note = !figures.note.is_empty() || !figures.ratios.is_empty() || !figures.orders.is_empty();
            let is_shown = |metric| scenario.report.columns.contains(metric);
            let shown = figures.values.is_empty() && is_note || figures.values.keys().any(is_shown);
            assert!(shown, "{}: no column shows {}", file.display(), figures.source);
        }
    }
}

/// A page has the paper's figures and the words of the scenario that its runs were kept with.
#[test]
fn kept_runs_show_what_their_scenarios_say() {
    let kept = scenarios().join("../docs/results/data");
    let shown = |loaded: &LoadedScenario| {
        let Scenario { title, description, source, paper, report, .. } = &loaded.scenario;
        serde_json::json!([title, description, source, paper, report])
    };
    let mut found = 0;
    for file in all() {
        let of_file = Scenario::load(&file).unwrap();
        let set = kept.join(&of_file.scenario.name).join(META_FILE);
        if set.exists() {
            let text = io::read_set(&set).unwrap().scenario_toml;
            let of_runs = Scenario::from_str(&text, &file).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(shown(&of_runs), shown(&of_file), "{}: run it again", file.display());
            found += 1;
        }
    }
    assert!(found > 50, "{found}");
}

/// Compares a generated file, or writes it when asked to.
fn assert_current(file: &Path, current: &str) {
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(file, current).unwrap();
    }
    let there = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        there == current,
        "{} is out of date: run `UPDATE_GENERATED=1 cargo test -p evenkeel-scenario`",
        file.display()
    );
}

#[test]
fn the_schema_file_is_current() {
    assert_current(&scenarios().join("scenario.schema.json"), &schema::text());
}

#[test]
fn the_reference_in_the_docs_is_current() {
    const BEGIN: &str = "<!-- generated: keys -->\n";
    const END: &str = "<!-- end of generated -->\n";
    let file = scenarios().join("../docs/scenario.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (head, rest) = text.split_once(BEGIN).expect("the mark of the generated part");
    let (_, tail) = rest.split_once(END).expect("the mark of its end");
    assert_current(&file, &format!("{head}{BEGIN}{}{END}{tail}", reference::text()));
}
