//! Parquet tables hold what JSON lines hold.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use common::Sample;
use evenkeel_report::{load, write_parquet};
use evenkeel_scenario::metric::METRICS;
use evenkeel_scenario::result::{FlowRecord, PARQUET_FILES, PacketRecord, RUNS_FILE, RunRecord, SeenAt, Series};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

/// The records of a directory with JSON lines and of one with tables.
fn both(sample: &Sample) -> (Vec<RunRecord>, Vec<RunRecord>) {
    let (lines, tables) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sample.write(lines.path());
    write_parquet(tables.path(), &sample.set, &sample.records).unwrap();
    assert!(!tables.path().join(RUNS_FILE).exists());
    let (lines, tables) = (load(lines.path()).unwrap(), load(tables.path()).unwrap());
    assert_eq!(lines.set, tables.set);
    (lines.records, tables.records)
}

/// Everything at its ends, and everything that may be empty.
fn odd() -> RunRecord {
    let series = |name: &str, points: &[(i64, f64)]| Series {
        name: name.into(),
        subject: "sender-0".into(),
        points: points.to_vec(),
    };
    RunRecord {
        cell: vec![("block size".into(), "64 KB, \u{fc}ber".into()), ("a.b".into(), String::new())],
        repetition: u32::MAX,
        seed: u64::MAX,
        duration_us: 1 << 60,
        metrics: BTreeMap::from([("goodput_mbit".into(), -0.0), ("fct_p50_ms".into(), 1e-300)]),
        counters: BTreeMap::from([
            ("sender-0".into(), BTreeMap::from([("a".into(), i64::MIN), ("b".into(), i64::MAX)])),
            ("sender-1".into(), BTreeMap::new()),
        ]),
        flows: vec![FlowRecord { from: "a".into(), to: "b".into(), bytes: u64::MAX, start_us: 0, duration_us: 7 }],
        // Two series of one name and subject stay two.
        series: vec![
            series("rtt_ms", &[(-1, 0.1), (i64::MAX, f64::MAX)]),
            series("rtt_ms", &[]),
            series("rtt_ms", &[(3, 0.5)]),
        ],
        packets: [SeenAt::Sender, SeenAt::SenderPort, SeenAt::ReceiverPort]
            .map(|at| PacketRecord {
                t_us: -5,
                at,
                data: true,
                seq: u64::MAX,
                len: u32::MAX,
                retransmission: false,
                descheduled: true,
            })
            .to_vec(),
        remarks: vec!["one,\ntwo".into(), String::new()],
    }
}

fn empty() -> RunRecord {
    RunRecord {
        cell: Vec::new(),
        repetition: 0,
        seed: 0,
        duration_us: 0,
        metrics: BTreeMap::new(),
        counters: BTreeMap::new(),
        flows: Vec::new(),
        series: Vec::new(),
        packets: Vec::new(),
        remarks: Vec::new(),
    }
}

#[test]
fn tables_read_back_as_the_lines_do() {
    let (lines, tables) = both(&Sample::everything());
    assert_eq!(lines.len(), 24);
    // Not assert_eq: thousands of points would be printed.
    assert!(lines == tables && lines == Sample::everything().records);
}

#[test]
fn nothing_is_lost_at_the_ends() {
    for records in [vec![odd(), empty(), odd()], vec![empty()]] {
        let sample = Sample { records, ..Sample::plain() };
        let (lines, tables) = both(&sample);
        assert_eq!(lines, tables);
        assert_eq!(tables, sample.records);
    }
}

#[test]
fn the_same_records_give_the_same_bytes() {
    let sample = Sample::everything();
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let bytes = directories.map(|directory| {
        write_parquet(directory.path(), &sample.set, &sample.records).unwrap();
        PARQUET_FILES.map(|name| fs::read(directory.path().join(name)).unwrap())
    });
    assert!(bytes[0] == bytes[1]);
}

/// As another tool sees it: by the names and types in the file.
#[test]
fn the_columns_are_as_documented() {
    let sample = Sample::everything();
    let directory = tempfile::tempdir().unwrap();
    write_parquet(directory.path(), &sample.set, &sample.records).unwrap();
    let names = |name: &str| -> Vec<String> {
        let schema = open(directory.path(), name).metadata().file_metadata().schema_descr_ptr();
        schema.columns().iter().map(|column| column.name().to_owned()).collect()
    };
    assert_eq!(
        names("runs.parquet")[..8],
        ["run", "repetition", "seed", "duration_us", "axis.era", "axis.RTO min", "axis.PVTCP", "block_p50_ms"]
    );
    assert_eq!(names("counters.parquet"), ["run", "vm", "counter", "increase"]);
    assert_eq!(names("flows.parquet"), ["run", "from", "to", "bytes", "start_us", "duration_us"]);
    assert_eq!(names("series.parquet"), ["run", "series", "name", "subject", "t_us", "value"]);
    assert_eq!(names("packets.parquet"), ["run", "t_us", "at", "data", "seq", "len", "retransmission", "descheduled"]);
    assert_eq!(names("remarks.parquet"), ["run", "remark"]);

    let runs = open(directory.path(), "runs.parquet");
    let second = runs.get_row_iter(None).unwrap().nth(1).unwrap().unwrap();
    assert_eq!(second.get_ulong(0).unwrap(), 1);
    assert_eq!(second.get_string(4).unwrap(), "paper's day");
}

fn open(directory: &Path, name: &str) -> SerializedFileReader<File> {
    SerializedFileReader::new(File::open(directory.join(name)).unwrap()).unwrap()
}

#[test]
fn the_last_format_written_is_the_one_read() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (Sample::everything(), Sample::plain());
    write_parquet(directory.path(), &first.set, &first.records).unwrap();
    second.write(directory.path());
    assert_eq!(load(directory.path()).unwrap().records.len(), 1);
    assert!(PARQUET_FILES.iter().all(|name| !directory.path().join(name).exists()));
    write_parquet(directory.path(), &first.set, &first.records).unwrap();
    assert_eq!(load(directory.path()).unwrap().records.len(), 24);
}

#[test]
fn damaged_tables_are_named() {
    let sample = Sample::everything();
    let directory = tempfile::tempdir().unwrap();
    let refusal = || load(directory.path()).unwrap_err().to_string();
    write_parquet(directory.path(), &sample.set, &sample.records).unwrap();
    let flows = directory.path().join("flows.parquet");
    fs::copy(directory.path().join("remarks.parquet"), &flows).unwrap();
    assert_eq!(refusal(), format!("{}: column `from` is missing", flows.display()));
    fs::write(&flows, "PAR1 no more").unwrap();
    assert!(refusal().starts_with(&format!("{}: ", flows.display())), "{}", refusal());
    fs::remove_file(&flows).unwrap();
    assert!(refusal().starts_with("cannot read ") && refusal().contains("flows.parquet"), "{}", refusal());
}

#[test]
fn rows_of_runs_that_do_not_exist_are_refused() {
    let sample = Sample::everything();
    let directory = tempfile::tempdir().unwrap();
    write_parquet(directory.path(), &sample.set, &sample.records).unwrap();
    let counters = fs::read(directory.path().join("counters.parquet")).unwrap();
    write_parquet(directory.path(), &sample.set, &sample.records[..3]).unwrap();
    fs::write(directory.path().join("counters.parquet"), counters).unwrap();
    let error = load(directory.path()).unwrap_err().to_string();
    assert!(error.ends_with("run 3 is not among the 3 of runs.parquet"), "{error}");
}

#[test]
fn no_metric_has_the_name_of_another_column() {
    let mut record = empty();
    record.metrics = METRICS.iter().map(|metric| (metric.name.to_owned(), 1.0)).collect();
    let directory = tempfile::tempdir().unwrap();
    let Sample { set, .. } = Sample::plain();
    write_parquet(directory.path(), &set, std::slice::from_ref(&record)).unwrap();
    record.metrics.insert("seed".to_owned(), 1.0);
    let error = write_parquet(directory.path(), &set, &[record]).unwrap_err().to_string();
    assert!(error.ends_with("the metric `seed` has the name of another column"), "{error}");
}
