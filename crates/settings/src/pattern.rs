//! Names of ports, as configurations write them.

use std::borrow::Cow;

use evenkeel_quote::quoted;
use globset::{Glob, GlobMatcher};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::always;

/// A pattern for names of ports, as in `vnet*`.
#[derive(Debug, Clone)]
pub struct Pattern(GlobMatcher);

impl Pattern {
    /// Reads a pattern: `*` any text, `?` one character, `[abc]` one of them, `{a,b}` either.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("an empty pattern matches no port".to_owned());
        }
        Glob::new(text).map(|glob| Self(glob.compile_matcher())).map_err(|error| error.kind().to_string())
    }

    /// A pattern of this program's own.
    pub(crate) fn literal(text: &str) -> Self {
        Self::new(text).expect("patterns in the source are valid")
    }

    /// Whether a port of this name is meant.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }

    /// Whether only one name matches.
    pub fn is_one_name(&self) -> bool {
        !self.as_str().contains(['*', '?', '[', '{', '\\'])
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        self.0.glob().glob()
    }
}

always!(Pattern, String::new());

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl JsonSchema for Pattern {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Pattern".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(|why| {
            D::Error::custom(format!(
                "{} is no pattern of port names ({why}); allowed are names with *, ?, [abc] and {{a,b}}",
                quoted(&text)
            ))
        })
    }
}
