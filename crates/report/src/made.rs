//! Where results come from: in words, and as a mark in a page that programs read.

use std::collections::BTreeSet;

use evenkeel_scenario::provenance::{Again, Program, Provenance};
use evenkeel_scenario::result::{Engine, RunSet};

use crate::changes::Changes;

/// What the mark of a page begins and ends with.
const MARK: [&str; 2] = ["<!-- made: ", " -->"];

/// What a page's mark says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// What made the runs.
    pub engine: Engine,
    /// Digests of the code.
    pub code: String,
    /// Digests of the code that last ran all runs again, and found them equal.
    pub again: Option<String>,
    /// Digest of the settings.
    pub settings: String,
}

/// Digests of the code that this program runs the engines with.
#[derive(Debug, Clone)]
pub struct Codes {
    /// The lab's, all parts.
    pub lab: String,
    /// The simulator's.
    pub sim: String,
}

impl Codes {
    /// Why results of this code are what this program would produce: all parts of that code are the same here, but for
    /// changes that no figure depends on, whose reasons are returned. `None` if they may not be.
    pub(crate) fn have<'a>(&self, engine: Engine, code: &'a str, changes: &'a Changes) -> Option<BTreeSet<&'a str>> {
        let ours = match engine {
            Engine::Lab => &self.lab,
            Engine::Sim => &self.sim,
        };
        let is_ours = |part: &str| ours.split(Program::BETWEEN_PARTS).any(|our| our == part);
        let parts = code.split(Program::BETWEEN_PARTS).map(|part| changes.between(part, is_ours));
        parts.collect::<Option<Vec<_>>>().map(|whys| whys.into_iter().flatten().collect())
    }
}

/// In one sentence: date, program, machine, and what else has a version.
pub(crate) fn in_words(set: &RunSet) -> String {
    let program = set.versions.get("evenkeel").map_or("an unknown version", String::as_str);
    let provenance = set.provenance.as_ref();
    let commit = provenance.map_or_else(|| Program::default().commit_in_words(), |made| made.program.commit_in_words());
    let host = provenance.map_or_else(String::new, |made| format!(" on {}", made.host));
    let is_said = |component: &str| component == "evenkeel" || (provenance.is_some() && component.starts_with("host "));
    let in_words = |(component, version): (&String, &String)| match version.strip_prefix(component.as_str()) {
        Some(_) => version.clone(),
        None => format!("{component} {version}"),
    };
    let others = set.versions.iter().filter(|(component, _)| !is_said(component));
    let others: Vec<String> = others.map(in_words).collect();
    let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
    let made = format!("Made {} by evenkeel {program}, {commit},{host}{others}", set.started);
    let made = made.replace(",;", ";").trim_end_matches(',').to_owned();
    let again = provenance.and_then(|made| made.again.as_ref()).map(again_in_words);
    again.map_or(made.clone(), |again| format!("{made}. {again}"))
}

fn again_in_words(again: &Again) -> String {
    let Again { program, runs, .. } = again;
    let by = if program.commit.is_some() { "by " } else { "" };
    format!("Run again {by}{}: all {runs} runs, equal to the last digit", program.commit_in_words())
}

/// A mark for a page; nothing where the results do not say what made them.
pub(crate) fn mark(set: &RunSet) -> Option<String> {
    let Mark { engine, code, again, settings } = mark_of(set)?;
    let again = again.map_or_else(String::new, |again| format!(" again={again}"));
    let [begin, end] = MARK;
    Some(format!("{begin}engine={} code={code}{again} settings={settings}{end}", name(engine)))
}

/// The mark in a page's text.
pub(crate) fn find_mark(page: &str) -> Option<Mark> {
    let [begin, end] = MARK;
    let words = page.lines().rev().find_map(|line| line.strip_prefix(begin)?.strip_suffix(end))?;
    let value = |key: &str| words.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let engine = [Engine::Lab, Engine::Sim].into_iter().find(|engine| value("engine") == Some(name(*engine)))?;
    let again = value("again").map(str::to_owned);
    Some(Mark { engine, code: value("code")?.to_owned(), again, settings: value("settings")?.to_owned() })
}

/// The mark that a page of these results would have.
pub(crate) fn mark_of(set: &RunSet) -> Option<Mark> {
    let Provenance { program, settings, again, .. } = set.provenance.clone()?;
    let settings = again.as_ref().map_or(settings, |again| again.settings.clone());
    Some(Mark { engine: set.engine, code: program.code, again: again.map(|again| again.program.code), settings })
}

impl Mark {
    /// In which ways results of a scenario are old, compared with the code and the digest of the scenario's settings as
    /// they are now; none if they are current.
    pub fn why_old(&self, codes: &Codes, changes: &Changes, scenario: &str, settings: &str) -> Vec<String> {
        let of_scenario = (self.settings != settings).then(|| "the scenario has changed since".to_owned());
        let is_old = self.since(codes, &changes.for_scenario(scenario)).is_none();
        let of_code = is_old.then(|| match self.since(codes, changes) {
            None => "the code has changed since".to_owned(),
            Some(whys) => {
                let figures = changes.figures(scenario, &whys).join(" and ");
                format!("the code has changed since, and with it {figures}")
            }
        });
        of_scenario.into_iter().chain(of_code).collect()
    }

    /// Changes since then that no figure depends on, by their reasons; `None` if others were made.
    pub fn since<'a>(&'a self, codes: &Codes, changes: &'a Changes) -> Option<BTreeSet<&'a str>> {
        let known = [self.again.as_deref(), Some(&self.code)];
        known.into_iter().flatten().find_map(|code| codes.have(self.engine, code, changes))
    }
}

fn name(engine: Engine) -> &'static str {
    match engine {
        Engine::Lab => "lab",
        Engine::Sim => "sim",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn set(provenance: Option<Provenance>) -> RunSet {
        RunSet {
            schema: 1,
            engine: Engine::Lab,
            scenario_toml: String::new(),
            versions: BTreeMap::from([("QEMU".to_owned(), "10".to_owned()), ("evenkeel".to_owned(), "0.1".to_owned())]),
            command: String::new(),
            started: "2026-01-02T03:04:05Z".to_owned(),
            remarks: Vec::new(),
            provenance,
        }
    }

    fn made() -> Provenance {
        let program =
            Program { commit: Some("0123456789abcdef".to_owned()), clean: Some(true), code: "c0de".to_owned() };
        Provenance { program, settings: "5e77".to_owned(), host: "a CPU (2 cores), Linux 6".to_owned(), again: None }
    }

    #[test]
    fn a_mark_is_found_again() {
        let set = set(Some(made()));
        let page = format!("### A\n\n{}\n\n![a](b.svg)\n", mark(&set).unwrap());
        let found = find_mark(&page).unwrap();
        assert_eq!(Some(&found), mark_of(&set).as_ref());
        assert_eq!(find_mark("### A\n\n<!-- made: engine=lab code=c0de -->\n"), None);
        let why = |code: &str, settings| {
            let codes = Codes { lab: code.to_owned(), sim: "other".to_owned() };
            found.why_old(&codes, &Changes::default(), "a", settings)
        };
        assert!(why("c0de", "5e77").is_empty());
        assert_eq!(why("c0d3", "5e77"), ["the code has changed since"]);
        assert_eq!(why("c0d3", "5e7").len(), 2);
    }

    #[test]
    fn what_was_run_again_is_current_with_either_code() {
        let program = Program { commit: None, clean: None, code: "c0d3".to_owned() };
        let again = Again { program, settings: "5e78".to_owned(), runs: 24 };
        let set = set(Some(Provenance { again: Some(again), ..made() }));
        let found = find_mark(&mark(&set).unwrap()).unwrap();
        assert_eq!(Some(&found), mark_of(&set).as_ref());
        let codes = |code: &str| Codes { lab: code.to_owned(), sim: String::new() };
        let changes = Changes::default();
        let why = |code: &str| found.why_old(&codes(code), &changes, "a", "5e78").len();
        assert_eq!((why("c0de"), why("c0d3"), why("c0d")), (0, 0, 1));
        assert_eq!(found.why_old(&codes("c0d3"), &changes, "a", "5e77"), ["the scenario has changed since"]);
        let words = in_words(&set);
        assert!(words.ends_with(". Run again of no known commit: all 24 runs, equal to the last digit"), "{words}");
    }

    #[test]
    fn results_are_current_with_the_parts_that_they_have() {
        let codes = Codes { lab: "e-m-a".to_owned(), sim: "s".to_owned() };
        for (engine, code, is_current) in [
            (Engine::Lab, "e", true),
            (Engine::Lab, "e-a", true),
            (Engine::Lab, "e-m-a", true),
            (Engine::Lab, "e-b", false),
            (Engine::Lab, "f-m-a", false),
            (Engine::Lab, "s", false),
            (Engine::Lab, "", false),
            (Engine::Sim, "s", true),
            (Engine::Sim, "e", false),
        ] {
            assert_eq!(codes.have(engine, code, &Changes::default()).is_some(), is_current, "{code}");
        }
    }

    #[test]
    fn what_is_not_known_is_said() {
        assert_eq!(
            in_words(&set(Some(made()))),
            "Made 2026-01-02T03:04:05Z by evenkeel 0.1, commit 0123456789ab, on a CPU (2 cores), Linux 6; QEMU 10"
        );
        assert_eq!(in_words(&set(None)), "Made 2026-01-02T03:04:05Z by evenkeel 0.1, of no known commit; QEMU 10");
        assert_eq!((mark(&set(None)), mark_of(&set(None))), (None, None));
    }
}
