//! Picks some of a scenario's cells: `--only`.

use evenkeel_quote::quoted;

use crate::cell::Cell;
use crate::check::or_list;
use crate::error::{Invalid, Problem, ScenarioError};
use crate::loaded::LoadedScenario;

/// Keeps the cells that have these labels, each written as `AXIS=LABEL`. Several labels of one axis are alternatives;
/// different axes must all match.
///
/// Names may have `=` in them: what the scenario has decides where the axis ends.
///
/// # Errors
/// [`ScenarioError::Invalid`] for an axis or a label that the scenario does not have, and for a text that may mean two.
pub fn select(cells: Vec<Cell>, only: &[String], loaded: &LoadedScenario) -> Result<Vec<Cell>, ScenarioError> {
    let mut wanted = Vec::new();
    let mut problems = Vec::new();
    for text in only {
        match meant(&cells, text, loaded) {
            Ok(pair) => wanted.push(pair),
            Err(message) => problems.push(Problem::at("axes", message)),
        }
    }
    if !problems.is_empty() {
        return Err(Invalid { file: loaded.file.clone(), problems }.into());
    }
    let is_wanted = |cell: &Cell| {
        cell.labels.iter().all(|(axis, label)| {
            let mut asked = wanted.iter().filter(|(a, _)| a == axis).peekable();
            asked.peek().is_none() || asked.any(|(_, l)| l == label)
        })
    };
    Ok(cells.into_iter().filter(is_wanted).collect())
}

/// The axis and the label that a text names, or why it names none.
fn meant<'a>(cells: &[Cell], text: &'a str, loaded: &LoadedScenario) -> Result<(&'a str, &'a str), String> {
    let pairs: Vec<(&str, &str)> =
        text.match_indices('=').map(|(at, sign)| (&text[..at], &text[at + sign.len()..])).collect();
    let has = |(axis, label): (&str, &str)| cells.iter().flat_map(|c| &c.labels).any(|(a, l)| a == axis && l == label);
    let known: Vec<(&str, &str)> = pairs.iter().copied().filter(|pair| has(*pair)).collect();
    match known[..] {
        [only] => return Ok(only),
        [one, other, ..] => {
            let name = |(axis, label): (&str, &str)| format!("label {} of axis {}", quoted(label), quoted(axis));
            return Err(format!(
                "{} may mean {} or {}; rename one of these axes",
                quoted(text),
                name(one),
                name(other)
            ));
        }
        [] => {}
    }
    let axes: Vec<&str> = loaded.scenario.axes.iter().map(|axis| axis.name.as_str()).collect();
    let Some((axis, label)) = pairs.iter().rev().find(|(axis, _)| axes.contains(axis)) else {
        let axis = pairs.first().map_or(text, |(axis, _)| axis);
        return Err(format!("no axis is called {}; must be {}", quoted(axis), or_list(&axes)));
    };
    let mut labels: Vec<&str> =
        cells.iter().flat_map(|c| &c.labels).filter(|(a, _)| a == axis).map(|(_, l)| l.as_str()).collect();
    labels.sort_unstable();
    labels.dedup();
    Err(format!("axis {} has no label {}; must be {}", quoted(axis), quoted(label), or_list(&labels)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scenario, sweep};

    const TEXT: &str = r#"
        schema = 2
        name = "t"
        title = "t"
        duration_ms = 1000
        [vms.a]
        [vms.b]
        [workloads.w]
        kind = "bulk"
        from = "a"
        to = "b"
        [[axes]]
        name = "kernel"
        key = "vms.a.kernel"
        values = ["6.1", "newest"]
        [[axes]]
        name = "cc"
        key = "vms.a.tcp.congestion_control"
        values = ["reno", "cubic"]
    "#;

    fn only_of(text: &str, only: &[&str]) -> Result<Vec<Cell>, ScenarioError> {
        let loaded = Scenario::from_str(text, "t.toml").unwrap();
        let only: Vec<_> = only.iter().map(|text| (*text).to_owned()).collect();
        select(sweep::cells(&loaded).unwrap(), &only, &loaded)
    }

    fn only(only: &[&str]) -> Result<Vec<Cell>, ScenarioError> {
        only_of(TEXT, only)
    }

    #[test]
    fn labels_select_cells() {
        assert_eq!(only(&[]).unwrap().len(), 4);
        assert_eq!(only(&["cc=reno"]).unwrap().len(), 2);
        assert_eq!(only(&["cc=reno", "kernel=6.1"]).unwrap().len(), 1);
        assert_eq!(only(&["cc=reno", "cc=cubic"]).unwrap().len(), 4);
    }

    #[test]
    fn names_may_hold_equals_signs() {
        let text = TEXT
            .replace("name = \"cc\"", "name = \"a=b\"\nlabels = [\"c=d\", \"\"]")
            .replace("name = \"kernel\"", "name = \"=\"\nlabels = [\"=\", \"==\"]");
        let labels = |text: &str, only: &str| -> Vec<String> {
            let cells = only_of(text, &[only]).unwrap_or_else(|error| panic!("{error}"));
            cells.iter().map(|cell| cell.labels.iter().map(|(_, l)| l.as_str()).collect::<Vec<_>>().join(" ")).collect()
        };
        assert_eq!(labels(&text, "a=b=c=d"), ["= c=d", "== c=d"]);
        assert_eq!(labels(&text, "a=b="), ["= ", "== "]);
        assert_eq!(labels(&text, "==="), ["= c=d", "= "]);
        assert_eq!(labels(&text, "===="), ["== c=d", "== "]);
        let two = TEXT.replace("\"cc\"", "\"a\"\nlabels = [\"b=c\", \"d\"]");
        let two = two.replace("\"kernel\"", "\"a=b\"\nlabels = [\"c\", \"e\"]");
        assert_eq!(labels(&two, "a=d"), ["c d", "e d"]);
        let error = only_of(&two, &["a=b=c"]).unwrap_err().to_string();
        assert!(error.contains("label `b=c` of axis `a` or label `c` of axis `a=b`"), "{error}");
    }

    #[test]
    fn unknown_labels_name_what_there_is() {
        let axis = only(&["colour=red=blue"]).unwrap_err().to_string();
        assert_eq!(axis, "t.toml: axes: no axis is called `colour`; must be `kernel` or `cc`");
        let label = only(&["cc=vegas"]).unwrap_err().to_string();
        assert_eq!(label, "t.toml: axes: axis `cc` has no label `vegas`; must be `cubic` or `reno`");
    }
}
