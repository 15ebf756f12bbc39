//! `evenkeel trial`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_quote::path;
use evenkeel_report::trial::usual_slot;
use serde_json::json;

use crate::cli;
use crate::cmd::command_line;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;
use crate::trial::{self, Wanted};

/// Tries a mechanism.
pub fn run(arguments: cli::Trial) -> Result<(), CliError> {
    let cli::Trial { ports, mechanism, time, slot, seed, report, agent, quiet } = arguments;
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let wanted = Wanted {
        ports,
        mechanism,
        time,
        slot: slot.unwrap_or_else(|| usual_slot(time)),
        // Short enough for every reader of JSON.
        seed: seed.unwrap_or_else(|| clock() & u64::from(u32::MAX)),
        socket: agent.socket,
        command: command_line(std::env::args().skip(1)),
        is_shown: !quiet && !agent.json,
    };
    let page = Page::open(report)?;
    let outcome = match trial::run(&wanted) {
        Ok(outcome) => outcome,
        Err(error) => {
            page.take_back();
            return Err(error);
        }
    };
    let written = page.write(&outcome.trial.html());
    let report = written.is_ok().then_some(&page.path);
    if agent.json {
        output::print_json(&json!({ "report": report, "trial": outcome.trial }))?;
    } else {
        let place = report.map(|report| format!("Report: {}\n", path(report))).unwrap_or_default();
        output::print(&format!("{}{place}", outcome.trial.text()))?;
    }
    outcome.trouble.map_or(written, Err)
}

/// The report's file. It is opened before the trial: an hour on a host's ports is not for a page that nobody can write.
struct Page {
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl Page {
    fn open(path: PathBuf) -> Result<Self, CliError> {
        let made = File::create_new(&path);
        let is_new = made.is_ok();
        // What is there stays until another report takes its place.
        let opened = made.or_else(|_| OpenOptions::new().write(true).create(true).truncate(false).open(&path));
        match opened {
            Ok(file) => Ok(Self { path, file, is_new }),
            Err(error) => Err(failed(&path, &error).help("--report names another file")),
        }
    }

    fn write(&self, html: &str) -> Result<(), CliError> {
        let write = || {
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            (&self.file).write_all(html.as_bytes())
        };
        write().map_err(|error| failed(&self.path, &error).help("the verdict is on standard output"))
    }

    /// The trial has not begun. A file that cannot be removed is empty.
    fn take_back(self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn failed(file: &Path, error: &io::Error) -> CliError {
    CliError::new(Exit::Failed, format!("cannot write {}: {error}", path(file)))
}
