//! Requests to memcached in a closed loop: on each connection one after the other, GETs and SETs in a fixed proportion.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::poll::PollFlags;

use crate::guest::recording::Recording;
use crate::guest::socket::{self, wait};
use crate::proto::SocketSettings;

/// How often the thread checks whether the workload has ended.
const LOOK: Duration = Duration::from_millis(100);
/// Values that are asked for. All are set before the first is read.
const KEYS: u32 = 64;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Plan {
    /// memcached's addresses; connections take them in turn.
    pub servers: Vec<SocketAddr>,
    /// Connections, each with one request at a time.
    pub outstanding: u32,
    /// GETs of a thousand requests; the others are SETs.
    pub gets_permille: u32,
    /// Size of a value.
    pub value_bytes: usize,
}

/// Opens the connections, sets all values, and sends requests in a thread until the workload ends.
pub fn start(recording: &Arc<Recording>, plan: Plan, settings: SocketSettings) -> anyhow::Result<JoinHandle<()>> {
    for server in &plan.servers {
        let mut filler = Client::connect(*server, settings)?;
        for key in 0..KEYS {
            filler.stream.write_all(&set(key, plan.value_bytes)).context("setting a value")?;
            filler.expect(b"STORED\r\n".len());
            while !filler.read_some()? {}
        }
    }
    let clients = plan.servers.iter().cycle().take(plan.outstanding as usize);
    let clients = clients.map(|server| Client::connect(*server, settings)).collect::<anyhow::Result<Vec<_>>>()?;
    for client in &clients {
        client.stream.set_nonblocking(true).context("O_NONBLOCK")?;
    }
    recording.spawn("memcached", move |recording| run(recording, &plan, clients))
}

/// A connection.
struct Client {
    stream: TcpStream,
    server: SocketAddr,
    /// The request's number in the recording.
    number: usize,
    unsent: Vec<u8>,
    /// Bytes of the answer that are still to come.
    missing: usize,
    first_bytes: Vec<u8>,
}

fn run(recording: &Recording, plan: &Plan, mut clients: Vec<Client>) -> anyhow::Result<()> {
    let mut mix = Mix { gets_permille: plan.gets_permille, sum: 0, key: 0 };
    for client in &mut clients {
        client.ask(recording, plan, &mut mix)?;
    }
    while !recording.stopping() {
        let ready = wait(clients.iter().map(|c| (c.stream.as_fd(), c.interest())), LOOK)?;
        for (client, _) in clients.iter_mut().zip(ready).filter(|(_, events)| !events.is_empty()) {
            client.write_some()?;
            if client.unsent.is_empty() && client.read_some()? {
                recording.request_done(client.number, Instant::now());
                client.ask(recording, plan, &mut mix)?;
            }
        }
    }
    Ok(())
}

/// Which request comes next: GETs and SETs as evenly mixed as can be.
struct Mix {
    gets_permille: u32,
    sum: u32,
    key: u32,
}

impl Mix {
    /// The next key, and whether it is read.
    fn next(&mut self) -> (u32, bool) {
        self.key = (self.key + 1) % KEYS;
        self.sum += self.gets_permille;
        let gets = self.sum >= 1000;
        self.sum -= if gets { 1000 } else { 0 };
        (self.key, gets)
    }
}

fn name(key: u32) -> String {
    format!("key-{key:02}")
}

fn set(key: u32, bytes: usize) -> Vec<u8> {
    let mut request = format!("set {} 0 0 {bytes}\r\n", name(key)).into_bytes();
    request.resize(request.len() + bytes, b'v');
    request.extend(b"\r\n");
    request
}

/// Bytes of memcached's answer to a GET of a value that is there.
fn answer_bytes(key: u32, bytes: usize) -> usize {
    format!("VALUE {} 0 {bytes}\r\n", name(key)).len() + bytes + b"\r\nEND\r\n".len()
}

impl Client {
    fn connect(server: SocketAddr, settings: SocketSettings) -> anyhow::Result<Self> {
        let stream = socket::connect(server, settings)?;
        stream.set_nodelay(true).context("TCP_NODELAY")?;
        Ok(Self { stream, server, number: 0, unsent: Vec::new(), missing: 0, first_bytes: Vec::new() })
    }

    fn interest(&self) -> PollFlags {
        if self.unsent.is_empty() { PollFlags::POLLIN } else { PollFlags::POLLOUT }
    }

    fn expect(&mut self, bytes: usize) {
        self.missing = bytes;
        self.first_bytes.clear();
    }

    /// Begins the next request.
    fn ask(&mut self, recording: &Recording, plan: &Plan, mix: &mut Mix) -> anyhow::Result<()> {
        let (key, gets) = mix.next();
        if gets {
            self.unsent = format!("get {}\r\n", name(key)).into_bytes();
            self.expect(answer_bytes(key, plan.value_bytes));
        } else {
            self.unsent = set(key, plan.value_bytes);
            self.expect(b"STORED\r\n".len());
        }
        self.number = recording.request(self.server, plan.value_bytes as u64, Instant::now());
        self.write_some()
    }

    fn write_some(&mut self) -> anyhow::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("asking memcached"),
            }
        }
        Ok(())
    }

    /// Reads what has come of the answer; returns whether it is complete.
    fn read_some(&mut self) -> anyhow::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        while self.missing > 0 {
            let wanted = self.missing.min(buffer.len());
            match self.stream.read(&mut buffer[..wanted]) {
                Ok(0) => anyhow::bail!("memcached at {} has closed the connection", self.server),
                Ok(n) => {
                    self.missing -= n;
                    self.check(&buffer[..n])?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("reading memcached's answer"),
            }
        }
        Ok(true)
    }

    /// Fails if the answer begins neither as one with a value nor as one to a SET.
    fn check(&mut self, came: &[u8]) -> anyhow::Result<()> {
        let room = b"VALUE".len().saturating_sub(self.first_bytes.len());
        self.first_bytes.extend(came.iter().take(room));
        let fits = |word: &[u8]| word.starts_with(&self.first_bytes) || self.first_bytes.starts_with(word);
        let first = String::from_utf8_lossy(&self.first_bytes);
        anyhow::ensure!(fits(b"VALUE") || fits(b"STORE"), "memcached at {} answers {first:?}", self.server);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gets_and_sets_are_mixed_as_asked() {
        for permille in [0, 1, 500, 900, 1000] {
            let mut mix = Mix { gets_permille: permille, sum: 0, key: 0 };
            let gets = (0..1000).filter(|_| mix.next().1).count();
            assert_eq!(gets, permille as usize);
        }
    }

    #[test]
    fn requests_and_answers_are_memcacheds() {
        assert_eq!(set(7, 3), b"set key-07 0 0 3\r\nvvv\r\n");
        assert_eq!(answer_bytes(7, 3), b"VALUE key-07 0 3\r\nvvv\r\nEND\r\n".len());
    }
}
