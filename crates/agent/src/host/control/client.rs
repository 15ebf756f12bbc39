//! The commands' end of the control socket.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::lease::{Completion, Leased, Wanted};
use super::proto::{Ask, ExplainedFlow, Request, Response, Status, Stopped, VERSION};
use crate::host::error::HostError;
use evenkeel_settings::Mode;

/// How long the agent may take for one line.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to the agent.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    socket: PathBuf,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// [`HostError::NotRunning`] if nobody listens there, or this user may not ask.
    pub fn connect(socket: &Path) -> Result<Self, HostError> {
        let connect = || {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            Ok::<_, std::io::Error>(stream)
        };
        let stream =
            connect().map_err(|error| HostError::NotRunning { socket: socket.to_owned(), why: error.to_string() })?;
        Ok(Self { stream: BufReader::new(stream), socket: socket.to_owned() })
    }

    /// What the agent does.
    ///
    /// # Errors
    /// [`HostError::Answer`]
    pub fn status(&mut self) -> Result<Status, HostError> {
        self.ask(Ask::Status)?;
        match self.line()? {
            Response::Status(status) => Ok(*status),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Its flows, as many as asked for, and how many there are.
    ///
    /// # Errors
    /// [`HostError::Answer`]
    pub fn flows(&mut self, ask: Ask) -> Result<(Vec<ExplainedFlow>, u64), HostError> {
        self.ask(ask)?;
        let mut flows = Vec::new();
        loop {
            match self.line()? {
                Response::Flow(flow) => flows.push(*flow),
                Response::End { total } => return Ok((flows, total)),
                other => return Err(self.unexpected(&other)),
            }
        }
    }

    /// Takes a port offline, or online again.
    ///
    /// # Errors
    /// [`HostError::Answer`], also if there is no such port.
    pub fn switch(&mut self, port: &str, online: bool) -> Result<(), HostError> {
        self.ask(Ask::Switch { port: port.to_owned(), online })?;
        match self.line()? {
            Response::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Leases ports for a while, with a mechanism in a mode.
    ///
    /// # Errors
    /// [`HostError::Answer`], also if they cannot be had.
    pub fn lease(&mut self, wanted: Wanted) -> Result<Leased, HostError> {
        self.ask(Ask::Lease(wanted))?;
        self.leased().map(|(leased, _)| leased)
    }

    /// Renews a lease for `for_ms` from now on, with the mechanism in this mode; returns exchanges that ended
    /// meanwhile.
    ///
    /// # Errors
    /// [`HostError::Answer`], also if the lease has ended.
    pub fn renew(&mut self, id: u64, mode: Mode, for_ms: u32) -> Result<(Leased, Vec<Completion>), HostError> {
        self.ask(Ask::Renew { id, mode, for_ms })?;
        self.leased()
    }

    /// Gives the ports back; returns the exchanges that ended since the last answer.
    ///
    /// # Errors
    /// [`HostError::Answer`], also if the lease has ended.
    pub fn give_back(&mut self, id: u64) -> Result<(Leased, Vec<Completion>), HostError> {
        self.ask(Ask::Return { id })?;
        self.leased()
    }

    fn leased(&mut self) -> Result<(Leased, Vec<Completion>), HostError> {
        let mut completions = Vec::new();
        loop {
            match self.line()? {
                Response::Completions { list } => completions.extend(list),
                Response::Leased(leased) => return Ok((leased, completions)),
                other => return Err(self.unexpected(&other)),
            }
        }
    }

    /// Ends the agent; it removes everything first.
    ///
    /// # Errors
    /// [`HostError::Stays`]; [`HostError::Answer`]; [`HostError::NotRunning`] if it was gone before it had answered.
    pub fn stop(&mut self) -> Result<Stopped, HostError> {
        self.ask(Ask::Stop)?;
        match self.line()? {
            Response::Stopped(stopped) => Ok(stopped),
            Response::Stays { why } => Err(HostError::Stays { why }),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&mut self, ask: Ask) -> Result<(), HostError> {
        let request = serde_json::to_vec(&Request { version: VERSION, ask });
        let mut line = request.map_err(|error| self.bad(format!("cannot be asked: {error}")))?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => self.gone(error),
            _ => self.bad(format!("does not listen: {error}")),
        })
    }

    fn line(&mut self) -> Result<Response, HostError> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err(self.gone("it ended before it had answered")),
            Ok(_) => match serde_json::from_str(&line) {
                Ok(Response::Refused { why }) => Err(self.bad(why)),
                Ok(response) => Ok(response),
                Err(error) => Err(self.bad(format!("answered what this evenkeel does not know: {error}"))),
            },
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(self.gone(error)),
            Err(error) => Err(self.bad(format!("does not answer: {error}"))),
        }
    }

    fn unexpected(&self, response: &Response) -> HostError {
        let name = match response {
            Response::Status(_) => "a status",
            Response::Flow(_) | Response::End { .. } => "flows",
            Response::Done => "that it is done",
            Response::Completions { .. } | Response::Leased(_) => "a lease",
            Response::Stopped(_) => "that it stops",
            Response::Stays { .. } => "what it has not put back",
            Response::Refused { .. } => "a refusal",
        };
        self.bad(format!("answered {name}, which was not asked for"))
    }

    fn bad(&self, why: String) -> HostError {
        HostError::Answer { socket: self.socket.clone(), why }
    }

    /// The agent has ended, or was killed, since the client connected.
    fn gone(&self, why: impl ToString) -> HostError {
        HostError::NotRunning { socket: self.socket.clone(), why: why.to_string() }
    }
}
