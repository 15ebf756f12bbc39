//! Reads a scenario file.

use std::collections::BTreeMap;
use std::path::Path;

use toml_edit::{ImDocument, Item, Value};

use crate::check::{check, join};
use crate::error::{Invalid, Problem, ScenarioError};
use crate::format::Scenario;
use crate::loaded::LoadedScenario;
use crate::schema::SCHEMA;
use crate::tree::{self, deserialize, line_at, syntax};
use crate::{sweep, validate};

impl Scenario {
    /// Reads and checks a scenario file, axes included.
    ///
    /// # Errors
    /// [`ScenarioError::Read`], or [`ScenarioError::Invalid`] with all that is wrong with it.
    pub fn load(path: &Path) -> Result<LoadedScenario, ScenarioError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ScenarioError::Read { file: path.to_owned(), source })?;
        Self::from_str(&text, path)
    }

    /// Checks the text of a scenario file. `file_name` is what errors call it.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] with all that is wrong with it.
    pub fn from_str(text: &str, file_name: impl AsRef<Path>) -> Result<LoadedScenario, ScenarioError> {
        let file = file_name.as_ref().to_owned();
        match parse(text) {
            Ok(scenario) => Ok(LoadedScenario { scenario, text: text.to_owned(), file }),
            Err(problems) => Err(Invalid { file, problems }.into()),
        }
    }
}

fn parse(text: &str) -> Result<Scenario, Vec<Problem>> {
    let document = ImDocument::parse(text).map_err(|e| syntax(text, e.message(), e.span()))?;
    let tree = tree::parse(text)?;
    let lines = Lines::of(text, &document);
    let checked = || {
        let mut problems = Vec::new();
        check(&SCHEMA, &toml::Value::Table(tree.clone()), "", &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let scenario = deserialize(&tree)?;
        problems.extend(validate::mechanisms(&scenario));
        problems.extend(validate::scenario(&scenario));
        problems.extend(validate::report(&scenario));
        problems.extend(validate::axes(&scenario));
        if !problems.is_empty() {
            return Err(problems);
        }
        let cells = sweep::expand(&scenario, &tree)?;
        problems.extend(validate::idle(&scenario, &tree, &cells));
        problems.extend(validate::empty_results(&scenario, &cells));
        if problems.is_empty() { Ok(scenario) } else { Err(problems) }
    };
    checked().map_err(|problems| lines.locate(problems))
}

impl LoadedScenario {
    /// The line where a key stands, or the table that it would be in; from 1.
    pub fn line_of(&self, key: &str) -> Option<usize> {
        let document = ImDocument::parse(self.text.as_str()).ok()?;
        Lines::of(&self.text, &document).locate(vec![Problem::at(key, "")]).first()?.line
    }
}

/// Dotted path to the line where the key stands.
struct Lines(BTreeMap<String, usize>);

impl Lines {
    fn of(text: &str, document: &ImDocument<&str>) -> Self {
        let mut found = BTreeMap::new();
        table_lines(text, document.as_table(), "", &mut found);
        Self(found)
    }

    /// Sets lines and puts problems in their order. A missing key is placed at the table it is missing from.
    fn locate(&self, mut problems: Vec<Problem>) -> Vec<Problem> {
        for problem in &mut problems {
            let mut path = problem.key.as_str();
            problem.line = loop {
                if let Some(line) = self.0.get(path) {
                    break Some(*line);
                }
                match path.rfind(['.', '[']) {
                    Some(cut) => path = &path[..cut],
                    None => break None,
                }
            };
        }
        problems.sort();
        problems.dedup();
        problems
    }
}

fn table_lines(text: &str, table: &dyn toml_edit::TableLike, path: &str, lines: &mut BTreeMap<String, usize>) {
    for (key, item) in table.iter() {
        let here = join(path, key);
        let span = table.key(key).and_then(toml_edit::Key::span).or_else(|| item.span());
        if let Some(span) = span {
            lines.insert(here.clone(), line_at(text, span.start));
        }
        match item {
            Item::ArrayOfTables(tables) => {
                for (index, table) in tables.iter().enumerate() {
                    let here = format!("{here}[{index}]");
                    if let Some(span) = table.span() {
                        lines.insert(here.clone(), line_at(text, span.start));
                    }
                    table_lines(text, table, &here, lines);
                }
            }
            Item::Value(Value::Array(items)) => array_lines(text, items, &here, lines),
            other => {
                if let Some(below) = other.as_table_like() {
                    table_lines(text, below, &here, lines);
                }
            }
        }
    }
}

fn array_lines(text: &str, items: &toml_edit::Array, path: &str, lines: &mut BTreeMap<String, usize>) {
    for (index, item) in items.iter().enumerate() {
        let here = format!("{path}[{index}]");
        if let Some(span) = item.span() {
            lines.insert(here.clone(), line_at(text, span.start));
        }
        match item {
            Value::Array(below) => array_lines(text, below, &here, lines),
            Value::InlineTable(below) => table_lines(text, below, &here, lines),
            _ => {}
        }
    }
}
