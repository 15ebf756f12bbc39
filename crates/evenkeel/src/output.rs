//! Results on standard output.

use std::io::{ErrorKind, Write};

use evenkeel_quote::{lines, shown};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::CliError;
use crate::exit::Exit;

/// Prints text for people: characters that would steer the terminal are escaped. A reader that stops early (`| head`)
/// is no error.
pub fn print(text: &str) -> Result<(), CliError> {
    print_as_it_is(&lines(text))
}

/// Prints what programs read.
pub fn print_as_it_is(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::new(Exit::Failed, format!("cannot write the result: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON, indented.
pub fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| CliError::new(Exit::Failed, format!("cannot write JSON: {error}")))?;
    print_as_it_is(&(text + "\n"))
}

/// The value with every text in it on one line, so that no name can look like a row of a table.
pub fn on_one_line<T: Serialize + DeserializeOwned>(value: &T) -> Result<T, CliError> {
    let of_json = |error: serde_json::Error| CliError::new(Exit::Failed, format!("cannot show the result: {error}"));
    let mut tree = serde_json::to_value(value).map_err(of_json)?;
    put_on_one_line(&mut tree);
    serde_json::from_value(tree).map_err(of_json)
}

fn put_on_one_line(tree: &mut Value) {
    match tree {
        Value::String(text) => *text = shown(text).into(),
        Value::Array(items) => items.iter_mut().for_each(put_on_one_line),
        Value::Object(table) => {
            *table = std::mem::take(table).into_iter().map(|(key, value)| (shown(&key).into(), value)).collect();
            table.values_mut().for_each(put_on_one_line);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_text_is_on_one_line(
            texts in prop::collection::btree_map(any::<String>(), any::<Vec<String>>(), 0..4),
        ) {
            let shown: BTreeMap<String, Vec<String>> = on_one_line(&texts).unwrap();
            for text in shown.keys().chain(shown.values().flatten()) {
                prop_assert!(!text.contains(char::is_control), "{text:?}");
            }
            let is_harmless = |text: &String| text.chars().all(|c| (' '..='~').contains(&c));
            if texts.keys().chain(texts.values().flatten()).all(is_harmless) {
                prop_assert_eq!(shown, texts);
            }
        }
    }
}
