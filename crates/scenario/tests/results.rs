//! Result files and their summary.

use std::collections::BTreeMap;

use evenkeel_scenario::result::{Engine, META_FILE, RUNS_FILE, RunRecord, RunSet, Series};
use evenkeel_scenario::stats::{Summary, median, quantile, summarize};
use evenkeel_scenario::{ScenarioError, io};

fn record(label: &str, repetition: u32, timeouts: f64) -> RunRecord {
    RunRecord {
        cell: vec![("era".to_owned(), label.to_owned())],
        repetition,
        seed: u64::MAX,
        duration_us: 1_000_000,
        metrics: BTreeMap::from([("timeouts".to_owned(), timeouts)]),
        counters: BTreeMap::new(),
        flows: vec![],
        series: vec![Series {
            name: "rto_ms".to_owned(),
            subject: "sender-0".to_owned(),
            points: vec![(-5, 0.25), (7, 8.0)],
        }],
        packets: vec![],
        remarks: vec![],
    }
}

fn set() -> RunSet {
    RunSet {
        schema: io::RESULT_SCHEMA,
        engine: Engine::Lab,
        scenario_toml: "schema = 2\n".to_owned(),
        versions: BTreeMap::from([("evenkeel".to_owned(), "0".to_owned())]),
        command: "evenkeel lab x.toml".to_owned(),
        started: "2026-11-21T05:00:00Z".to_owned(),
        remarks: vec![],
        provenance: None,
    }
}

#[test]
fn results_read_back_as_written() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("a/b");
    io::create_results(&results, &set()).unwrap();
    let records = [record("paper", 0, 3.0), record("current", 0, 0.1)];
    records.iter().for_each(|r| io::append_record(&results, r).unwrap());
    assert_eq!(io::read_results(&results).unwrap(), (set(), records.to_vec()));
    // A new set begins anew.
    io::create_results(&results, &set()).unwrap();
    assert_eq!(io::read_results(&results).unwrap().1, []);
}

#[test]
fn figures_are_read_to_their_last_bit() {
    let directory = tempfile::tempdir().unwrap();
    io::create_results(directory.path(), &set()).unwrap();
    // Their shortest decimals are long: a reader that rounds more than once gets some of them wrong.
    let records: Vec<RunRecord> = (1..200).map(|n| record("paper", n, f64::from(n) * 57.3 / 1.1e3 + 0.3)).collect();
    records.iter().for_each(|r| io::append_record(directory.path(), r).unwrap());
    assert_eq!(io::read_results(directory.path()).unwrap().1, records);
}

#[test]
fn errors_name_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    io::create_results(directory.path(), &set()).unwrap();
    io::append_record(directory.path(), &record("paper", 0, 3.0)).unwrap();
    let runs = directory.path().join(RUNS_FILE);
    let whole = std::fs::read_to_string(&runs).unwrap();
    std::fs::write(&runs, format!("{whole}{}\n{whole}", &whole[..20])).unwrap();
    let error = io::read_results(directory.path()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}:2: ", runs.display())), "{error}");

    let meta = directory.path().join(META_FILE);
    std::fs::write(&meta, serde_json::to_string(&RunSet { schema: 9, ..set() }).unwrap()).unwrap();
    let error = io::read_results(directory.path()).unwrap_err().to_string();
    assert!(error.ends_with("results of schema 9; this evenkeel reads schema 1"), "{error}");

    let missing = io::read_results(&directory.path().join("none")).unwrap_err();
    assert!(matches!(missing, ScenarioError::Read { .. }), "{missing}");
}

#[test]
fn a_last_line_cut_anywhere_costs_only_its_run() {
    let directory = tempfile::tempdir().unwrap();
    io::create_results(directory.path(), &set()).unwrap();
    // Two bytes for a character: a cut between them is no text.
    let records = [record("paper", 0, 3.0), record("\u{e9}", 0, 0.1)];
    records.iter().for_each(|r| io::append_record(directory.path(), r).unwrap());
    let runs = directory.path().join(RUNS_FILE);
    let whole = std::fs::read(&runs).unwrap();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for end in first + 1..whole.len() - 1 {
        std::fs::write(&runs, &whole[..end]).unwrap();
        let (set, read) = io::read_results(directory.path()).unwrap();
        assert_eq!(read, records[..1], "{end}");
        assert!(set.remarks.iter().any(|remark| remark.contains("runs.jsonl, line 2,")), "{:?}", set.remarks);
    }
    // Only the end of the line is missing, or nothing of the next one is there.
    for end in [first, whole.len() - 1, whole.len()] {
        std::fs::write(&runs, &whole[..end]).unwrap();
        let (found, read) = io::read_results(directory.path()).unwrap();
        assert_eq!((found, read.len()), (set(), if end == first { 1 } else { 2 }));
    }
    // What a power cut makes of a file's end.
    std::fs::write(&runs, [&whole[..], &[0; 512]].concat()).unwrap();
    assert_eq!(io::read_results(directory.path()).unwrap().1, records);
}

#[test]
fn quantiles_are_type_7() {
    // numpy.quantile([1, 2, 4, 8], [0, .1, .5, .9, 1])
    let values = [8.0, 1.0, 4.0, 2.0];
    let found: Vec<f64> = [0.0, 0.1, 0.5, 0.9, 1.0].iter().map(|q| quantile(&values, *q).unwrap()).collect();
    for (found, expected) in found.iter().zip([1.0, 1.3, 3.0, 6.8, 8.0]) {
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }
    assert_eq!(median(&[5.0]), Some(5.0));
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[1.0, f64::NAN]), None);
    assert_eq!(quantile(&[1.0], 1.5), None);
}

#[test]
fn cells_are_summarized_in_their_order() {
    let mut records =
        vec![record("paper", 0, 3.0), record("current", 0, 0.0), record("paper", 1, 9.0), record("paper", 2, 4.0)];
    records[1].metrics.insert("dsacks".to_owned(), 2.0);
    let cells = summarize(&records);
    let labels: Vec<&str> = cells.iter().map(|c| c.cell[0].1.as_str()).collect();
    assert_eq!(labels, ["paper", "current"]);
    assert_eq!(cells[0].metrics["timeouts"], Summary { median: 4.0, min: 3.0, max: 9.0, n: 3 });
    assert_eq!(cells[1].metrics["dsacks"], Summary { median: 2.0, min: 2.0, max: 2.0, n: 1 });
    assert!(!cells[0].metrics.contains_key("dsacks"));
}
