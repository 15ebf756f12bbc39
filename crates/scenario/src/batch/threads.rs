//! Does the runs of a batch that are missing, on as many threads as the engine wants.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::engine::Engine;
use super::error::BatchError;
use super::kept::Kept;
use super::meter::{Meter, Totals, Watch};
use super::stop::Stop;
use crate::cell::Cell;
use crate::io;

/// How often the caller is told how far things are.
const WATCH: Duration = Duration::from_millis(200);

/// The runs of a session.
pub(super) struct Session<'a, E: Engine> {
    pub(super) engine: &'a E,
    pub(super) setup: &'a E::Setup,
    /// The scenario file, for what fails.
    pub(super) file: &'a Path,
    pub(super) cells: &'a [Cell],
    pub(super) kept: &'a Kept,
    pub(super) stop: &'a Stop,
    /// Held while a thread adds to results that are shown unfinished.
    pub(super) shown: Mutex<()>,
}

impl<E: Engine> Session<'_, E> {
    /// Does what is not finished yet. The first run that fails ends all others.
    pub(super) fn execute(&self, watch: &dyn Watch) -> Result<(), BatchError<E::Error>> {
        let order = self.kept.order();
        let wanted = self.kept.wanted();
        let waiting: Vec<usize> = wanted.iter().copied().filter(|index| !self.kept.is_finished(*index)).collect();
        let size = waiting.iter().map(|index| self.engine.size(&self.cells[order[*index].0])).sum();
        let totals = Totals::new(wanted.len() - waiting.len(), wanted.len(), size, self.stop);
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            if let Err(error) = self.work(&waiting, &next, &totals) {
                totals.fail();
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        };
        let threads = self.engine.jobs().get().min(waiting.len());
        let (caller, working) = (std::thread::current(), AtomicUsize::new(threads));
        std::thread::scope(|scope| {
            let until_done = || {
                work();
                working.fetch_sub(1, Ordering::Relaxed);
                caller.unpark();
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(until_done)).collect();
            // A thread that panics counts nothing down; the scope passes its panic on.
            while working.load(Ordering::Relaxed) > 0 && !workers.iter().all(|worker| worker.is_finished()) {
                watch.running(&totals.status());
                std::thread::park_timeout(WATCH);
            }
        });
        totals.step("");
        watch.running(&totals.status());
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let finished = totals.status().finished;
        if finished < wanted.len() { Err(BatchError::Stopped { finished: Some(finished) }) } else { Ok(()) }
    }

    /// What one thread does.
    fn work(&self, waiting: &[usize], next: &AtomicUsize, totals: &Totals<'_>) -> Result<(), BatchError<E::Error>> {
        let mut worker = self.engine.worker(self.setup).map_err(BatchError::Engine)?;
        while let Some(&index) = waiting.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !totals.goes_on() {
                return Ok(());
            }
            let (cell, repetition) = self.kept.order()[index];
            let cell = &self.cells[cell];
            let meter = Meter::new(totals);
            let outcome = self.engine.run(self.setup, &mut worker, cell, repetition, &meter);
            let Some(record) = outcome.map_err(|error| BatchError::Run {
                file: self.file.to_owned(),
                cell: cell.labels.clone(),
                repetition,
                error,
            })?
            else {
                return Ok(());
            };
            self.kept.keep(index, &record)?;
            if E::SHOWS_UNFINISHED {
                let _one_at_a_time = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
                io::append_record(self.kept.directory(), &record)?;
            }
            meter.end(self.engine.size(cell));
            totals.finished.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
