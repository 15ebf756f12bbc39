//! The load generator: HTTP requests at given times, each on a connection of its own, whether earlier ones are done or
//! not.
//!
//! A request is a PUT, so that the end that opens the connection is the one that sends, as in the simulator. One thread
//! has all sockets: a thread for each request would take more of a slow virtual CPU than the request.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::poll::PollFlags;

use crate::guest::block_server::ZEROS;
use crate::guest::recording::Recording;
use crate::guest::socket::{self, wait as ready};
use crate::proto::SocketSettings;

/// How often it is looked whether the workload ends.
const LOOK: Duration = Duration::from_millis(100);
/// Longest answer that is read: nginx's to a PUT has some 200 bytes.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// A request to be.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// After the start.
    pub at: Duration,
    /// The server.
    pub to: SocketAddr,
    /// Bytes of the body.
    pub bytes: u64,
}

/// A request under way.
#[derive(Debug)]
struct Request {
    stream: TcpStream,
    /// Its number in the recording.
    number: usize,
    head: Vec<u8>,
    head_left: usize,
    body_left: u64,
    answer: Vec<u8>,
}

/// What a request can go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    More,
    Done,
}

/// Sends each request at its time in a thread; `plan` is in the order of times.
pub fn start(
    recording: &Arc<Recording>,
    start: Instant,
    plan: Vec<Planned>,
    settings: SocketSettings,
) -> anyhow::Result<JoinHandle<()>> {
    recording.spawn("requests", move |recording| run(recording, start, &plan, settings))
}

fn run(recording: &Recording, start: Instant, plan: &[Planned], settings: SocketSettings) -> anyhow::Result<()> {
    let mut coming = plan.iter().peekable();
    let mut active: Vec<Request> = Vec::new();
    while !recording.stopping() {
        let mut wait = LOOK;
        while let Some(planned) = coming.peek() {
            let left = (start + planned.at).saturating_duration_since(Instant::now());
            if !left.is_zero() {
                wait = wait.min(left);
                break;
            }
            match Request::begin(recording, start, planned, settings) {
                Ok(request) => active.push(request),
                Err(error) => recording.error(format!("request to {}: {error:#}", planned.to)),
            }
            coming.next();
        }
        for (index, events) in
            ready(active.iter().map(|r| (r.stream.as_fd(), r.interest())), wait)?.into_iter().enumerate().rev()
        {
            if events.is_empty() {
                continue;
            }
            match active[index].go_on() {
                Ok(Next::More) => {}
                Ok(Next::Done) => recording.request_done(active.swap_remove(index).number, Instant::now()),
                Err(error) => {
                    // It stays unfinished in the record.
                    active.swap_remove(index);
                    recording.error(format!("request: {error:#}"));
                }
            }
        }
    }
    for request in active {
        // What is unsent would go on filling the link after the workload's end.
        let _ = socket::reset_on_close(&request.stream);
    }
    Ok(())
}

impl Request {
    fn begin(
        recording: &Recording,
        start: Instant,
        planned: &Planned,
        settings: SocketSettings,
    ) -> anyhow::Result<Self> {
        let Planned { at, to, bytes } = *planned;
        // The plan's time, not the present: a generator that is late must not make flows look faster.
        let number = recording.request(to, bytes, start + at);
        let stream = socket::begin_connect(to, settings)?;
        let head = format!(
            "PUT /upload HTTP/1.1\r\nHost: {}\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n",
            to.ip()
        );
        let head = head.into_bytes();
        Ok(Self { stream, number, head_left: head.len(), head, body_left: bytes, answer: Vec::new() })
    }

    fn sent(&self) -> bool {
        self.head_left == 0 && self.body_left == 0
    }

    fn interest(&self) -> PollFlags {
        if self.sent() { PollFlags::POLLIN } else { PollFlags::POLLIN | PollFlags::POLLOUT }
    }

    /// Writes and reads what it can without waiting.
    fn go_on(&mut self) -> anyhow::Result<Next> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error.into());
        }
        while !self.sent() {
            let head = &self.head[self.head.len() - self.head_left..];
            // Head and body in one write, so that small flows fill their segments.
            let room = usize::try_from(self.body_left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
            let pieces = [std::io::IoSlice::new(head), std::io::IoSlice::new(&ZEROS[..room])];
            match self.stream.write_vectored(&pieces) {
                Ok(written) => {
                    let of_head = written.min(self.head_left);
                    self.head_left -= of_head;
                    self.body_left -= (written - of_head) as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("sending"),
            }
        }
        self.read_answer()
    }

    fn read_answer(&mut self) -> anyhow::Result<Next> {
        let mut buffer = [0; 2048];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => anyhow::bail!("the server has closed the connection without an answer"),
                Ok(n) => self.answer.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Next::More),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("reading the answer"),
            }
            anyhow::ensure!(self.answer.len() <= MAX_ANSWER_BYTES, "the answer is too long");
            if self.answer.windows(4).any(|end| end == b"\r\n\r\n") {
                let first = self.answer.split(|&byte| byte == b'\r').next().unwrap_or_default();
                let first = String::from_utf8_lossy(first);
                anyhow::ensure!(self.sent() && is_success(&first), "the server answers: {first}");
                return Ok(Next::Done);
            }
        }
    }
}

/// Whether a status line is one of success.
fn is_success(line: &str) -> bool {
    line.split(' ').nth(1).is_some_and(|code| code.len() == 3 && code.starts_with('2'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_code_of_success_is_one() {
        assert!(is_success("HTTP/1.1 201 Created") && is_success("HTTP/1.1 204 No Content"));
        assert!(!is_success("HTTP/1.1 500 Internal Server Error") && !is_success("HTTP/1.1") && !is_success(""));
    }
}
