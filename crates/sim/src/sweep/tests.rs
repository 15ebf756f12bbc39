use std::path::Path;
use std::sync::atomic::AtomicU32;

use evenkeel_scenario::{Scenario, ScenarioError, sweep};

use super::*;

const TEXT: &str = r#"
    schema = 1
    name = "t"
    title = "t"
    duration_ms = 1000
    [network]
    rate_mbit = 100
    [vms.a]
    [vms.b]
    [workload]
    kind = "bulk"
    from = "a"
    to = "b"
    [[axes]]
    name = "rate"
    key = "network.rate_mbit"
    values = [10, 20, 30]
"#;

fn cells() -> Vec<Cell> {
    sweep::cells(&Scenario::from_str(TEXT, "t.toml").unwrap_or_else(|e| panic!("{e}")))
        .unwrap_or_else(|e| panic!("{e}"))
}

fn identity(cells: &[Cell], repetitions: u32) -> Identity {
    let cells = cells.iter().map(|cell| cell.labels.clone()).collect();
    Identity { version: "1".into(), scenario_toml: TEXT.into(), cells, repetitions }
}

fn record(cell: &Cell, repetition: u32) -> RunRecord {
    RunRecord {
        cell: cell.labels.clone(),
        repetition,
        seed: 7,
        duration_us: 1,
        metrics: Default::default(),
        counters: Default::default(),
        flows: Vec::new(),
        series: Vec::new(),
        packets: Vec::new(),
        remarks: Vec::new(),
    }
}

fn open(directory: &Path, identity: &Identity) -> Kept {
    match Kept::go_on(directory, identity) {
        Ok(State::Open(kept)) => kept,
        other => panic!("{other:?}"),
    }
}

fn order(records: &[RunRecord]) -> Vec<(u32, String)> {
    records.iter().map(|r| (r.repetition, r.cell[0].1.clone())).collect()
}

#[test]
fn a_sweep_goes_on_where_it_was_and_keeps_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let (cells, runs) = (cells(), AtomicU32::new(0));
    let identity = identity(&cells, 2);
    let sweep = Sweep { cells: &cells, repetitions: 2, jobs: NonZeroUsize::new(2).unwrap() };

    let kept = open(directory.path(), &identity);
    let meter = Meter::default();
    let stopped = sweep.execute::<String>(
        &kept,
        &meter,
        |cell, repetition, meter| {
            if runs.fetch_add(1, Ordering::Relaxed) == 2 {
                meter.stop();
            }
            Ok(meter.add(1_000_000, 5).then(|| record(cell, repetition)))
        },
        |_| {},
    );
    let Err(SweepError::Stopped { finished }) = stopped else { panic!("{stopped:?}") };
    assert!((1..6).contains(&finished), "{finished}");
    drop(kept);

    let kept = open(directory.path(), &identity);
    let mut last = None;
    let again = AtomicU32::new(0);
    let done = sweep.execute::<String>(
        &kept,
        &Meter::default(),
        |cell, repetition, _| {
            again.fetch_add(1, Ordering::Relaxed);
            Ok(Some(record(cell, repetition)))
        },
        |status| last = Some(status),
    );
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(again.into_inner() as usize, 6 - finished, "only what was missing");
    assert_eq!(last.map(|s| (s.finished, s.runs)), Some((6, 6)));
    let records = kept.records().unwrap();
    let expected = [(0, "10"), (0, "20"), (0, "30"), (1, "10"), (1, "20"), (1, "30")];
    assert_eq!(order(&records), expected.map(|(r, label)| (r, label.to_owned())));
    kept.complete().unwrap();
    assert!(matches!(Kept::go_on(directory.path(), &identity), Ok(State::Complete(_))));
}

#[test]
fn another_sweep_is_not_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let cells = cells();
    let first = identity(&cells, 2);
    open(directory.path(), &first);
    let refusal = |changed: Identity| Kept::go_on(directory.path(), &changed).unwrap_err().to_string();
    assert!(refusal(Identity { version: "2".into(), ..first.clone() }).contains("version"));
    assert!(refusal(Identity { scenario_toml: String::new(), ..first.clone() }).contains("scenario file has changed"));
    assert!(refusal(Identity { repetitions: 3, ..first.clone() }).contains("repetitions"));
    assert!(refusal(Identity { cells: Vec::new(), ..first.clone() }).contains("--only"));
    assert!(Kept::restart(directory.path(), &identity(&cells, 3)).is_ok());
    assert!(matches!(Kept::go_on(directory.path(), &identity(&cells, 3)), Ok(State::Open(_))));
}

#[test]
fn a_directory_is_one_sweeps_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let identity = identity(&cells(), 1);
    let is_locked = |outcome: &KeptError| matches!(outcome, KeptError::Lock(ScenarioError::InUse { .. }));
    let kept = open(directory.path(), &identity);
    assert!(is_locked(&Kept::go_on(directory.path(), &identity).unwrap_err()));
    assert!(is_locked(&Kept::restart(directory.path(), &identity).unwrap_err()));
    // Who has completed it may still have to write, and so has who shows it.
    let lock = kept.complete().unwrap();
    assert!(is_locked(&Kept::restart(directory.path(), &identity).unwrap_err()));
    drop(lock);
    let Ok(State::Complete(_lock)) = Kept::go_on(directory.path(), &identity) else { panic!("it is complete") };
    assert!(is_locked(&Kept::restart(directory.path(), &identity).unwrap_err()));
}

#[test]
fn a_failed_run_names_its_cell_and_ends_the_sweep() {
    let directory = tempfile::tempdir().unwrap();
    let cells = cells();
    let kept = open(directory.path(), &identity(&cells, 1));
    let sweep = Sweep { cells: &cells, repetitions: 1, jobs: NonZeroUsize::MIN };
    let run = |cell: &Cell, repetition, _: &Meter| match cell.labels[0].1.as_str() {
        "20" => Err("no such thing"),
        _ => Ok(Some(record(cell, repetition))),
    };
    let error = sweep.execute(&kept, &Meter::default(), run, |_| {}).unwrap_err().to_string();
    assert_eq!(error, "rate = 20, repetition 1: no such thing");
    assert!(kept.is_finished(0) && !kept.is_finished(1) && !kept.is_finished(2));
}

#[test]
fn only_whole_runs_of_this_sweep_count_as_finished() {
    let directory = tempfile::tempdir().unwrap();
    let cells = cells();
    let identity = identity(&cells, 1);
    let kept = open(directory.path(), &identity);
    for (index, cell) in cells.iter().enumerate() {
        kept.keep(index, &record(cell, 0)).unwrap();
    }
    let unfinished = directory.path().join("unfinished");
    std::fs::write(unfinished.join("000000.json"), "{").unwrap();
    std::fs::copy(unfinished.join("000002.json"), unfinished.join("000001.json")).unwrap();
    std::fs::copy(unfinished.join("000002.json"), unfinished.join("000003.json")).unwrap();
    std::fs::copy(unfinished.join("000002.json"), unfinished.join("2.json")).unwrap();
    std::fs::write(unfinished.join("000001.part"), "{").unwrap();
    drop(kept);
    let kept = open(directory.path(), &identity);
    assert_eq!([0, 1, 2, 3].map(|index| kept.is_finished(index)), [false, false, true, false]);
    // What is not whole is run again and replaced.
    let sweep = Sweep { cells: &cells, repetitions: 1, jobs: NonZeroUsize::MIN };
    sweep.execute::<String>(&kept, &Meter::default(), |c, r, _| Ok(Some(record(c, r))), |_| {}).unwrap();
    assert_eq!(kept.records().unwrap(), cells.iter().map(|cell| record(cell, 0)).collect::<Vec<_>>());
}

#[test]
fn a_damaged_sweep_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("sweep.json"), "{").unwrap();
    let error = Kept::go_on(directory.path(), &identity(&cells(), 1)).unwrap_err().to_string();
    assert!(error.contains("sweep.json is damaged"), "{error}");
}

/// Each way in which beginning again can be killed half-way leaves something that can be gone on with, and never looks
/// complete.
#[test]
fn a_restart_that_was_killed_is_not_taken_for_complete() {
    let cells = cells();
    let identity = identity(&cells, 1);
    let after_a_kill = |prepare: &dyn Fn(&Path)| {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path(), &identity).keep(0, &record(&cells[0], 0)).unwrap();
        prepare(directory.path());
        open(directory.path(), &identity).is_finished(0)
    };
    let file = |directory: &Path| std::fs::remove_file(directory.join("sweep.json")).unwrap();
    let runs = |directory: &Path| std::fs::remove_dir_all(directory.join("unfinished")).unwrap();
    assert!(after_a_kill(&|_| {}));
    assert!(!after_a_kill(&|directory| file(directory)));
    assert!(!after_a_kill(&|directory| (file(directory), runs(directory)).0));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let cells = cells();
    let identity = identity(&cells, 4);
    let results = [1, 2, 7].map(|jobs| {
        let directory = tempfile::tempdir().unwrap();
        let kept = open(directory.path(), &identity);
        let sweep = Sweep { cells: &cells, repetitions: 4, jobs: NonZeroUsize::new(jobs).unwrap() };
        let run = |cell: &Cell, repetition, _: &Meter| {
            // The first run ends last.
            let first = repetition == 0 && cell.labels[0].1 == "10";
            std::thread::sleep(Duration::from_millis(if first { 30 } else { 1 }));
            Ok::<_, String>(Some(record(cell, repetition)))
        };
        sweep.execute(&kept, &Meter::default(), run, |_| {}).unwrap();
        serde_json::to_string(&kept.records().unwrap()).unwrap()
    });
    assert!(results[0] == results[1] && results[1] == results[2]);
}
