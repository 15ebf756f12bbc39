//! Runs all cells and repetitions of a scenario on several threads, so that they can be gone on with after a kill.
//!
//! A run is single-threaded and follows from its cell and repetition alone, so the number of threads changes nothing
//! but the time. Finished runs are kept on disk ([`Kept`]) and put in order at the end: repetitions outermost, then
//! cells.

mod kept;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use evenkeel_quote::shown;
use evenkeel_scenario::RunRecord;
use evenkeel_scenario::cell::Cell;

pub use kept::{Identity, Kept, KeptError, State};

/// How often the caller is told how far things are.
const WATCH: Duration = Duration::from_millis(200);

/// How far all runs are, together.
#[derive(Debug, Default)]
pub struct Meter {
    simulated_us: AtomicU64,
    events: AtomicU64,
    stop: AtomicBool,
}

impl Meter {
    /// So much more simulated time and so many more events. False: the user wants the run to end.
    pub fn add(&self, simulated_us: u64, events: u64) -> bool {
        self.simulated_us.fetch_add(simulated_us, Ordering::Relaxed);
        self.events.fetch_add(events, Ordering::Relaxed);
        !self.stop.load(Ordering::Relaxed)
    }

    /// Ends all runs at their next report.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// How far a sweep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Runs finished, those of earlier sessions included.
    pub finished: usize,
    /// All runs.
    pub runs: usize,
    /// Simulated time of this session.
    pub simulated_us: u64,
    /// Events of this session.
    pub events: u64,
}

/// Why a sweep has ended early.
#[derive(Debug)]
pub enum SweepError<E> {
    /// A run failed.
    Run {
        /// Which: axis and label.
        cell: Vec<(String, String)>,
        /// Its repetition, from 0.
        repetition: u32,
        /// Why.
        error: E,
    },
    /// A finished run could not be kept.
    Kept(KeptError),
    /// The user wanted it to end; finished runs are kept.
    Stopped {
        /// Runs that are finished.
        finished: usize,
    },
}

impl<E: fmt::Display> fmt::Display for SweepError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { cell, repetition, error } => {
                for (axis, label) in cell {
                    write!(f, "{} = {}, ", shown(axis), shown(label))?;
                }
                write!(f, "repetition {}: {error}", repetition + 1)
            }
            Self::Kept(error) => error.fmt(f),
            Self::Stopped { finished } => write!(f, "interrupted; {finished} finished runs are kept"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for SweepError<E> {}

/// The runs of a sweep.
#[derive(Debug, Clone, Copy)]
pub struct Sweep<'a> {
    /// All cells.
    pub cells: &'a [Cell],
    /// How often each is run.
    pub repetitions: u32,
    /// Threads.
    pub jobs: NonZeroUsize,
}

impl Sweep<'_> {
    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.cells.len() * self.repetitions as usize
    }

    /// Simulated time of all wanted runs together.
    pub fn simulated_us(&self, mut wanted: impl FnMut(usize) -> bool) -> u64 {
        let of = |cell: &Cell| (cell.scenario.warmup_ms + cell.scenario.duration_ms) * 1000;
        (0..self.runs()).filter(|index| wanted(*index)).map(|index| of(self.run(index).0)).sum()
    }

    /// Cell and repetition of a run: all cells of a repetition, then the next.
    fn run(&self, index: usize) -> (&Cell, u32) {
        (&self.cells[index % self.cells.len()], (index / self.cells.len()) as u32)
    }

    /// Runs what is not finished yet. `watch` is called a few times a second on the calling thread, and may stop the
    /// `meter`.
    ///
    /// # Errors
    /// The first run that fails, a finished run that cannot be kept, or that the meter was stopped.
    pub fn execute<E: Send>(
        &self,
        kept: &Kept,
        meter: &Meter,
        run: impl Fn(&Cell, u32, &Meter) -> Result<Option<RunRecord>, E> + Sync,
        mut watch: impl FnMut(Status),
    ) -> Result<(), SweepError<E>> {
        let waiting: Vec<usize> = (0..self.runs()).filter(|index| !kept.is_finished(*index)).collect();
        let next = AtomicUsize::new(0);
        let finished = AtomicUsize::new(self.runs() - waiting.len());
        let failed = Mutex::new(None);
        let fail = |error| {
            meter.stop();
            failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
        };
        let work = || {
            while let Some(&index) = waiting.get(next.fetch_add(1, Ordering::Relaxed)) {
                if meter.stop.load(Ordering::Relaxed) {
                    return;
                }
                let (cell, repetition) = self.run(index);
                match run(cell, repetition, meter) {
                    Ok(Some(record)) => match kept.keep(index, &record) {
                        Ok(()) => _ = finished.fetch_add(1, Ordering::Relaxed),
                        Err(error) => fail(SweepError::Kept(error)),
                    },
                    Ok(None) => return,
                    Err(error) => fail(SweepError::Run { cell: cell.labels.clone(), repetition, error }),
                }
            }
        };
        let status = || Status {
            finished: finished.load(Ordering::Relaxed),
            runs: self.runs(),
            simulated_us: meter.simulated_us.load(Ordering::Relaxed),
            events: meter.events.load(Ordering::Relaxed),
        };
        let threads = self.jobs.get().min(waiting.len());
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
                watch(status());
                std::thread::park_timeout(WATCH);
            }
        });
        watch(status());
        if let Some(error) = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            return Err(error);
        }
        let finished = finished.into_inner();
        if finished < self.runs() { Err(SweepError::Stopped { finished }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
