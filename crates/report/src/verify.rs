//! Holds results that were kept against runs of the program as it is now.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use evenkeel_scenario::io;
use evenkeel_scenario::provenance::Again;
use evenkeel_scenario::result::RunRecord;

use crate::{ReportError, Results, is_parquet, keep, pages, write_parquet};

/// Positions of `wanted` of `of` runs, at equal distances: the first and the last of two or more.
pub fn sample(of: usize, wanted: usize) -> Vec<usize> {
    let wanted = wanted.min(of);
    (0..wanted).map(|number| if wanted == 1 { 0 } else { number * (of - 1) / (wanted - 1) }).collect()
}

/// The first difference between a kept run and the same run made now, in words; none if all that was kept is equal to
/// the last digit. What no kept run has is new to the program, and is not compared.
pub fn difference(results: &Results, kept: &RunRecord, mut now: RunRecord) -> Option<String> {
    keep::leave_out(&results.set, &mut now);
    let metrics: BTreeSet<&String> = results.records.iter().flat_map(|record| record.metrics.keys()).collect();
    now.metrics.retain(|name, _| metrics.contains(name));
    let of_vms = results.records.iter().flat_map(|record| record.counters.values());
    let counters: BTreeSet<&String> = of_vms.flat_map(BTreeMap::keys).collect();
    now.counters.values_mut().for_each(|of_vm| of_vm.retain(|name, _| counters.contains(name)));
    if *kept == now {
        return None;
    }
    let was = |name: &String| kept.metrics.get(name).copied();
    let is = |name: &String| now.metrics.get(name).copied();
    let mut names = kept.metrics.keys().chain(now.metrics.keys());
    let of_metric = names.find(|name| was(name) != is(name));
    let value = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
    let parts = [
        ("seed or duration", kept.seed == now.seed && kept.duration_us == now.duration_us),
        ("counters", kept.counters == now.counters),
        ("flows", kept.flows == now.flows),
        ("series", kept.series == now.series),
        ("packets", kept.packets == now.packets),
        ("remarks", kept.remarks == now.remarks),
    ];
    let of_part = parts.into_iter().find(|(_, is_equal)| !is_equal).map(|(name, _)| format!("other {name}"));
    of_metric.map(|name| format!("{name} was {} and is {}", value(was(name)), value(is(name)))).or(of_part)
}

/// Notes in the kept results, and in the pages that were made of them, that all runs were run again and are
/// equal. Returns the pages.
///
/// # Errors
/// Those of [`write_parquet`] and [`io::write_results`]; [`ReportError::Read`] and [`ReportError::Write`] for the
/// pages.
pub fn note_again(
    results: &Results,
    directory: &Path,
    pages_directory: &Path,
    again: &Again,
) -> Result<Vec<PathBuf>, ReportError> {
    let mut set = results.set.clone();
    let Some(made) = set.provenance.as_mut() else { return Ok(Vec::new()) };
    // Runs made again by the same code need no note.
    made.again = (made.program.code != again.program.code).then(|| again.clone());
    if set == results.set {
        return Ok(Vec::new());
    }
    if is_parquet(directory) {
        write_parquet(directory, &set, &results.records)?;
    } else {
        io::write_results(directory, &set, &results.records)?;
    }
    // A page has all runs, of which a set may be kept without some parts, and says nothing of that.
    pages::tell_pages(pages_directory, &results.scenario.name, [&results.set, &set])
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::Scenario;
    use evenkeel_scenario::result::{Engine, RunSet};

    use super::*;

    #[test]
    fn what_no_kept_run_has_is_not_compared() {
        let record = |metrics: &[(&str, f64)], counters: &[(&str, i64)]| RunRecord {
            cell: Vec::new(),
            repetition: 0,
            seed: 1,
            duration_us: 2,
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            counters: BTreeMap::from([(
                "a-0".to_owned(),
                counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            )]),
            flows: Vec::new(),
            series: Vec::new(),
            packets: Vec::new(),
            remarks: Vec::new(),
        };
        let kept = [record(&[("m", 1.0)], &[("C", 3)]), record(&[("m", 1.0), ("n", 2.0)], &[("C", 3), ("D", 4)])];
        let set = RunSet {
            schema: 1,
            engine: Engine::Sim,
            scenario_toml: String::new(),
            versions: BTreeMap::new(),
            command: String::new(),
            started: String::new(),
            remarks: Vec::new(),
            provenance: None,
        };
        let text = "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 1000\n[vms.a]\n[vms.b]\n[workloads.w]\n\
                    kind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n";
        let scenario = Scenario::from_str(text, "t.toml").unwrap().scenario;
        let results = Results { set, scenario, records: kept.to_vec() };
        let differs = |metrics: &[(&str, f64)], counters: &[(&str, i64)]| {
            difference(&results, &kept[0], record(metrics, counters))
        };
        assert_eq!(differs(&[("m", 1.0)], &[("C", 3)]), None);
        assert_eq!(differs(&[("m", 1.0), ("new", 0.0)], &[("C", 3), ("New", 1)]), None);
        assert_eq!(differs(&[("m", 1.5)], &[("C", 3)]).unwrap(), "m was 1 and is 1.5");
        assert_eq!(differs(&[("m", 1.0), ("n", 2.0)], &[("C", 3)]).unwrap(), "n was none and is 2");
        assert_eq!(differs(&[("m", 1.0)], &[("C", 3), ("D", 4)]).unwrap(), "other counters");
        assert_eq!(differs(&[("m", 1.0)], &[]).unwrap(), "other counters");
    }

    #[test]
    fn a_sample_has_the_ends() {
        assert_eq!(sample(24, 3), [0, 11, 23]);
        assert_eq!(sample(2, 3), [0, 1]);
        assert_eq!((sample(5, 1), sample(0, 3)), (vec![0], Vec::new()));
    }
}
