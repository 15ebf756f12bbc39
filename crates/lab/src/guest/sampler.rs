//! TCP_INFO of the workload's sockets over time.

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::recording::{Recording, micros};
use crate::proto::{SocketSamples, TcpInfoSample};

/// Most samples of one socket.
const MAX_SAMPLES_PER_SOCKET: usize = 20_000;
/// Most samples in all: they travel as one line of about 120 bytes each.
const MAX_SAMPLES: usize = 200_000;
/// `tcpi_state` of a socket that is closed for good.
const TCP_CLOSE: u8 = 7;

/// A running sampler.
#[derive(Debug)]
pub struct Sampler {
    samples: Arc<Mutex<Vec<SocketSamples>>>,
    end: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Sampler {
    /// Samples all sockets of the workload, those that come later included, every `period` from `mark` on.
    pub fn start(recording: &Arc<Recording>, mark: Instant, period: Duration) -> anyhow::Result<Self> {
        let samples = Arc::new(Mutex::new(Vec::new()));
        let end = Arc::new((Mutex::new(false), Condvar::new()));
        let (shared, ended) = (Arc::clone(&samples), Arc::clone(&end));
        let thread = recording.spawn("sampler", move |recording| {
            let mut due = mark;
            loop {
                let asked = ended.0.lock().unwrap_or_else(PoisonError::into_inner);
                let left = due.saturating_duration_since(Instant::now());
                let (asked, _) =
                    ended.1.wait_timeout_while(asked, left, |asked| !*asked).unwrap_or_else(PoisonError::into_inner);
                if *asked {
                    return Ok(());
                }
                drop(asked);
                if let Some(limit) =
                    sample_all(recording, mark, &mut shared.lock().unwrap_or_else(PoisonError::into_inner))
                {
                    recording.error(limit);
                    return Ok(());
                }
                // Times that passed while the VM was off its core are not made up for.
                due = next_due(due, Instant::now(), period);
            }
        })?;
        Ok(Self { samples, end, thread })
    }

    /// Ends the sampler and returns its samples.
    pub fn stop(self) -> Vec<SocketSamples> {
        *self.end.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.1.notify_all();
        // Panics are caught and noted inside.
        let _ = self.thread.join();
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.drain(..).filter(|socket| !socket.samples.is_empty()).collect()
    }
}

/// The first time after `now` on the grid of `due`.
pub fn next_due(due: Instant, now: Instant, period: Duration) -> Instant {
    let missed = now.saturating_duration_since(due).as_nanos() / period.as_nanos().max(1);
    due + period.saturating_mul(u32::try_from(missed + 1).unwrap_or(u32::MAX))
}

/// Takes one sample of each socket. Returns a sentence when there is no room for more.
fn sample_all(recording: &Recording, mark: Instant, sockets: &mut Vec<SocketSamples>) -> Option<String> {
    let connections = recording.connections();
    // Sockets are only ever added, so places stay.
    for connection in &connections[sockets.len().min(connections.len())..] {
        sockets.push(SocketSamples { peer: connection.peer.to_string(), samples: Vec::new() });
    }
    let taken: usize = sockets.iter().map(|socket| socket.samples.len()).sum();
    if taken + connections.len() > MAX_SAMPLES {
        return Some(format!("sampler: ended early, {MAX_SAMPLES} samples taken"));
    }
    for (connection, socket) in connections.iter().zip(sockets.iter_mut()) {
        if socket.samples.len() >= MAX_SAMPLES_PER_SOCKET {
            return Some(format!("sampler: ended early, {MAX_SAMPLES_PER_SOCKET} samples of {} taken", socket.peer));
        }
        if let Some(sample) = sample(&connection.stream, mark) {
            socket.samples.push(sample);
        }
    }
    None
}

/// None if the socket is closed.
fn sample(stream: &TcpStream, mark: Instant) -> Option<TcpInfoSample> {
    // SAFETY: tcp_info is plain integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    let t_us = micros(mark.elapsed());
    // SAFETY: the kernel writes at most `length` bytes to `info`; older kernels, with a shorter struct, leave the rest
    // zero.
    let failed = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
    };
    (failed == 0 && info.tcpi_state != TCP_CLOSE).then_some(TcpInfoSample {
        t_us,
        srtt_us: info.tcpi_rtt,
        rttvar_us: info.tcpi_rttvar,
        rto_us: info.tcpi_rto,
        snd_cwnd: info.tcpi_snd_cwnd,
        backoff: info.tcpi_backoff,
        total_retrans: info.tcpi_total_retrans,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_times_are_passed_over_on_the_grid() {
        let due = Instant::now();
        let ms = Duration::from_millis;
        for (late, next) in [(0, 10), (3, 10), (10, 20), (57, 60)] {
            assert_eq!(next_due(due, due + ms(late), ms(10)), due + ms(next));
        }
    }

    #[test]
    fn a_full_record_ends_the_sampler_with_a_sentence() {
        let recording = Recording::new();
        let listener =
            super::super::socket::listen("127.0.0.1:0".parse().expect("address"), Default::default()).expect("listens");
        let address = listener.local_addr().expect("bound");
        let stream = super::super::socket::connect(address, Default::default()).expect("connects");
        recording.add_connection(stream, address, false).expect("taken");
        let full = vec![TcpInfoSample::default(); MAX_SAMPLES_PER_SOCKET];
        let mut sockets = vec![SocketSamples { peer: "p".into(), samples: full }];
        let limit = sample_all(&recording, Instant::now(), &mut sockets).expect("full");
        assert!(limit.contains("20000 samples of p"), "{limit}");
    }
}
