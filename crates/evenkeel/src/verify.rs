//! Runs the simulator's kept runs again.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, thread};

use evenkeel_quote::path;
use evenkeel_report::{ReportError, Results};
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::provenance::Again;
use evenkeel_scenario::result::{Engine, META_FILE};
use evenkeel_scenario::{LoadedScenario, Scenario, fingerprint, sweep};
use evenkeel_sim::run::{Go, RunError};

use crate::error::CliError;
use crate::exit::Exit;
use crate::program;

/// What became of a set.
#[derive(Debug)]
pub enum Outcome {
    /// Runs were equal.
    Equal {
        /// How many were run.
        runs: usize,
        /// How many there are.
        of: usize,
        /// The pages that say so now: none after a sample.
        pages: Vec<PathBuf>,
    },
    /// A run differs: its labels, and how.
    Differs(String),
    /// Nothing was run, and why.
    Left(&'static str),
}

/// The directories below `root` that hold results, in the order of their names.
///
/// # Errors
/// [`ReportError::Read`].
pub fn sets(root: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let failed = |source| ReportError::Read { file: root.to_owned(), source };
    if root.join(META_FILE).exists() {
        return Ok(vec![root.to_owned()]);
    }
    let mut below = Vec::new();
    for entry in fs::read_dir(root).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Links may lead in a circle.
        if entry.file_type().map_err(failed)?.is_dir() {
            below.push(entry.path());
        }
    }
    below.sort();
    below.iter().map(|directory| sets(directory)).collect::<Result<Vec<_>, _>>().map(|sets| sets.concat())
}

/// Which runs of which sets are run again, and on how many threads.
pub struct Wanted<'a> {
    /// Where the scenario files are.
    pub scenarios: &'a Path,
    /// Where the pages are.
    pub pages: &'a Path,
    /// Runs of each set that are a sample; `None`: all.
    pub runs: Option<NonZeroUsize>,
    /// Runs at once.
    pub jobs: NonZeroUsize,
}

impl Wanted<'_> {
    /// Repeats runs of a set. If these are all runs, and equal, its pages say so: a change may show in any cell, and a
    /// sample misses it.
    pub fn verify(&self, directory: &Path) -> Result<Outcome, CliError> {
        let results = evenkeel_report::load(directory)?;
        if results.set.engine != Engine::Sim {
            return Ok(Outcome::Left("the lab's: no two runs are equal"));
        }
        if results.set.provenance.is_none() {
            return Ok(Outcome::Left("made before results recorded their code"));
        }
        let file = self.scenarios.join(format!("{}.toml", results.scenario.name));
        if !file.exists() {
            return Ok(Outcome::Left("its scenario is no longer there"));
        }
        let loaded = Scenario::load(&file)?;
        let settings = fingerprint::of(&loaded)?;
        // From the scenario's text as kept: a key added since then has its default there, too.
        let before =
            Scenario::from_str(&results.set.scenario_toml, directory).and_then(|before| fingerprint::of(&before));
        if before.ok().as_ref() != Some(&settings) {
            return Ok(Outcome::Left("the scenario has changed since"));
        }
        let cells = sweep::cells(&loaded)?;
        let of = results.records.len();
        let sample = evenkeel_report::sample(of, self.runs.map_or(of, NonZeroUsize::get));
        if let Some(difference) = self.first_difference(&loaded, &cells, &results, &sample)? {
            return Ok(Outcome::Differs(difference));
        }
        let runs = sample.len();
        if runs < of {
            return Ok(Outcome::Equal { runs, of, pages: Vec::new() });
        }
        let again = Again { program: program::simulating(), settings, runs };
        let pages = evenkeel_report::note_again(&results, directory, self.pages, &again)?;
        Ok(Outcome::Equal { runs, of, pages })
    }

    fn first_difference(
        &self,
        loaded: &LoadedScenario,
        cells: &[Cell],
        results: &Results,
        sample: &[usize],
    ) -> Result<Option<String>, CliError> {
        let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let work = || {
            while let Some(&position) = sample.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Some(how) = difference(cells, results, position).transpose() {
                    found.lock().unwrap_or_else(PoisonError::into_inner).insert(position, how);
                }
            }
        };
        thread::scope(|scope| (0..self.jobs.get()).for_each(|_| drop(scope.spawn(work))));
        // The first by position, whichever thread was first: the same one is named each time.
        let first = found.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().next();
        let failed = |refused| CliError::new(Exit::Failed, format!("{}: {refused}", path(&loaded.file)));
        first.transpose().map_err(failed)
    }
}

/// How the kept run at a position differs from the same run made now.
fn difference(cells: &[Cell], results: &Results, position: usize) -> Result<Option<String>, String> {
    let kept = &results.records[position];
    let labels: Vec<String> = kept.cell.iter().map(|(axis, label)| format!("{axis}={label}")).collect();
    let name = format!("{} ({})", labels.join(", "), kept.repetition);
    let Some(cell) = cells.iter().find(|cell| cell.labels == kept.cell) else {
        return Ok(Some(format!("{name}: there is no such cell")));
    };
    match evenkeel_sim::run::run(cell, kept.repetition, &mut |_| Go::On) {
        Ok(finished) => {
            Ok(evenkeel_report::difference(results, kept, finished.record).map(|how| format!("{name}: {how}")))
        }
        Err(RunError::Refused(refused)) => Err(refused.to_string()),
        Err(RunError::Interrupted) => Ok(None),
    }
}
