//! Sets single keys of a scenario, in its text: comments and all else stay as they are.

use evenkeel_quote::quoted;
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, Value};

use crate::error::{Invalid, Problem, ScenarioError};
use crate::format::Scenario;
use crate::loaded::LoadedScenario;

impl LoadedScenario {
    /// The scenario with another value of one key; without a value, the key is left out. The key is dotted, as in
    /// `network.rate_mbit` or `axes[0].values`; parts that are no plain words stand in double quotes.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] for a key that cannot be set and for all that is wrong with the scenario then. Lines
    /// are those of the text with the new value.
    pub fn with(&self, key: &str, value: Option<toml::Value>) -> Result<Self, ScenarioError> {
        let invalid = |problem| ScenarioError::from(Invalid { file: self.file.clone(), problems: vec![problem] });
        let no = |why: String| invalid(Problem::at(key, why));
        let mut document: DocumentMut =
            self.text.parse().map_err(|error: toml_edit::TomlError| no(error.to_string()))?;
        let steps = steps(key).ok_or_else(|| no(FORM.to_owned()))?;
        put(document.as_table_mut(), &steps, value.map(|value| edited(&value))).map_err(no)?;
        Scenario::from_str(&document.to_string(), &self.file)
    }
}

/// What is wrong with a text that is no dotted key.
const FORM: &str = "not a dotted key, as `network.rate_mbit` or `axes[0].values` are";

/// One step down a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Place(usize),
}

/// The steps of a dotted key; none if it is not one.
fn steps(key: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = key;
    loop {
        rest = rest.trim_start_matches(' ');
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"')?;
            steps.push(Step::Key(quoted[..end].to_owned()));
            rest = &quoted[end + 1..];
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let word = rest[..end].trim_end_matches(' ');
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if word.is_empty() || !word.chars().all(is_plain) {
                return None;
            }
            steps.push(Step::Key(word.to_owned()));
            rest = &rest[end..];
        }
        while let Some(place) = rest.strip_prefix('[') {
            let end = place.find(']')?;
            steps.push(Step::Place(place[..end].parse().ok()?));
            rest = &place[end + 1..];
        }
        match rest.strip_prefix('.') {
            Some(below) => rest = below,
            None => return rest.is_empty().then_some(steps),
        }
    }
}

/// Sets or removes what the steps lead to, and makes the tables on the way. Err: why that cannot be.
fn put(table: &mut dyn TableLike, steps: &[Step], value: Option<Value>) -> Result<(), String> {
    let [Step::Key(key), rest @ ..] = steps else { return Err(FORM.to_owned()) };
    if rest.is_empty() {
        set_key(table, key, value);
        return Ok(());
    }
    if !table.contains_key(key) {
        match (value.is_some(), &rest[0]) {
            (false, _) => return Ok(()),
            (true, Step::Place(_)) => return Err(no_list(key)),
            (true, Step::Key(_)) => {
                let mut below = Table::new();
                below.set_implicit(true);
                table.insert(key, Item::Table(below));
            }
        }
    }
    let item = table.get_mut(key).ok_or_else(|| no_list(key))?;
    put_below(item, key, rest, value)
}

fn put_below(item: &mut Item, key: &str, steps: &[Step], value: Option<Value>) -> Result<(), String> {
    let (Step::Place(place), below) = (&steps[0], &steps[1..]) else {
        let no_table = || format!("{} is no table", quoted(key));
        return put(item.as_table_like_mut().ok_or_else(no_table)?, steps, value);
    };
    let count = match item {
        Item::ArrayOfTables(tables) => tables.len(),
        Item::Value(Value::Array(values)) => values.len(),
        _ => return Err(no_list(key)),
    };
    let no_place = || format!("{} has {count} entries, counted from 0: {place} is none of them", quoted(key));
    match item {
        Item::ArrayOfTables(tables) if !below.is_empty() => {
            put(tables.get_mut(*place).ok_or_else(no_place)?, below, value)
        }
        Item::ArrayOfTables(_) => Err(format!("an entry of {} is a table: set the keys in it", quoted(key))),
        Item::Value(Value::Array(values)) => {
            let entry = values.get_mut(*place).ok_or_else(no_place)?;
            if !below.is_empty() {
                let mut item = Item::Value(entry.clone());
                put_below(&mut item, key, below, value)?;
                if let Item::Value(changed) = item {
                    *entry = changed;
                }
            } else if let Some(value) = value {
                *entry = value;
            } else {
                values.remove(*place);
            }
            Ok(())
        }
        _ => Err(no_list(key)),
    }
}

fn no_list(key: &str) -> String {
    format!("{} is no list", quoted(key))
}

/// Sets or removes a key. A value keeps the place and the comment of the one before it; a table in sections is removed.
fn set_key(table: &mut dyn TableLike, key: &str, value: Option<Value>) {
    let Some(mut value) = value else {
        table.remove(key);
        return;
    };
    if let Some(Item::Value(present)) = table.get_mut(key) {
        *value.decor_mut() = present.decor().clone();
        *present = value;
        return;
    }
    table.remove(key);
    table.insert(key, Item::Value(value));
}

/// The value as the editor has it; tables stand on one line.
fn edited(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(truth) => (*truth).into(),
        toml::Value::Datetime(time) => (*time).into(),
        toml::Value::Array(values) => Value::Array(values.iter().map(edited).collect()),
        toml::Value::Table(table) => {
            Value::InlineTable(table.iter().map(|(key, value)| (key.as_str(), edited(value))).collect::<InlineTable>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# A comment.
schema = 2
name = "t"
title = "t"
duration_ms = 1000  # as long as that
[vms.a]
core = { vms_per_core = 3, slice_ms = 30 }
[vms.b]
[workloads.w]
kind = "bulk"
from = "a"
to = "b"
[[axes]]
name = "rate"
key = "network.rate_mbit"
values = [10, 20]
"#;

    fn with(key: &str, value: impl Into<toml::Value>) -> Result<LoadedScenario, String> {
        let loaded = Scenario::from_str(TEXT, "t.toml").unwrap();
        loaded.with(key, Some(value.into())).map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_is_set_and_all_else_stays() {
        let longer = with("duration_ms", 7000).unwrap();
        assert_eq!(longer.text, TEXT.replace("= 1000 ", "= 7000 "));
        assert_eq!(longer.scenario.duration_ms, 7000);
        let inside = with("vms.a.core.slice_ms", 15).unwrap();
        assert_eq!(inside.text, TEXT.replace("slice_ms = 30", "slice_ms = 15"));
        let made = with("network.queue.discipline", "codel").unwrap();
        assert!(made.text.starts_with("# A comment.\nschema = 2\n"), "{}", made.text);
        assert_eq!(made.with("network.queue", None).unwrap().scenario, Scenario::from_str(TEXT, "").unwrap().scenario);
        let table = toml::toml! { vms_per_core = 2 };
        assert!(with("vms.a.core", table).unwrap().text.contains("core = { vms_per_core = 2 }"));
        assert!(with(r#"vms."a".count"#, 4).unwrap().text.contains("count = 4"));
    }

    #[test]
    fn entries_of_lists_are_set_and_removed() {
        let other = with("axes[0].values[1]", 40).unwrap();
        assert_eq!(other.text, TEXT.replace("[10, 20]", "[10, 40]"));
        let one = other.with("axes[0].values[1]", None).unwrap();
        assert_eq!(one.text, TEXT.replace("[10, 20]", "[10]"));
        let none = one.with("axes", None).unwrap();
        assert_eq!(none.text, TEXT.split("[[axes]]").next().unwrap());
        // What is not there needs no removal.
        assert_eq!(none.with("hosts.cores", None).unwrap(), none);
    }

    #[test]
    fn what_cannot_be_set_is_named() {
        for (key, why) in [
            ("", "t.toml: not a dotted key"),
            ("network.", "t.toml: network.: not a dotted key"),
            ("axes[x]", "not a dotted key"),
            ("axes[1].name", "`axes` has 1 entries, counted from 0: 1 is none of them"),
            ("axes[0].values[2]", "`values` has 2 entries"),
            ("axes[0]", "an entry of `axes` is a table: set the keys in it"),
            ("name[0]", "`name` is no list"),
            ("network[0]", "`network` is no list"),
            ("name.first", "`name` is no table"),
        ] {
            let error = with(key, 1).unwrap_err();
            assert!(error.contains(why), "{key}: {error}");
        }
        let error = with("duration_ms", -1).unwrap_err();
        assert!(error.starts_with("t.toml:5: duration_ms: must be a whole number from "), "{error}");
        let error = with("network.rate_mbits", 1).unwrap_err();
        assert!(error.contains("network.rate_mbits: unknown key; did you mean `rate_mbit`?"), "{error}");
    }

    #[test]
    fn what_is_allowed_is_a_list_for_programs() {
        let allowed = |key: &str, value: toml::Value| {
            let error = Scenario::from_str(TEXT, "t.toml").unwrap().with(key, Some(value)).unwrap_err();
            let ScenarioError::Invalid(Invalid { problems, .. }) = error else { panic!("{error}") };
            problems[0].allowed.clone()
        };
        assert_eq!(allowed("vms.a.pvtcp.mode", "on".into()), ["off", "observe", "enforce"]);
        assert_eq!(allowed("vms.a.pvtcp.mode", 3.into()), ["off", "observe", "enforce"]);
        let [range] = &allowed("duration_ms", "long".into())[..] else { panic!() };
        assert!(range.starts_with("a whole number from "), "{range}");
        assert!(allowed("network.rate_mbits", 3.into()).contains(&"rate_mbit".to_owned()));
        assert_eq!(allowed("workloads.w.from", "c".into()), [""; 0]);
    }
}
