//! Transfers one after the other: the end that sends, and the end that receives.
//!
//! A transfer's time is from the opening of the connection to the last byte at the receiver, so each end notes its part
//! of it by its own clock: the sender may be off its core when the last byte arrives. The sender also notes when it
//! could first write, which is once it has its core again for the SYN-ACK. Each end is one thread with all sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::poll::PollFlags;

use crate::guest::recording::Recording;
use crate::guest::sink::READ_BYTES;
use crate::guest::socket::{self, wait};
use crate::host::cores::monotonic_ns;
use crate::proto::{Arrived, Sent, SocketSettings};

/// The data of transfers repeats after this many bytes, a prime, so that data in a wrong place shows.
const PERIOD: usize = 251;
/// Bytes of one write.
const PIECE_BYTES: usize = 64 * 1024;
/// The data of transfers, with room for a piece from any byte of a period on.
static PATTERN: [u8; PIECE_BYTES + PERIOD] = {
    let mut pattern = [0; PIECE_BYTES + PERIOD];
    let mut at = 0;
    while at < pattern.len() {
        pattern[at] = (at % PERIOD) as u8;
        at += 1;
    }
    pattern
};

/// The piece of a transfer's data that begins at `offset`.
fn pattern_at(offset: u64) -> &'static [u8] {
    let at = (offset % PERIOD as u64) as usize;
    &PATTERN[at..at + PIECE_BYTES]
}

/// Whether `bytes` are a transfer's data from `offset` on.
fn is_pattern(bytes: &[u8], offset: u64) -> bool {
    let mut at = offset;
    bytes.chunks(PIECE_BYTES).all(|piece| {
        let wanted = &pattern_at(at)[..piece.len()];
        at += piece.len() as u64;
        piece == wanted
    })
}

/// How often the thread checks whether the workload has ended.
const LOOK: Duration = Duration::from_millis(100);

/// What a VM sends.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The receivers, which are taken in turn.
    pub servers: Vec<SocketAddr>,
    /// Bytes on each connection.
    pub bytes: u64,
    /// Connections at a time; the next begin when all of them have arrived.
    pub concurrent: u32,
    /// From the end of the last one to the next.
    pub pause: Duration,
}

/// Listens at `at` in a thread; gives the address that it listens on.
pub fn serve(
    recording: &Arc<Recording>,
    at: SocketAddr,
    settings: SocketSettings,
) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = socket::listen(at, settings)?;
    listener.set_nonblocking(true).context("O_NONBLOCK")?;
    let address = listener.local_addr().context("no local address")?;
    let thread = recording.spawn("transfers", move |recording| receive(recording, &listener))?;
    Ok((address, thread))
}

/// A connection at the receiver.
struct Incoming {
    stream: TcpStream,
    peer: SocketAddr,
    bytes: u64,
    last_ns: u64,
    longest_stall_ns: u64,
    is_damaged: bool,
}

fn receive(recording: &Recording, listener: &TcpListener) -> anyhow::Result<()> {
    let mut active: Vec<Incoming> = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    while !recording.stopping() {
        let sockets = active.iter().map(|a| a.stream.as_fd()).chain([listener.as_fd()]);
        let ready = wait(sockets.map(|fd| (fd, PollFlags::POLLIN)), LOOK)?;
        for index in (0..active.len()).rev().filter(|index| !ready[*index].is_empty()) {
            if active[index].read(&mut buffer).with_context(|| format!("reading from {}", active[index].peer))? {
                // Closed here, which tells the sender that all has arrived.
                let Incoming { peer, bytes, last_ns, longest_stall_ns, is_damaged, .. } = active.swap_remove(index);
                let (from, port) = (peer.ip().to_string(), peer.port());
                recording.arrived(Arrived { from, port, bytes, end_ns: last_ns, longest_stall_ns, is_damaged });
            }
        }
        if ready.last().is_some_and(|events| !events.is_empty()) {
            while let Some((stream, peer)) = accepted(listener)? {
                stream.set_nonblocking(true).context("O_NONBLOCK")?;
                let last_ns = monotonic_ns();
                active.push(Incoming { stream, peer, bytes: 0, last_ns, longest_stall_ns: 0, is_damaged: false });
            }
        }
    }
    for incoming in active {
        let _ = socket::reset_on_close(&incoming.stream);
    }
    Ok(())
}

fn accepted(listener: &TcpListener) -> anyhow::Result<Option<(TcpStream, SocketAddr)>> {
    loop {
        match listener.accept() {
            Ok(accepted) => return Ok(Some(accepted)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error).context("cannot accept"),
        }
    }
}

impl Incoming {
    /// Reads what has come; returns whether the transfer is over.
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<bool> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Ok(true),
                Ok(n) => {
                    self.is_damaged |= !is_pattern(&buffer[..n], self.bytes);
                    self.bytes += n as u64;
                    let now_ns = monotonic_ns();
                    self.longest_stall_ns = self.longest_stall_ns.max(now_ns.saturating_sub(self.last_ns));
                    self.last_ns = now_ns;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A sender that is stopped hangs up.
                Err(error) if socket::is_hangup(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Sends as planned, in a thread, until the workload ends.
pub fn start(recording: &Arc<Recording>, plan: Plan, settings: SocketSettings) -> anyhow::Result<JoinHandle<()>> {
    recording.spawn("transfers", move |recording| send(recording, &plan, settings))
}

/// A connection at the sender.
struct Outgoing {
    stream: TcpStream,
    port: u16,
    start_ns: u64,
    sent: u64,
    left: u64,
}

fn send(recording: &Recording, plan: &Plan, settings: SocketSettings) -> anyhow::Result<()> {
    let mut servers = plan.servers.iter().cycle();
    while !recording.stopping() {
        let mut active = Vec::new();
        for to in servers.by_ref().take(plan.concurrent as usize) {
            let start_ns = monotonic_ns();
            let stream = socket::begin_connect(*to, settings)?;
            let port = stream.local_addr().context("no local address")?.port();
            recording.sent(Sent { to: to.ip().to_string(), port, bytes: plan.bytes, start_ns, connected_ns: None });
            active.push(Outgoing { stream, port, start_ns, sent: 0, left: plan.bytes });
        }
        while !active.is_empty() && !recording.stopping() {
            let sockets = active.iter().map(|a| (a.stream.as_fd(), a.interest()));
            let ready = wait(sockets, LOOK)?;
            for index in (0..active.len()).rev().filter(|index| !ready[*index].is_empty()) {
                let Outgoing { port, start_ns, sent, .. } = active[index];
                if sent == 0 {
                    recording.connected(port, start_ns, monotonic_ns());
                }
                if active[index].go_on()? {
                    active.swap_remove(index);
                    recording.transfer_done();
                }
            }
        }
        for outgoing in active {
            // What is unsent would go on filling the link after the workload's end.
            let _ = socket::reset_on_close(&outgoing.stream);
        }
        if !plan.pause.is_zero() && recording.sleep_until(Instant::now() + plan.pause) {
            break;
        }
    }
    Ok(())
}

impl Outgoing {
    fn interest(&self) -> PollFlags {
        if self.left > 0 { PollFlags::POLLOUT } else { PollFlags::POLLIN }
    }

    /// Writes what fits; returns whether the receiver has closed after all of it.
    fn go_on(&mut self) -> anyhow::Result<bool> {
        while self.left > 0 {
            let piece = usize::try_from(self.left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            match self.stream.write(&pattern_at(self.sent)[..piece]) {
                Ok(n) => {
                    self.sent += n as u64;
                    self.left -= n as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("sending"),
            }
            if self.left == 0 {
                self.stream.shutdown(Shutdown::Write).context("ending a transfer")?;
            }
        }
        match self.stream.read(&mut [0; 16]) {
            Ok(0) => Ok(true),
            Ok(_) => anyhow::bail!("the receiver has nothing to say, but said something"),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error).context("waiting for the end of a transfer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_byte_that_is_missing_shows() {
        let sent: Vec<u8> = pattern_at(0).iter().chain(pattern_at(PIECE_BYTES as u64)).copied().collect();
        assert!(is_pattern(&sent, 0) && is_pattern(&sent[1000..], 1000) && is_pattern(&sent[70_000..], 70_000));
        let short: Vec<u8> = sent[..5000].iter().chain(&sent[5001..]).copied().collect();
        assert!(!is_pattern(&short, 0));
    }

    #[test]
    fn every_transfer_that_ends_has_a_start_and_an_arrival() {
        const BYTES: u64 = 300_000;
        let (near, far) = (Arc::new(Recording::new()), Arc::new(Recording::new()));
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (address, server) = serve(&far, any, SocketSettings::default()).expect("listens");
        near.mark();
        far.mark();
        let plan = Plan { servers: vec![address], bytes: BYTES, concurrent: 3, pause: Duration::from_millis(1) };
        let sender = start(&near, plan, SocketSettings::default()).expect("starts");
        while near.transfers_done() < 9 {
            assert_eq!(near.first_error(), None);
            std::thread::sleep(Duration::from_millis(1));
        }
        let (sent, arrived) = (near.end().expect("marked").sent, far.end().expect("marked").arrived);
        near.stop();
        far.stop();
        sender.join().expect("ends");
        server.join().expect("ends");
        assert!(arrived.len() >= 9, "{arrived:?}");
        for end in &arrived[..9] {
            let start = sent.iter().find(|sent| sent.port == end.port).expect("it was sent");
            assert_eq!((start.bytes, end.bytes), (BYTES, BYTES));
            let connected_ns = start.connected_ns.expect("it had a connection");
            assert!(start.start_ns < connected_ns && connected_ns < end.end_ns, "one clock here");
            assert!(!end.is_damaged);
        }
    }
}
