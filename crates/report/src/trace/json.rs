//! Chrome's trace format, as Perfetto reads it: a list of events, each with a time, a process and a thread.
//!
//! A process is a machine, a thread one of its tracks. Both have numbers that are unique in the whole file, since
//! readers differ in how they treat one thread's number in two processes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::ReportError;

/// A file that is being written.
#[derive(Debug)]
pub struct Json {
    file: PathBuf,
    writer: BufWriter<File>,
    processes: u32,
    /// By thread: its process, and whether a slice of it is open.
    threads: Vec<(Process, bool)>,
    events: u64,
    last_ns: i64,
    failed: Option<io::Error>,
}

/// A process of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(u32);

/// A thread of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread(u32);

/// More that is said of an event.
pub type Arguments = Map<String, Value>;

#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cat: &'a str,
    ph: &'a str,
    /// Microseconds.
    ts: f64,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(flatten)]
    own: Own<'a>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    args: Arguments,
}

/// What only some phases have.
#[derive(Default, Serialize)]
struct Own<'a> {
    /// Scope of an instant: its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'a str>,
    /// Which slices belong together.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
}

impl Json {
    /// Begins a file.
    ///
    /// # Errors
    /// [`ReportError::Write`]
    pub fn create(file: &Path) -> Result<Self, ReportError> {
        let opened = File::create(file).map_err(|source| ReportError::Write { file: file.to_owned(), source })?;
        let mut writer = BufWriter::new(opened);
        let failed = writer.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[").err();
        let file = file.to_owned();
        Ok(Self { file, writer, processes: 0, threads: Vec::new(), events: 0, last_ns: 0, failed })
    }

    /// Another process.
    pub fn process(&mut self, name: &str) -> Process {
        self.processes += 1;
        let process = Process(self.processes);
        self.describe(process, None, "process_name", "name", json!(name));
        self.describe(process, None, "process_sort_index", "sort_index", json!(self.processes));
        process
    }

    /// Another thread of a process.
    pub fn thread(&mut self, process: Process, name: &str) -> Thread {
        self.threads.push((process, false));
        let thread = Thread(self.threads.len() as u32);
        self.describe(process, Some(thread), "thread_name", "name", json!(name));
        self.describe(process, Some(thread), "thread_sort_index", "sort_index", json!(thread.0));
        thread
    }

    fn describe(&mut self, process: Process, thread: Option<Thread>, what: &str, key: &str, value: Value) {
        let args = Arguments::from_iter([(key.to_owned(), value)]);
        let tid = thread.map(|thread| thread.0);
        self.write(&Line { name: what, cat: "", ph: "M", ts: 0.0, pid: process.0, tid, own: Own::default(), args });
    }

    /// A slice begins on a thread; one that is open there ends.
    pub fn begin(&mut self, at_ns: i64, thread: Thread, (category, name): (&str, &str), args: Arguments) {
        self.end(at_ns, thread, Arguments::new());
        self.threads[thread.0 as usize - 1].1 = true;
        self.on_thread(at_ns, thread, "B", (category, name), Own::default(), args);
    }

    /// The slice that is open on a thread ends, if there is one.
    pub fn end(&mut self, at_ns: i64, thread: Thread, args: Arguments) {
        if std::mem::take(&mut self.threads[thread.0 as usize - 1].1) {
            self.on_thread(at_ns, thread, "E", ("", ""), Own::default(), args);
        }
    }

    /// Something happens on a thread, at once.
    pub fn instant(&mut self, at_ns: i64, thread: Thread, (category, name): (&str, &str), args: Arguments) {
        self.on_thread(at_ns, thread, "i", (category, name), Own { s: Some("t"), id: None }, args);
    }

    /// A slice that others may overlap, by its begin and its length.
    pub fn overlapping(
        &mut self,
        (at_ns, takes_ns): (i64, i64),
        process: Process,
        (category, name): (&str, &str),
        args: Arguments,
    ) {
        let own = || Own { s: None, id: Some(self.events) };
        let (first, second) = (own(), own());
        for (ph, at_ns, own, args) in [("b", at_ns, first, args), ("e", at_ns + takes_ns, second, Arguments::new())] {
            let ts = at_ns as f64 / 1e3;
            self.write(&Line { name, cat: category, ph, ts, pid: process.0, tid: None, own, args });
        }
    }

    /// A counter of a process has a value from now on.
    pub fn counter(&mut self, at_ns: i64, process: Process, name: &str, value: f64) {
        let args = Arguments::from_iter([("value".to_owned(), json!(value))]);
        let ts = at_ns as f64 / 1e3;
        self.write(&Line { name, cat: "", ph: "C", ts, pid: process.0, tid: None, own: Own::default(), args });
    }

    fn on_thread(
        &mut self,
        at_ns: i64,
        thread: Thread,
        ph: &str,
        (cat, name): (&str, &str),
        own: Own<'_>,
        args: Arguments,
    ) {
        let (process, _) = self.threads[thread.0 as usize - 1];
        self.last_ns = self.last_ns.max(at_ns);
        self.write(&Line { name, cat, ph, ts: at_ns as f64 / 1e3, pid: process.0, tid: Some(thread.0), own, args });
    }

    fn write(&mut self, line: &Line<'_>) {
        if self.failed.is_none() {
            let separator: &[u8] = if self.events == 0 { b"\n" } else { b",\n" };
            let written = self.writer.write_all(separator);
            self.failed = written.and_then(|()| Ok(serde_json::to_writer(&mut self.writer, line)?)).err();
            self.events += 1;
        }
    }

    /// Ends the slices that are open, and the file; returns how many events are in it.
    ///
    /// # Errors
    /// [`ReportError::Write`], also of what was to be written earlier.
    pub fn finish(mut self) -> Result<u64, ReportError> {
        for thread in (1..=self.threads.len() as u32).map(Thread) {
            self.end(self.last_ns, thread, Arguments::new());
        }
        let failed = match self.failed.take() {
            Some(error) => Err(error),
            None => self.writer.write_all(b"\n]}\n").and_then(|()| self.writer.flush()),
        };
        let events = self.events;
        failed.map(|()| events).map_err(|source| ReportError::Write { file: self.file, source })
    }
}
