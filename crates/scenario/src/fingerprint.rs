//! A digest of what a scenario's runs depend on: files with the same digest give the same runs under the same code.
//!
//! It is of every cell as it is run: defaults filled in, those of the mechanisms that act too, and keys in the order of
//! their names. Titles, sources, the paper's figures and what is shown do not count; the labels of cells do, because
//! records are found by them.

use std::collections::BTreeSet;

use evenkeel_settings::Mode;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::cell::Cell;
use crate::error::ScenarioError;
use crate::format::VmGroup;
use crate::loaded::LoadedScenario;
use crate::schema::mechanisms;
use crate::sweep;

/// Keys that change no run, and `mechanisms`, which the cells have in their groups.
const WITHOUT_EFFECT: [&str; 8] = ["name", "title", "description", "source", "axes", "paper", "report", "mechanisms"];
/// Digits of a digest: enough for no two scenarios of a repository to have the same by chance.
const DIGITS: usize = 16;

/// The digest of a scenario's settings, in hexadecimal digits.
///
/// # Errors
/// None for a scenario that was loaded from its file; [`ScenarioError::Invalid`] if the text was changed since.
pub fn of(loaded: &LoadedScenario) -> Result<String, ScenarioError> {
    let mut digest = Sha256::new();
    for cell in sweep::cells(loaded)? {
        digest.update(resolved(&cell).to_string());
    }
    let mut digits = format!("{:x}", digest.finalize());
    digits.truncate(DIGITS);
    Ok(digits)
}

/// The mechanisms that act in any cell, by their tables' names.
///
/// # Errors
/// Those of [`of`].
pub fn acting(loaded: &LoadedScenario) -> Result<BTreeSet<&'static str>, ScenarioError> {
    let cells = sweep::cells(loaded)?;
    let all = cells.iter().flat_map(|cell| cell.scenario.vms.values()).flat_map(VmGroup::mechanisms);
    Ok(all.filter(|mechanism| mechanism.mode != Mode::Off).map(|mechanism| mechanism.name).collect())
}

/// A cell with all its settings.
fn resolved(cell: &Cell) -> Value {
    let mut settings = serde_json::to_value(&cell.scenario).unwrap_or_default();
    if let Value::Object(settings) = &mut settings {
        WITHOUT_EFFECT.iter().for_each(|key| _ = settings.remove(*key));
        let groups = settings.get_mut("vms").and_then(Value::as_object_mut);
        groups.into_iter().flat_map(Map::values_mut).for_each(resolve_mechanisms);
    }
    serde_json::json!([cell.labels, settings])
}

/// Leaves the tables of mechanisms that act, with the defaults of what is left out.
fn resolve_mechanisms(group: &mut Value) {
    let Value::Object(group) = group else { return };
    for (name, keys) in mechanisms() {
        let acts = |table: &Value| table["mode"].as_str().is_some_and(|mode| mode != "off");
        match group.get_mut(name) {
            Some(table) if acts(table) => {
                for key in keys.iter().filter(|key| key.scope.is_of_scenarios()) {
                    if table[key.name].is_null() {
                        table[key.name] = serde_json::json!(key.default);
                    }
                }
            }
            _ => _ = group.remove(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;

    const TEXT: &str = r#"
        schema = 2
        name = "t"
        title = "t"
        duration_ms = 1000
        [vms.a.pvtcp]
        mode = "enforce"
        [vms.b]
        [workloads.w]
        kind = "bulk"
        from = "a"
        to = "b"
        [[axes]]
        name = "cc"
        key = "vms.a.tcp.congestion_control"
        values = ["reno", "cubic"]
    "#;

    fn digest(text: &str) -> String {
        of(&Scenario::from_str(text, "t.toml").unwrap_or_else(|e| panic!("{e}"))).unwrap()
    }

    fn with(from: &str, to: &str) -> String {
        assert!(TEXT.contains(from), "{from}");
        digest(&TEXT.replace(from, to))
    }

    #[test]
    fn what_changes_a_run_changes_the_digest() {
        assert_eq!(digest(TEXT).len(), DIGITS);
        for (from, to) in [
            ("1000", "1001"),
            ("\"bulk\"", "\"bulk\"\nflows = 2"),
            ("\"enforce\"", "\"observe\""),
            ("\"enforce\"", "\"enforce\"\nlate_us = 3001"),
            ("\"reno\", \"cubic\"", "\"cubic\", \"reno\""),
            ("name = \"cc\"", "name = \"CC\""),
            ("title = \"t\"", "title = \"t\"\nseed = 2"),
            ("title = \"t\"", "title = \"t\"\nrepetitions = 2"),
        ] {
            assert_ne!(with(from, to), digest(TEXT), "{from} -> {to}");
        }
    }

    #[test]
    fn what_acts_in_a_cell_is_named() {
        let acting = |text: &str| acting(&Scenario::from_str(text, "t.toml").unwrap()).unwrap();
        assert_eq!(acting(TEXT), BTreeSet::from(["pvtcp"]));
        assert_eq!(acting(&TEXT.replace("\"enforce\"", "\"off\"")), BTreeSet::new());
        let by_word = TEXT
            .replace("vms.a.tcp.congestion_control", "mechanisms.b")
            .replace("\"reno\", \"cubic\"", "\"none\", \"vsnoop\"");
        assert_eq!(acting(&by_word), BTreeSet::from(["pvtcp", "vsnoop"]));
    }

    #[test]
    fn what_changes_none_does_not() {
        let default = mechanisms().find(|(name, _)| *name == "pvtcp").unwrap().1;
        let default = default.into_iter().find(|key| key.name == "late_us").unwrap().default.unwrap();
        for (from, to) in [
            ("title = \"t\"", "title = \"another\"\ndescription = \"d\"\nsource = \"s\""),
            ("name = \"t\"", "name = \"u\""),
            ("\"enforce\"", &format!("\"enforce\"\nlate_us = {default}")),
            ("[vms.b]", "[vms.b]\n[vms.b.vsnoop]\nmode = \"off\""),
            ("title = \"t\"", "title = \"t\"\nseed = 1"),
            ("[vms.a.pvtcp]\n        mode = \"enforce\"", "[mechanisms]\na = \"pvtcp\"\n[vms.a]"),
            ("\"cubic\"]", "\"cubic\"]\n[[paper]]\nsource = \"s\"\nvalues = { goodput_mbit = 3 }"),
            ("\"cubic\"]", "\"cubic\"] # a comment\n[report]\ncolumns = [\"timeouts\"]"),
        ] {
            assert_eq!(with(from, to), digest(TEXT), "{from} -> {to}");
        }
    }
}
