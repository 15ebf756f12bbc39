//! Changes of code that no figure depends on: results made before them stay current.
//!
//! A digest tells that code has changed, not what that does to figures. Where nothing of it runs while figures are
//! measured, or only in scenarios that it names, the directory of pages says so, with the reason, in [`FILE`].

use std::collections::BTreeSet;
use std::path::Path;

use evenkeel_quote::shown;
use serde::Deserialize;

use crate::ReportError;

/// The file's name, beside the pages.
pub(crate) const FILE: &str = "changes.toml";
/// Characters of a digest.
const DIGITS: usize = 16;

/// All that are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Changes {
    #[serde(default, rename = "change")]
    all: Vec<Change>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    /// Digest of a part before it.
    was: String,
    /// Digest after it.
    is: String,
    /// What has changed, and why no other figure depends on it.
    why: String,
    /// Scenarios whose figures do: theirs are old.
    #[serde(default)]
    old: Vec<String>,
    /// Which of their figures do.
    #[serde(default)]
    figures: String,
}

impl Changes {
    /// Those that the directory of pages names; none without the file.
    ///
    /// # Errors
    /// [`ReportError::Read`]; [`ReportError::Changes`] with the place and what is allowed.
    pub fn read(pages: &Path) -> Result<Self, ReportError> {
        let file = pages.join(FILE);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(ReportError::Read { file, source }),
        };
        let wrong = |why: String| ReportError::Changes { file: file.clone(), why };
        let line =
            |error: &toml::de::Error| text[..error.span().map_or(0, |span| span.start)].matches('\n').count() + 1;
        let changes: Self = toml::from_str(&text)
            .map_err(|error| wrong(format!("line {}: {}", line(&error), shown(error.message()))))?;
        let is_digest = |text: &str| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        for (number, change) in changes.all.iter().enumerate() {
            let is_again = changes.all[..number].iter().any(|before| before.was == change.was);
            let has_page = |scenario: &str| pages.join(format!("{}.md", scenario.replace('/', "-"))).exists();
            let problem = match change {
                Change { was, is, .. } if !is_digest(was) || !is_digest(is) => {
                    "was and is have 16 hexadecimal digits".to_owned()
                }
                Change { was, is, .. } if was == is => "was and is are the same".to_owned(),
                Change { why, .. } if why.trim().is_empty() => {
                    "why is empty: it says why no figure depends on it".to_owned()
                }
                _ if is_again => "was is that of one before: each digest has one change".to_owned(),
                Change { old, figures, .. } if old.is_empty() != figures.trim().is_empty() => {
                    "old and figures go together: whose figures depend on it, and which".to_owned()
                }
                Change { old, .. } => match old.iter().find(|scenario| !has_page(scenario)) {
                    Some(scenario) => format!("old names {}, which has no page here", shown(scenario)),
                    None => continue,
                },
            };
            return Err(wrong(format!("[[change]] number {}: {problem}", number + 1)));
        }
        Ok(changes)
    }

    /// Those that no figure of a scenario depends on.
    pub fn for_scenario(&self, scenario: &str) -> Self {
        let all = self.all.iter().filter(|change| change.old.iter().all(|old| old != scenario));
        Self { all: all.cloned().collect() }
    }

    /// Which figures of a scenario depend on those of these that make its results old.
    pub fn figures<'a>(&'a self, scenario: &str, whys: &BTreeSet<&str>) -> Vec<&'a str> {
        let is_meant =
            |change: &&Change| whys.contains(change.why.as_str()) && change.old.iter().any(|old| old == scenario);
        self.all.iter().filter(is_meant).map(|change| change.figures.as_str()).collect()
    }

    /// The digests that this part had or has, from its own on, each with the change that led to it.
    fn after<'a>(&'a self, part: &'a str) -> impl Iterator<Item = &'a Change> {
        let mut now = part;
        // A circle ends, too.
        (0..self.all.len()).map_while(move |_| {
            let change = self.all.iter().find(|change| change.was == now)?;
            now = &change.is;
            Some(change)
        })
    }

    /// Why a part with this digest counts as the one with that digest; `None` if it does not.
    pub fn between<'a>(&'a self, part: &'a str, now: impl Fn(&str) -> bool) -> Option<Vec<&'a str>> {
        if now(part) {
            return Some(Vec::new());
        }
        let mut whys = Vec::new();
        for change in self.after(part) {
            whys.push(change.why.as_str());
            if now(&change.is) {
                return Some(whys);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "000000000000000a";
    const B: &str = "000000000000000b";
    const C: &str = "000000000000000c";

    fn read(text: &str) -> Result<Changes, String> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), text).unwrap();
        Changes::read(directory.path()).map_err(|error| error.to_string())
    }

    fn change(was: &str, is: &str, why: &str) -> String {
        format!("[[change]]\nwas = \"{was}\"\nis = \"{is}\"\nwhy = \"{why}\"\n")
    }

    #[test]
    fn one_follows_another_and_none_goes_back() {
        let changes = read(&(change(A, B, "reloads") + &change(B, C, "status"))).unwrap();
        let between = |part, now: &str| changes.between(part, |is| is == now);
        assert_eq!(between(A, A), Some(vec![]));
        assert_eq!(between(A, B), Some(vec!["reloads"]));
        assert_eq!(between(A, C), Some(vec!["reloads", "status"]));
        assert_eq!((between(C, A), between("f", C)), (None, None));
        let circle = read(&(change(A, B, "there") + &change(B, A, "back"))).unwrap();
        assert_eq!(circle.between(A, |is| is == C), None);
        assert_eq!(Changes::read(Path::new("/nonexistent")).unwrap(), Changes::default());
    }

    #[test]
    fn what_depends_on_a_change_is_old() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("hosts-bulk.md"), "").unwrap();
        let depends = "old = [\"hosts/bulk\"]\nfigures = \"drops\"\n";
        let text = change(A, B, "drops are read earlier") + depends + &change(B, C, "status");
        std::fs::write(directory.path().join(FILE), text).unwrap();
        let changes = Changes::read(directory.path()).unwrap();
        let between = |scenario: &str, part| changes.for_scenario(scenario).between(part, |is| is == C).is_some();
        assert!(between("hosts/ping", A) && between("hosts/bulk", B));
        assert!(!between("hosts/bulk", A));
        let whys: BTreeSet<&str> = changes.between(A, |is| is == C).unwrap().into_iter().collect();
        assert_eq!(
            (changes.figures("hosts/bulk", &whys), changes.figures("hosts/ping", &whys)),
            (vec!["drops"], vec![])
        );
        assert!(changes.figures("hosts/bulk", &["status"].into()).is_empty());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, why) in [
            (change(A, "xyz", "status"), "[[change]] number 1: was and is have 16"),
            (change(A, B, "status") + &change(A, A, "status"), "[[change]] number 2: was and is are the same"),
            (change(A, B, " "), "why is empty"),
            (change(A, B, "status") + &change(A, C, "reloads"), "[[change]] number 2: was is that of one before"),
            (
                change(A, B, "status") + "old = [\"b\\n\"]\nfigures = \"drops\"\n",
                "number 1: old names b\\n, which has no page here",
            ),
            (change(A, B, "status") + "old = [\"b\"]\n", "number 1: old and figures go together"),
            (change(A, B, "status") + "figures = \"drops\"\n", "number 1: old and figures go together"),
            ("\n[[changes]]\n".to_owned(), "line 2: unknown field"),
            (change(A, B, "status").replace("why", "because"), "line 4: unknown field"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(FILE) && error.contains(why), "{error}");
        }
    }
}
