//! What the doctor says: findings, and how they print.

use std::fmt::{self, Write as _};

use serde::Serialize;

/// Columns of printed text.
const WIDTH: usize = 100;
/// Columns before the text of a finding.
const INDENT: usize = 23;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Good to know; nothing is wrong.
    Note,
    /// It costs TCP performance, or evenkeel cannot work.
    Problem,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "PROBLEM",
        })
    }
}

/// Mechanisms that can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// The guest module.
    Pvtcp,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pvtcp => "PVTCP",
        })
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, in a word or two.
    pub topic: &'static str,
    /// How much it matters.
    pub level: Level,
    /// What was found.
    pub fact: String,
    /// What that means on this machine.
    pub meaning: String,
    /// The mechanism that helps, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// What to do next, if there is something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Finding {
    /// A finding that asks for nothing.
    pub fn new(topic: &'static str, level: Level, fact: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { topic, level, fact: fact.into(), meaning: meaning.into(), mechanism: None, next: None }
    }

    /// With the mechanism that helps.
    pub fn helped_by(self, mechanism: Mechanism) -> Self {
        Self { mechanism: Some(mechanism), ..self }
    }

    /// With what to do next.
    pub fn next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = format!("{:<8} {:<13} ", self.level, self.topic);
        wrap(f, &head, &self.fact)?;
        wrap(f, "", &self.meaning)?;
        match (self.mechanism, &self.next) {
            (None, None) => Ok(()),
            (Some(mechanism), None) => wrap(f, "", &format!("-> {mechanism} would help")),
            (None, Some(next)) => wrap(f, "", &format!("-> {next}")),
            (Some(mechanism), Some(next)) => wrap(f, "", &format!("-> {mechanism} would help: {next}")),
        }
    }
}

/// All findings of one examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The worst level there is.
    pub worst: Level,
    /// In the order they are best read.
    pub findings: Vec<Finding>,
}

impl Report {
    /// A report of these findings.
    pub fn new(findings: Vec<Finding>) -> Self {
        let worst = findings.iter().map(|f| f.level).max().unwrap_or(Level::Ok);
        Self { worst, findings }
    }

    fn summary(&self) -> String {
        let count = |level| self.findings.iter().filter(|f| f.level == level).count();
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        let mut text = match (count(Level::Problem), count(Level::Note)) {
            (0, 0) => "Nothing here hurts TCP.".to_owned(),
            (problems, notes) => format!("{}, {}.", plural(problems, "problem"), plural(notes, "note")),
        };
        let mut mechanisms: Vec<Mechanism> = self.findings.iter().filter_map(|f| f.mechanism).collect();
        mechanisms.sort_unstable();
        mechanisms.dedup();
        for mechanism in mechanisms {
            let topics: Vec<&str> =
                self.findings.iter().filter(|f| f.mechanism == Some(mechanism)).map(|f| f.topic).collect();
            // Writing to a String cannot fail.
            let _ = write!(text, " {mechanism} would help with: {}.", topics.join(", "));
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        f.write_str(&self.summary())
    }
}

/// Writes a paragraph beside `head`, which takes the place of the first line's indentation.
pub(super) fn wrap(f: &mut fmt::Formatter<'_>, head: &str, text: &str) -> fmt::Result {
    if text.is_empty() {
        return Ok(());
    }
    let mut line = format!("{head:<INDENT$}");
    let mut used = line.chars().count();
    let mut first = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !first && used + 1 + length > WIDTH {
            writeln!(f, "{line}")?;
            line = " ".repeat(INDENT);
            used = INDENT;
            first = true;
        }
        if !first {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
        first = false;
    }
    writeln!(f, "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_wraps_beside_its_topic() {
        let finding = Finding::new("steal", Level::Problem, "word ".repeat(30), "meaning").helped_by(Mechanism::Pvtcp);
        let text = finding.to_string();
        assert!(text.starts_with("PROBLEM  steal         word"), "{text}");
        assert!(text.lines().all(|l| l.len() <= WIDTH));
        assert!(text.lines().skip(1).all(|l| l.starts_with(&" ".repeat(INDENT))), "{text}");
        assert!(text.ends_with("-> PVTCP would help\n"), "{text}");
    }

    #[test]
    fn the_summary_names_what_helps_with_what() {
        let report = Report::new(vec![
            Finding::new("HZ", Level::Ok, "250", ""),
            Finding::new("steal", Level::Problem, "5 %", "").helped_by(Mechanism::Pvtcp),
        ]);
        assert_eq!(report.worst, Level::Problem);
        assert_eq!(report.summary(), "1 problem, 0 notes. PVTCP would help with: steal.");
        assert_eq!(Report::new(vec![]).summary(), "Nothing here hurts TCP.");
    }
}
