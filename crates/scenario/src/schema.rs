//! The JSON schema of scenario files: for editors, and the source of the checks in `check.rs`.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::format::Scenario;
use crate::metric::METRICS;
use crate::result::SERIES;

/// The schema, with all parts in place rather than behind references.
pub static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    // Draft 7 is what the TOML language servers read.
    let settings = SchemaSettings::draft07().with(|s| s.inline_subschemas = true).with_transform(DropNull);
    let mut schema = settings.into_generator().into_root_schema_for::<Scenario>();
    schema.insert("title".into(), "evenkeel scenario".into());
    schema.into()
});

/// The schema as text, as in `scenarios/scenario.schema.json`.
pub fn text() -> String {
    format!("{:#}\n", *SCHEMA)
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
        if schema.get("default").is_some_and(Value::is_null) {
            schema.remove("default");
        }
        transform_subschemas(self, schema);
    }
}

/// One of the metrics.
pub(crate) fn metric_name(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<&str> = METRICS.iter().map(|m| m.name).collect();
    json_schema!({ "type": "string", "enum": names })
}

/// A list of metrics.
pub(crate) fn metric_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": metric_name(generator), "uniqueItems": true })
}

/// One of the recorded series.
pub(crate) fn series_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": SERIES })
}

/// A list of recorded series.
pub(crate) fn series_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": series_name(generator), "uniqueItems": true, "minItems": 1 })
}
