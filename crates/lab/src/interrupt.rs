//! Ctrl-C and SIGTERM: noticed at the next step, so that everything is torn down in order.

use std::time::{Duration, Instant};

use evenkeel_scenario::batch::Stop;

use crate::error::LabError;

/// Whether the user wants the run to end.
#[derive(Debug, Clone)]
pub struct Interrupt(Stop);

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP set the flag instead of ending the process.
    pub fn install() -> Result<Self, LabError> {
        Ok(Self(Stop::on_signals().map_err(|e| LabError::io("catching signals", e))?))
    }

    /// Shares a flag that somebody else sets.
    pub fn of(stop: &Stop) -> Self {
        Self(stop.clone())
    }

    /// Whether a signal came.
    pub fn is_set(&self) -> bool {
        self.0.is_set()
    }

    /// An error if a signal came.
    pub fn check(&self) -> Result<(), LabError> {
        if self.is_set() { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Sleeps, in steps, calling `check` in between.
    pub fn sleep(&self, time: Duration, mut check: impl FnMut() -> Result<(), LabError>) -> Result<(), LabError> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }
}
