//! Figures over a window: what ports dropped, how long VMs waited and why, what TCP here sent needlessly, and what
//! would help, cheapest first.
//!
//! A [`Snapshot`] of the files below a root is read before and after, [`figures::diff`] says what happened in between,
//! [`advice`] what that asks for; only [`watch`] looks at the machine itself. It needs no BPF and nothing newer than
//! Linux 5.4; [`Figures::missing`] says what could not be read.

mod advice;
mod figures;
mod files;
mod group;
mod openmetrics;
mod port;
mod qdisc;
mod snapshot;
mod text;
mod vm;

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

pub use advice::{Advice, Cost, Cure};
pub use figures::{Backlog, Drops, Figures, GroupFigures, PortFigures, Sleeper, TcpFigures, ThreadFigures, VmFigures};

use figures::Watched;
use files::Files;
use qdisc::{Asker, Qdiscs};
use snapshot::Snapshot;

/// How long the sleeper sleeps.
const NAP: Duration = Duration::from_millis(1);
/// From this delay on, a wake-up is late.
const LATE: Duration = Duration::from_millis(8);
/// How often queues are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What was seen, and what would help.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What was seen.
    #[serde(flatten)]
    pub figures: Figures,
    /// What would help, cheapest first.
    pub advice: Vec<Advice>,
}

impl Report {
    fn of(figures: Figures) -> Self {
        Self { advice: advice::advise(&figures), figures }
    }

    /// For Prometheus: `now` is the end of the window, in seconds since 1970.
    ///
    /// # Errors
    /// Only a formatter's, which a string does not have.
    pub fn openmetrics(&self, now: f64) -> Result<String, fmt::Error> {
        openmetrics::text(self, now)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(f, self)
    }
}

/// Watches this machine for this long.
pub fn watch(time: Duration) -> Report {
    let files = Files::below(Path::new("/"));
    let mut asker = Asker::new().map_err(|error| error.to_string());
    let mut ask = || match &mut asker {
        Ok(asker) => asker.ask().map_err(|error| error.to_string()),
        Err(why) => Err(why.clone()),
    };
    let read = |qdiscs: &Result<Qdiscs, String>| Snapshot::read(files, qdiscs.as_ref().map_err(String::as_str));
    let before = read(&ask());
    let mut watched = Watched::default();
    let begin = Instant::now();
    let mut look_at = begin;
    while begin.elapsed() < time {
        if Instant::now() >= look_at {
            look_at += LOOK_EVERY;
            watched.look(ask().as_ref().unwrap_or(&Qdiscs::default()));
        }
        let asleep = Instant::now();
        std::thread::sleep(NAP);
        watched.sleeper.woke_up(asleep.elapsed().saturating_sub(NAP));
    }
    let last = ask();
    watched.time = begin.elapsed();
    let after = read(&last);
    Report::of(figures::diff(&before, &after, &watched))
}

impl Watched {
    fn look(&mut self, qdiscs: &Qdiscs) {
        for (ifindex, qdisc) in qdiscs.all() {
            let most = self.backlogs.entry(ifindex).or_default();
            most.packets = most.packets.max(qdisc.backlog_packets);
            most.bytes = most.bytes.max(qdisc.backlog_bytes);
        }
    }
}

impl Sleeper {
    fn woke_up(&mut self, late: Duration) {
        self.naps += 1;
        self.late += u64::from(late >= LATE);
        self.longest_ms = self.longest_ms.max(late.as_secs_f64() * 1e3);
    }
}

#[cfg(test)]
mod tests;
