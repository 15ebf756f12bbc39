//! The block strobe (PVTCP §III): ask all servers for a block, go on when all blocks are in.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::guest::recording::{Connection, Recording};
use crate::guest::sink::READ_BYTES;
use crate::guest::socket;
use crate::proto::SocketSettings;

/// How often a strobe that has done its requests looks for a new mark.
const MARK_PAUSE: Duration = Duration::from_millis(10);

/// How far a strobe has come.
#[derive(Debug, Default)]
pub struct Progress {
    requests: AtomicU32,
    ended: AtomicBool,
}

impl Progress {
    /// Requests begun and completed since the latest mark, or since the start while there is none.
    pub fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Whether it has done all its requests or failed.
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// What to ask for.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Bytes that each server sends.
    pub bytes_per_server: u64,
    /// Number of requests since the mark; 0: no limit.
    pub limit: u32,
}

/// Connects to all servers, then asks in a thread.
pub fn start(
    recording: &Arc<Recording>,
    servers: &[SocketAddr],
    request: Request,
    settings: SocketSettings,
) -> anyhow::Result<(Arc<Progress>, JoinHandle<()>)> {
    anyhow::ensure!(!servers.is_empty(), "a strobe needs a server");
    anyhow::ensure!(request.bytes_per_server > 0, "a block must have bytes");
    let mut connections = Vec::with_capacity(servers.len());
    for &server in servers {
        let stream = socket::connect(server, settings)?;
        stream.set_nodelay(true).context("TCP_NODELAY")?;
        connections.push(recording.add_connection(stream, server, true)?);
    }
    let progress = Arc::new(Progress::default());
    let shared = Arc::clone(&progress);
    let thread = recording.spawn("strobe", move |recording| {
        let result = run(recording, &connections, request, &shared);
        shared.ended.store(true, Ordering::Relaxed);
        result
    })?;
    Ok((progress, thread))
}

fn run(
    recording: &Recording,
    connections: &[Arc<Connection>],
    request: Request,
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut marks = recording.marks();
    while !recording.stopping() {
        if recording.marks() != marks {
            marks = recording.marks();
            progress.requests.store(0, Ordering::Relaxed);
            progress.ended.store(false, Ordering::Relaxed);
        }
        if request.limit > 0 && progress.requests() >= request.limit {
            // All are done, but a mark resets the count and wants as many again: the connections stay.
            progress.ended.store(true, Ordering::Relaxed);
            recording.sleep_until(Instant::now() + MARK_PAUSE);
            continue;
        }
        let start = Instant::now();
        for connection in connections {
            let mut stream = &connection.stream;
            stream
                .write_all(&request.bytes_per_server.to_be_bytes())
                .with_context(|| format!("sending a request to {}", connection.peer))?;
        }
        read_blocks(connections, request.bytes_per_server, &mut buffer)?;
        recording.block(start, Instant::now());
        // A request during which a mark came counts neither before nor after it.
        if recording.marks() == marks {
            progress.requests.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Reads `bytes` from each connection, in the order in which they come.
fn read_blocks(connections: &[Arc<Connection>], bytes: u64, buffer: &mut [u8]) -> anyhow::Result<()> {
    let mut open: Vec<(&Connection, u64)> = connections.iter().map(|connection| (&**connection, bytes)).collect();
    while !open.is_empty() {
        let mut polled: Vec<PollFd<'_>> =
            open.iter().map(|(c, _)| PollFd::new(c.stream.as_fd(), PollFlags::POLLIN)).collect();
        match poll(&mut polled, PollTimeout::NONE) {
            // The workload's end shuts the sockets down, which makes them readable.
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
        let ready: Vec<bool> = polled.iter().map(|p| p.revents().is_some_and(|events| !events.is_empty())).collect();
        for ((connection, left), _) in open.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            let wanted = usize::try_from(*left).map_or(buffer.len(), |left| left.min(buffer.len()));
            let mut stream = &connection.stream;
            // Readable, so this does not block; one read each, so that no server's block waits for another's.
            let n = match stream.read(&mut buffer[..wanted]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                result => result.with_context(|| format!("reading a block from {}", connection.peer))?,
            };
            anyhow::ensure!(n > 0, "{} has closed the connection in the middle of a block", connection.peer);
            connection.count(n);
            *left -= n as u64;
        }
        open.retain(|&(_, left)| left > 0);
    }
    Ok(())
}
