//! Against the lab: the same scenario files, and the figures that docs/results has of them.

use std::collections::BTreeMap;

use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::metric::Metric;
use evenkeel_scenario::stats::median;
use evenkeel_scenario::sweep::cells;

use crate::{loaded, run, top};

/// Median of the lab's runs, with smallest and largest.
#[derive(Clone, Copy, Debug)]
struct Measured {
    median: f64,
    least: f64,
    most: f64,
}

/// A page's table: the labels of a row, and its figures by metric.
type Rows = Vec<(Vec<String>, BTreeMap<&'static str, Measured>)>;

/// The lab's series on another machine than that of the page in docs/results, from before pages
/// recorded their code.
const TABLE1_FASTER: &str = include_str!("table1-one-sender-faster.md");
/// The lab's series on another machine than that of the page in docs/results.
const INCAST_BEFORE: &str = include_str!("fig13-incast-before.md");

fn page(name: &str) -> String {
    let file = top().join("docs/results").join(format!("{name}.md"));
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

fn rows(page: &str, axes: usize) -> Rows {
    let mut lines = page.lines().filter(|line| line.starts_with('|') && !line.starts_with("| ---")).map(columns);
    let heading = lines.next().expect("the page has a table");
    let metrics: Vec<_> = heading.iter().map(|title| metric_of(title)).collect();
    lines
        .map(|row| {
            let figures =
                row.iter().zip(&metrics).skip(axes).filter_map(|(cell, metric)| Some(((*metric)?, measured(cell)?)));
            (row[..axes].iter().map(|label| (*label).to_owned()).collect(), figures.collect())
        })
        .collect()
}

fn columns(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// The metric under a heading like `goodput (Mbit/s)`.
fn metric_of(heading: &str) -> Option<&'static str> {
    let mut all = Metric::ALL.iter().map(|metric| metric.about());
    all.find(|m| heading == m.title || heading == format!("{} ({})", m.title, m.unit)).map(|m| m.name)
}

/// `54.5 (54.1–55.3); paper 309.5`, `8.0` or, if there is nothing, `–`.
fn measured(cell: &str) -> Option<Measured> {
    let ours = cell.split(';').next()?.trim();
    let (value, range) = ours.split_once(' ').unwrap_or((ours, ""));
    let median: f64 = value.parse().ok()?;
    let ends =
        range.trim_matches(['(', ')']).split_once('–').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let (least, most) = ends.unwrap_or((median, median));
    Some(Measured { median, least, most })
}

/// Two cells differ in the lab if their runs do not overlap and their medians are at least a quarter apart, and by more
/// than a few events.
fn differ(a: Measured, b: Measured) -> bool {
    let apart = a.most < b.least || b.most < a.least;
    let (small, large) = (a.median.min(b.median), a.median.max(b.median));
    apart && large > 1.25 * small && large - small > 5.0
}

/// Two figures here are equal if they are no further apart than this.
const EQUAL: f64 = 0.05;

/// A variant and the figures of it that are not compared. docs/validation.md has the reason.
const EXCEPTIONS: &[(&str, &[&str])] =
    &[("smallest, own cores", &["timeouts_per_s", "needless_per_s"]), ("EEVDF, idle", &["rtt_p90_ms"])];

fn is_exception(label: &str, metric: &str) -> bool {
    EXCEPTIONS.iter().any(|(variant, metrics)| *variant == label && metrics.contains(&metric))
}

/// Figures of two variants in the other order here, for a reason that is not known: docs/validation.md has them.
const OPEN: &[(&str, [&str; 3], [&str; 3])] =
    &[("needless_per_s", ["current", "128 KB", "200 ms"], ["current", "128 KB", "smallest + PVTCP"])];

/// How pairs of variants that differ in the lab came out here.
#[derive(Debug, Default)]
struct Orderings {
    /// As in the lab.
    same: usize,
    /// Equal here.
    equal: usize,
    /// The other way round, where that is explained.
    explained: usize,
    /// The other way round, and known.
    open: usize,
    /// The other way round.
    wrong: Vec<String>,
    /// Figures here, as factors of the lab's.
    factors: Vec<f64>,
}

impl Orderings {
    /// The share of the figures that are within a factor of three of the lab's.
    fn near(&self) -> f64 {
        let near = self.factors.iter().filter(|factor| (1.0 / 3.0..=3.0).contains(*factor)).count();
        near as f64 / self.factors.len() as f64
    }
}

/// Smaller counts are chance.
const SMALL: f64 = 5.0;

/// Figures here as factors of the lab's, where neither is small and no exception is made, in order.
fn factors<'a>(
    cells: &[Cell],
    metrics: &[&str],
    lab: impl Fn(&Cell) -> &'a BTreeMap<&'static str, Measured>,
    here: &[BTreeMap<String, f64>],
) -> Vec<f64> {
    let mut factors = Vec::new();
    for (cell, here) in cells.iter().zip(here) {
        let label = cell.labels.last().map_or("", |(_, label)| label);
        for name in metrics.iter().filter(|name| !is_exception(label, name)) {
            if let (Some(there), Some(&here)) = (lab(cell).get(name).map(|m| m.median), here.get(*name)) {
                if there >= SMALL && here >= SMALL {
                    factors.push(here / there);
                }
            }
        }
    }
    factors.sort_by(f64::total_cmp);
    factors
}

/// Runs a scenario at the lab's scale and holds orderings within each era against the lab's.
fn orderings(scenario: &str, page: &str, metrics: &[&str]) -> Orderings {
    let loaded = loaded(&format!("scenarios/{scenario}.toml"));
    let mut cells: Vec<Cell> = cells(&loaded).unwrap_or_else(|e| panic!("{e}"));
    let rows = rows(page, cells[0].labels.len());
    let labels = |cell: &Cell| cell.labels.iter().map(|(_, label)| label.clone()).collect::<Vec<_>>();
    let row = |cell: &Cell| rows.iter().find(|(row, _)| *row == labels(cell));
    if scenario.starts_with("sim/") {
        // The simulator's own scenario has hosts that the lab has not.
        cells.retain(|cell| row(cell).is_some());
        assert_eq!(cells.len(), rows.len(), "{scenario}: each row of the page is a cell");
    }
    let lab = |cell: &Cell| &row(cell).unwrap_or_else(|| panic!("{scenario}: no row {:?}", labels(cell))).1;
    let here: Vec<BTreeMap<String, f64>> = cells
        .iter()
        .map(|cell| {
            let runs: Vec<_> = (0..3).map(|repetition| run(cell, repetition).metrics).collect();
            let names: Vec<&String> = runs[0].keys().collect();
            let middle = |name: &str| median(&runs.iter().filter_map(|run| run.get(name).copied()).collect::<Vec<_>>());
            names.into_iter().filter_map(|name| Some((name.clone(), middle(name)?))).collect()
        })
        .collect();
    let mut found = Orderings { factors: factors(&cells, metrics, lab, &here), ..Orderings::default() };
    for (i, a) in cells.iter().enumerate() {
        for (j, b) in cells.iter().enumerate().skip(i + 1) {
            // All but the last axis equal: variants of one experiment.
            let last = a.labels.len() - 1;
            if a.labels[..last] != b.labels[..last] {
                continue;
            }
            for name in metrics {
                let (Some(x), Some(y)) = (lab(a).get(name), lab(b).get(name)) else { continue };
                if !differ(*x, *y) {
                    continue;
                }
                let (p, q) = (here[i][*name], here[j][*name]);
                let line = format!(
                    "{name}: {:?} {:?}: lab {} and {}, here {p:.1} and {q:.1}",
                    labels(a),
                    labels(b),
                    x.median,
                    y.median
                );
                if (p < q) == (x.median < y.median) {
                    found.same += 1;
                } else if (p - q).abs() <= EQUAL * p.max(q) {
                    found.equal += 1;
                    println!("{line}: equal");
                } else if [a, b].iter().any(|cell| is_exception(&cell.labels[last].1, name)) {
                    found.explained += 1;
                    println!("{line}: explained");
                } else if OPEN.iter().any(|(of, p, q)| of == name && labels(a) == *p && labels(b) == *q) {
                    found.open += 1;
                    println!("{line}: open");
                } else {
                    println!("{line}");
                    found.wrong.push(line);
                }
            }
        }
    }
    println!(
        "{scenario}: {} pairs as in the lab, {} equal, {} explained, {} open, {} the other way round",
        found.same,
        found.equal,
        found.explained,
        found.open,
        found.wrong.len()
    );
    let (least, most) = (found.factors[0], found.factors[found.factors.len() - 1]);
    println!(
        "{scenario}: {} figures, here by lab {least:.2} to {most:.2}, median {:.2}, within a factor of three {:.0}%",
        found.factors.len(),
        median(&found.factors).unwrap_or(f64::NAN),
        100.0 * found.near(),
    );
    found
}

#[test]
fn incast_orders_its_variants_as_the_lab_does() {
    for (series, open) in [(INCAST_BEFORE, 0), (&page("pvtcp-fig13-incast"), 1)] {
        let found = orderings(
            "pvtcp/fig13-incast",
            series,
            &["goodput_mbit", "timeouts_per_s", "needless_per_s", "block_p99_ms"],
        );
        assert!(found.same > 90 && found.open == open && found.wrong.is_empty(), "{found:#?}");
        assert!(found.near() > 0.6, "{:?}", found.factors);
    }
}

#[test]
fn one_sender_orders_its_variants_as_the_lab_does() {
    // On the slower machine fewer pairs differ by more than their spread.
    for (series, pairs) in [(TABLE1_FASTER, 30), (&page("pvtcp-table1-one-sender"), 25)] {
        let found = orderings(
            "pvtcp/table1-one-sender",
            series,
            &["timeouts_per_s", "needless_retransmissions", "tail_loss_probes", "rto_ms"],
        );
        assert!(found.same > pairs && found.wrong.is_empty(), "{found:#?}");
        assert!(found.near() > 0.6, "{:?}", found.factors);
    }
}

#[test]
fn port_queues_order_as_in_the_lab() {
    let found =
        orderings("pvtcp/s31-port-queue", &page("pvtcp-s31-port-queue"), &["goodput_mbit", "port_drops", "timeouts"]);
    assert!(found.same > 15 && found.wrong.is_empty(), "{found:#?}");
    assert!(found.near() > 0.6, "{:?}", found.factors);
}

#[test]
fn schedulers_order_round_trips_as_in_the_lab() {
    let found = orderings("sim/hosts/ping", &page("hosts-ping"), &["rtt_p50_ms", "rtt_p90_ms", "rtt_max_ms"]);
    assert!(found.same > 60 && found.explained == 2 && found.wrong.is_empty(), "{found:#?}");
    assert!(found.near() > 0.9, "{:?}", found.factors);
}

#[test]
fn a_page_reads_as_it_is_written() {
    let rows = rows(&page("pvtcp-fig13-incast"), 3);
    assert_eq!(rows.len(), 32);
    let (labels, figures) = &rows[0];
    assert_eq!(labels, &["paper-day", "1024 KB", "200 ms"]);
    let goodput = figures["goodput_mbit"];
    assert!(goodput.least <= goodput.median && goodput.median <= goodput.most && goodput.most > goodput.least);
    assert!(
        figures.contains_key("timeouts_per_s") && figures.contains_key("timeouts"),
        "headings with a unit and without"
    );
    assert!(!figures.contains_key("duplicate_acks"), "a dash is no figure");
}
