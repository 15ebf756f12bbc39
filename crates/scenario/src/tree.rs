//! The text of a scenario file as a tree, and the tree as a scenario. What is allowed in it is checked elsewhere.

use std::ops::Range;

use serde::Deserialize;

use crate::error::Problem;
use crate::format::Scenario;

/// The tree that axes are applied to.
pub(crate) fn parse(text: &str) -> Result<toml::Table, Vec<Problem>> {
    toml::from_str(text).map_err(|e| syntax(text, e.message(), e.span()))
}

/// Deserializes a tree that has passed [`check`](crate::check::check).
pub(crate) fn deserialize(tree: &toml::Table) -> Result<Scenario, Vec<Problem>> {
    Scenario::deserialize(tree.clone()).map_err(|e| vec![Problem::at("", e.message().trim())])
}

/// The problem with a text that is no TOML.
pub(crate) fn syntax(text: &str, message: &str, span: Option<Range<usize>>) -> Vec<Problem> {
    let message = message.trim().replace('\n', "; ");
    vec![Problem {
        line: span.map(|s| line_at(text, s.start)),
        key: String::new(),
        message: format!("not valid TOML: {message}"),
        allowed: Vec::new(),
    }]
}

/// Line of a place in the text, from 1.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count() + 1
}
