//! The line that says how far a batch is, and the same in a log where there is no terminal.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use evenkeel_quote::shown;
use evenkeel_scenario::batch::{Engine, Status, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a log without a terminal tells of progress.
const LOG_PERIOD: Duration = Duration::from_secs(10);
/// How often the spinner moves during a step of the preparation.
const TICK: Duration = Duration::from_millis(200);

/// A line on standard error.
pub struct Progress {
    bar: ProgressBar,
    is_shown: bool,
    /// What the engine says beside the number of runs.
    words: fn(&Status) -> String,
    logged: Cell<Instant>,
    /// The last text that was logged.
    said: RefCell<String>,
    last: RefCell<Option<Status>>,
}

impl Progress {
    /// A line that shows nothing unless `is_shown` is true and there is a terminal.
    pub fn new<E: Engine>(is_shown: bool, name: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_draw_target(if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() });
        bar.set_prefix(name.to_owned());
        bar.set_style(style("{prefix}: {spinner} {msg}"));
        let (logged, said, last) = (Cell::new(Instant::now()), RefCell::default(), RefCell::default());
        Self { bar, is_shown, words: E::words, logged, said, last }
    }

    /// Takes the line away; says what was done, if all was.
    pub fn finish(&self, is_done: bool) {
        self.bar.finish_and_clear();
        if let Some(status) = self.last.borrow().as_ref().filter(|_| self.is_shown && is_done) {
            let took = format!("in {:.1} s", status.elapsed.as_secs_f64());
            let parts = [format!("{} runs", status.runs), (self.words)(status), took];
            eprintln!("{}: {}", shown(&self.bar.prefix()), listed(&parts));
        }
    }

    fn log(&self, status: &Status, text: &str) {
        if self.logged.get().elapsed() >= LOG_PERIOD && *self.said.borrow() != text {
            self.logged.set(Instant::now());
            text.clone_into(&mut self.said.borrow_mut());
            tracing::info!("{}", listed(&[text.to_owned(), left(status)]));
        }
    }
}

impl Watch for Progress {
    fn preparing(&self, step: &str) {
        tracing::info!("{step}");
        self.bar.enable_steady_tick(TICK);
        self.bar.set_message(step.to_owned());
    }

    fn running(&self, status: &Status) {
        if self.last.borrow().is_none() {
            tracing::info!(runs = status.runs - status.finished, "runs to do");
            self.bar.disable_steady_tick();
            self.bar.set_length(status.size);
            self.bar.reset();
            self.bar.set_style(style("{prefix}: [{bar:24}] {msg} ({elapsed} gone, {eta} left)"));
        }
        let runs = format!("{} of {} runs", status.finished, status.runs);
        let text = listed(&[runs, (self.words)(status)]);
        self.log(status, &text);
        self.bar.set_position(status.done);
        self.bar.set_message(text);
        *self.last.borrow_mut() = Some(status.clone());
    }
}

/// The time left, for a log, which has no bar to show it.
fn left(status: &Status) -> String {
    if status.done == 0 {
        return String::new();
    }
    let share = status.size.saturating_sub(status.done) as f64 / status.done as f64;
    format!("{:.0} s left", status.elapsed.as_secs_f64() * share)
}

fn listed(parts: &[String]) -> String {
    parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ")
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_nothing_to_say_of_is_left_out() {
        assert_eq!(listed(&["3 of 4 runs".to_owned(), String::new(), "7 s left".to_owned()]), "3 of 4 runs, 7 s left");
        let status = Status { done: 1, size: 4, elapsed: Duration::from_secs(10), ..Status::default() };
        assert_eq!(left(&status), "30 s left");
        assert_eq!(left(&Status { done: 0, ..status }), "");
    }
}
