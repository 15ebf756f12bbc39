//! A part of a batch's runs, for machines that share nothing but files.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Most shards: each is a directory.
const MOST: u32 = 10_000;

/// One of `of` parts: every `of`-th run of a batch, in the batch's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Which, from 1.
    number: u32,
    /// How many there are.
    of: u32,
}

impl Shard {
    /// Which it is, from 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// How many there are.
    pub fn of(self) -> u32 {
        self.of
    }

    /// The shard of this number in the same division.
    pub(crate) fn sibling(self, number: u32) -> Self {
        Self { number, ..self }
    }

    /// Whether the run with this number, from 0, is in it.
    pub fn has(self, index: usize) -> bool {
        index as u64 % u64::from(self.of) + 1 == u64::from(self.number)
    }

    /// Name of its own directory, below the batch's.
    pub fn directory_name(self) -> String {
        format!("shard-{}-of-{}", self.number, self.of)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((number, of)) if 1 <= number && number <= of && of <= MOST => Ok(Self { number, of }),
            _ => Err(format!("write it as I/N, with N from 1 to {MOST} and I from 1 to N, as in 3/16")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_written_as_they_are_read() {
        let shard: Shard = "3/16".parse().unwrap();
        assert_eq!((shard.to_string(), shard.directory_name()), ("3/16".to_owned(), "shard-3-of-16".to_owned()));
        for text in ["", "3", "0/4", "5/4", "1/0", "-1/4", "1/10001", "a/b", "1/2/3"] {
            assert!(text.parse::<Shard>().unwrap_err().contains("as in 3/16"), "{text}");
        }
    }

    #[test]
    fn every_run_is_in_one_shard() {
        let all: Vec<Shard> = (1..=5).map(|number| format!("{number}/5").parse().unwrap()).collect();
        for index in 0..23 {
            assert_eq!(all.iter().filter(|shard| shard.has(index)).count(), 1);
        }
        assert!(all[2].has(2) && all[2].has(7));
    }
}
