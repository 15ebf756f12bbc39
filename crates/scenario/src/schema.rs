//! The JSON schema of scenario files: for editors, and the source of the checks in `check.rs`.

use std::sync::LazyLock;

use evenkeel_settings::host::MECHANISMS;
use evenkeel_settings::pvtcp::Pvtcp;
use evenkeel_settings::{Key, Table};
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use serde_json::Value;

use crate::format::Scenario;

/// The schema, with all parts in place rather than behind references.
pub static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    // Draft 7 is what the TOML language servers read.
    let settings = SchemaSettings::draft07().with(|s| s.inline_subschemas = true).with_transform(DropNull);
    let mut schema = settings.into_generator().into_root_schema_for::<Scenario>();
    schema.insert("title".into(), "evenkeel scenario".into());
    let mut schema = Value::from(schema);
    let groups = &mut schema["properties"]["vms"]["additionalProperties"]["properties"];
    for (name, keys) in mechanisms() {
        of_mechanism(name, &mut groups[name], &keys);
    }
    schema
});

/// The schema as text, as in `scenarios/scenario.schema.json`.
pub fn text() -> String {
    format!("{:#}\n", *SCHEMA)
}

/// The mechanisms' tables, and their settings.
pub(crate) fn mechanisms() -> impl Iterator<Item = (&'static str, Vec<Key>)> {
    let on_hosts = MECHANISMS.iter().map(|(name, keys)| (*name, keys()));
    on_hosts.chain([("pvtcp", Pvtcp::keys())])
}

/// Keeps those settings in a mechanism's table that scenarios have, and says what holds where one is left out.
fn of_mechanism(name: &str, table: &mut Value, keys: &[Key]) {
    table["additionalProperties"] = false.into();
    let Value::Object(table) = table else { return };
    table.remove("default");
    let Some(properties) = table.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for key in keys {
        if !key.scope.is_of_scenarios() {
            properties.remove(key.name);
        } else if let Some(property) = properties.get_mut(key.name) {
            property["description"] = key.explanation().into();
            match (name, key.name, &key.default) {
                // A mechanism without a mode is off.
                (_, "mode", _) => property["default"] = "off".into(),
                ("vflood", "congestion_control", _) => {
                    let guests = " Left out: the guests' own (tcp.congestion_control), or else cubic.";
                    property["description"] = (key.explanation() + guests).into();
                }
                (_, _, Some(default)) => property["default"] = serde_json::json!(default),
                (_, _, None) => {}
            }
        }
    }
}

/// TOML has no null: a key is left out instead.
#[derive(Clone)]
struct DropNull;

impl Transform for DropNull {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(Value::Array(types)) = schema.get_mut("type") {
            types.retain(|t| t != "null");
            if let [only] = &types[..] {
                let only = only.clone();
                schema.insert("type".into(), only);
            }
        }
        if let Some(Value::Array(alternatives)) = schema.get_mut("anyOf") {
            alternatives.retain(|alternative| alternative["type"] != "null");
            if let [Value::Object(only)] = &alternatives[..] {
                let only = only.clone();
                schema.remove("anyOf");
                for (key, value) in only {
                    // The key's own description says more than its type's.
                    if schema.get(&key).is_none() {
                        schema.insert(key, value);
                    }
                }
            }
        }
        if schema.get("default").is_some_and(Value::is_null) {
            schema.remove("default");
        }
        transform_subschemas(self, schema);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{KEYWORDS, descend};

    fn each(schema: &Value, see: &mut dyn FnMut(&serde_json::Map<String, Value>)) {
        let Value::Object(map) = schema else { return };
        see(map);
        for (key, below) in map {
            match (key.as_str(), below) {
                ("properties", Value::Object(properties)) => properties.values().for_each(|p| each(p, see)),
                ("oneOf" | "anyOf", Value::Array(all)) => all.iter().for_each(|s| each(s, see)),
                ("items" | "additionalProperties" | "propertyNames", below) => each(below, see),
                _ => {}
            }
        }
    }

    #[test]
    fn the_check_knows_every_keyword_of_the_schema() {
        const NOTES: &[&str] = &["$schema", "title", "description", "default", "format"];
        each(&SCHEMA, &mut |map| {
            for key in map.keys().map(String::as_str) {
                assert!(KEYWORDS.contains(&key) || NOTES.contains(&key), "`check` does not know `{key}`");
            }
        });
    }

    #[test]
    fn every_number_is_bounded_and_every_pattern_compiles() {
        each(&SCHEMA, &mut |map| {
            if map.get("type").is_some_and(|t| t == "integer") {
                let bounded = ["minimum", "maximum"].iter().all(|key| map.get(*key).is_some_and(Value::is_i64));
                assert!(bounded, "no bounds: {map:?}");
            }
            if let Some(pattern) = map.get("pattern") {
                regex_lite::Regex::new(pattern.as_str().unwrap()).unwrap();
            }
        });
    }

    #[test]
    fn every_key_is_described() {
        each(&SCHEMA, &mut |map| {
            for (key, property) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
                assert!(
                    property.get("description").is_some() || property.get("const").is_some(),
                    "`{key}` has no description"
                );
            }
        });
    }

    /// An axis is held to the widest bounds of a key that several kinds of workload have.
    #[test]
    fn the_widest_bounds_of_a_key_contain_all_others() {
        let kinds = SCHEMA["properties"]["workloads"]["additionalProperties"]["oneOf"].as_array().unwrap();
        let mut found = 0;
        for (key, one) in kinds.iter().flat_map(|kind| kind["properties"].as_object().unwrap()) {
            let widest = descend(&SCHEMA, &["workloads", "w", key]).unwrap();
            if let (Some(least), Some(most)) = (one["minimum"].as_f64(), one["maximum"].as_f64()) {
                let is_within = widest["minimum"].as_f64() <= Some(least) && Some(most) <= widest["maximum"].as_f64();
                assert!(is_within, "{key}: {one} is not within {widest}");
                found += usize::from(one["minimum"] != widest["minimum"] || one["maximum"] != widest["maximum"]);
            } else {
                assert_eq!(one["type"], widest["type"], "{key}");
            }
        }
        assert!(found >= 2, "`flows` and `request_bytes` have other bounds: {found}");
    }
}
