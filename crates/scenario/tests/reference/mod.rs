//! Writes the key tables of docs/scenario.md from the JSON schema, the metrics and the series.

use std::fmt::Write;

use evenkeel_scenario::metric::Metric;
use evenkeel_scenario::result::SERIES;
use evenkeel_scenario::schema::SCHEMA;
use evenkeel_settings::host::MECHANISMS;
use serde_json::Value;

/// Stands for the tables of the mechanisms on hosts.
const ON_HOSTS: &str = "";

/// Headings, and where in the schema their keys are.
const TABLES: &[(&str, &str)] = &[
    ("Top level", ""),
    ("`[network]`", "/properties/network"),
    ("`[network.queue]`", "/properties/network/properties/queue"),
    ("`[hosts.NAME]`", "/properties/hosts/additionalProperties"),
    ("`[hosts.NAME.scheduler]`", "/properties/hosts/additionalProperties/properties/scheduler"),
    ("`[hosts.NAME.neighbours]`", "/properties/hosts/additionalProperties/properties/neighbours"),
    ("`[vms.NAME]`", "/properties/vms/additionalProperties"),
    ("`[vms.NAME.core]`", "/properties/vms/additionalProperties/properties/core"),
    ("`[vms.NAME.quota]`", "/properties/vms/additionalProperties/properties/quota"),
    ("`[vms.NAME.own_load]`", "/properties/vms/additionalProperties/properties/own_load"),
    ("`[vms.NAME.tcp]`", "/properties/vms/additionalProperties/properties/tcp"),
    ("`[vms.NAME.pvtcp]`", "/properties/vms/additionalProperties/properties/pvtcp"),
    (ON_HOSTS, ""),
    ("`[workloads.NAME]`", "/properties/workloads/additionalProperties"),
    ("`[record]`", "/properties/record"),
    ("`[[axes]]`", "/properties/axes/items"),
    ("`[[axes.variants]]`", "/properties/axes/items/properties/variants/items"),
    ("`[[paper]]`", "/properties/paper/items"),
    ("`[[paper.ratios]]`", "/properties/paper/items/properties/ratios/items"),
    ("`[[paper.orders]]`", "/properties/paper/items/properties/orders/items"),
    ("`[report]`", "/properties/report"),
    ("`[[report.plots]]`", "/properties/report/properties/plots/items"),
];

/// All headings, and where in the schema their keys are.
fn tables() -> impl Iterator<Item = (String, String)> {
    TABLES.iter().flat_map(|(heading, pointer)| match *heading {
        ON_HOSTS => {
            let group = "/properties/vms/additionalProperties/properties";
            let of = |(name, _): &(&str, _)| (format!("`[vms.NAME.{name}]`"), format!("{group}/{name}"));
            MECHANISMS.iter().map(of).collect()
        }
        _ => vec![((*heading).to_owned(), (*pointer).to_owned())],
    })
}

/// The generated part.
pub fn text() -> String {
    let mut out = String::new();
    for (heading, pointer) in tables() {
        let schema = SCHEMA.pointer(&pointer).unwrap_or_else(|| panic!("no {pointer}"));
        writeln!(out, "### {heading}\n").unwrap();
        match schema.get("oneOf").and_then(Value::as_array) {
            None => {
                writeln!(out, "{}\n", line(schema)).unwrap();
                table(&mut out, schema, &schema["default"]);
            }
            Some(kinds) => {
                for kind in kinds {
                    let name = kind["properties"]["kind"]["const"].as_str().unwrap();
                    writeln!(out, "`kind = \"{name}\"`: {}\n", line(kind)).unwrap();
                    table(&mut out, kind, &Value::Null);
                }
            }
        }
    }
    writeln!(out, "### Metrics\n\n| name | unit | what it is |\n|---|---|---|").unwrap();
    for metric in Metric::ALL.iter().map(|metric| metric.about()) {
        writeln!(out, "| `{}` | {} | {} |", metric.name, metric.unit, metric.description).unwrap();
    }
    writeln!(out, "\n### Series\n\n| name | a point |\n|---|---|").unwrap();
    for (name, point) in SERIES {
        writeln!(out, "| `{name}` | {point} |").unwrap();
    }
    out.push('\n');
    out
}

fn table(out: &mut String, schema: &Value, defaults: &Value) {
    writeln!(out, "| key | values | default | meaning |\n|---|---|---|---|").unwrap();
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (key, property) in schema["properties"].as_object().unwrap() {
        if property.get("const").is_some() {
            continue;
        }
        let default = match defaults.get(key).or_else(|| property.get("default")) {
            _ if required.contains(&key.as_str()) => "required".to_owned(),
            None => String::new(),
            Some(Value::Object(below)) if !below.is_empty() => "see its table".to_owned(),
            Some(value) => format!("`{value}`"),
        };
        writeln!(out, "| `{key}` | {} | {default} | {} |", allowed(property), line(property)).unwrap();
    }
    out.push('\n');
}

/// What a key means, and what its words mean.
fn line(schema: &Value) -> String {
    let own = schema["description"].as_str().unwrap_or_default();
    let of_word = |word: &Value| Some(format!(" `{}`: {}", word["const"].as_str()?, word["description"].as_str()?));
    let words = schema["oneOf"].as_array().into_iter().flatten().filter_map(of_word);
    let text: String = std::iter::once(own.to_owned()).chain(words).collect();
    text.replace('\n', " ").replace("[`crate::result::Series`]", "Series below").replace('|', "\\|")
}

fn allowed(schema: &Value) -> String {
    if let Some(word) = schema.get("const").and_then(Value::as_str) {
        return format!("`\"{word}\"`");
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        assert_eq!(words.len(), SERIES.len());
        return "a series".to_owned();
    }
    let is_metric = |kind: &Value| kind.get("enum").is_some();
    if schema["anyOf"].as_array().is_some_and(|kinds| kinds.iter().any(is_metric)) {
        return "a metric".to_owned();
    }
    if let Some(kinds) = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array) {
        return if kinds[0].get("properties").is_some() {
            "table".to_owned()
        } else {
            kinds.iter().map(allowed).collect::<Vec<_>>().join(", ")
        };
    }
    let range = match (schema.get("minimum"), schema.get("maximum")) {
        (Some(min), Some(max)) if min == max => return min.to_string(),
        (Some(min), Some(max)) => format!(", {min} to {max}"),
        _ => String::new(),
    };
    let of = |below: &Value| if below.is_object() { format!(" of {}", allowed(below)) } else { String::new() };
    match schema["type"].as_str() {
        Some("integer") => format!("whole number{range}"),
        Some("number") => format!("number{range}"),
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("array") => format!("list{}", of(&schema["items"])),
        Some("object") => "table".to_owned(),
        Some("string") => {
            schema.get("pattern").map_or_else(|| "text".to_owned(), |p| format!("text, `{}`", p.as_str().unwrap()))
        }
        _ => "any value of the key".to_owned(),
    }
}
