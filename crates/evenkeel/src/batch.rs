//! Runs a scenario with one of the engines, writes its results, and shows them.

use std::path::{Path, PathBuf};

use evenkeel_quote::path;
use evenkeel_report::{ReportError, Results};
use evenkeel_scenario::batch::kept::KeptError;
use evenkeel_scenario::batch::{self, Batch, BatchError, Begin, Engine, Outcome, Shard, Stop};
use evenkeel_scenario::{Scenario, io, result};

use crate::cli::Format;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;
use crate::progress::Progress;
use crate::{program, show};

/// What the user asks for.
pub struct Asked {
    /// The scenario file.
    pub scenario: PathBuf,
    /// Where results go.
    pub out: Option<PathBuf>,
    /// Instead of the scenario's own number of repetitions.
    pub repetitions: Option<u32>,
    /// Only cells with these labels.
    pub only: Vec<String>,
    /// Only this part of the runs.
    pub shard: Option<Shard>,
    /// Format of the result files.
    pub format: Option<Format>,
    /// Whether results are printed as JSON.
    pub json: bool,
    /// Whether no progress is shown.
    pub quiet: bool,
    /// What to do with what the results directory holds.
    pub begin: Begin,
    /// What begins again instead of going on, as `--restart`: the subject of a sentence.
    pub afresh: &'static str,
    /// The command line.
    pub command: String,
    /// The command line that goes on with what this one has begun.
    pub going_on: String,
}

/// Runs what is asked for.
pub fn run<E: Engine>(engine: &E, asked: &Asked) -> Result<(), CliError>
where
    CliError: From<E::Error>,
{
    let stop =
        Stop::on_signals().map_err(|error| CliError::new(Exit::Failed, format!("cannot catch signals: {error}")))?;
    let loaded = Scenario::load(&asked.scenario)?;
    let name = &loaded.scenario.name;
    let directory = asked.out.clone().unwrap_or_else(|| batch::default_directory(E::NAME, name));
    let program = program::running(E::NAME, &loaded)?;
    let directory = asked.shard.map_or(directory.clone(), |shard| directory.join(shard.directory_name()));
    let wanted = Batch {
        engine,
        program: &program,
        loaded: &loaded,
        only: &asked.only,
        repetitions: asked.repetitions,
        shard: asked.shard,
        directory: &directory,
        begin: asked.begin,
        command: &asked.command,
        stop: &stop,
    };
    let progress = Progress::new::<E>(!asked.quiet, name);
    let outcome = wanted.run(&progress);
    progress.finish(outcome.is_ok());
    match outcome.map_err(|error| failed::<E>(error, asked))? {
        Outcome::Complete(_lock) => match asked.shard {
            Some(shard) => {
                let records = io::read_results(&directory)?.1;
                show_shard(shard, &directory, records.len(), "were there already")
            }
            None => show_complete(&directory, asked),
        },
        Outcome::Finished { records, kept } => {
            let results = Results { set: kept.set().clone(), scenario: loaded.scenario.clone(), records };
            write(&directory, &results, asked.format.unwrap_or_default())?;
            let _lock = kept.complete().map_err(|error| of_kept(&error, asked))?;
            match asked.shard {
                Some(shard) => show_shard(shard, &directory, results.records.len(), "are there"),
                None => show::write_and_show(&directory, &results, asked.json),
            }
        }
    }
}

/// Says where a shard is and what makes a result of it: nobody looks at a shard itself.
fn show_shard(shard: Shard, directory: &Path, runs: usize, are_there: &str) -> Result<(), CliError> {
    let (place, all) = (path(directory), path(directory.parent().unwrap_or(directory)));
    output::print(&format!(
        "shard {shard}: {runs} runs {are_there}, in {place}; `evenkeel sweep --merge {all}` puts all shards together\n"
    ))
}

/// Shows results of which all runs are there already, in the wanted format.
fn show_complete(directory: &Path, asked: &Asked) -> Result<(), CliError> {
    let help = format!("{} runs the sweep again", asked.afresh);
    let damaged = |error: ReportError| CliError::from(error).help(&help);
    let results = evenkeel_report::load(directory).map_err(damaged)?;
    let present = if evenkeel_report::is_parquet(directory) { Format::Parquet } else { Format::Jsonl };
    if let Some(wanted) = asked.format.filter(|format| *format != present) {
        write(directory, &results, wanted)?;
    }
    if !asked.quiet {
        let (runs, afresh) = (results.records.len(), asked.afresh);
        eprintln!("{}: all {runs} runs are there already; {afresh} runs them again", path(directory));
    }
    show::write_and_show(directory, &results, asked.json)
}

/// Puts results into a directory.
pub fn write(directory: &Path, results: &Results, format: Format) -> Result<(), CliError> {
    match format {
        Format::Jsonl => Ok(io::write_results(directory, &results.set, &results.records)?),
        Format::Parquet => Ok(evenkeel_report::write_parquet(directory, &results.set, &results.records)?),
    }
}

fn failed<E: Engine>(error: BatchError<E::Error>, asked: &Asked) -> CliError
where
    CliError: From<E::Error>,
{
    let what = error.to_string();
    let going_on = format!("`{}` goes on with the rest", asked.going_on);
    match error {
        BatchError::Scenario(error) => error.into(),
        BatchError::Engine(error) => error.into(),
        BatchError::Kept(error) => of_kept(&error, asked),
        BatchError::Refused { .. } => {
            let error = CliError::new(Exit::Usage, what);
            match E::NAME {
                result::Engine::Lab => error,
                result::Engine::Sim => error.help("change the scenario, or run it with `evenkeel lab`"),
            }
        }
        BatchError::Run { error, .. } => {
            let error = CliError::from(error);
            // The simulator would fail in the same way again.
            let help = error.help.or_else(|| (E::NAME == result::Engine::Lab).then_some(going_on));
            CliError { what, help, exit: error.exit }
        }
        BatchError::Stopped { finished } => {
            let help = finished.is_some().then_some(going_on);
            CliError { what, help, exit: Exit::Interrupted }
        }
    }
}

fn of_kept(error: &KeptError, asked: &Asked) -> CliError {
    let what = CliError::new(Exit::Failed, error.to_string());
    match error {
        KeptError::Damaged { .. } | KeptError::Other { .. } => {
            what.help(format!("{} begins again and removes them; --out names another directory", asked.afresh))
        }
        KeptError::Io { .. } => what,
    }
}
