//! QEMU's monitor (QMP), for live migrations, and to look at the rings of network cards through which nothing passes.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::LabError;

/// How long an answer may take while QEMU's main thread has other work.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to the monitor of one VM.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    name: String,
}

impl Qmp {
    /// Connects as soon as QEMU listens there.
    pub fn connect(socket: &Path, name: &str) -> Result<Self, LabError> {
        let end = Instant::now() + TIMEOUT;
        let failed = |error| LabError::io(format!("connecting to {name}'s monitor"), error);
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(failed(error)),
            }
        };
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        let writer = stream.try_clone().map_err(failed)?;
        let mut qmp = Self { reader: BufReader::new(stream), writer, name: name.to_owned() };
        // Its greeting comes first.
        qmp.line()?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    fn line(&mut self) -> Result<Value, LabError> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line);
        read.map_err(|error| LabError::io(format!("reading {}'s monitor", self.name), error))?;
        serde_json::from_str(&line)
            .map_err(|error| self.failure(format!("its monitor says `{}`: {error}", line.trim())))
    }

    fn failure(&self, why: String) -> LabError {
        LabError::Vm { name: self.name.clone(), why }
    }

    /// Executes a command and returns its result.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, LabError> {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.writer
            .write_all(line.as_bytes())
            .map_err(|error| LabError::io(format!("telling {}'s monitor", self.name), error))?;
        loop {
            let mut answer = self.line()?;
            if let Some(returned) = answer.get_mut("return") {
                return Ok(returned.take());
            }
            // A message without a result and without an error is an event.
            if let Some(error) = answer.get("error") {
                return Err(self.failure(format!("`{command}` failed: {error}")));
            }
        }
    }
}
