use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::kept::KeptError;
use super::*;
use crate::error::Refused;
use crate::provenance::{Program, Provenance};
use crate::result::RUNS_FILE;
use crate::{Scenario, ScenarioError};

const TEXT: &str = r#"
    schema = 2
    name = "t"
    title = "t"
    duration_ms = 1000
    [network]
    rate_mbit = 100
    [vms.a]
    [vms.b]
    [workloads.w]
    kind = "bulk"
    from = "a"
    to = "b"
    [[axes]]
    name = "rate"
    key = "network.rate_mbit"
    values = [10, 20, 30]
"#;

fn loaded(text: &str) -> LoadedScenario {
    Scenario::from_str(text, "t.toml").unwrap_or_else(|e| panic!("{e}"))
}

fn cells() -> Vec<Cell> {
    sweep::cells(&loaded(TEXT)).unwrap_or_else(|e| panic!("{e}"))
}

fn identity(cells: &[Cell], repetitions: u32) -> Identity {
    Identity {
        engine: result::Engine::Sim,
        version: "1".into(),
        code: "c0de".into(),
        scenario_toml: TEXT.into(),
        cells: cells.iter().map(|cell| cell.labels.clone()).collect(),
        groups: vec![(0..cells.len()).collect()],
        repetitions,
        options: Vec::new(),
        shard: None,
    }
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

fn set() -> RunSet {
    RunSet {
        schema: io::RESULT_SCHEMA,
        engine: result::Engine::Sim,
        scenario_toml: TEXT.into(),
        versions: BTreeMap::new(),
        command: String::new(),
        started: String::new(),
        remarks: Vec::new(),
        provenance: None,
    }
}

fn restart(directory: &Path, identity: &Identity) -> Result<Kept, BatchError<String>> {
    Ok(Kept::begin(directory, identity.clone(), set(), Lock::take(directory)?)?)
}

fn go_on(directory: &Path, identity: &Identity) -> Result<State, BatchError<String>> {
    match Kept::find(directory, identity, Lock::take(directory)?)? {
        State::None(lock) => Ok(State::Open(Kept::begin(directory, identity.clone(), set(), lock)?)),
        other => Ok(other),
    }
}

fn open(directory: &Path, identity: &Identity) -> Kept {
    match go_on(directory, identity) {
        Ok(State::Open(kept)) => kept,
        other => panic!("{other:?}"),
    }
}

fn order(records: &[RunRecord]) -> Vec<(u32, String)> {
    records.iter().map(|r| (r.repetition, r.cell[0].1.clone())).collect()
}

type Run<'a> = dyn Fn(&Cell, u32, &Meter<'_>) -> Result<Option<RunRecord>, String> + Sync + 'a;

/// Runs a cell as the test wants it. `SHOWS` is `SHOWS_UNFINISHED`, as the lab or the simulator has it.
struct Toy<'a, const SHOWS: bool> {
    jobs: usize,
    groups: Vec<Vec<usize>>,
    kernel: &'a str,
    options: Vec<String>,
    prepare: &'a (dyn Fn(&Plan<'_>) -> Result<(), String> + Sync),
    run: &'a Run<'a>,
}

impl<'a, const SHOWS: bool> Toy<'a, SHOWS> {
    fn new(run: &'a Run<'a>) -> Self {
        Self { jobs: 1, groups: vec![vec![0, 1, 2]], kernel: "6.1", options: Vec::new(), prepare: &|_| Ok(()), run }
    }
}

impl<const SHOWS: bool> Engine for Toy<'_, SHOWS> {
    const NAME: result::Engine = result::Engine::Sim;
    const SHOWS_UNFINISHED: bool = SHOWS;
    type Error = String;
    type Setup = u32;
    type Worker = ();

    fn check(&self, scenario: &Scenario) -> Result<(), Refused> {
        let refused = || Refused { key: "network.rate_mbit".to_owned(), why: "not that".to_owned() };
        if scenario.network.rate_mbit == 7 { Err(refused()) } else { Ok(()) }
    }

    fn groups(&self, _cells: &[Cell]) -> Vec<Vec<usize>> {
        self.groups.clone()
    }

    fn jobs(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.jobs).unwrap()
    }

    fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    fn prepare(&self, plan: &Plan<'_>) -> Result<Prepared<u32>, String> {
        (plan.tell)("getting ready");
        (self.prepare)(plan)?;
        let versions = BTreeMap::from([("kernel".to_owned(), self.kernel.to_owned())]);
        Ok(Prepared { setup: 7, versions, remarks: Vec::new() })
    }

    fn worker(&self, _setup: &u32) -> Result<(), String> {
        Ok(())
    }

    fn run(
        &self,
        setup: &u32,
        _worker: &mut (),
        cell: &Cell,
        repetition: u32,
        meter: &Meter<'_>,
    ) -> Result<Option<RunRecord>, String> {
        assert_eq!(*setup, 7);
        (self.run)(cell, repetition, meter)
    }

    fn size(&self, cell: &Cell) -> u64 {
        cell.scenario.duration_ms
    }

    fn words(status: &Status) -> String {
        status.step.clone()
    }
}

#[derive(Default)]
struct Watched {
    steps: Mutex<Vec<String>>,
    last: Mutex<Option<Status>>,
}

impl Watch for Watched {
    fn preparing(&self, step: &str) {
        self.steps.lock().unwrap().push(step.to_owned());
    }

    fn running(&self, status: &Status) {
        *self.last.lock().unwrap() = Some(status.clone());
    }
}

/// Runs a batch in `directory` and puts its results there.
fn run_all<const SHOWS: bool>(
    toy: &Toy<'_, SHOWS>,
    (directory, repetitions, begin): (&Path, u32, Begin),
    (stop, watch): (&Stop, &Watched),
) -> Result<Vec<RunRecord>, BatchError<String>> {
    let loaded = loaded(TEXT);
    let command = if begin == Begin::Afresh { "evenkeel lab t.toml" } else { "evenkeel lab --resume t.toml" };
    let repetitions = Some(repetitions);
    let program = Program { commit: None, clean: None, code: "c0de".into() };
    let (engine, loaded, program, only) = (toy, &loaded, &program, &[]);
    let batch = Batch { engine, program, loaded, only, repetitions, shard: None, directory, begin, command, stop };
    match batch.run(watch)? {
        Outcome::Finished { records, kept } => {
            io::write_results(directory, kept.set(), &records)?;
            kept.complete()?;
            Ok(records)
        }
        Outcome::Complete(_lock) => Ok(io::read_results(directory)?.1),
    }
}

fn batch<const SHOWS: bool>(
    toy: &Toy<'_, SHOWS>,
    directory: &Path,
    repetitions: u32,
    begin: Begin,
) -> Result<Vec<RunRecord>, BatchError<String>> {
    run_all(toy, (directory, repetitions, begin), (&Stop::default(), &Watched::default()))
}

fn good(cell: &Cell, repetition: u32, _: &Meter<'_>) -> Result<Option<RunRecord>, String> {
    Ok(Some(record(cell, repetition)))
}

#[test]
fn a_sweep_goes_on_where_it_was_and_keeps_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let (runs, stop) = (AtomicU32::new(0), Stop::default());
    let one = |cell: &Cell, repetition, meter: &Meter<'_>| {
        if runs.fetch_add(1, Ordering::Relaxed) == 2 {
            stop.set();
        }
        Ok(meter.at(1000, 5).then(|| record(cell, repetition)))
    };
    let toy = Toy::<false> { jobs: 2, ..Toy::new(&one) };
    let stopped = run_all(&toy, (directory.path(), 2, Begin::GoOn), (&stop, &Watched::default()));
    let Err(BatchError::Stopped { finished: Some(finished) }) = stopped else { panic!("{stopped:?}") };
    assert!((1..6).contains(&finished), "{finished}");

    let again = AtomicU32::new(0);
    let one = |cell: &Cell, repetition, meter: &Meter<'_>| {
        again.fetch_add(1, Ordering::Relaxed);
        good(cell, repetition, meter)
    };
    let (toy, watched) = (Toy::<false> { jobs: 2, ..Toy::new(&one) }, Watched::default());
    let records = run_all(&toy, (directory.path(), 2, Begin::GoOn), (&Stop::default(), &watched)).unwrap();
    assert_eq!(again.load(Ordering::Relaxed) as usize, 6 - finished, "only what was missing");
    let last = watched.last.lock().unwrap().clone().unwrap();
    assert_eq!((last.finished, last.runs), (6, 6));
    assert_eq!((last.done, last.size), (last.size, 1000 * (6 - finished as u64)), "of this session");
    assert_eq!(*watched.steps.lock().unwrap(), ["getting ready"]);
    let expected = [(0, "10"), (0, "20"), (0, "30"), (1, "10"), (1, "20"), (1, "30")];
    assert_eq!(order(&records), expected.map(|(r, label)| (r, label.to_owned())));
    // It is complete: nothing is run again.
    assert_eq!(batch(&toy, directory.path(), 2, Begin::GoOn).unwrap(), records);
    assert_eq!(again.load(Ordering::Relaxed) as usize, 6 - finished);
}

#[test]
fn another_sweep_is_not_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let cells = cells();
    let first = identity(&cells, 2);
    open(directory.path(), &first);
    let refusal = |changed: Identity| go_on(directory.path(), &changed).unwrap_err().to_string();
    assert!(refusal(Identity { version: "2".into(), ..first.clone() }).contains("version"));
    assert!(refusal(Identity { code: "c0d3".into(), ..first.clone() }).contains("evenkeel's code has changed"));
    assert!(refusal(Identity { scenario_toml: String::new(), ..first.clone() }).contains("scenario file has changed"));
    assert!(refusal(Identity { repetitions: 3, ..first.clone() }).contains("repetitions"));
    assert!(refusal(Identity { cells: Vec::new(), ..first.clone() }).contains("--only"));
    assert!(refusal(Identity { engine: result::Engine::Lab, ..first.clone() }).contains("the simulator made them"));
    assert!(refusal(Identity { options: vec!["--keep".into()], ..first.clone() }).contains("other options (`--keep`)"));
    assert!(refusal(Identity { groups: vec![vec![0], vec![1, 2]], ..first.clone() }).contains("another order"));
    assert!(restart(directory.path(), &identity(&cells, 3)).is_ok());
    assert!(matches!(go_on(directory.path(), &identity(&cells, 3)), Ok(State::Open(_))));
}

/// Runs under another kernel would not be what the set says.
#[test]
fn a_machine_that_has_changed_is_not_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let identity = identity(&cells(), 1);
    let of = |kernel: Option<&str>, remarks: &[&str]| RunSet {
        versions: kernel.map(|kernel| ("kernel".to_owned(), kernel.to_owned())).into_iter().collect(),
        remarks: remarks.iter().map(|remark| (*remark).to_owned()).collect(),
        command: "another".to_owned(),
        started: "later".to_owned(),
        ..set()
    };
    let begun = of(Some("6.1"), &["Slow."]);
    Kept::begin(directory.path(), identity.clone(), begun, Lock::take(directory.path()).unwrap()).unwrap();
    let open = || open(directory.path(), &identity);
    assert!(open().with(&RunSet { started: "now".to_owned(), ..of(Some("6.1"), &["Slow."]) }).is_ok());
    let refusal = |set: &RunSet| open().with(set).unwrap_err().to_string();
    assert!(refusal(&of(Some("6.2"), &["Slow."])).ends_with("of another sweep: with another kernel: 6.1, now 6.2"));
    assert!(refusal(&of(None, &["Slow."])).ends_with("with another kernel: 6.1, now none"));
    let program = Program { commit: None, clean: None, code: "c0de".into() };
    let provenance =
        Some(Provenance { program, settings: "5e77".to_owned(), host: "a machine".to_owned(), again: None });
    let other_defaults = RunSet { provenance, ..of(Some("6.1"), &["Slow."]) };
    assert!(refusal(&other_defaults).ends_with("with other settings: a default has changed since"));
    assert!(refusal(&of(Some("6.1"), &[])).ends_with("of another sweep: made under what no longer holds: Slow."));
    assert!(
        refusal(&of(Some("6.1"), &["Slow.", "Hot."]))
            .ends_with("of another sweep: not made under what holds now: Hot.")
    );
    // As the batch sees it.
    let directory = tempfile::tempdir().unwrap();
    let fails = |_: &Cell, _, _: &Meter<'_>| Err("no".to_owned());
    batch(&Toy::<false>::new(&fails), directory.path(), 1, Begin::Afresh).unwrap_err();
    let newer = Toy::<false> { kernel: "6.2", ..Toy::new(&good) };
    let error = batch(&newer, directory.path(), 1, Begin::GoOn).unwrap_err();
    assert!(matches!(error, BatchError::Kept(KeptError::Other { .. })), "{error}");
    assert_eq!(batch(&newer, directory.path(), 1, Begin::Afresh).unwrap().len(), 3);
}

#[test]
fn a_directory_is_one_sweeps_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let identity = identity(&cells(), 1);
    let is_locked = |outcome: &BatchError<String>| matches!(outcome, BatchError::Scenario(ScenarioError::InUse { .. }));
    let kept = open(directory.path(), &identity);
    assert!(is_locked(&go_on(directory.path(), &identity).unwrap_err()));
    assert!(is_locked(&restart(directory.path(), &identity).unwrap_err()));
    assert!(is_locked(&batch(&Toy::<true>::new(&good), directory.path(), 1, Begin::GoOn).unwrap_err()));
    // A session that has completed the sweep keeps the lock, as it may still have to write; so does one that shows it.
    let lock = kept.complete().unwrap();
    assert!(is_locked(&restart(directory.path(), &identity).unwrap_err()));
    drop(lock);
    let Ok(State::Complete(_lock)) = go_on(directory.path(), &identity) else { panic!("it is complete") };
    assert!(is_locked(&restart(directory.path(), &identity).unwrap_err()));
}

#[test]
fn a_failed_run_names_its_cell_and_ends_the_sweep() {
    let directory = tempfile::tempdir().unwrap();
    let run = |cell: &Cell, repetition, _: &Meter<'_>| match cell.labels[0].1.as_str() {
        "20" => Err("no such thing".to_owned()),
        _ => Ok(Some(record(cell, repetition))),
    };
    let toy = Toy::<true>::new(&run);
    let error = batch(&toy, directory.path(), 1, Begin::Afresh).unwrap_err().to_string();
    assert_eq!(error, "t.toml: rate = 20, repetition 1: no such thing");
    let left = std::fs::read_dir(directory.path().join("unfinished")).unwrap();
    assert_eq!(left.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), ["000000.json"]);
    // Results that are shown unfinished have what there is.
    assert_eq!(order(&io::read_results(directory.path()).unwrap().1), [(0, "10".to_owned())]);
}

/// A thread that fails ends the runs of the others.
#[test]
fn a_failed_run_ends_those_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let run = |cell: &Cell, _, meter: &Meter<'_>| {
        if cell.labels[0].1 == "20" {
            return Err("no such thing".to_owned());
        }
        while meter.at(0, 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(None)
    };
    let toy = Toy::<false> { jobs: 3, ..Toy::new(&run) };
    let error = batch(&toy, directory.path(), 1, Begin::Afresh).unwrap_err().to_string();
    assert_eq!(error, "t.toml: rate = 20, repetition 1: no such thing");
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
    let (toy, stop) = (Toy::<false>::new(&good), Stop::default());
    let file = Path::new("t.toml");
    let session =
        Session { engine: &toy, setup: &7, file, cells: &cells, kept: &kept, stop: &stop, shown: Mutex::default() };
    session.execute(&Watched::default()).unwrap();
    assert_eq!(kept.records().unwrap(), cells.iter().map(|cell| record(cell, 0)).collect::<Vec<_>>());
}

#[test]
fn a_damaged_sweep_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("sweep.json"), "{").unwrap();
    let error = go_on(directory.path(), &identity(&cells(), 1)).unwrap_err().to_string();
    assert!(error.contains("sweep.json is damaged"), "{error}");
}

/// However a restart is killed half-way, what it leaves can be gone on with, and never looks complete.
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
    let results = [1, 2, 7].map(|jobs| {
        let directory = tempfile::tempdir().unwrap();
        let run = |cell: &Cell, repetition, _: &Meter<'_>| {
            // The first run ends last.
            let first = repetition == 0 && cell.labels[0].1 == "10";
            std::thread::sleep(Duration::from_millis(if first { 30 } else { 1 }));
            Ok(Some(record(cell, repetition)))
        };
        let toy = Toy::<false> { jobs, ..Toy::new(&run) };
        serde_json::to_string(&batch(&toy, directory.path(), 4, Begin::GoOn).unwrap()).unwrap()
    });
    assert!(results[0] == results[1] && results[1] == results[2]);
}

/// Kills a batch in each of its runs and goes on: the results are those of one that was not killed, whether or not they
/// are shown meanwhile, and whatever a kill leaves of them.
fn killed_and_gone_on_with<const SHOWS: bool>() {
    let groups = || vec![vec![0, 2], vec![1]];
    let lines = |directory: &Path| std::fs::read(directory.join(RUNS_FILE)).unwrap();
    let at_once = tempfile::tempdir().unwrap();
    let toy = Toy::<SHOWS> { groups: groups(), ..Toy::new(&good) };
    let records = batch(&toy, at_once.path(), 2, Begin::Afresh).unwrap();
    // A group is over before the next begins; within a group, so is a repetition.
    let expected = [(0, "10"), (0, "30"), (1, "10"), (1, "30"), (0, "20"), (1, "20")];
    assert_eq!(order(&records), expected.map(|(r, label)| (r, label.to_owned())));
    for kill in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let runs = AtomicU32::new(0);
        let dies = |cell: &Cell, repetition, meter: &Meter<'_>| {
            assert_ne!(runs.fetch_add(1, Ordering::Relaxed), kill, "this is the kill");
            good(cell, repetition, meter)
        };
        let dying = Toy::<SHOWS> { groups: groups(), ..Toy::new(&dies) };
        catch_unwind(AssertUnwindSafe(|| batch(&dying, directory, 2, Begin::Afresh))).unwrap_err();
        let finished = std::fs::read_dir(directory.join("unfinished")).unwrap().count();
        assert_eq!(finished, kill as usize);
        if SHOWS {
            let (set, shown) = io::read_results(directory).unwrap();
            assert_eq!((set.command.as_str(), &shown[..]), ("evenkeel lab t.toml", &records[..finished]));
            // A line that is not there yet, or not whole.
            let whole = lines(directory);
            std::fs::write(directory.join(RUNS_FILE), &whole[..whole.len() * 2 / 3]).unwrap();
        }
        assert_eq!(batch(&toy, directory, 2, Begin::GoOn).unwrap(), records);
        assert!(lines(directory) == lines(at_once.path()));
        // The first session's command is kept: it runs all again.
        assert_eq!(io::read_results(directory).unwrap().0.command, "evenkeel lab t.toml");
        assert!(!directory.join("unfinished").exists());
    }
}

#[test]
fn a_kill_at_any_run_leaves_the_same_bytes_when_it_is_gone_on_with() {
    killed_and_gone_on_with::<true>();
    killed_and_gone_on_with::<false>();
}

/// Ctrl-C in a run: it is not kept, those before it are, and can be read where results are shown unfinished.
#[test]
fn what_was_finished_before_ctrl_c_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let stop = Stop::default();
    let run = |cell: &Cell, repetition, meter: &Meter<'_>| {
        meter.step("under way");
        if cell.labels[0].1 == "30" {
            stop.set();
        }
        Ok(meter.at(1, 1).then(|| record(cell, repetition)))
    };
    let watched = Watched::default();
    let stopped = run_all(&Toy::<true>::new(&run), (directory.path(), 1, Begin::Afresh), (&stop, &watched));
    assert_eq!(stopped.unwrap_err().to_string(), "interrupted; 2 finished runs are kept");
    assert_eq!(io::read_results(directory.path()).unwrap().1.len(), 2);
    let last = watched.last.lock().unwrap().clone().unwrap();
    assert_eq!((last.finished, last.done, last.size, last.step.as_str()), (2, 2001, 3000, ""));
    // Once more, before anything is run.
    let again = run_all(&Toy::<true>::new(&run), (directory.path(), 1, Begin::GoOn), (&stop, &watched));
    assert_eq!(again.unwrap_err().to_string(), "interrupted; 2 finished runs are kept");
    assert_eq!(batch(&Toy::<true>::new(&good), directory.path(), 1, Begin::GoOn).unwrap().len(), 3);
}

/// A preparation that fails, or in which Ctrl-C comes, leaves the results of an earlier batch alone.
#[test]
fn earlier_results_stay_until_all_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let records = batch(&Toy::<true>::new(&good), directory, 2, Begin::Afresh).unwrap();
    let fails = Toy::<true> { prepare: &|_| Err("no such kernel".to_owned()), ..Toy::new(&good) };
    assert_eq!(batch(&fails, directory, 1, Begin::Afresh).unwrap_err().to_string(), "no such kernel");
    let stops = |plan: &Plan<'_>| {
        plan.stop.set();
        Ok(())
    };
    let stopped = Toy::<true> { prepare: &stops, ..Toy::new(&good) };
    assert_eq!(batch(&stopped, directory, 1, Begin::Afresh).unwrap_err().to_string(), "interrupted");
    assert_eq!(io::read_results(directory).unwrap().1, records);
    assert_eq!(batch(&Toy::<true>::new(&good), directory, 2, Begin::GoOn).unwrap(), records);
}

#[test]
fn what_cannot_be_run_is_refused_with_its_file_and_cell() {
    let directory = tempfile::tempdir().unwrap();
    let refusal = |text: &str| {
        let (toy, loaded, stop) = (Toy::<false>::new(&good), loaded(text), Stop::default());
        let place = directory.path().join("results");
        let program = Program::default();
        let batch = Batch {
            engine: &toy,
            program: &program,
            loaded: &loaded,
            only: &[],
            repetitions: None,
            shard: None,
            directory: &place,
            begin: Begin::Afresh,
            command: "",
            stop: &stop,
        };
        let error = batch.run(&Watched::default()).unwrap_err().to_string();
        assert!(!place.exists());
        error
    };
    let by_axis = refusal(&TEXT.replace("[10, 20, 30]", "[10, 7]"));
    assert_eq!(by_axis, "t.toml: network.rate_mbit: not that (in the cell rate = 7)");
    let everywhere = refusal(&TEXT.replace("rate_mbit = 100", "rate_mbit = 7").replace("[10, 20, 30]", "[7, 10]"));
    assert_eq!(everywhere, "t.toml: network.rate_mbit: not that");
}

#[test]
fn results_of_sim_stand_beside_the_labs() {
    let of_sim = |name| default_directory(result::Engine::Sim, name);
    assert_eq!(of_sim("sim/pvtcp/fig4"), Path::new("results/sim/pvtcp/fig4"));
    assert_eq!(of_sim("pvtcp/fig4-rtt"), Path::new("results/sim/pvtcp/fig4-rtt"));
    assert_eq!(default_directory(result::Engine::Lab, "pvtcp/fig4-rtt"), Path::new("results/pvtcp/fig4-rtt"));
}
