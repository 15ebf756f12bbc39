//! The load generator: HTTP requests at given times, each on a connection of its own, whether earlier ones are done or
//! not.
//!
//! With a PUT the end that opens the connection sends the data, with a GET the other does. One thread has all sockets:
//! a thread for each request would take more of a slow virtual CPU than the request.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::poll::PollFlags;

use crate::guest::block_server::ZEROS;
use crate::guest::http;
use crate::guest::recording::Recording;
use crate::guest::socket::{self, wait as ready};
use crate::proto::{ANY_OBJECT, OBJECT_PATH, SocketSettings};

/// How often the thread checks whether the workload has ended.
const LOOK: Duration = Duration::from_millis(100);
/// Longest head of an answer that is read: nginx's have some 200 bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Room for what is read at once.
const READ_BYTES: usize = 16 * 1024;

/// How bytes are asked for, or sent.
#[derive(Debug, Clone, Copy)]
pub struct Asks {
    /// Size of a GET; with 0 the bytes are sent, by PUT.
    pub request_bytes: usize,
    /// Its sockets.
    pub settings: SocketSettings,
}

/// A planned request.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// After the start.
    pub at: Duration,
    /// The server.
    pub to: SocketAddr,
    /// Bytes of the body, sent or asked for.
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
    answer: Answer,
}

/// What comes back.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The head so far, and how many bytes follow it.
    Head(Vec<u8>, u64),
    /// How many bytes are still to come.
    Body(u64),
}

/// Whether a request has more to do.
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
    asks: Asks,
) -> anyhow::Result<JoinHandle<()>> {
    recording.spawn("requests", move |recording| run(recording, start, &plan, asks))
}

fn run(recording: &Recording, start: Instant, plan: &[Planned], asks: Asks) -> anyhow::Result<()> {
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
            match Request::begin(recording, start, planned, asks) {
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
    fn begin(recording: &Recording, start: Instant, planned: &Planned, asks: Asks) -> anyhow::Result<Self> {
        let Planned { at, to, bytes } = *planned;
        // The plan's time, not the present: a generator that is late must not make flows look faster.
        let number = recording.request(to, bytes, start + at);
        let stream = socket::begin_connect(to, asks.settings)?;
        let (head, body_left, comes) = match asks.request_bytes {
            0 => (put(to, bytes), bytes, 0),
            request_bytes => (get(to, bytes, request_bytes)?, 0, bytes),
        };
        let head = head.into_bytes();
        Ok(Self { stream, number, head_left: head.len(), head, body_left, answer: Answer::Head(Vec::new(), comes) })
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
        let mut buffer = [0; READ_BYTES];
        loop {
            let read = match self.stream.read(&mut buffer) {
                Ok(0) => anyhow::bail!("the server has closed the connection before its answer was over"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Next::More),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("reading the answer"),
            };
            if self.answer.take(&buffer[..read])? {
                anyhow::ensure!(self.sent(), "the server has answered before it had all");
                return Ok(Next::Done);
            }
        }
    }
}

impl Answer {
    /// Takes what was read; returns whether the answer is complete.
    fn take(&mut self, read: &[u8]) -> anyhow::Result<bool> {
        let body = match self {
            Self::Body(_) => read.len(),
            Self::Head(head, comes) => {
                head.extend_from_slice(read);
                let Some(end) = head.windows(4).position(|end| end == b"\r\n\r\n") else {
                    anyhow::ensure!(head.len() <= MAX_HEAD_BYTES, "the head of the answer is too long");
                    return Ok(false);
                };
                let first = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
                let first = String::from_utf8_lossy(first);
                anyhow::ensure!(is_success(&first), "the server answers: {first}");
                let (body, comes) = (head.len() - end - 4, *comes);
                // The body of an answer to a PUT does not matter.
                let body = if comes == 0 { 0 } else { body };
                *self = Self::Body(comes);
                body
            }
        };
        let Self::Body(left) = self else { return Ok(false) };
        *left = left.checked_sub(body as u64).context("the server sends more than was asked for")?;
        Ok(*left == 0)
    }
}

fn put(to: SocketAddr, bytes: u64) -> String {
    format!("PUT /upload HTTP/1.1\r\nHost: {}\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n", to.ip())
}

/// A GET of `request_bytes` bytes.
fn get(to: SocketAddr, bytes: u64, request_bytes: usize) -> anyhow::Result<String> {
    let last = bytes.saturating_sub(1);
    let rest = format!(" HTTP/1.1\r\nHost: {}\r\nRange: bytes=0-{last}\r\nConnection: close\r\n\r\n", to.ip());
    let begin = format!("GET {OBJECT_PATH}{ANY_OBJECT}?");
    let filler = http::filler(begin.len() + rest.len(), request_bytes)?;
    Ok(begin + &filler + &rest)
}

/// Whether a status line reports success.
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
    #[test]
    fn a_get_is_as_long_as_was_asked_for() {
        let to = "192.168.100.200:65535".parse().unwrap();
        for bytes in [128, 200, 4096] {
            assert_eq!(get(to, 4_294_967_295, bytes).unwrap().len(), bytes);
        }
        assert!(get(to, 1, 20).is_err());
    }

    #[test]
    fn an_answer_is_over_when_all_of_it_has_come_in_whatever_pieces() {
        let whole = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 9\r\n\r\nnine byte";
        for piece in 1..=whole.len() {
            let mut answer = Answer::Head(Vec::new(), 9);
            let over: Vec<bool> = whole.chunks(piece).map(|read| answer.take(read).unwrap()).collect();
            assert!(over.iter().rev().skip(1).all(|over| !over) && over.last() == Some(&true), "{piece}: {over:?}");
        }
        assert!(Answer::Head(Vec::new(), 8).take(whole).is_err(), "a byte too many");
        assert!(Answer::Head(Vec::new(), 9).take(b"HTTP/1.1 404 Not Found\r\n\r\n").is_err());
        assert!(Answer::Head(Vec::new(), 0).take(b"HTTP/1.1 201 Created\r\n\r\n").unwrap());
    }
}
