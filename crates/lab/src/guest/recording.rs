//! What a workload records in this VM, and when it has to stop.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::proto::{Arrived, Recorded, RequestTime, Sent};

/// Most connections of one workload: each keeps its descriptor until the workload ends.
pub const MAX_CONNECTIONS: usize = 4096;
/// Most entries of one kind that are kept.
const MAX_RECORDS: usize = 1_000_000;
/// Most errors that are kept: what goes wrong once often goes wrong all the time.
const MAX_ERRORS: usize = 32;

/// A workload's socket. It stays open until the workload ends, so that it can be sampled and stopped.
#[derive(Debug)]
pub struct Connection {
    /// The other end.
    pub peer: SocketAddr,
    /// The socket; blocking.
    pub stream: TcpStream,
    /// Whether it receives the workload's data: what it reads is then part of the record.
    pub receives: bool,
    received: AtomicU64,
    received_at_mark: AtomicU64,
}

impl Connection {
    /// Counts bytes read.
    pub fn count(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Ends blocked reads and writes. What is unsent is thrown away: it would go on filling the link after the
    /// workload's end.
    fn hang_up(&self) {
        // Both fail only when the connection has ended by itself.
        let _ = super::socket::reset_on_close(&self.stream);
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// A request of the load generator.
#[derive(Debug, Clone, Copy)]
struct Request {
    to: SocketAddr,
    bytes: u64,
    start: Instant,
    end: Option<Instant>,
}

/// What is recorded since the mark.
#[derive(Debug)]
struct State {
    mark: Instant,
    /// Between mark and end.
    live: bool,
    blocks: Vec<(u64, u64)>,
    pings: Vec<(u64, u64)>,
    pings_lost: u64,
    /// Includes those from before the mark: requests are identified by their position.
    requests: Vec<Request>,
    sent: Vec<Sent>,
    arrived: Vec<Arrived>,
    connections: Vec<Arc<Connection>>,
    listeners: Vec<TcpListener>,
    errors: Vec<String>,
}

/// Shared by all threads of one workload: all its tasks between two [`crate::proto::Op::Stop`].
#[derive(Debug)]
pub struct Recording {
    state: Mutex<State>,
    /// Number of marks so far.
    marks: AtomicU64,
    /// Transfers that have ended, since the mark.
    transfers: AtomicU32,
    stopping: AtomicBool,
    stop_lock: Mutex<()>,
    stop_asked: Condvar,
}

impl Recording {
    /// Of a workload without tasks.
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                mark: Instant::now(),
                live: false,
                blocks: Vec::new(),
                pings: Vec::new(),
                pings_lost: 0,
                requests: Vec::new(),
                sent: Vec::new(),
                arrived: Vec::new(),
                connections: Vec::new(),
                listeners: Vec::new(),
                errors: Vec::new(),
            }),
            marks: AtomicU64::new(0),
            transfers: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
            stop_lock: Mutex::new(()),
            stop_asked: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was recorded and begins the measured time.
    pub fn mark(&self) -> Instant {
        let mut state = self.state();
        for connection in &state.connections {
            connection.received_at_mark.store(connection.received.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        state.blocks.clear();
        state.pings.clear();
        state.pings_lost = 0;
        state.sent.clear();
        state.arrived.clear();
        self.transfers.store(0, Ordering::Relaxed);
        state.live = true;
        state.mark = Instant::now();
        self.marks.fetch_add(1, Ordering::Relaxed);
        state.mark
    }

    /// How often the measured time has begun.
    pub fn marks(&self) -> u64 {
        self.marks.load(Ordering::Relaxed)
    }

    /// Ends the measured time. None when it had not begun. The sampler's part is left empty.
    pub fn end(&self) -> Option<Recorded> {
        let mut state = self.state();
        if !std::mem::take(&mut state.live) {
            return None;
        }
        let received = state.connections.iter().filter(|c| c.receives).map(|c| {
            let bytes = c.received.load(Ordering::Relaxed) - c.received_at_mark.load(Ordering::Relaxed);
            (c.peer.to_string(), bytes)
        });
        Some(Recorded {
            measured_us: micros(state.mark.elapsed()),
            received: received.collect(),
            blocks: std::mem::take(&mut state.blocks),
            pings: std::mem::take(&mut state.pings),
            pings_lost: state.pings_lost,
            requests: requests(&state),
            sent: std::mem::take(&mut state.sent),
            arrived: std::mem::take(&mut state.arrived),
            sockets: Vec::new(),
            errors: state.errors.clone(),
        })
    }

    /// What is recorded of requests and errors so far.
    #[cfg(test)]
    pub fn peek(&self) -> Recorded {
        let state = self.state();
        Recorded { requests: requests(&state), errors: state.errors.clone(), ..Recorded::default() }
    }

    /// A strobe's request is complete. One that began before the mark is not of the measured time.
    pub fn block(&self, start: Instant, end: Instant) {
        let mut state = self.state();
        if !state.live || state.blocks.len() >= MAX_RECORDS {
            return;
        }
        if let Some(since_mark) = start.checked_duration_since(state.mark) {
            state.blocks.push((micros(since_mark), micros(end - start)));
        }
    }

    /// A request begins; returns its number.
    pub fn request(&self, to: SocketAddr, bytes: u64, start: Instant) -> usize {
        let mut state = self.state();
        state.requests.push(Request { to, bytes, start, end: None });
        state.requests.len() - 1
    }

    /// A request has been answered.
    pub fn request_done(&self, number: usize, end: Instant) {
        if let Some(request) = self.state().requests.get_mut(number) {
            request.end = Some(end);
        }
    }

    /// A transfer begins. One that began before the mark is not of the measured time.
    pub fn sent(&self, sent: Sent) {
        let mut state = self.state();
        if state.live && state.sent.len() < MAX_RECORDS {
            state.sent.push(sent);
        }
    }

    /// The transfer that began with this port and start has its connection. The first such report counts.
    pub fn connected(&self, port: u16, start_ns: u64, connected_ns: u64) {
        let mut state = self.state();
        if let Some(sent) = state.sent.iter_mut().rfind(|sent| (sent.port, sent.start_ns) == (port, start_ns)) {
            sent.connected_ns.get_or_insert(connected_ns);
        }
    }

    /// A transfer has arrived.
    pub fn arrived(&self, arrived: Arrived) {
        let mut state = self.state();
        if state.live && state.arrived.len() < MAX_RECORDS {
            state.arrived.push(arrived);
        }
    }

    /// A transfer has ended at its sender.
    pub fn transfer_done(&self) {
        self.transfers.fetch_add(1, Ordering::Relaxed);
    }

    /// How many transfers have ended since the mark.
    pub fn transfers_done(&self) -> u32 {
        self.transfers.load(Ordering::Relaxed)
    }

    /// An echo reply came.
    pub fn ping(&self, sent: Instant, answered: Instant) {
        let mut state = self.state();
        if state.live && sent >= state.mark && state.pings.len() < MAX_RECORDS {
            let since_mark = micros(answered - state.mark);
            state.pings.push((since_mark, micros(answered - sent)));
        }
    }

    /// An echo reply did not come.
    pub fn ping_lost(&self, sent: Instant) {
        let mut state = self.state();
        if state.live && sent >= state.mark {
            state.pings_lost += 1;
        }
    }

    /// Registers a socket.
    pub fn add_connection(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        receives: bool,
    ) -> anyhow::Result<Arc<Connection>> {
        let connection = Arc::new(Connection {
            peer,
            stream,
            receives,
            received: AtomicU64::new(0),
            received_at_mark: AtomicU64::new(0),
        });
        let mut state = self.state();
        anyhow::ensure!(state.connections.len() < MAX_CONNECTIONS, "more than {MAX_CONNECTIONS} connections");
        state.connections.push(Arc::clone(&connection));
        // A workload that is being stopped has shut its sockets already: this one came too late for that.
        if self.stopping() {
            connection.hang_up();
        }
        Ok(connection)
    }

    /// Registers a listening socket, so that [`Recording::stop`] can wake the thread that accepts.
    pub fn add_listener(&self, listener: TcpListener) {
        self.state().listeners.push(listener);
    }

    /// All sockets so far.
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.state().connections.clone()
    }

    /// Notes what went wrong.
    pub fn error(&self, text: String) {
        let mut state = self.state();
        if state.errors.len() < MAX_ERRORS && !state.errors.contains(&text) {
            state.errors.push(text);
        }
    }

    /// What went wrong first.
    pub fn first_error(&self) -> Option<String> {
        self.state().errors.first().cloned()
    }

    /// Whether the workload is to end.
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Sleeps until a time; returns true, and at once, when the workload is to end.
    pub fn sleep_until(&self, until: Instant) -> bool {
        let guard = self.stop_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        drop(
            self.stop_asked
                .wait_timeout_while(guard, left, |()| !self.stopping())
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.stopping()
    }

    /// Tells all threads to end and wakes them.
    pub fn stop(&self) {
        {
            let _guard = self.stop_lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.stopping.store(true, Ordering::Relaxed);
        }
        self.stop_asked.notify_all();
        let state = self.state();
        for listener in &state.listeners {
            // On Linux this wakes a blocked `accept`.
            let _ =
                nix::sys::socket::shutdown(std::os::fd::AsRawFd::as_raw_fd(listener), nix::sys::socket::Shutdown::Both);
        }
        for connection in &state.connections {
            connection.hang_up();
        }
    }

    /// Runs `task` in a thread; its error or panic is noted, unless it is the workload's end that makes it fail.
    pub fn spawn(
        self: &Arc<Self>,
        name: &str,
        task: impl FnOnce(&Arc<Recording>) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<JoinHandle<()>> {
        let recording = Arc::clone(self);
        let title = name.to_owned();
        let body = move || match catch_unwind(AssertUnwindSafe(|| task(&recording))) {
            Ok(Ok(())) => {}
            Ok(Err(_)) if recording.stopping() => {}
            Ok(Err(error)) => recording.error(format!("{title}: {error:#}")),
            Err(panic) => recording.error(format!("{title}: panic: {}", super::panic_text(panic.as_ref()))),
        };
        thread::Builder::new()
            .name(name.into())
            .spawn(body)
            .with_context(|| format!("cannot start a thread for {name}"))
    }
}

/// Requests that began in the measured time.
fn requests(state: &State) -> Vec<RequestTime> {
    let since_mark = |request: &Request| {
        let start = request.start.checked_duration_since(state.mark)?;
        Some(RequestTime {
            to: request.to.ip().to_string(),
            bytes: request.bytes,
            start_us: micros(start),
            took_us: request.end.map(|end| micros(end.saturating_duration_since(request.start))),
            connected_took_us: None,
        })
    };
    state.requests.iter().filter_map(since_mark).collect()
}

/// Whole microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_before_the_mark_is_forgotten() {
        let recording = Recording::new();
        assert!(recording.end().is_none());
        let early = Instant::now();
        recording.block(early, early);
        let mark = recording.mark();
        recording.block(early - Duration::from_millis(1), Instant::now());
        recording.block(mark, mark + Duration::from_millis(2));
        recording.ping(mark, mark + Duration::from_millis(3));
        recording.ping_lost(mark);
        let recorded = recording.end().expect("marked");
        assert_eq!((recorded.blocks, recorded.pings, recorded.pings_lost), (vec![(0, 2000)], vec![(3000, 3000)], 1));
        recording.block(mark, mark);
        assert!(recording.end().is_none());
    }

    #[test]
    fn a_connection_belongs_to_the_transfer_that_opened_it() {
        let recording = Recording::new();
        let sent = |port, start_ns| Sent { to: String::new(), port, bytes: 1, start_ns, connected_ns: None };
        recording.mark();
        // The first port is used again, and its first transfer is told of twice.
        recording.sent(sent(7, 2));
        recording.sent(sent(8, 2));
        recording.sent(sent(7, 5));
        // One from before the mark.
        recording.connected(7, 1, 3);
        recording.connected(7, 2, 4);
        recording.connected(7, 2, 6);
        let sent = recording.end().expect("marked").sent;
        let times: Vec<_> = sent.iter().map(|sent| (sent.port, sent.start_ns, sent.connected_ns)).collect();
        assert_eq!(times, [(7, 2, Some(4)), (8, 2, None), (7, 5, None)]);
    }

    #[test]
    fn requests_from_before_the_mark_are_left_out_and_others_may_be_unfinished() {
        let recording = Recording::new();
        let to = SocketAddr::from(([10, 0, 0, 1], 80));
        let early = recording.request(to, 1, Instant::now());
        let mark = recording.mark();
        recording.request_done(early, Instant::now());
        let done = recording.request(to, 2, mark + Duration::from_millis(1));
        recording.request(to, 3, mark + Duration::from_millis(2));
        recording.request_done(done, mark + Duration::from_millis(5));
        let times: Vec<_> = recording.end().expect("marked").requests.into_iter().collect();
        assert_eq!(
            times.iter().map(|t| (t.bytes, t.start_us, t.took_us)).collect::<Vec<_>>(),
            [(2, 1000, Some(4000)), (3, 2000, None)]
        );
        assert_eq!(times[0].to, "10.0.0.1");
    }

    #[test]
    fn a_panic_and_an_error_of_a_task_are_noted() {
        let recording = Arc::new(Recording::new());
        recording.spawn("a", |_| panic!("ouch")).expect("started").join().expect("caught");
        recording.spawn("b", |_| anyhow::bail!("no")).expect("started").join().expect("caught");
        recording.mark();
        assert_eq!(recording.end().expect("marked").errors, ["a: panic: ouch", "b: no"]);
    }

    #[test]
    fn stop_ends_a_sleep() {
        let recording = Arc::new(Recording::new());
        let sleeper = recording.spawn("sleeper", |recording| {
            anyhow::ensure!(recording.sleep_until(Instant::now() + Duration::from_secs(60)));
            Ok(())
        });
        recording.stop();
        sleeper.expect("started").join().expect("no panic");
        assert_eq!(recording.first_error(), None);
    }
}
