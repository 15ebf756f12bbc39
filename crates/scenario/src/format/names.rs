//! Schemas of keys whose values are names: of metrics, of recorded series.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::metric::Metric;
use crate::result::SERIES;

/// One of the metrics; of one of several workloads with its name before it.
pub(crate) fn metric_name(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<&str> = Metric::ALL.iter().map(|metric| metric.name()).collect();
    let of_workloads: Vec<&str> =
        Metric::ALL.iter().filter(|metric| metric.is_of_workload()).map(|metric| metric.name()).collect();
    let qualified = format!("^[a-z][a-z0-9-]{{0,31}}\\.({})$", of_workloads.join("|"));
    json_schema!({ "anyOf": [{ "type": "string", "enum": names }, { "type": "string", "pattern": qualified }] })
}

/// A list of metrics.
pub(crate) fn metric_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": metric_name(generator), "uniqueItems": true })
}

/// One of the recorded series.
pub(crate) fn series_name(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<&str> = SERIES.iter().map(|(name, _)| *name).collect();
    json_schema!({ "type": "string", "enum": names })
}

/// A list of recorded series.
pub(crate) fn series_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": series_name(generator), "uniqueItems": true, "minItems": 1 })
}
