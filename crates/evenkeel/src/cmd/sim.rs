//! `evenkeel sim` and `evenkeel sweep`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_quote::{path, shown};
use evenkeel_report::{ReportError, Results};
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::result::{Engine, RunSet};
use evenkeel_scenario::sweep;
use evenkeel_scenario::{LoadedScenario, Scenario, io, select};
use evenkeel_sim::run::RunError;
use evenkeel_sim::sweep::{Identity, Kept, KeptError, Meter, State, Status, Sweep, SweepError};
use evenkeel_sim::{refuse, run};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::{Format, SimRun};
use crate::cmd::{command_line, report};
use crate::error::CliError;
use crate::exit::Exit;

/// How often a log without a terminal tells of progress.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// What to do with what a results directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Begin again.
    Afresh,
    /// Go on with it.
    GoOn,
}

/// Simulates a scenario.
pub fn run(arguments: SimRun, begin: Begin) -> Result<(), CliError> {
    let loaded = Scenario::load(&arguments.scenario)?;
    let cells = select::select(sweep::cells(&loaded)?, &arguments.only, &loaded)?;
    cells.iter().try_for_each(|cell| check(cell, &loaded))?;
    let directory = arguments.out.clone().unwrap_or_else(|| default_directory(&loaded.scenario.name));
    let jobs = arguments.jobs.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let work = Sweep { cells: &cells, repetitions: arguments.repetitions.unwrap_or(loaded.scenario.repetitions), jobs };
    sweep::check_runs(&loaded, &cells, work.repetitions)?;
    let kept = match open(&directory, &identity(&loaded, &work), begin)? {
        State::Open(kept) => kept,
        State::Complete(_lock) => return show_complete(&directory, &arguments),
    };
    let started = jiff::Timestamp::now();
    simulate(&work, &kept, &loaded, arguments.quiet)?;
    let results = Results {
        set: run_set(&loaded, started),
        scenario: loaded.scenario.clone(),
        records: kept.records().map_err(|error| failed(&error))?,
    };
    write(&directory, &results, arguments.format.unwrap_or_default())?;
    let _lock = kept.complete().map_err(|error| failed(&error))?;
    report::write_and_show(&directory, &results, arguments.json)
}

fn check(cell: &Cell, loaded: &LoadedScenario) -> Result<(), CliError> {
    let Err(refused) = refuse::check(&cell.scenario) else { return Ok(()) };
    let labels: Vec<String> = cell.labels.iter().map(|(axis, label)| format!("{axis} = {label}")).collect();
    // Where an axis makes it so, the file's own setting would mislead.
    let by_axis = refuse::check(&loaded.scenario).as_ref() != Err(&refused);
    let place = if by_axis { format!(" (in the cell {})", labels.join(", ")) } else { String::new() };
    Err(CliError::new(Exit::Usage, format!("{}: {refused}{}", path(&loaded.file), shown(&place)))
        .help("change the scenario, or run it with `evenkeel lab`"))
}

/// All runs are there: shows them, in the wanted format.
fn show_complete(directory: &Path, arguments: &SimRun) -> Result<(), CliError> {
    let damaged = |error: ReportError| CliError::from(error).help("--restart runs the sweep again");
    let results = evenkeel_report::load(directory).map_err(damaged)?;
    let present = if evenkeel_report::is_parquet(directory) { Format::Parquet } else { Format::Jsonl };
    if let Some(wanted) = arguments.format.filter(|format| *format != present) {
        write(directory, &results, wanted)?;
    }
    if !arguments.quiet {
        eprintln!(
            "{}: all {} runs are there already; --restart runs them again",
            path(directory),
            results.records.len()
        );
    }
    report::write_and_show(directory, &results, arguments.json)
}

/// Beside the lab's results of a scenario of the same name.
fn default_directory(name: &str) -> PathBuf {
    Path::new("results/sim").join(name.strip_prefix("sim/").unwrap_or(name))
}

fn identity(loaded: &LoadedScenario, work: &Sweep<'_>) -> Identity {
    Identity {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        scenario_toml: loaded.text.clone(),
        cells: work.cells.iter().map(|cell| cell.labels.clone()).collect(),
        repetitions: work.repetitions,
    }
}

fn open(directory: &Path, identity: &Identity, begin: Begin) -> Result<State, CliError> {
    let opened = match begin {
        Begin::Afresh => Kept::restart(directory, identity).map(State::Open),
        Begin::GoOn => Kept::go_on(directory, identity),
    };
    opened.map_err(|error| match error {
        KeptError::Lock(error) => error.into(),
        KeptError::Damaged { .. } | KeptError::Other { .. } => {
            failed(&error).help("--restart begins again and removes them; --out names another directory")
        }
        KeptError::Io { .. } => failed(&error),
    })
}

fn failed(error: &dyn std::fmt::Display) -> CliError {
    CliError::new(Exit::Failed, error.to_string())
}

fn simulate(work: &Sweep<'_>, kept: &Kept, loaded: &LoadedScenario, quiet: bool) -> Result<(), CliError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|error| failed(&format_args!("cannot catch signals: {error}")))?;
    }
    let one = |cell: &Cell, repetition: u32, meter: &Meter| {
        let mut told = (0, 0);
        let mut tell = |simulated_us: u64, events: u64| {
            let more = (simulated_us.saturating_sub(told.0), events.saturating_sub(told.1));
            told = (simulated_us.max(told.0), events.max(told.1));
            meter.add(more.0, more.1)
        };
        let told_so_far = &mut |progress: run::Progress| {
            if tell(progress.now.us(), progress.events) { run::Go::On } else { run::Go::Stop }
        };
        match run::run(cell, repetition, told_so_far) {
            Ok(finished) => {
                tell((cell.scenario.warmup_ms + cell.scenario.duration_ms) * 1000, finished.events);
                Ok(Some(finished.record))
            }
            Err(RunError::Interrupted) => Ok(None),
            Err(RunError::Refused(refused)) => Err(refused),
        }
    };
    let meter = Meter::default();
    let mut progress =
        Progress::new(!quiet, &loaded.scenario.name, work.simulated_us(|index| !kept.is_finished(index)));
    let outcome = work.execute(kept, &meter, one, |status| {
        if interrupted.load(Ordering::Relaxed) {
            meter.stop();
        }
        progress.show(status);
    });
    progress.finish(!quiet && outcome.is_ok());
    outcome.map_err(|error| match error {
        SweepError::Stopped { .. } => CliError::new(Exit::Interrupted, error.to_string())
            .help(format!("`{}` goes on with the rest", command_line(going_on(std::env::args().skip(1))))),
        SweepError::Run { .. } => CliError::new(Exit::Usage, format!("{}: {error}", path(&loaded.file))),
        SweepError::Kept(error) => failed(&error),
    })
}

/// The arguments that go on with what these have begun.
fn going_on(arguments: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let sweep = |(place, argument): (usize, String)| if place == 0 { "sweep".to_owned() } else { argument };
    arguments.filter(|argument| argument != "--restart").enumerate().map(sweep)
}

fn run_set(loaded: &LoadedScenario, started: jiff::Timestamp) -> RunSet {
    RunSet {
        schema: io::RESULT_SCHEMA,
        engine: Engine::Sim,
        scenario_toml: loaded.text.clone(),
        versions: BTreeMap::from([("evenkeel".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
        command: command_line(std::env::args().skip(1)),
        started: started.round(jiff::Unit::Second).unwrap_or(started).to_string(),
        remarks: vec!["Simulated: times are the model's, and the same on every machine.".to_owned()],
    }
}

fn write(directory: &Path, results: &Results, format: Format) -> Result<(), CliError> {
    match format {
        Format::Jsonl => Ok(io::write_results(directory, &results.set, &results.records)?),
        Format::Parquet => Ok(evenkeel_report::write_parquet(directory, &results.set, &results.records)?),
    }
}

/// A line that says how far the simulation is.
struct Progress {
    bar: ProgressBar,
    begun: Instant,
    logged: Instant,
    last: Option<Status>,
}

impl Progress {
    fn new(shown: bool, name: &str, simulated_us: u64) -> Self {
        let bar = ProgressBar::new(simulated_us);
        bar.set_draw_target(if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() });
        bar.set_prefix(name.to_owned());
        let template = "{prefix}: [{bar:24}] {msg} ({elapsed} gone, {eta} left)";
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        let begun = Instant::now();
        Self { bar, begun, logged: begun, last: None }
    }

    fn show(&mut self, status: Status) {
        self.last = Some(status);
        self.bar.set_position(status.simulated_us);
        self.bar.set_message(format!("{} of {} runs, {}", status.finished, status.runs, self.pace(status)));
        if self.logged.elapsed() >= LOG_PERIOD {
            self.logged = Instant::now();
            tracing::info!("{} of {} runs, {}{}", status.finished, status.runs, self.pace(status), self.left(status));
        }
    }

    /// `12.0 s simulated, 8.1 M events/s`.
    fn pace(&self, status: Status) -> String {
        let rate = status.events as f64 / 1e6 / self.begun.elapsed().as_secs_f64().max(1e-3);
        format!("{:.1} s simulated, {rate:.1} M events/s", status.simulated_us as f64 / 1e6)
    }

    /// For a log, which has no bar that knows.
    fn left(&self, status: Status) -> String {
        let all_us = self.bar.length().unwrap_or(0);
        if status.simulated_us == 0 {
            return String::new();
        }
        let share = all_us.saturating_sub(status.simulated_us) as f64 / status.simulated_us as f64;
        format!(", {:.0} s left", self.begun.elapsed().as_secs_f64() * share)
    }

    /// Takes the line away; says what was done if `told`.
    fn finish(&self, told: bool) {
        self.bar.finish_and_clear();
        if let Some(status) = self.last.filter(|_| told) {
            let took = self.begun.elapsed().as_secs_f64();
            eprintln!("{}: {} runs, {}, in {took:.1} s", self.bar.prefix(), status.runs, self.pace(status));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_interrupted_can_be_gone_on_with() {
        let line = |words: &[&str]| command_line(going_on(words.iter().map(|w| (*w).to_owned())));
        assert_eq!(
            line(&["sim", "a b.toml", "--only", "rto=8 ms", "--repetitions", "3"]),
            "evenkeel sweep 'a b.toml' --only 'rto=8 ms' --repetitions 3"
        );
        assert_eq!(line(&["sweep", "--restart", "a.toml", "--out", "o"]), "evenkeel sweep a.toml --out o");
    }

    #[test]
    fn results_of_sim_stand_beside_the_labs() {
        assert_eq!(default_directory("sim/pvtcp/fig4"), Path::new("results/sim/pvtcp/fig4"));
        assert_eq!(default_directory("pvtcp/fig4-rtt"), Path::new("results/sim/pvtcp/fig4-rtt"));
    }
}
