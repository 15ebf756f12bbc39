//! How results are shown.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names;

/// How results are shown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReportSpec {
    /// Metrics shown as columns, in this order.
    #[schemars(schema_with = "names::metric_names")]
    pub columns: Vec<String>,
    /// Plots, in this order.
    pub plots: Vec<Plot>,
}

/// One plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Plot {
    /// Bars of one metric: one group of bars per label of `x`, one colour per label of `series`, one panel per
    /// combination of the other axes. The median of the repetitions, with the range as a whisker.
    Bars {
        /// Heading.
        title: String,
        /// Metric.
        #[schemars(schema_with = "names::metric_name")]
        metric: String,
        /// Axis along the abscissa.
        x: String,
        /// Axis shown by colour.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        series: Option<String>,
    },
    /// Lines of one metric over an axis, as PVTCP Fig. 5 and 13.
    Lines {
        /// Heading.
        title: String,
        /// Metric.
        #[schemars(schema_with = "names::metric_name")]
        metric: String,
        /// Axis along the abscissa.
        x: String,
        /// Axis shown by colour.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        series: Option<String>,
    },
    /// One metric over another, as throughput over delay: a mark per cell, a line through those of one label of
    /// `series`, one panel per combination of the axes that are neither `series` nor `along`. Medians, with ranges as
    /// thin lines.
    Plane {
        /// Heading.
        title: String,
        /// Metric of the abscissa.
        #[schemars(schema_with = "names::metric_name")]
        x_metric: String,
        /// Metric of the ordinate.
        #[schemars(schema_with = "names::metric_name")]
        y_metric: String,
        /// Axis shown by colour.
        series: String,
        /// Axis along the lines; marks grow with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        along: Option<String>,
        /// Logarithmic abscissa.
        #[serde(default)]
        log: bool,
    },
    /// One metric over two axes, as a factor of what it is with one label of a third, as colours: a panel per other
    /// label of `series` and combination of the other axes. Medians.
    Heat {
        /// Heading.
        title: String,
        /// Metric.
        #[schemars(schema_with = "names::metric_name")]
        metric: String,
        /// Axis along the abscissa.
        x: String,
        /// Axis along the ordinate.
        y: String,
        /// Axis whose labels are compared.
        series: String,
        /// The label of `series` that the others are compared with.
        baseline: String,
    },
    /// Several metrics, each as a factor of what it is in one cell, as colours: a row per label of `y`, a panel per
    /// combination of the other axes. Medians.
    Factors {
        /// Heading.
        title: String,
        /// Metrics, from left to right.
        #[schemars(schema_with = "names::metric_names")]
        metrics: Vec<String>,
        /// Axis along the ordinate.
        y: String,
        /// The cell that the others are compared with: axis name to label. For axes left out it is each cell's own.
        baseline: BTreeMap<String, String>,
    },
    /// Recorded series over time: one panel per cell (first repetition).
    Series {
        /// Heading.
        title: String,
        /// Names of the recorded series, drawn in one panel: see [`crate::result::Series`].
        #[schemars(schema_with = "names::series_names")]
        series: Vec<String>,
        /// Logarithmic ordinate.
        #[serde(default)]
        log: bool,
    },
    /// Cumulative distribution of a recorded series' values, one line per cell.
    Cdf {
        /// Heading.
        title: String,
        /// Name of the recorded series.
        #[schemars(schema_with = "names::series_name")]
        series: String,
    },
    /// Sequence numbers over time around one wake-up, as PVTCP Fig. 8: data and ACKs at the host's port and inside the
    /// VM. One panel per cell.
    Sequence {
        /// Heading.
        title: String,
    },
}
