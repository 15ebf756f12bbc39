//! Runs a cell of a scenario once, and writes down what happens in it.

use std::path::PathBuf;

use evenkeel_quote::path;
use evenkeel_report::trace::{Pcapng, Perfetto};
use evenkeel_scenario::batch::Stop;
use evenkeel_scenario::trace::{Event, Sink, Stage};
use evenkeel_sim::run::{self, Go, RunError};

use crate::error::CliError;
use crate::exit::Exit;
use crate::one_cell::one_cell;
use crate::output;

/// What the user asks for.
pub struct Traced {
    /// The scenario file.
    pub scenario: PathBuf,
    /// Only cells with these labels.
    pub only: Vec<String>,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Where packets go.
    pub pcapng: Option<PathBuf>,
    /// Whether packets keep the bytes of their payloads.
    pub payload: bool,
    /// Where a trace for Perfetto goes.
    pub perfetto: Option<PathBuf>,
}

/// Who writes down what happens.
#[derive(Default)]
struct Writers {
    pcapng: Option<Pcapng>,
    perfetto: Option<Perfetto>,
}

impl Sink for Writers {
    fn begin(&mut self, stage: &Stage) {
        self.pcapng.iter_mut().for_each(|writer| writer.begin(stage));
        self.perfetto.iter_mut().for_each(|writer| writer.begin(stage));
    }

    fn take(&mut self, at_ns: u64, event: &Event) {
        self.pcapng.iter_mut().for_each(|writer| writer.take(at_ns, event));
        self.perfetto.iter_mut().for_each(|writer| writer.take(at_ns, event));
    }
}

/// Runs what is asked for, and says what was written.
pub fn run(asked: &Traced) -> Result<(), CliError> {
    let stop =
        Stop::on_signals().map_err(|error| CliError::new(Exit::Failed, format!("cannot catch signals: {error}")))?;
    let (cell, _) = one_cell(&asked.scenario, &asked.only)?;
    let mut writers = Writers {
        pcapng: asked.pcapng.as_deref().map(|to| Pcapng::new(to, asked.payload)),
        perfetto: asked.perfetto.as_deref().map(Perfetto::create).transpose()?,
    };
    let report = &mut |_| if stop.is_set() { Go::Stop } else { Go::On };
    run::trace(&cell, asked.repetition, &mut writers, report).map_err(|error| match error {
        RunError::Refused(refused) => {
            CliError::new(Exit::Usage, format!("{}: {refused}", path(&asked.scenario))).help("change the scenario")
        }
        RunError::Interrupted => CliError::new(Exit::Interrupted, "interrupted; what is written is not whole"),
    })?;
    let mut lines = String::new();
    if let Some(captured) = writers.pcapng.map(Pcapng::finish).transpose()? {
        let files = match &captured.files[..] {
            [file] => path(file).to_string(),
            files => format!("{} files in {}", files.len(), path(asked.pcapng.as_deref().unwrap_or(&asked.scenario))),
        };
        lines.push_str(&format!("{files}: {} packets\n", captured.packets));
    }
    if let (Some(file), Some(writer)) = (&asked.perfetto, writers.perfetto) {
        lines.push_str(&format!("{}: {} events\n", path(file), writer.finish()?));
    }
    output::print(&lines)
}
