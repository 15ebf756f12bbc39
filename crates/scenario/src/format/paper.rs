//! What papers report: figures, ratios of cells, and orders of cells.

use std::collections::BTreeMap;

use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::names;

/// Axis name to label.
pub type Labels = BTreeMap<String, String>;

/// What a paper reports for the cells that match `cell`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PaperFigures {
    /// Table or figure, as in `PVTCP Table I`.
    pub source: String,
    /// Axis name to label; axes left out match every label.
    #[serde(default)]
    pub cell: Labels,
    /// Metric name to the paper's figure, in the metric's unit. Empty where the paper prints ratios or orders only.
    #[serde(default)]
    #[schemars(extend("propertyNames" = names::metric_name(&mut SchemaGenerator::default())))]
    pub values: BTreeMap<String, f64>,
    /// Ratios of a metric between two cells, each with what `cell` says. Axes left out of both are open: the paper says
    /// it of every label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<PaperRatio>,
    /// Orders of cells by a metric, in the same way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<PaperOrder>,
    /// In what these cells differ from what the paper describes, as in `no restart after an idle RTO`: an experiment on
    /// why what it reports does not come out otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub with: String,
    /// Conditions that differ from ours, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// How many times the figure of one cell is that of another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PaperRatio {
    /// Metric.
    #[schemars(schema_with = "names::metric_name")]
    pub metric: String,
    /// The cell whose figure is divided: axis name to label.
    pub of: Labels,
    /// The cell by whose figure it is divided: other labels of the same axes.
    pub to: Labels,
    /// The ratio that the paper states: 0.6 where it has 40% less.
    #[schemars(range(min = 0.000_001, max = 1_000_000))]
    pub value: f64,
}

/// Which cell is better than which.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PaperOrder {
    /// Metric; it says whether more is better or less.
    #[schemars(schema_with = "names::metric_name")]
    pub metric: String,
    /// Cells from best to worst: axis name to label, all of the same axes.
    pub cells: Vec<Labels>,
    /// Where the paper compares gains: the cell by whose figure each is divided, as other labels of axes that `cell`
    /// names.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub over: Labels,
}

impl PaperFigures {
    /// What is cited, as in `PVTCP Table IV, with no restart after an idle RTO`.
    pub fn cited(&self) -> String {
        if self.with.is_empty() { self.source.clone() } else { format!("{}, with {}", self.source, self.with) }
    }

    /// Metrics by which cells are compared, with the key that names each: `ratios[0].metric`.
    pub fn compared(&self) -> impl Iterator<Item = (String, &str)> {
        let ratios = self.ratios.iter().enumerate();
        let ratios = ratios.map(|(index, ratio)| (format!("ratios[{index}].metric"), ratio.metric.as_str()));
        let orders = self.orders.iter().enumerate();
        ratios.chain(orders.map(|(index, order)| (format!("orders[{index}].metric"), order.metric.as_str())))
    }
}
