//! Checks a TOML tree against the JSON schema, with messages for people: which key, what is wrong, what is allowed.
//!
//! General validators answer "matches none of the alternatives" where a scenario's author needs to read which words are
//! allowed. This one knows just the part of JSON schema that `schema.rs` generates; a test holds the two together.

use std::fmt::Write;

use evenkeel_quote::quoted;
use regex_lite::Regex;
use serde_json::Value as Json;
use toml::Value;

use crate::error::Problem;

/// Keywords of the schema that are looked at here.
#[cfg(test)]
pub(crate) const KEYWORDS: &[&str] = &[
    "type",
    "properties",
    "required",
    "additionalProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "items",
    "minItems",
    "maxItems",
    "uniqueItems",
    "enum",
    "const",
    "oneOf",
    "anyOf",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
];

/// Checks a value and everything below it.
pub(crate) fn check(schema: &Json, value: &Value, path: &str, problems: &mut Vec<Problem>) {
    if let Some(words) = words(schema) {
        check_word(&words, value, path, problems);
    } else if let Some(alternatives) = alternatives(schema) {
        if tag(alternatives).is_some() {
            check_tagged(alternatives, value, path, problems);
        } else {
            check_untagged(schema, alternatives, value, path, problems);
        }
    } else {
        check_plain(schema, value, path, problems);
    }
}

/// The schema of a key below `schema`. Err: how many segments were found, and the keys that are allowed after them.
pub(crate) fn descend<'a>(schema: &'a Json, segments: &[&str]) -> Result<&'a Json, (usize, Vec<String>)> {
    let mut at = vec![schema];
    for (depth, segment) in segments.iter().enumerate() {
        // The alternatives of a tagged table have keys of their own, and some the same key with other bounds.
        let tables: Vec<&Json> =
            at.iter().flat_map(|s| alternatives(s).map_or_else(|| vec![*s], |all| all.iter().collect())).collect();
        let below = |table: &&'a Json| {
            table["properties"].get(segment).or_else(|| table.get("additionalProperties").filter(|s| s.is_object()))
        };
        let next: Vec<&Json> = tables.iter().filter_map(below).collect();
        if next.is_empty() {
            let mut keys: Vec<String> = tables.iter().flat_map(|t| property_names(t)).map(str::to_owned).collect();
            keys.sort_unstable();
            keys.dedup();
            return Err((depth, keys));
        }
        at = next;
    }
    // The widest bounds decide here; a whole table is held to those of its own alternative.
    let width = |schema: &Json| Some(schema["maximum"].as_f64()? - schema["minimum"].as_f64()?);
    Ok(at[1..].iter().fold(at[0], |widest, schema| if width(schema) > width(widest) { schema } else { widest }))
}

/// Says that a key is unknown, and what is allowed.
pub(crate) fn unknown_key(key: &str, allowed: &[&str]) -> String {
    let mut message = "unknown key".to_owned();
    if let Some(close) = closest(key, allowed) {
        let _ = write!(message, "; did you mean `{close}`?");
    } else {
        message.push('.');
    }
    let _ = write!(message, " Allowed here: {}", allowed.join(", "));
    message
}

/// The word that was most likely meant.
pub(crate) fn closest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |known: &str| strsim::jaro_winkler(word, known);
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > 0.8).then_some(best)
}

/// Words for a list of allowed values: `a`, `b` or `c`.
pub(crate) fn or_list<T: AsRef<str>>(words: &[T]) -> String {
    let all: Vec<String> = words.iter().map(|w| quoted(w.as_ref())).collect();
    match &all[..] {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// A segment of a dotted path as TOML would have it.
pub(crate) fn segment(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { format!("{key:?}") }
}

/// A path one key further down.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { segment(key) } else { format!("{path}.{}", segment(key)) }
}

fn alternatives(schema: &Json) -> Option<&Vec<Json>> {
    schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()
}

/// The words that a schema allows, if it allows nothing but words.
fn words(schema: &Json) -> Option<Vec<&str>> {
    if let Some(word) = schema.get("const") {
        return Some(vec![word.as_str()?]);
    }
    if let Some(all) = schema.get("enum") {
        return all.as_array()?.iter().map(Json::as_str).collect();
    }
    let nested: Option<Vec<Vec<&str>>> = alternatives(schema)?.iter().map(words).collect();
    Some(nested?.concat())
}

/// The key that tells the alternatives of a tagged table apart.
fn tag(alternatives: &[Json]) -> Option<&str> {
    let first = alternatives.first()?["properties"].as_object()?;
    let tells = |key: &&String| alternatives.iter().all(|a| a["properties"][key.as_str()].get("const").is_some());
    first.keys().find(tells).map(String::as_str)
}

fn property_names(schema: &Json) -> Vec<&str> {
    schema["properties"].as_object().map(|p| p.keys().map(String::as_str).collect()).unwrap_or_default()
}

fn check_word(words: &[&str], value: &Value, path: &str, problems: &mut Vec<Problem>) {
    match value {
        Value::String(word) if words.contains(&word.as_str()) => {}
        Value::String(word) => problems.push(Problem::at(path, unknown_word(word, words)).allowing(words.to_vec())),
        other => {
            let message = format!("must be {}, not {}", or_list(words), show(other));
            problems.push(Problem::at(path, message).allowing(words.to_vec()));
        }
    }
}

fn unknown_word(word: &str, words: &[&str]) -> String {
    match closest(word, words) {
        Some(close) => format!("unknown word {}; did you mean `{close}`? Allowed: {}", quoted(word), words.join(", ")),
        None => format!("unknown word {}. Allowed: {}", quoted(word), words.join(", ")),
    }
}

fn check_tagged(alternatives: &[Json], value: &Value, path: &str, problems: &mut Vec<Problem>) {
    let Some(tag) = tag(alternatives) else { return };
    let Value::Table(table) = value else {
        problems.push(Problem::at(path, format!("must be a table with the key `{tag}`, not {}", show(value))));
        return;
    };
    let tag_words: Vec<&str> = alternatives.iter().filter_map(|a| a["properties"][tag]["const"].as_str()).collect();
    let Some(kind) = table.get(tag) else {
        let message = format!("missing; must be {}", or_list(&tag_words));
        problems.push(Problem::at(join(path, tag), message).allowing(tag_words));
        return;
    };
    match alternatives.iter().find(|a| a["properties"][tag]["const"].as_str() == kind.as_str() && kind.is_str()) {
        Some(alternative) => check_plain(alternative, value, path, problems),
        None => check_word(&tag_words, kind, &join(path, tag), problems),
    }
}

fn check_untagged(schema: &Json, alternatives: &[Json], value: &Value, path: &str, problems: &mut Vec<Problem>) {
    let fits = |alternative: &&Json| match words(alternative) {
        Some(words) => value.as_str().is_some_and(|v| words.contains(&v)),
        None => alternative["type"].as_str().is_some_and(|name| has_type(value, name)) && in_bounds(alternative, value),
    };
    if alternatives.iter().any(|a| fits(&a)) {
        return;
    }
    // For a name among many, the known names say more than the pattern of names that are not listed.
    let many: Vec<&str> = alternatives.iter().filter_map(words).flatten().collect();
    if let Some(word) = value.as_str().filter(|_| many.len() > MANY_WORDS) {
        problems.push(Problem::at(path, unknown_word(word, &many)).allowing(many));
    } else {
        problems.push(other_than(schema, value, path));
    }
}

fn other_than(schema: &Json, value: &Value, path: &str) -> Problem {
    let allowed = expected(schema);
    Problem::at(path, format!("must be {allowed}, not {}", show(value))).allowing([allowed])
}

fn check_plain(schema: &Json, value: &Value, path: &str, problems: &mut Vec<Problem>) {
    // No type: anything goes, as for an axis's values, which are checked where they are applied.
    let Some(kind) = schema.get("type").and_then(Json::as_str) else { return };
    if !has_type(value, kind) || !in_bounds(schema, value) {
        problems.push(other_than(schema, value, path));
        return;
    }
    match value {
        Value::Table(table) => check_table(schema, table, path, problems),
        Value::Array(items) => check_array(schema, items, path, problems),
        _ => {}
    }
}

fn check_table(schema: &Json, table: &toml::Table, path: &str, problems: &mut Vec<Problem>) {
    let known = property_names(schema);
    for (key, value) in table {
        let here = join(path, key);
        if let Some(below) = schema["properties"].get(key) {
            check(below, value, &here, problems);
        } else if let Some(below) = schema.get("additionalProperties").filter(|s| s.is_object()) {
            if let Some(names) = schema.get("propertyNames") {
                check_name(names, key, &here, problems);
            }
            check(below, value, &here, problems);
        } else if schema.get("additionalProperties") == Some(&Json::Bool(false)) {
            problems.push(Problem::at(here, unknown_key(key, &known)).allowing(known.clone()));
        }
    }
    let bound = |name: &str| schema.get(name).and_then(Json::as_u64);
    if bound("minProperties").is_some_and(|least| (table.len() as u64) < least) {
        problems.push(Problem::at(path, "must not be empty"));
    }
    if let Some(most) = bound("maxProperties").filter(|most| table.len() as u64 > *most) {
        problems.push(Problem::at(path, format!("at most {most} are allowed, not {}", table.len())));
    }
    for key in schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str) {
        if !table.contains_key(key) {
            let allowed = expected(&schema["properties"][key]);
            problems.push(Problem::at(join(path, key), format!("missing; must be {allowed}")).allowing([allowed]));
        }
    }
}

/// With more words than this, a message names the likely one, and then all.
const MANY_WORDS: usize = 20;

fn check_name(names: &Json, key: &str, path: &str, problems: &mut Vec<Problem>) {
    if alternatives(names).is_some() {
        check(names, &Value::String(key.to_owned()), path, problems);
    } else if let Some(words) = words(names) {
        if !words.contains(&key) {
            problems.push(Problem::at(path, unknown_word(key, &words)).allowing(words));
        }
    } else if let Some(pattern) = names["pattern"].as_str() {
        if !matches(pattern, key) {
            problems.push(Problem::at(path, format!("a name here must match {pattern}")));
        }
    }
}

fn check_array(schema: &Json, items: &[Value], path: &str, problems: &mut Vec<Problem>) {
    if (items.len() as u64) < schema.get("minItems").and_then(Json::as_u64).unwrap_or(0) {
        problems.push(Problem::at(path, "must not be empty"));
    }
    if let Some(most) = schema.get("maxItems").and_then(Json::as_u64).filter(|most| items.len() as u64 > *most) {
        problems.push(Problem::at(path, format!("at most {most} are allowed, not {}", items.len())));
    }
    for (index, item) in items.iter().enumerate() {
        let here = format!("{path}[{index}]");
        if schema.get("uniqueItems") == Some(&Json::Bool(true)) && items[..index].contains(item) {
            problems.push(Problem::at(&here, format!("{} is here twice", show(item))));
        }
        check(&schema["items"], item, &here, problems);
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "integer" => value.is_integer(),
        "number" => value.is_integer() || value.is_float(),
        "string" => value.is_str(),
        "boolean" => value.is_bool(),
        "array" => value.is_array(),
        "object" => value.is_table(),
        _ => false,
    }
}

fn in_bounds(schema: &Json, value: &Value) -> bool {
    match value {
        Value::Integer(n) => {
            // All bounds of whole numbers fit i64; see the test on the schema.
            let whole = |key: &str| schema.get(key).and_then(Json::as_i64);
            let real = |key: &str| schema.get(key).and_then(Json::as_f64);
            match schema["type"].as_str() {
                Some("integer") => {
                    whole("minimum").is_none_or(|min| *n >= min) && whole("maximum").is_none_or(|max| *n <= max)
                }
                _ => {
                    real("minimum").is_none_or(|min| *n as f64 >= min)
                        && real("maximum").is_none_or(|max| *n as f64 <= max)
                }
            }
        }
        Value::Float(x) => {
            let real = |key: &str| schema.get(key).and_then(Json::as_f64);
            // TOML knows nan and inf; no key has a use for them.
            x.is_finite() && real("minimum").is_none_or(|min| *x >= min) && real("maximum").is_none_or(|max| *x <= max)
        }
        Value::String(text) => {
            let length = text.chars().count() as u64;
            let bound = |key: &str| schema.get(key).and_then(Json::as_u64);
            bound("minLength").is_none_or(|min| length >= min)
                && bound("maxLength").is_none_or(|max| length <= max)
                && schema.get("pattern").and_then(Json::as_str).is_none_or(|pattern| matches(pattern, text))
        }
        _ => true,
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    // Patterns are this crate's own constants: the tests on the schema compile them all.
    Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
}

/// What a schema allows, in words.
fn expected(schema: &Json) -> String {
    if let Some(words) = words(schema) {
        return or_list(&words);
    }
    if let Some(alternatives) = alternatives(schema) {
        return match tag(alternatives) {
            Some(tag) => format!("a table with the key `{tag}`"),
            None => alternatives.iter().map(expected).collect::<Vec<_>>().join(" or "),
        };
    }
    let bound = |key: &str| {
        schema.get(key).map(ToString::to_string).map(|n| n.strip_suffix(".0").map(str::to_owned).unwrap_or(n))
    };
    let range = match (bound("minimum"), bound("maximum")) {
        (Some(min), Some(max)) if min == max => return min,
        (Some(min), Some(max)) => format!(" from {min} to {max}"),
        (Some(min), None) => format!(" of at least {min}"),
        (None, Some(max)) => format!(" of at most {max}"),
        (None, None) => String::new(),
    };
    match schema.get("type").and_then(Json::as_str) {
        Some("integer") => format!("a whole number{range}"),
        Some("number") => format!("a number{range}"),
        Some("boolean") => "true or false".to_owned(),
        Some("array") => "a list".to_owned(),
        Some("object") => "a table".to_owned(),
        _ => match (schema.get("pattern").and_then(Json::as_str), schema.get("maxLength")) {
            (Some(pattern), Some(length)) => format!("a text of at most {length} characters that matches {pattern}"),
            (Some(pattern), None) => format!("a text that matches {pattern}"),
            (None, _) if schema.get("minLength").is_some() => "a text that is not empty".to_owned(),
            (None, _) => "a text".to_owned(),
        },
    }
}

/// A value as it is written, cut where it is long.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Table(_) => "a table".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        other => {
            // TOML would have text of several lines on several lines.
            let text = other.as_str().map_or_else(|| other.to_string(), |text| format!("{text:?}"));
            match text.char_indices().nth(60) {
                Some((cut, _)) => format!("{}...", &text[..cut]),
                None => text,
            }
        }
    }
}
