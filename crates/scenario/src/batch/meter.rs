//! How far a batch is.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::stop::Stop;

/// How far a batch is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Runs finished, those of earlier sessions included.
    pub finished: usize,
    /// All runs.
    pub runs: usize,
    /// What this session has done, in the unit of the engine's sizes.
    pub done: u64,
    /// What it has to do, in the same unit.
    pub size: u64,
    /// Events of this session, if the engine counts any.
    pub events: u64,
    /// What is being done, if the engine says it.
    pub step: String,
    /// Since this session's first run began.
    pub elapsed: Duration,
}

/// Is told how far a batch is, on the thread that runs it.
pub trait Watch {
    /// A step of the preparation begins.
    fn preparing(&self, step: &str);

    /// Runs are going on. Called a few times a second, and when the last has ended.
    fn running(&self, status: &Status);
}

/// What all threads of a session count together.
#[derive(Debug)]
pub(super) struct Totals<'a> {
    pub(super) finished: AtomicUsize,
    runs: usize,
    size: u64,
    done: AtomicU64,
    events: AtomicU64,
    step: Mutex<String>,
    begun: Instant,
    has_failed: AtomicBool,
    stop: &'a Stop,
}

impl<'a> Totals<'a> {
    pub(super) fn new(finished: usize, runs: usize, size: u64, stop: &'a Stop) -> Self {
        Self {
            finished: AtomicUsize::new(finished),
            runs,
            size,
            done: AtomicU64::new(0),
            events: AtomicU64::new(0),
            step: Mutex::default(),
            begun: Instant::now(),
            has_failed: AtomicBool::new(false),
            stop,
        }
    }

    /// Ends all runs, because one has failed.
    pub(super) fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    pub(super) fn goes_on(&self) -> bool {
        !self.stop.is_set() && !self.has_failed.load(Ordering::Relaxed)
    }

    pub(super) fn step(&self, step: &str) {
        step.clone_into(&mut self.step.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn status(&self) -> Status {
        Status {
            finished: self.finished.load(Ordering::Relaxed),
            runs: self.runs,
            done: self.done.load(Ordering::Relaxed),
            size: self.size,
            events: self.events.load(Ordering::Relaxed),
            step: self.step.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            elapsed: self.begun.elapsed(),
        }
    }
}

/// What a run tells of itself.
#[derive(Debug)]
pub struct Meter<'a> {
    totals: &'a Totals<'a>,
    /// What it has told of itself so far: done, and events.
    told: Cell<(u64, u64)>,
}

impl<'a> Meter<'a> {
    pub(super) fn new(totals: &'a Totals<'a>) -> Self {
        Self { totals, told: Cell::default() }
    }

    /// Tells how much of the run is done, in the unit of the engine's sizes, and with how many events. False: the run
    /// is to end.
    pub fn at(&self, done: u64, events: u64) -> bool {
        let told = self.told.get();
        self.totals.done.fetch_add(done.saturating_sub(told.0), Ordering::Relaxed);
        self.totals.events.fetch_add(events.saturating_sub(told.1), Ordering::Relaxed);
        self.told.set((done.max(told.0), events.max(told.1)));
        self.totals.goes_on()
    }

    /// The run is over.
    pub(super) fn end(&self, size: u64) {
        self.at(size, 0);
    }

    /// What is being done.
    pub fn step(&self, step: &str) {
        self.totals.step(step);
    }
}
