//! Files of the repository that are made of the tables of settings.

use std::fs;
use std::path::Path;

use evenkeel_settings::generated;

fn assert_current(file: &Path, wanted: &str) {
    if fs::read_to_string(file).is_ok_and(|present| present == wanted) {
        return;
    }
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        return fs::write(file, wanted).unwrap();
    }
    panic!("{} is out of date: run `UPDATE_GENERATED=1 cargo test -p evenkeel-settings`", file.display());
}

#[test]
fn the_commented_configurations_are_current() {
    for (name, text) in generated::files() {
        assert_current(&Path::new("../..").join(name), &text);
    }
}

#[test]
fn the_tables_in_the_docs_are_current() {
    let mut tables = 0;
    for entry in fs::read_dir("../../docs").unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|end| end == "md") {
            let text = fs::read_to_string(&file).unwrap();
            let wanted = generated::page(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
            tables += text.matches(generated::BEGIN).count();
            assert_current(&file, &wanted);
        }
    }
    assert!(tables >= 8, "{tables}");
}
