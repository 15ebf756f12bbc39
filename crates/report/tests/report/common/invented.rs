//! Results for any scenario: every metric, series and capture it could record.

use evenkeel_scenario::Scenario;
use evenkeel_scenario::metric::Metric;
use evenkeel_scenario::result::{RunRecord, RunSet, SERIES, Series};
use evenkeel_scenario::{LoadedScenario, sweep};

use super::{Dice, packets, set};

/// One set of results for the scenario, three runs per cell.
pub fn invent(loaded: &LoadedScenario) -> (RunSet, Vec<RunRecord>) {
    let mut dice = Dice(7);
    let mut records = Vec::new();
    for cell in sweep::cells(loaded).unwrap() {
        for repetition in 0..3 {
            records.push(RunRecord {
                cell: cell.labels.clone(),
                repetition,
                seed: sweep::run_seed(1, repetition),
                duration_us: 8_000_000,
                metrics: names(&loaded.scenario)
                    .into_iter()
                    .map(|(name, metric)| (name, figure(metric, &mut dice)))
                    .collect(),
                counters: [].into(),
                flows: Vec::new(),
                series: SERIES.iter().map(|(name, _)| series(name, &mut dice)).collect(),
                packets: packets(repetition == 1),
                remarks: Vec::new(),
            });
        }
    }
    (set(&loaded.text), records)
}

/// All metrics of the run, and of each workload where there are several.
fn names(scenario: &Scenario) -> Vec<(String, Metric)> {
    let of_run = Metric::ALL.iter().map(|metric| (metric.name().to_owned(), *metric));
    let several = scenario.workloads.keys().filter(|_| scenario.workloads.len() > 1);
    let own = |name: &String| -> Vec<_> {
        let metrics = Metric::ALL.iter().filter(|metric| metric.is_of_workload());
        metrics.map(|metric| (format!("{name}.{metric}"), *metric)).collect()
    };
    of_run.chain(several.flat_map(own)).collect()
}

/// A figure as long as figures get.
fn figure(metric: Metric, dice: &mut Dice) -> f64 {
    let size = if metric == Metric::SegmentsSent { 213_456.0 } else { 700.0 };
    size * (0.5 + dice.roll())
}

fn series(name: &str, dice: &mut Dice) -> Series {
    let points = (-10..300).map(|step| (step * 26_000, 0.3 + dice.roll().powi(4) * 90.0)).collect();
    Series { name: name.to_owned(), subject: "sender-0".to_owned(), points }
}
