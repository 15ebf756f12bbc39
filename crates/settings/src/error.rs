//! How an agent's configuration is read, and what can be wrong with one.

use std::io;
use std::path::{Path, PathBuf};

use evenkeel_quote::{path, shown};
use serde::de::DeserializeOwned;

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path(file))]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It was there when it was read last, and is no more.
    #[error("{} is gone: {loss}", file.display())]
    Gone {
        /// The file.
        file: PathBuf,
        /// What would be lost with it.
        loss: &'static str,
    },
    /// It is not valid.
    #[error("{}:{}{} {}", path(file), suffix(line), suffix(&non_empty(key)), shown(message))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: Option<usize>,
        /// Dotted path of the key, as in `proboscis.b1_us`.
        key: String,
        /// What is wrong, and what is allowed.
        message: String,
    },
}

/// `3:` for a line, ` key:` for a key: what is there, with its colon.
fn suffix(part: &Option<impl std::fmt::Display>) -> String {
    part.as_ref().map(|p| format!("{p}:")).unwrap_or_default()
}

fn non_empty(key: &str) -> Option<String> {
    (!key.is_empty()).then(|| format!(" {}", shown(key)))
}

impl ConfigError {
    /// What to do next, where that is the same for every agent.
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::Gone { .. } => Some("put it back and reload; only a restart of the agent goes on without it"),
            Self::Read { .. } | Self::Invalid { .. } => None,
        }
    }
}

/// Reads the text of a configuration file, key by key. `file` is what errors call it.
///
/// # Errors
/// [`ConfigError::Invalid`]
pub fn parse<T: DeserializeOwned>(text: &str, file: &Path) -> Result<T, ConfigError> {
    let mut track = serde_path_to_error::Track::new();
    let deserializer = toml::Deserializer::new(text);
    let read = T::deserialize(serde_path_to_error::Deserializer::new(deserializer, &mut track));
    read.map_err(|error| {
        let path = track.path().to_string();
        ConfigError::Invalid {
            file: file.to_owned(),
            line: error.span().map(|span| line_at(text, span.start)),
            key: if path == "." { String::new() } else { path },
            message: error.message().trim().replace('\n', "; "),
        }
    })
}

fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count() + 1
}
