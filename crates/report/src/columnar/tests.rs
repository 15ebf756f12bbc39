//! What no writer leaves behind: damaged columns, and sets whose writer was killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use evenkeel_scenario::io::{append_record, create_results, stage_results};
use evenkeel_scenario::replace::Staged;
use evenkeel_scenario::result::{Engine, FlowRecord, PARQUET_FILES, PacketRecord, RunRecord, RunSet, SeenAt, Series};

use super::table::Table;
use super::value::Values;
use super::{read_tables, rows, stage_parquet, write_parquet};
use crate::{ReportError, TableError, load};

fn set(scenario: &str) -> RunSet {
    RunSet {
        schema: 1,
        engine: Engine::Sim,
        scenario_toml: format!(
            "schema = 2\nname = \"{scenario}\"\ntitle = \"t\"\nduration_ms = 1\n[vms.a]\n[vms.b]\n[workloads.w]\n\
             kind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n[report]\ncolumns = [\"goodput_mbit\"]\n"
        ),
        versions: BTreeMap::new(),
        command: String::new(),
        started: String::new(),
        remarks: Vec::new(),
        provenance: None,
    }
}

/// A run with two rows in every table.
fn run(seed: u64) -> RunRecord {
    let flow = |bytes| FlowRecord { from: "a".to_owned(), to: "b".to_owned(), bytes, start_us: 1, duration_us: 2 };
    let packet = |len| PacketRecord {
        t_us: -1,
        at: SeenAt::SenderPort,
        data: true,
        seq: 9,
        len,
        retransmission: false,
        descheduled: true,
    };
    let counters = BTreeMap::from([("x".to_owned(), 1), ("y".to_owned(), -1)]);
    RunRecord {
        cell: vec![("axis".to_owned(), "label".to_owned())],
        repetition: 0,
        seed,
        duration_us: 7,
        metrics: BTreeMap::from([("goodput_mbit".to_owned(), 0.5)]),
        counters: BTreeMap::from([("a".to_owned(), counters)]),
        flows: vec![flow(3), flow(4)],
        series: vec![Series { name: "rto_ms".to_owned(), subject: "a".to_owned(), points: vec![(-1, 0.5), (1, 1.5)] }],
        packets: vec![packet(5), packet(6)],
        remarks: vec!["one".to_owned(), "two".to_owned()],
    }
}

/// Changes one table of two runs; returns what reading says then, without the path before it.
fn refusal(name: &str, change: impl Fn(&mut Table)) -> String {
    let directory = tempfile::tempdir().unwrap();
    let records = [run(1), run(2)];
    write_parquet(directory.path(), &set("s"), &records).unwrap();
    let place = PARQUET_FILES.iter().position(|file| *file == name).unwrap();
    let mut table = rows::TO_TABLES[place](&records).unwrap();
    change(&mut table);
    let path = directory.path().join(name);
    table.encode(fs::File::create(&path).unwrap()).unwrap();
    let error = read_tables(directory.path()).unwrap_err();
    assert!(matches!(error, ReportError::Table { .. }), "{error:?}");
    error.to_string().strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
}

fn column<'t>(table: &'t mut Table, name: &str) -> &'t mut Values {
    table.columns.iter_mut().find(|(column, _)| column == name).map(|(_, values)| values).unwrap()
}

/// Puts a value into a row.
fn put(name: &'static str, row: usize, value: Option<u64>) -> impl Fn(&mut Table) {
    move |table| match column(table, name) {
        Values::Natural(values) => values[row] = value,
        Values::Integer(values) => values[row] = value.map(|value| value as i64),
        Values::Number(values) => values[row] = value.map(|value| value as f64),
        Values::Text(values) => values[row] = value.map(|value| value.to_string()),
        Values::Truth(values) => values[row] = value.map(|value| value != 0),
    }
}

#[test]
fn a_column_of_another_type_is_named() {
    for (name, from, message) in [
        ("runs.parquet", "run", "table `runs`: column `run` has the type STRING, not UINT64"),
        ("runs.parquet", "axis.axis", "table `runs`: column `axis.axis` has the type INT64, not STRING"),
        ("runs.parquet", "goodput_mbit", "table `runs`: column `goodput_mbit` has the type STRING, not DOUBLE"),
        ("counters.parquet", "increase", "table `counters`: column `increase` has the type STRING, not INT64"),
        ("flows.parquet", "from", "table `flows`: column `from` has the type INT64, not STRING"),
        ("series.parquet", "value", "table `series`: column `value` has the type STRING, not DOUBLE"),
        ("packets.parquet", "data", "table `packets`: column `data` has the type STRING, not BOOLEAN"),
        ("remarks.parquet", "remark", "table `remarks`: column `remark` has the type INT64, not STRING"),
    ] {
        let change = |table: &mut Table| {
            let values = column(table, from);
            *values = match values {
                Values::Text(texts) => Values::Integer(vec![Some(1); texts.len()]),
                Values::Natural(numbers) => Values::Text(vec![Some(String::new()); numbers.len()]),
                Values::Integer(numbers) => Values::Text(vec![None; numbers.len()]),
                Values::Number(numbers) => Values::Text(vec![None; numbers.len()]),
                Values::Truth(truths) => Values::Text(vec![None; truths.len()]),
            };
        };
        assert_eq!(refusal(name, change), message);
    }
}

#[test]
fn a_column_too_few_or_too_many_is_named() {
    for name in PARQUET_FILES {
        let table = name.strip_suffix(".parquet").unwrap();
        let required = rows::TO_TABLES[PARQUET_FILES.iter().position(|file| *file == name).unwrap()](&[run(1)]);
        // Axes and metrics are not always there.
        let required = required.unwrap().columns.into_iter().map(|(column, _)| column);
        for missing in required.filter(|column| !["axis.axis", "goodput_mbit"].contains(&column.as_str())) {
            let message = refusal(name, |table| table.columns.retain(|(column, _)| *column != missing));
            assert_eq!(message, format!("table `{table}`: column `{missing}` is missing"));
        }
        let rows = |table: &Table| match &table.columns[0].1 {
            Values::Natural(values) => values.len(),
            other => panic!("{other:?}"),
        };
        let add = |table: &mut Table| {
            let more = Values::Truth(vec![None; rows(table)]);
            table.columns.push(("more".to_owned(), more));
        };
        let message = if table == "runs" {
            "table `runs`: column `more` has the type BOOLEAN, not DOUBLE".to_owned()
        } else {
            format!("table `{table}`: column `more` is not one of this table's")
        };
        assert_eq!(refusal(name, add), message);
        let twice = |table: &mut Table| {
            let first = Values::Truth(vec![None; rows(table)]);
            table.columns.push(("run".to_owned(), first));
        };
        assert_eq!(refusal(name, twice), format!("table `{table}`: column `run` is there twice"));
    }
}

#[test]
fn a_value_that_is_not_there_is_named() {
    for (name, column) in [
        ("runs.parquet", "seed"),
        ("counters.parquet", "vm"),
        ("flows.parquet", "bytes"),
        ("series.parquet", "subject"),
        ("packets.parquet", "retransmission"),
        ("remarks.parquet", "remark"),
    ] {
        let table = name.strip_suffix(".parquet").unwrap();
        let message = refusal(name, put(column, 1, None));
        assert_eq!(message, format!("table `{table}`: column `{column}`, row 1: no value"));
    }
    for (name, column, why) in [
        ("counters.parquet", "counter", "no value, though there is an increase"),
        ("counters.parquet", "increase", "no value, though there is a counter"),
        ("series.parquet", "t_us", "no value, though there is a figure"),
        ("series.parquet", "value", "no value, though there is a time"),
    ] {
        let table = name.strip_suffix(".parquet").unwrap();
        let message = refusal(name, put(column, 1, None));
        assert_eq!(message, format!("table `{table}`: column `{column}`, row 1: {why}"));
    }
}

#[test]
fn a_value_that_cannot_be_is_named() {
    let large = u64::from(u32::MAX) + 1;
    for (name, column, value, why) in [
        ("runs.parquet", "run", 7, "7; runs count from 0"),
        ("runs.parquet", "repetition", large, "4294967296 is more than 4294967295"),
        ("counters.parquet", "run", 2, "run 2 is not among the 2 of runs.parquet"),
        ("flows.parquet", "run", u64::MAX, "run 18446744073709551615 is not among the 2 of runs.parquet"),
        ("series.parquet", "series", u64::MAX, "18446744073709551615 is out of order"),
        ("series.parquet", "series", 2, "2 is out of order"),
        ("series.parquet", "name", 2, "another name than in the series' first row"),
        ("series.parquet", "subject", 2, "another subject than in the series' first row"),
        ("packets.parquet", "len", large, "4294967296 is more than 4294967295"),
        ("packets.parquet", "at", 2, "`2` is no place"),
        ("remarks.parquet", "run", 9, "run 9 is not among the 2 of runs.parquet"),
    ] {
        let table = name.strip_suffix(".parquet").unwrap();
        let message = refusal(name, put(column, 1, Some(value)));
        assert_eq!(message, format!("table `{table}`: column `{column}`, row 1: {why}"));
    }
    let twice = |table: &mut Table| *column(table, "counter") = Values::Text(vec![Some("x".to_owned()); 4]);
    let message = refusal("counters.parquet", twice);
    assert_eq!(message, "table `counters`: column `counter`, row 1: the VM has this counter twice in the run");
}

#[test]
fn axes_that_no_table_can_hold_are_refused() {
    let cell = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), String::new())).collect();
    for cells in [[cell(&["a", "b"]), cell(&["b", "a"])], [cell(&["a", "a"]), cell(&["a"])]] {
        let records = cells.map(|cell| RunRecord { cell, ..run(1) });
        let error = rows::TO_TABLES[0](&records).unwrap_err();
        assert!(matches!(error, TableError::Records(_)), "{error:?}");
    }
    let records = [cell(&["a", "c"]), cell(&["c"]), cell(&[])].map(|cell| RunRecord { cell, ..run(1) });
    assert!(rows::TO_TABLES[0](&records).is_ok());
}

/// Results in one format.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kind {
    set: &'static str,
    parquet: bool,
}

const KINDS: [Kind; 4] = [
    Kind { set: "first", parquet: false },
    Kind { set: "first", parquet: true },
    Kind { set: "second", parquet: false },
    Kind { set: "second", parquet: true },
];

impl Kind {
    fn records(self) -> Vec<RunRecord> {
        vec![run(self.set.len() as u64), run(77)]
    }

    fn stage(self, directory: &Path) -> Staged {
        if self.parquet {
            stage_parquet(directory, &set(self.set), &self.records()).unwrap()
        } else {
            stage_results(directory, &set(self.set), &self.records()).unwrap()
        }
    }
}

/// The set that a directory is read as, if it is read; panics if it is a mixture.
fn read_as(directory: &Path) -> Option<&'static str> {
    let results = load(directory).ok()?;
    let is = |kind: &&Kind| results.set == set(kind.set) && results.records == kind.records();
    Some(KINDS.iter().find(is).expect("a set that somebody wrote").set)
}

/// Kills a writer after each of its steps, and reads after each step of the next writer.
#[test]
fn whenever_writers_are_killed_no_mixture_is_read() {
    // Thousands of files are synced: in memory, if there is enough.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let read = || read_as(directory.path());
    // With the sets the other way round it would be the same.
    for old in &KINDS[..2] {
        for killed in KINDS {
            for (count, next) in (0..).flat_map(|count| KINDS.map(|next| (count, next))) {
                fs::remove_dir_all(directory.path()).unwrap();
                old.stage(directory.path()).finish().unwrap();
                assert_eq!(read(), Some(old.set));
                let staged = killed.stage(directory.path());
                if count > staged.steps() {
                    break;
                }
                staged.take(0..count).unwrap();
                let after = read();
                assert!(after.is_none_or(|set| [old.set, killed.set].contains(&set)));
                if count == 0 {
                    assert_eq!(after, Some(old.set));
                }
                if count == staged.steps() {
                    assert_eq!(after, Some(killed.set));
                }
                // The same results once more: there is no other copy. (Tables over the same tables are not readable in
                // between.)
                if old.set == killed.set && !(old.parquet && killed.parquet) {
                    assert_eq!(after, Some(old.set), "{old:?} is lost by {count} steps of {killed:?}");
                }
                let staged = next.stage(directory.path());
                assert_eq!(read(), after);
                for step in 0..staged.steps() {
                    staged.take(step..step + 1).unwrap();
                    assert!(read().is_none_or(|set| [old.set, killed.set, next.set].contains(&set)));
                }
                assert_eq!(read(), Some(next.set));
            }
        }
    }
}

/// The lab's way: lines are appended as runs end, and what is there can be read.
#[test]
fn lines_begun_over_tables_replace_them() {
    let directory = tempfile::tempdir().unwrap();
    write_parquet(directory.path(), &set("first"), &[run(1)]).unwrap();
    create_results(directory.path(), &set("second")).unwrap();
    assert!(matches!(load(directory.path()), Err(ReportError::NoRuns { .. })));
    append_record(directory.path(), &run(2)).unwrap();
    assert_eq!(load(directory.path()).unwrap().records, [run(2)]);
    let left = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["meta.json", "runs.jsonl"]);
}
