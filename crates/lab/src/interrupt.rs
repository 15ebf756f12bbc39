//! Ctrl-C and SIGTERM: noticed at the next step, so that everything is torn down in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::LabError;

/// Whether the user wants the run to end.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP set the flag instead of ending the process.
    pub fn install() -> Result<Self, LabError> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|e| LabError::io("catching signals", e))?;
        }
        Ok(Self(flag))
    }

    /// Whether a signal came.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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
