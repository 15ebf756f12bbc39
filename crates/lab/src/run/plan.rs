//! Which cells are run, and which of them can share booted VMs.

use std::path::Path;
use std::time::Duration;

use evenkeel_scenario::LoadedScenario;
use evenkeel_scenario::format::{Kernel, Scenario, Workload};
use evenkeel_scenario::sweep::Cell;

use crate::error::LabError;

/// Cells that run in the same booted VMs.
pub struct Boot {
    /// At least one.
    pub cells: Vec<Cell>,
}

/// What can only be set when VMs are started.
#[derive(PartialEq, Eq)]
struct Shape {
    groups: Vec<(String, u32, Kernel, u32, u32)>,
    segmentation_offload: bool,
}

fn shape(scenario: &Scenario) -> Shape {
    Shape {
        groups: scenario.vms.iter().map(|(name, g)| (name.clone(), g.count, g.kernel, g.vcpus, g.memory_mib)).collect(),
        segmentation_offload: scenario.network.segmentation_offload,
    }
}

/// Keeps the cells that have all these labels.
pub fn select(cells: Vec<Cell>, only: &[(String, String)], loaded: &LoadedScenario) -> Result<Vec<Cell>, LabError> {
    for (axis, label) in only {
        let labels: Vec<&str> =
            cells.iter().flat_map(|c| &c.labels).filter(|(a, _)| a == axis).map(|(_, l)| l.as_str()).collect();
        let unsupported = |why: String| LabError::Unsupported { file: loaded.file.clone(), key: "axes".into(), why };
        if labels.is_empty() {
            let axes: Vec<&str> = loaded.scenario.axes.iter().map(|a| a.name.as_str()).collect();
            return Err(unsupported(format!("no axis is called `{axis}`; axes are: {}", axes.join(", "))));
        }
        if !labels.contains(&label.as_str()) {
            let mut labels = labels;
            labels.sort_unstable();
            labels.dedup();
            return Err(unsupported(format!(
                "axis `{axis}` has no label `{label}`; labels are: {}",
                labels.join(", ")
            )));
        }
    }
    // Several labels of one axis are alternatives; different axes must all match.
    let wanted = |cell: &Cell| {
        cell.labels.iter().all(|(axis, label)| {
            let mut asked = only.iter().filter(|(a, _)| a == axis).peekable();
            asked.peek().is_none() || asked.any(|(_, l)| l == label)
        })
    };
    Ok(cells.into_iter().filter(wanted).collect())
}

/// Cells that can share booted VMs, in the order in which their first cell comes.
pub fn by_boot(cells: Vec<Cell>) -> Vec<Boot> {
    let mut boots: Vec<Boot> = Vec::new();
    for cell in cells {
        match boots.iter_mut().find(|b| shape(&b.cells[0].scenario) == shape(&cell.scenario)) {
            Some(boot) => boot.cells.push(cell),
            None => boots.push(Boot { cells: vec![cell] }),
        }
    }
    boots
}

/// An error if the lab cannot honour a setting.
pub fn check_supported(scenario: &Scenario, file: &Path) -> Result<(), LabError> {
    let unsupported = |key: &str, why: &str| {
        Err(LabError::Unsupported { file: file.to_owned(), key: key.to_owned(), why: why.to_owned() })
    };
    if scenario.network.delay_us > 0 {
        return unsupported("network.delay_us", "the lab cannot delay packets; leave it at 0 (the simulator can)");
    }
    if let Workload::Strobe { from, block_kib, .. } = &scenario.workload {
        let servers = scenario.vms.get(from).map_or(1, |g| g.count);
        if u64::from(*block_kib) * 1024 < u64::from(servers) {
            return unsupported("workload.block_kib", "every sender must have at least one byte to send");
        }
    }
    Ok(())
}

fn memory_mib(scenario: &Scenario) -> u64 {
    scenario.vms.values().map(|g| u64::from(g.count) * u64::from(g.memory_mib)).sum()
}

fn vm_count(scenario: &Scenario) -> u64 {
    scenario.vms.values().map(|g| u64::from(g.count)).sum()
}

/// Most guest memory that any cell needs at once.
pub fn largest_memory_mib(cells: &[Cell]) -> u64 {
    cells.iter().map(|c| memory_mib(&c.scenario)).max().unwrap_or(0)
}

/// Most VMs that any cell needs at once.
pub fn largest_vm_count(cells: &[Cell]) -> u64 {
    cells.iter().map(|c| vm_count(&c.scenario)).max().unwrap_or(0)
}

/// About how long one run takes.
pub fn run_time(scenario: &Scenario) -> Duration {
    Duration::from_millis(scenario.warmup_ms + scenario.duration_ms + 1000)
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::sweep;

    use super::*;

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

    fn loaded() -> LoadedScenario {
        Scenario::from_str(TEXT, "t.toml").unwrap()
    }

    fn only(pairs: &[(&str, &str)]) -> Result<Vec<Cell>, LabError> {
        let loaded = loaded();
        let pairs: Vec<_> = pairs.iter().map(|(a, l)| ((*a).to_owned(), (*l).to_owned())).collect();
        select(sweep::cells(&loaded).unwrap(), &pairs, &loaded)
    }

    #[test]
    fn kernels_need_boots_of_their_own_and_tcp_settings_do_not() {
        let boots = by_boot(sweep::cells(&loaded()).unwrap());
        assert_eq!(boots.iter().map(|b| b.cells.len()).collect::<Vec<_>>(), [2, 2]);
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
        assert!(axis.contains("axes are: kernel, cc"), "{axis}");
        let label = only(&[("cc", "vegas")]).unwrap_err().to_string();
        assert!(label.contains("labels are: cubic, reno"), "{label}");
    }

    #[test]
    fn a_delay_is_refused_by_name() {
        let mut scenario = loaded().scenario;
        scenario.network.delay_us = 50;
        let error = check_supported(&scenario, Path::new("t.toml")).unwrap_err().to_string();
        assert!(error.starts_with("t.toml: network.delay_us:"), "{error}");
    }
}
