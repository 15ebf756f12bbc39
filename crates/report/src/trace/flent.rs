//! Runs as flent's data files, for its plots: <https://flent.org>. A file has a run's rates, pings, RTTs and windows,
//! under the names of flent's test `tcp_nup`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use evenkeel_scenario::result::{FlowRecord, RunRecord, Series};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

use super::run_name;
use crate::{ReportError, Results};

/// Version of the format.
const VERSION: u32 = 4;
/// The test whose plots there are.
const TEST: &str = "tcp_nup";
/// Milliseconds between two values of a series.
const STEP_MS: u64 = 50;
const SUFFIX: &str = ".flent.gz";

/// Writes a data file for each run: `file` itself if there is one run; with several, files beside it, numbered from 0
/// before its suffix. Returns the files that were written.
///
/// # Errors
/// [`ReportError::Write`]
pub fn write_flent(results: &Results, file: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let started = &format!("{}.000000Z", results.set.started.trim_end_matches('Z'));
    let title = &results.scenario.name;
    let write = |(number, record): (usize, &RunRecord)| {
        let file = if results.records.len() == 1 { file.to_owned() } else { numbered(file, number) };
        let data = of_run(record, title, started);
        match written(&file, &data) {
            Ok(()) => Ok(file),
            Err(source) => Err(ReportError::Write { file, source }),
        }
    };
    results.records.iter().enumerate().map(write).collect()
}

fn numbered(file: &Path, number: usize) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(SUFFIX).unwrap_or(&name);
    file.with_file_name(format!("{stem}-{number}{SUFFIX}"))
}

fn written(file: &Path, data: &Value) -> std::io::Result<()> {
    let mut zipped = GzEncoder::new(BufWriter::new(File::create(file)?), Compression::default());
    serde_json::to_writer(&mut zipped, data)?;
    zipped.finish()?.flush()
}

fn of_run(record: &RunRecord, name: &str, started: &str) -> Value {
    let steps = record.duration_us / 1000 / STEP_MS;
    let x_values: Vec<f64> = (0..=steps).map(|step| (step * STEP_MS) as f64 / 1e3).collect();
    let mut results = Map::new();
    let mut raw = Map::new();
    let mut total = vec![0.0; x_values.len()];
    let senders = senders(record);
    for (number, (sender, flows)) in (1..).zip(&senders) {
        let label = format!("TCP upload::{number}");
        let rates = rates(flows, &x_values);
        total.iter_mut().zip(&rates).for_each(|(sum, rate)| *sum += rate);
        raw.insert(label.clone(), raw_of(record, sender, &x_values, &rates));
        results.insert(label, json!(rates));
    }
    if !senders.is_empty() {
        let mean: Vec<f64> = total.iter().map(|sum| sum / senders.len() as f64).collect();
        results.insert("TCP upload sum".to_owned(), json!(total));
        results.insert("TCP upload avg".to_owned(), json!(mean));
    }
    let pings: Vec<(f64, f64)> = points(record, "rtt_ms", None).map(|(at_s, ms, _)| (at_s, ms)).collect();
    if !pings.is_empty() {
        let label = "Ping (ms) ICMP";
        results.insert(label.to_owned(), json!(at_steps(&pings, &x_values)));
        raw.insert(label.to_owned(), pings.iter().map(|(t, val)| json!({ "t": t, "val": val })).collect());
    }
    let meta = Map::from_iter(results.keys().map(|label| {
        let units = if label.starts_with("Ping") { "ms" } else { "Mbits/s" };
        (label.clone(), json!({ "UNITS": units }))
    }));
    let receiver = record.flows.first().map_or("", |flow| flow.to.as_str());
    let length = record.duration_us as f64 / 1e6;
    json!({
        "version": VERSION,
        "metadata": {
            "NAME": TEST,
            "TITLE": format!("{name}: {}", run_name(record)),
            "TIME": started,
            // Raw values count from the start of the measured time.
            "T0": "1970-01-01T00:00:00.000000Z",
            "LENGTH": length,
            "TOTAL_LENGTH": length,
            "STEP_SIZE": STEP_MS as f64 / 1e3,
            "HOST": receiver,
            "HOSTS": [receiver],
            "LOCAL_HOST": "evenkeel",
            "IP_VERSION": 4,
            "NOTE": "",
            "TEST_PARAMETERS": { "upload_streams": senders.len().to_string() },
            "FLENT_VERSION": "2.3.0",
            "SERIES_META": meta,
        },
        "x_values": x_values,
        "results": results,
        "raw_values": raw,
    })
}

/// Who sends, in the order of names, with what is sent.
fn senders(record: &RunRecord) -> BTreeMap<&str, Vec<&FlowRecord>> {
    let mut senders: BTreeMap<&str, Vec<&FlowRecord>> = BTreeMap::new();
    for flow in &record.flows {
        senders.entry(&flow.from).or_default().push(flow);
    }
    senders
}

/// Mbit/s at each step: the flows in progress, each at its mean rate.
fn rates(flows: &[&FlowRecord], x_values: &[f64]) -> Vec<f64> {
    let mut rates = vec![0.0; x_values.len()];
    for flow in flows.iter().filter(|flow| flow.duration_us > 0) {
        let (from, to) = (flow.start_us as f64 / 1e6, (flow.start_us + flow.duration_us) as f64 / 1e6);
        let mbit = flow.bytes as f64 * 8.0 / flow.duration_us as f64;
        let under_way = x_values.iter().zip(&mut rates).filter(|(x, _)| (from..=to).contains(*x));
        under_way.for_each(|(_, rate)| *rate += mbit);
    }
    rates
}

/// A sender's rates, with RTTs and windows of its first socket where they were sampled.
fn raw_of(record: &RunRecord, sender: &str, x_values: &[f64], rates: &[f64]) -> Value {
    let first_of = |name: &str| {
        let mut own = points(record, name, Some(sender)).peekable();
        let subject = own.peek().map(|(_, _, subject)| *subject);
        own.filter(|(.., of)| Some(*of) == subject).map(|(t, value, _)| (t, value)).collect::<Vec<_>>()
    };
    let mut values: Vec<Value> = x_values.iter().zip(rates).map(|(t, val)| json!({ "t": t, "val": val })).collect();
    for (name, key) in [("srtt_ms", "tcp_rtt"), ("cwnd_segments", "tcp_cwnd")] {
        values.extend(first_of(name).iter().map(|(t, value)| json!({ "t": t, key: value })));
    }
    Value::Array(values)
}

/// A series' points in the measured time, in seconds, of a VM or of all.
fn points<'a>(record: &'a RunRecord, name: &'a str, vm: Option<&'a str>) -> impl Iterator<Item = (f64, f64, &'a str)> {
    let of_vm = move |series: &&Series| {
        let machine = series.subject.split(' ').next().unwrap_or_default();
        series.name == name && vm.is_none_or(|vm| vm == machine)
    };
    record.series.iter().filter(of_vm).flat_map(|series| {
        let measured = series.points.iter().filter(|(at_us, _)| *at_us >= 0);
        measured.map(|(at_us, value)| (*at_us as f64 / 1e6, *value, series.subject.as_str()))
    })
}

/// At each step the latest value before it; none before the first.
fn at_steps(points: &[(f64, f64)], x_values: &[f64]) -> Vec<Option<f64>> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let latest = |x: &f64| sorted[..sorted.partition_point(|(at, _)| at <= x)].last().map(|(_, value)| *value);
    x_values.iter().map(latest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RunRecord {
        let flow = |from: &str, start_us, bytes| FlowRecord {
            from: from.to_owned(),
            to: "b-0".to_owned(),
            bytes,
            start_us,
            duration_us: 50_000,
        };
        let series = |name: &str, subject: &str, points: &[(i64, f64)]| Series {
            name: name.to_owned(),
            subject: subject.to_owned(),
            points: points.to_vec(),
        };
        RunRecord {
            cell: vec![("cc".to_owned(), "reno".to_owned())],
            repetition: 2,
            seed: 1,
            duration_us: 150_000,
            metrics: BTreeMap::new(),
            counters: BTreeMap::new(),
            flows: vec![flow("a-0", 0, 62_500), flow("a-0", 10_000, 125_000), flow("a-1", 100_000, 625)],
            series: vec![
                series("rtt_ms", "a-0", &[(-9, 3.0), (70_000, 7.0), (140_000, 9.0)]),
                series("srtt_ms", "a-0 flow 0", &[(20_000, 1.5)]),
                series("srtt_ms", "a-0 flow 1", &[(20_000, 2.5)]),
            ],
            packets: Vec::new(),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn rates_pings_and_rtts_stand_at_their_times() {
        let data = of_run(&record(), "t", "2026-01-02T03:04:05.000000Z");
        assert_eq!(data["x_values"], json!([0.0, 0.05, 0.1, 0.15]));
        let results = &data["results"];
        // 62,500 bytes in 50 ms are 10 Mbit/s; the second flow is under way at 50 ms, too.
        assert_eq!(results["TCP upload::1"], json!([10.0, 30.0, 0.0, 0.0]));
        assert_eq!(results["TCP upload::2"], json!([0.0, 0.0, 0.1, 0.1]));
        assert_eq!(results["TCP upload sum"], json!([10.0, 30.0, 0.1, 0.1]));
        assert_eq!(results["TCP upload avg"], json!([5.0, 15.0, 0.05, 0.05]));
        // Nothing of the warm-up is there.
        assert_eq!(results["Ping (ms) ICMP"], json!([null, null, 7.0, 9.0]));
        let raw = data["raw_values"]["TCP upload::1"].as_array().unwrap();
        let rtts: Vec<_> = raw.iter().filter(|value| value.get("tcp_rtt").is_some()).collect();
        assert_eq!(rtts, [&json!({ "t": 0.02, "tcp_rtt": 1.5 })]);
        let metadata = &data["metadata"];
        assert_eq!((&metadata["TITLE"], &metadata["NAME"]), (&json!("t: cc=reno #2"), &json!("tcp_nup")));
        assert_eq!(metadata["TEST_PARAMETERS"]["upload_streams"], "2");
    }

    #[test]
    fn several_runs_are_numbered_before_the_suffix() {
        assert_eq!(numbered(Path::new("d/x.flent.gz"), 3), Path::new("d/x-3.flent.gz"));
        assert_eq!(numbered(Path::new("x"), 0), Path::new("x-0.flent.gz"));
    }
}
