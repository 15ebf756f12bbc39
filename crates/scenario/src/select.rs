//! Picks some of a scenario's cells: `--only`.

use crate::error::{Invalid, Problem, ScenarioError};
use crate::load::LoadedScenario;
use crate::sweep::Cell;

/// Keeps the cells that have these labels. Several labels of one axis are alternatives; different axes must all match.
///
/// # Errors
/// [`ScenarioError::Invalid`] for an axis or a label that the scenario does not have.
pub fn select(
    cells: Vec<Cell>,
    only: &[(String, String)],
    loaded: &LoadedScenario,
) -> Result<Vec<Cell>, ScenarioError> {
    let problems: Vec<Problem> = only.iter().filter_map(|(axis, label)| problem(&cells, axis, label, loaded)).collect();
    if !problems.is_empty() {
        return Err(Invalid { file: loaded.file.clone(), problems }.into());
    }
    let wanted = |cell: &Cell| {
        cell.labels.iter().all(|(axis, label)| {
            let mut asked = only.iter().filter(|(a, _)| a == axis).peekable();
            asked.peek().is_none() || asked.any(|(_, l)| l == label)
        })
    };
    Ok(cells.into_iter().filter(wanted).collect())
}

fn problem(cells: &[Cell], axis: &str, label: &str, loaded: &LoadedScenario) -> Option<Problem> {
    let mut labels: Vec<&str> =
        cells.iter().flat_map(|c| &c.labels).filter(|(a, _)| a == axis).map(|(_, l)| l.as_str()).collect();
    if labels.is_empty() {
        let axes: Vec<&str> = loaded.scenario.axes.iter().map(|a| a.name.as_str()).collect();
        return Some(Problem::at("axes", format!("no axis is called `{axis}`; axes are: {}", axes.join(", "))));
    }
    labels.sort_unstable();
    labels.dedup();
    let unknown = || format!("axis `{axis}` has no label `{label}`; labels are: {}", labels.join(", "));
    (!labels.contains(&label)).then(|| Problem::at("axes", unknown()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scenario, sweep};

    const TEXT: &str = r#"
        schema = 1
        name = "t"
        title = "t"
        duration_ms = 1000
        [vms.a]
        [vms.b]
        [workload]
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

    fn only(pairs: &[(&str, &str)]) -> Result<Vec<Cell>, ScenarioError> {
        let loaded = Scenario::from_str(TEXT, "t.toml").unwrap();
        let pairs: Vec<_> = pairs.iter().map(|(a, l)| ((*a).to_owned(), (*l).to_owned())).collect();
        select(sweep::cells(&loaded).unwrap(), &pairs, &loaded)
    }

    #[test]
    fn labels_select_cells() {
        assert_eq!(only(&[]).unwrap().len(), 4);
        assert_eq!(only(&[("cc", "reno")]).unwrap().len(), 2);
        assert_eq!(only(&[("cc", "reno"), ("kernel", "6.1")]).unwrap().len(), 1);
        assert_eq!(only(&[("cc", "reno"), ("cc", "cubic")]).unwrap().len(), 4);
    }

    #[test]
    fn unknown_labels_name_what_there_is() {
        let axis = only(&[("colour", "red")]).unwrap_err().to_string();
        assert_eq!(axis, "t.toml: axes: no axis is called `colour`; axes are: kernel, cc");
        let label = only(&[("cc", "vegas")]).unwrap_err().to_string();
        assert!(label.contains("labels are: cubic, reno"), "{label}");
    }
}
