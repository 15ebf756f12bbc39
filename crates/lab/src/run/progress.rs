//! Progress for people: what is prepared, which run of how many, how long it takes.

use std::time::Duration;

use evenkeel_quote::shown;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line that says what is going on.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Progress on standard error; nothing unless `shown` and a terminal is there.
    pub fn new(shown: bool, name: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_draw_target(if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() });
        bar.set_prefix(name.to_owned());
        bar.set_style(style("{prefix}: {spinner} {msg}"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// A step of the preparation.
    pub fn prepare(&self, step: &str) {
        tracing::info!("{step}");
        self.bar.set_message(step.to_owned());
    }

    /// The number of runs is known.
    pub fn start_runs(&self, runs: u64, each: Duration) {
        self.bar.set_length(runs);
        self.bar.set_style(style("{prefix}: [{bar:24}] {pos}/{len} {msg} ({elapsed} gone, {eta} left)"));
        tracing::info!(runs, seconds = (each * runs.min(1 << 20) as u32).as_secs(), "runs to do");
    }

    /// VMs are being started.
    pub fn boot(&self, vms: usize) {
        tracing::info!(vms, "booting");
        self.bar.set_message(format!("booting {vms} VMs"));
    }

    /// A run begins.
    pub fn begin_run(&self, labels: &[(String, String)], repetition: u32) {
        let cell = labels.iter().map(|(axis, label)| format!("{axis} {label}")).collect::<Vec<_>>().join(", ");
        tracing::info!(cell, repetition, "run");
        self.bar.set_message(format!("{} #{}", shown(&cell), repetition + 1));
    }

    /// A run is done.
    pub fn end_run(&self) {
        self.bar.inc(1);
    }

    /// All is done.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
