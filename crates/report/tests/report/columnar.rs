//! Parquet tables hold what JSON lines hold.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use evenkeel_report::columnar::{ColumnFormat, Kind, TABLES};
use evenkeel_report::{ReportError, load, write_parquet};
use evenkeel_scenario::metric::Metric;
use evenkeel_scenario::result::{
    FlowRecord, META_FILE, PARQUET_FILES, PARQUET_MANIFEST, PacketRecord, RUNS_FILE, RunRecord, SeenAt, Series,
};
use parquet::basic::{LogicalType, Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::common::Sample;

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

/// A record with every value at a bound, and everything empty that may be.
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
    let schema = open(directory.path(), "runs.parquet").metadata().file_metadata().schema_descr_ptr();
    let names: Vec<&str> = schema.columns().iter().map(|column| column.name()).collect();
    assert_eq!(
        names[..8],
        ["run", "repetition", "seed", "duration_us", "axis.era", "axis.RTO min", "axis.PVTCP", "block_p50_ms"]
    );
    for table in &TABLES {
        let schema = open(directory.path(), table.file).metadata().file_metadata().schema_descr_ptr();
        // The columns of axes and metrics stand for any number of them.
        let fixed: Vec<&ColumnFormat> =
            table.columns.iter().filter(|column| !["axis.NAME", "METRIC"].contains(&column.name)).collect();
        if table.file != "runs.parquet" {
            assert_eq!(schema.num_columns(), fixed.len(), "{}", table.file);
        }
        for (written, column) in schema.columns().iter().zip(fixed) {
            let logical = written.logical_type_ref();
            let kind = match written.physical_type() {
                Type::BYTE_ARRAY if logical == Some(&LogicalType::String) => Kind::Text,
                Type::INT64 if logical.is_none() => Kind::Integer,
                Type::INT64 => Kind::Natural,
                Type::DOUBLE => Kind::Number,
                Type::BOOLEAN => Kind::Truth,
                other => panic!("{other}"),
            };
            assert_eq!((written.name(), kind), (column.name, column.kind), "{}", table.file);
        }
    }

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
    let whole = fs::read(&flows).unwrap();
    let damaged = |why: &str| {
        format!("{} is damaged, or not of the same results as the tables beside it: {why}", flows.display())
    };
    fs::write(&flows, &whole[..9]).unwrap();
    assert_eq!(refusal(), damaged(&format!("it has 9 bytes of {}", whole.len())));
    fs::write(&flows, vec![0; whole.len()]).unwrap();
    assert_eq!(refusal(), damaged("its checksum is another"));
    fs::remove_file(&flows).unwrap();
    assert!(refusal().starts_with("cannot read ") && refusal().contains("flows.parquet"), "{}", refusal());
    fs::write(&flows, whole).unwrap();
    load(directory.path()).unwrap();

    let manifest = directory.path().join(PARQUET_MANIFEST);
    let text = fs::read_to_string(&manifest).unwrap();
    let named = |why: &str| format!("{}: {why}", manifest.display());
    fs::write(&manifest, text.replace("\"schema\": 1", "\"schema\": 2")).unwrap();
    assert_eq!(refusal(), named("tables of schema 2; this evenkeel reads schema 1"));
    fs::write(&manifest, text.replace("flows.parquet", "../flows.parquet")).unwrap();
    assert_eq!(refusal(), named("`../flows.parquet` is not a file of evenkeel's results"));
    fs::remove_file(&manifest).unwrap();
    assert!(refusal().starts_with(&named("")[..manifest.as_os_str().len()]), "{}", refusal());
    assert!(refusal().contains("tables.json is missing: the tables beside it were not written to their end"));
}

#[test]
fn tables_of_two_sets_are_not_read_together() {
    let sample = Sample::everything();
    let directory = tempfile::tempdir().unwrap();
    write_parquet(directory.path(), &sample.set, &sample.records).unwrap();
    let counters = fs::read(directory.path().join("counters.parquet")).unwrap();
    write_parquet(directory.path(), &sample.set, &sample.records[..3]).unwrap();
    fs::write(directory.path().join("counters.parquet"), counters).unwrap();
    let error = load(directory.path()).unwrap_err();
    assert!(matches!(&error, ReportError::Damaged { file, .. } if file.ends_with("counters.parquet")), "{error}");
}

/// Any file that is cut short or has a bit flipped, anywhere, gives an error, or what is read has not changed.
#[test]
fn damage_is_never_read_as_something_else() {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let sample = Sample { records: vec![odd(), empty(), odd()], ..Sample::plain() };
    write_parquet(directory.path(), &sample.set, &sample.records).unwrap();
    let mut unharmed = 0;
    for name in PARQUET_FILES.into_iter().chain([PARQUET_MANIFEST, META_FILE]) {
        let path = directory.path().join(name);
        let whole = fs::read(&path).unwrap();
        for place in (0..whole.len()).step_by(3) {
            let mut flipped = whole.clone();
            flipped[place] ^= 1 << (place % 8);
            for damaged in [&flipped[..], &whole[..place]] {
                fs::write(&path, damaged).unwrap();
                if let Ok(results) = load(directory.path()) {
                    assert!(results.set == sample.set && results.records == sample.records, "{name}, byte {place}");
                    assert_eq!(name, PARQUET_MANIFEST, "byte {place}");
                    unharmed += 1;
                }
            }
        }
        fs::write(&path, whole).unwrap();
    }
    // Only in white space of the manifest.
    assert!(unharmed < 100, "{unharmed}");
    assert!(load(directory.path()).unwrap().records == sample.records);
}

/// Any number but NaN.
fn figure() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("not a number", |figure| !figure.is_nan())
}

fn records() -> impl Strategy<Value = Vec<RunRecord>> {
    let seen = prop_oneof![Just(SeenAt::Sender), Just(SeenAt::SenderPort), Just(SeenAt::ReceiverPort)];
    let packet = (any::<(i64, bool, u64, u32)>(), any::<(bool, bool)>(), seen).prop_map(
        |((t_us, data, seq, len), (retransmission, descheduled), at)| PacketRecord {
            t_us,
            at,
            data,
            seq,
            len,
            retransmission,
            descheduled,
        },
    );
    let flow = any::<(String, String, u64, u64, u64)>()
        .prop_map(|(from, to, bytes, start_us, duration_us)| FlowRecord { from, to, bytes, start_us, duration_us });
    let series = ("[a-c]{0,2}", any::<String>(), vec((any::<i64>(), figure()), 0..4))
        .prop_map(|(name, subject, points)| Series { name, subject, points });
    // Axes in one order; a run may lack the last ones.
    let cell = vec(any::<String>(), 0..=3).prop_map(|labels| {
        let axes = ["z", "\u{5ed3}.NAME", ""].map(str::to_owned);
        axes.into_iter().zip(labels).collect::<Vec<_>>()
    });
    let maps = (
        btree_map("[A-Z\u{e4}-\u{ff}]{0,6}", figure(), 0..4),
        btree_map(any::<String>(), btree_map(any::<String>(), any::<i64>(), 0..3), 0..3),
    );
    let lists = (vec(flow, 0..4), vec(series, 0..4), vec(packet, 0..4), vec(any::<String>(), 0..3));
    let run =
        (cell, any::<(u32, u64, u64)>(), maps, lists).prop_map(
            |(cell, (repetition, seed, duration_us), (metrics, counters), (flows, series, packets, remarks))| {
                RunRecord { cell, repetition, seed, duration_us, metrics, counters, flows, series, packets, remarks }
            },
        );
    vec(run, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_records_read_back(records in records()) {
        let directory = tempfile::tempdir().unwrap();
        let Sample { set, .. } = Sample::plain();
        write_parquet(directory.path(), &set, &records).unwrap();
        match load(directory.path()) {
            Ok(results) => prop_assert_eq!(results.records, records),
            Err(error) => prop_assert!(matches!(error, ReportError::NoRuns { .. }) && records.is_empty(), "{}", error),
        }
    }
}

/// More rows than are encoded together.
#[test]
fn many_rows_read_back() {
    let mut record = empty();
    let points = (0..(1 << 20) + 3).map(|t_us| (t_us, t_us as f64 / 3.0)).collect();
    record.series = vec![Series { name: "rtt_ms".into(), subject: "a".into(), points }];
    let directory = tempfile::tempdir().unwrap();
    let Sample { set, .. } = Sample::plain();
    write_parquet(directory.path(), &set, std::slice::from_ref(&record)).unwrap();
    // Not assert_eq: a million points would be printed.
    assert!(load(directory.path()).unwrap().records == [record]);
    assert_eq!(open(directory.path(), "series.parquet").num_row_groups(), 2);
}

/// The tables in the docs are made from what writes the files.
#[test]
fn the_format_in_the_docs_is_current() {
    const BEGIN: &str = "<!-- generated: tables -->\n";
    const END: &str = "<!-- end of generated -->\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results-format.md");
    let text = fs::read_to_string(&file).unwrap();
    let (head, rest) = text.split_once(BEGIN).expect("the mark of the generated part");
    let (_, tail) = rest.split_once(END).expect("the mark of its end");
    let mut tables = String::new();
    for table in &TABLES {
        tables += &format!("\n### `{}`\n\nA row is {}.\n\n", table.file, table.about);
        tables += "| column | type | unit | what it says |\n|---|---|---|---|\n";
        for column in table.columns {
            let kind = column.kind.name();
            tables += &format!("| `{}` | {kind} | {} | {} |\n", column.name, column.unit, column.about);
        }
    }
    let current = format!("{head}{BEGIN}{tables}\n{END}{tail}");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&file, &current).unwrap();
    }
    let there = fs::read_to_string(&file).unwrap();
    assert!(
        there == current,
        "{} is out of date: run `UPDATE_GENERATED=1 cargo test -p evenkeel-report --test report columnar`",
        file.display()
    );
}

#[test]
fn no_metric_has_the_name_of_another_column() {
    let mut record = empty();
    record.metrics = Metric::ALL.iter().map(|metric| (metric.name().to_owned(), 1.0)).collect();
    let directory = tempfile::tempdir().unwrap();
    let Sample { set, .. } = Sample::plain();
    write_parquet(directory.path(), &set, std::slice::from_ref(&record)).unwrap();
    record.metrics.insert("seed".to_owned(), 1.0);
    let error = write_parquet(directory.path(), &set, &[record]).unwrap_err().to_string();
    assert!(error.ends_with("the metric `seed` has the name of another column"), "{error}");
}
