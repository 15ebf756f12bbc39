//! Against the lab: the same scenario files, and the figures that docs/results has of them.

use std::collections::BTreeMap;

use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::format::VmGroup;
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

pub(super) fn page(name: &str) -> String {
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
            // Pages escape what Markdown would read as its own.
            (row[..axes].iter().map(|label| label.replace('\\', "")).collect(), figures.collect())
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
    let (small, large) = (a.median.min(b.median), a.median.max(b.median));
    are_apart(a, b) && large > 1.25 * small && large - small > 5.0
}

/// A small effect: runs do not overlap, and medians are a twentieth to a quarter apart.
fn differ_a_little(a: Measured, b: Measured) -> bool {
    let (small, large) = (a.median.min(b.median), a.median.max(b.median));
    are_apart(a, b) && large > 1.05 * small && large <= 1.25 * small
}

fn are_apart(a: Measured, b: Measured) -> bool {
    a.most < b.least || b.most < a.least
}

/// Two figures here are equal if they are no further apart than this.
const EQUAL: f64 = 0.05;

/// A variant and the figures of it that are not compared. docs/validation.md has the reason.
const EXCEPTIONS: &[(&str, &[&str])] = &[
    ("smallest, own cores", &["timeouts_per_s", "needless_per_s"]),
    ("EEVDF, idle", &["rtt_p90_ms"]),
    ("CERA_60, agents", &["fct_p90_ms", "fct_p99_ms"]),
    ("CERA_25, agents", &["fct_p90_ms", "fct_p99_ms"]),
];

fn is_exception(label: &str, metric: &str) -> bool {
    EXCEPTIONS.iter().any(|(variant, metrics)| *variant == label && metrics.contains(&metric))
}

/// Figures of two variants in the other order here, by the lab's spread or for a reason that is not known:
/// docs/validation.md has them.
const OPEN: &[(&str, [&str; 3], [&str; 3])] = &[
    ("needless_per_s", ["current", "128 KB", "200 ms"], ["current", "128 KB", "smallest + PVTCP"]),
    ("throughput_connected_p50_mbit", ["2", "10000", "vanilla"], ["2", "10000", "vFlood"]),
    ("fct_connected_p50_ms", ["2", "10000", "vanilla"], ["2", "10000", "vFlood"]),
];

/// What is compared: a scenario, and a page with the lab's figures of it.
pub(super) struct Series<'a> {
    /// The scenario's path below `scenarios`, without `.toml`.
    pub scenario: &'a str,
    /// The page's text.
    pub page: &'a str,
    /// The axis whose labels are variants of one experiment.
    pub variants: &'a str,
    /// Variants that the simulator does not have.
    pub left_out: &'a [&'a str],
    /// What a packet takes in the host of a VM, where the scenario does not say it.
    pub host_delay_us: Option<u32>,
    /// What is compared.
    pub metrics: &'a [&'a str],
}

/// How pairs of variants that differ in the lab came out here.
#[derive(Debug, Default)]
pub(super) struct Orderings {
    /// As in the lab.
    pub same: usize,
    /// Equal here.
    pub equal: usize,
    /// The other way round, where that is explained.
    pub explained: usize,
    /// The other way round, and known.
    pub open: usize,
    /// The other way round.
    pub wrong: Vec<String>,
    /// Figures here, as factors of the lab's.
    pub factors: Vec<f64>,
    /// Ratios of two variants here, as factors of the lab's, of pairs that differ there.
    pub effects: Vec<f64>,
    /// Small effects of the lab: those of the same sign here, and all.
    pub small: [usize; 2],
}

impl Orderings {
    /// The share of the figures that are within a factor of three of the lab's.
    pub fn near(&self) -> f64 {
        share_near(&self.factors)
    }

    /// The share of the effects that are within a factor of three of the lab's.
    pub fn near_effects(&self) -> f64 {
        share_near(&self.effects)
    }
}

fn share_near(factors: &[f64]) -> f64 {
    let near = factors.iter().filter(|factor| (1.0 / 3.0..=3.0).contains(*factor)).count();
    near as f64 / factors.len() as f64
}

/// Smaller counts are chance.
const SMALL: f64 = 5.0;

/// Figures here as factors of the lab's, where neither is small and no exception is made, in order.
fn factors<'a>(
    cells: &[Cell],
    Series { metrics, variants, .. }: &Series<'_>,
    lab: impl Fn(&Cell) -> &'a BTreeMap<&'static str, Measured>,
    here: &[BTreeMap<String, f64>],
) -> Vec<f64> {
    let mut factors = Vec::new();
    for (cell, here) in cells.iter().zip(here) {
        let label = label_of(cell, variants);
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

/// The cell's label on the axis of the variants.
fn label_of<'a>(cell: &'a Cell, variants: &str) -> &'a str {
    cell.labels.iter().find(|(axis, _)| axis == variants).map_or("", |(_, label)| label)
}

/// Whether two cells differ in the variant only.
fn are_variants(a: &Cell, b: &Cell, variants: &str) -> bool {
    a.labels.iter().zip(&b.labels).all(|(one, other)| one.0 == variants || one == other)
}

/// The medians of three runs here. What only the lab has a choice of is left out: what plays a machine, and its memory.
fn simulated(cell: &Cell, host_delay_us: Option<u32>) -> BTreeMap<String, f64> {
    let mut cell = cell.clone();
    for group in cell.scenario.vms.values_mut() {
        let VmGroup { host, machine, memory_mib, .. } = VmGroup::default();
        (group.host, group.machine, group.memory_mib) = (host, machine, memory_mib);
        if group.hypervisor {
            group.host_delay_us = group.host_delay_us.or(host_delay_us);
        }
    }
    let runs: Vec<_> = (0..3).map(|repetition| run(&cell, repetition).metrics).collect();
    let middle = |name: &str| median(&runs.iter().filter_map(|run| run.get(name).copied()).collect::<Vec<_>>());
    runs[0].keys().filter_map(|name| Some((name.clone(), middle(name)?))).collect()
}

/// Runs a scenario at the lab's scale and holds the order of its variants against the lab's.
pub(super) fn orderings(series: &Series<'_>) -> Orderings {
    let Series { scenario, variants, .. } = *series;
    let loaded = loaded(&format!("scenarios/{scenario}.toml"));
    let mut cells: Vec<Cell> = cells(&loaded).unwrap_or_else(|e| panic!("{e}"));
    cells.retain(|cell| !series.left_out.contains(&label_of(cell, variants)));
    let rows = rows(series.page, cells[0].labels.len());
    let labels = |cell: &Cell| cell.labels.iter().map(|(_, label)| label.clone()).collect::<Vec<_>>();
    let row = |cell: &Cell| rows.iter().find(|(row, _)| *row == labels(cell));
    if scenario.starts_with("sim/") {
        // The simulator's own scenario has hosts that the lab has not.
        cells.retain(|cell| row(cell).is_some());
        assert_eq!(cells.len(), rows.len(), "{scenario}: each row of the page is a cell");
    }
    let lab = |cell: &Cell| &row(cell).unwrap_or_else(|| panic!("{scenario}: no row {:?}", labels(cell))).1;
    let here: Vec<BTreeMap<String, f64>> = cells.iter().map(|cell| simulated(cell, series.host_delay_us)).collect();
    let mut found = Orderings { factors: factors(&cells, series, lab, &here), ..Orderings::default() };
    let pairs =
        cells.iter().enumerate().flat_map(|(i, a)| cells.iter().enumerate().skip(i + 1).map(move |b| ((i, a), b)));
    for ((i, a), (j, b)) in pairs.filter(|((_, a), (_, b))| are_variants(a, b, variants)) {
        for name in series.metrics {
            let (Some(x), Some(y)) = (lab(a).get(name), lab(b).get(name)) else { continue };
            let (p, q) = (here[i][*name], here[j][*name]);
            let is_same = (p < q) == (x.median < y.median);
            if differ_a_little(*x, *y) {
                found.small[0] += usize::from(is_same);
                found.small[1] += 1;
            }
            if !differ(*x, *y) {
                continue;
            }
            let line = format!(
                "{name}: {:?} {:?}: lab {} and {}, here {p:.1} and {q:.1}",
                labels(a),
                labels(b),
                x.median,
                y.median
            );
            if [p, q, x.median, y.median].iter().all(|figure| *figure >= SMALL) {
                found.effects.push((q / p) / (y.median / x.median));
            }
            if is_same {
                found.same += 1;
            } else if (p - q).abs() <= EQUAL * p.max(q) {
                found.equal += 1;
                println!("{line}: equal");
            } else if [a, b].iter().any(|cell| is_exception(label_of(cell, variants), name)) {
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
    println!(
        "{scenario}: ratios by the lab's: median {:.2}, within a factor of three {:.0}% of {}; small effects: {} of {}",
        median(&found.effects).unwrap_or(f64::NAN),
        100.0 * found.near_effects(),
        found.effects.len(),
        found.small[0],
        found.small[1],
    );
    found
}

/// All variants, on hosts as the scenario has them.
fn orderings_of(scenario: &str, page: &str, variants: &str, metrics: &[&str]) -> Orderings {
    orderings(&Series { scenario, page, variants, left_out: &[], host_delay_us: None, metrics })
}

#[test]
fn incast_orders_its_variants_as_the_lab_does() {
    for (series, open) in [(INCAST_BEFORE, 0), (&page("pvtcp-fig13-incast"), 1)] {
        let found = orderings_of(
            "pvtcp/fig13-incast",
            series,
            "setting",
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
        let found = orderings_of(
            "pvtcp/table1-one-sender",
            series,
            "RTO min",
            &["timeouts_per_s", "needless_retransmissions", "tail_loss_probes", "rto_ms"],
        );
        assert!(found.same > pairs && found.wrong.is_empty(), "{found:#?}");
        assert!(found.near() > 0.6, "{:?}", found.factors);
    }
}

#[test]
fn port_queues_order_as_in_the_lab() {
    let found = orderings_of(
        "pvtcp/s31-port-queue",
        &page("pvtcp-s31-port-queue"),
        "queue",
        &["goodput_mbit", "port_drops", "timeouts"],
    );
    assert!(found.same > 15 && found.wrong.is_empty(), "{found:#?}");
    assert!(found.near() > 0.6, "{:?}", found.factors);
}

#[test]
fn schedulers_order_round_trips_as_in_the_lab() {
    let found =
        orderings_of("sim/hosts/ping", &page("hosts-ping"), "scheduler", &["rtt_p50_ms", "rtt_p90_ms", "rtt_max_ms"]);
    assert!(found.same > 60 && found.explained == 1 && found.wrong.is_empty(), "{found:#?}");
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
