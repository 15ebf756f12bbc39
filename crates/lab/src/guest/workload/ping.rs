//! ICMP echo requests at fixed times.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, SockaddrStorage, connect, recv, send};

use crate::guest::recording::Recording;
use crate::guest::sampler::next_due;

/// A reply that takes longer is lost.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// Longest time in poll, so that the workload's end is seen.
const LOOK_UP: Duration = Duration::from_millis(100);
/// Time between requests of [`is_answered`].
const RETRY: Duration = Duration::from_millis(500);
/// Bytes of a request: header and the 56 bytes that ping(8) sends.
const REQUEST_BYTES: usize = 64;

const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// An ICMP socket: raw, or the unprivileged kind, whose identifier and IP header the kernel keeps to itself.
#[derive(Debug)]
struct EchoSocket {
    fd: OwnedFd,
    identifier: Option<u16>,
}

impl EchoSocket {
    fn open(to: IpAddr) -> anyhow::Result<Self> {
        anyhow::ensure!(to.is_ipv4(), "ping wants an IPv4 address, not {to}");
        let open = |kind| {
            // SAFETY: no pointers. (nix has no name for ICMP over IPv4.)
            let fd = unsafe { libc::socket(libc::AF_INET, kind | libc::SOCK_CLOEXEC, libc::IPPROTO_ICMP) };
            // SAFETY: just opened, and nobody else knows it.
            Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
        };
        let socket = match open(libc::SOCK_RAW) {
            // Another ping of this VM must not take our replies for its own.
            Ok(fd) => Self { identifier: Some(identifier(&fd)), fd },
            Err(_) => Self { fd: open(libc::SOCK_DGRAM).context("cannot open an ICMP socket")?, identifier: None },
        };
        // Only this peer's packets arrive then.
        connect(socket.fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to, 0)))
            .with_context(|| format!("cannot ping {to}"))?;
        Ok(socket)
    }

    /// Sends a request. One that a full queue or the network refuses is lost, and no error.
    fn send(&self, sequence: u16) -> anyhow::Result<()> {
        let request = request(self.identifier.unwrap_or(0), sequence);
        match send(self.fd.as_raw_fd(), &request, MsgFlags::MSG_NOSIGNAL) {
            Ok(_) | Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EHOSTUNREACH | Errno::ECONNREFUSED) => Ok(()),
            Err(error) => Err(error).context("cannot send an echo request"),
        }
    }

    /// The sequence number of the next reply that has come.
    fn reply(&self) -> Option<u16> {
        let mut buffer = [0; 512];
        loop {
            match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(n) => {
                    let packet = &buffer[..n];
                    let message = if self.identifier.is_some() { after_ip_header(packet) } else { Some(packet) };
                    if let Some(sequence) = message.and_then(|message| parse_reply(message, self.identifier)) {
                        return Some(sequence);
                    }
                }
                Err(Errno::EAGAIN) => return None,
                // An ICMP error about a request: that request will be counted as lost.
                Err(_) => {}
            }
        }
    }
}

/// Starts sending.
pub fn start(recording: &Arc<Recording>, to: IpAddr, interval: Duration) -> anyhow::Result<JoinHandle<()>> {
    anyhow::ensure!(!interval.is_zero(), "the time between requests must not be zero");
    let socket = EchoSocket::open(to)?;
    recording.spawn("ping", move |recording| run(recording, &socket, interval).with_context(|| format!("to {to}")))
}

fn run(recording: &Recording, socket: &EchoSocket, interval: Duration) -> anyhow::Result<()> {
    let mut due = Instant::now();
    let mut sequence: u16 = 0;
    let mut waiting: VecDeque<(u16, Instant)> = VecDeque::new();
    while !recording.stopping() {
        let now = Instant::now();
        while let Some(&(_, sent)) = waiting.front().filter(|(_, sent)| now - *sent > LOST_AFTER) {
            recording.ping_lost(sent);
            waiting.pop_front();
        }
        if now >= due {
            sequence = sequence.wrapping_add(1);
            let sent = Instant::now();
            socket.send(sequence)?;
            waiting.push_back((sequence, sent));
            // Times that passed while this VM was off its core are not made up for.
            due = next_due(due, sent, interval);
        }
        let pause = due.saturating_duration_since(Instant::now()).min(LOOK_UP);
        match poll_in(&socket.fd, pause) {
            Ok(false) | Err(Errno::EINTR) => continue,
            Ok(true) => {}
            Err(error) => return Err(error).context("poll"),
        }
        while let Some(answered) = socket.reply() {
            let at = Instant::now();
            if let Some(place) = waiting.iter().position(|&(sequence, _)| sequence == answered) {
                if let Some((_, sent)) = waiting.remove(place) {
                    if at - sent > LOST_AFTER { recording.ping_lost(sent) } else { recording.ping(sent, at) }
                }
            }
        }
    }
    Ok(())
}

/// Whether an echo request is answered; one is sent every [`RETRY`] until then.
pub fn is_answered(to: IpAddr, patience: Duration) -> anyhow::Result<bool> {
    let socket = EchoSocket::open(to)?;
    let end = Instant::now() + patience;
    let mut sequence: u16 = 0;
    while Instant::now() < end {
        sequence = sequence.wrapping_add(1);
        socket.send(sequence).with_context(|| format!("to {to}"))?;
        let next = (Instant::now() + RETRY).min(end);
        while let Some(pause) = next.checked_duration_since(Instant::now()).filter(|pause| !pause.is_zero()) {
            match poll_in(&socket.fd, pause) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("poll"),
            }
            if socket.reply().is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Waits for something to read, with the resolution of the kernel's timers and not of milliseconds.
fn poll_in(fd: &OwnedFd, pause: Duration) -> nix::Result<bool> {
    let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    if pause.is_zero() {
        return poll(&mut polled, PollTimeout::ZERO).map(|n| n > 0);
    }
    nix::poll::ppoll(&mut polled, Some(pause.into()), None).map(|n| n > 0)
}

/// Differs between the sockets of this VM.
fn identifier(fd: &OwnedFd) -> u16 {
    let inode = nix::sys::stat::fstat(fd.as_raw_fd()).map_or(0, |stat| stat.st_ino);
    ((std::process::id() as u64) ^ inode.rotate_left(7)) as u16 | 1
}

fn request(identifier: u16, sequence: u16) -> [u8; REQUEST_BYTES] {
    let mut message = [0; REQUEST_BYTES];
    message[0] = ECHO_REQUEST;
    message[4..6].copy_from_slice(&identifier.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// RFC 1071.
fn checksum(message: &[u8]) -> u16 {
    let words = message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What follows an IPv4 header, whose length is in its first byte.
fn after_ip_header(packet: &[u8]) -> Option<&[u8]> {
    packet.get(usize::from(packet.first()? & 0xf) * 4..)
}

/// The sequence number, if it is an echo reply to us.
fn parse_reply(message: &[u8], identifier: Option<u16>) -> Option<u16> {
    let &[kind, _, _, _, i0, i1, s0, s1, ..] = message else {
        return None;
    };
    let ours = identifier.is_none_or(|identifier| identifier == u16::from_be_bytes([i0, i1]));
    (kind == ECHO_REPLY && ours).then(|| u16::from_be_bytes([s0, s1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sums_to_zero() {
        assert_eq!(checksum(&request(0x1234, 77)), 0);
        // RFC 1071 §3.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&[0xff]), 0x00ff);
    }

    #[test]
    fn only_replies_to_us_count() {
        let mut reply = request(5, 9);
        assert_eq!(parse_reply(&reply, Some(5)), None);
        reply[0] = ECHO_REPLY;
        assert_eq!(parse_reply(&reply, Some(5)), Some(9));
        assert_eq!(parse_reply(&reply, Some(6)), None);
        assert_eq!(parse_reply(&reply, None), Some(9));
        assert_eq!(parse_reply(&reply[..7], None), None);
        assert_eq!(after_ip_header(&[]), None);
        assert_eq!(after_ip_header(&[0x4f; 20]), None);
        assert_eq!(after_ip_header(&[0x45; 20]), Some(&[][..]));
    }

    #[test]
    fn loopback_answers() {
        let recording = Arc::new(Recording::new());
        recording.mark();
        let Ok(thread) = start(&recording, IpAddr::from([127, 0, 0, 1]), Duration::from_millis(5)) else {
            eprintln!("not allowed to ping here");
            return;
        };
        std::thread::sleep(Duration::from_millis(300));
        let recorded = recording.end().expect("marked");
        recording.stop();
        thread.join().expect("no panic");
        assert!(recorded.pings.len() > 10, "{recorded:?}");
        assert!(recorded.pings.iter().all(|&(at, rtt)| rtt < 1_000_000 && at <= recorded.measured_us));
        assert_eq!((recorded.pings_lost, recorded.errors), (0, vec![]));
    }
}
