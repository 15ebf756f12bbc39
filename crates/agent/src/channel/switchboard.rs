//! The host's channels: a thread of their own, so that no guest's bytes ever wait for the agent, nor the agent for
//! them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_settings::address::HostAddress;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, LocalSet};

use super::endpoint::Reasons;
use super::host::{Change, Guest, HostEnd};
use super::lines::{Board, Line, LineStatus, Step};
use super::log::ChannelLog;
use super::peer::REST;
use super::pipe::{Pipe, Target};
use super::wire::Window;

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(500);
/// Read at once; between two reads others have their turn.
const CHUNK: usize = 4096;
/// How long the last words may take.
const FAREWELL: Duration = Duration::from_millis(500);

/// The channels of all ports. Copies are the same switchboard.
#[derive(Debug, Clone)]
pub struct Channels {
    shared: Shared,
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Debug)]
enum Order {
    Step(Step),
    End(std::sync::mpsc::Sender<()>),
}

type Shared = Arc<Mutex<Board>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Board> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channels {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's.
    pub fn start() -> io::Result<Self> {
        let shared = Shared::default();
        let (orders, ordered) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let lines = Arc::clone(&shared);
        std::thread::Builder::new().name("channels".to_owned()).spawn(move || {
            LocalSet::new().block_on(&runtime, work(lines, ordered));
        })?;
        Ok(Self { shared, orders })
    }

    /// Gives a port this channel, or none. A channel that the port has already goes on; ports with the same address
    /// share one.
    ///
    /// # Errors
    /// If no number can be drawn for the session.
    pub fn set(&self, ifindex: u32, name: &str, target: Option<&Target>, heartbeat_ms: u16) -> io::Result<()> {
        let (mut board, mut steps) = (lock(&self.shared), Vec::new());
        let outcome = board.set((ifindex, name), target, heartbeat_ms, &mut steps);
        steps.into_iter().for_each(|step| self.order(Order::Step(step)));
        outcome
    }

    /// What the VM behind a port is called: the log says so.
    pub fn name(&self, ifindex: u32, domain: Option<&str>) {
        self.with(ifindex, |line| line.name(ifindex, domain));
    }

    fn order(&self, order: Order) {
        // Without the thread there are no channels, and guests are plain.
        let _ = self.orders.send(order);
    }

    /// The number of this end's session with a port's guest.
    pub fn session(&self, ifindex: u32) -> Option<u32> {
        self.with(ifindex, |line| line.session())
    }

    /// Attests to a port's guest that the host holds its packets, or no longer (`None`). A guest that comes later is
    /// told what was attested last. Returns whether a guest that can flood is there now.
    pub fn attest(&self, ifindex: u32, flood_segments: Option<u32>) -> bool {
        self.with(ifindex, |line| line.attest(ifindex, flood_segments, Instant::now())).unwrap_or(false)
    }

    /// What was attested to all guests holds until `until`. The datapath holds packets only as long as it hears of the
    /// agent, and the channels' thread would go on even if the thread that tells the datapath did not.
    pub fn vouch(&self, until: Instant) {
        let now = Instant::now();
        lock(&self.shared).lines_mut().for_each(|line| line.vouch(until, now));
    }

    /// Whether a port's guest has said that it does what was attested last.
    pub fn is_obeyed(&self, ifindex: u32) -> bool {
        self.with(ifindex, |line| line.is_obeyed(ifindex)).unwrap_or(false)
    }

    /// Sends a port's guest its window, in segments; 0: no limit any more. Returns false if no client is there to share
    /// it out: then only the host enforces it.
    pub fn window(&self, ifindex: u32, epoch: u64, segments: u32) -> bool {
        let window = Window { epoch, segments };
        self.with(ifindex, |line| line.window(ifindex, window, Instant::now())).unwrap_or(false)
    }

    /// Whether a port's guest shares out windows. One with several ports on this host does not: a window is for what
    /// goes by one.
    pub fn has_client(&self, ifindex: u32) -> bool {
        self.with(ifindex, |line| line.has_client(ifindex)).unwrap_or(false)
    }

    /// A port's guest, if its heartbeats come.
    pub fn guest(&self, ifindex: u32) -> Option<Guest> {
        self.with(ifindex, |line| line.guest(ifindex)).flatten()
    }

    /// What a port's guest says of its TCP, see [`HostEnd::endpoint`].
    pub fn endpoint(&self, ifindex: u32) -> Option<Reasons> {
        self.with(ifindex, |line| line.endpoint(ifindex)).flatten()
    }

    /// A port's channel, if it has one.
    pub fn status(&self, ifindex: u32) -> Option<LineStatus> {
        self.with(ifindex, |line| line.status(ifindex))
    }

    fn with<T>(&self, ifindex: u32, act: impl FnOnce(&mut Line) -> T) -> Option<T> {
        lock(&self.shared).line_mut(ifindex).map(act)
    }

    /// Says goodbye to all guests, and ends.
    pub fn end(&self) {
        let (done, is_done) = std::sync::mpsc::channel();
        self.order(Order::End(done));
        // A guest that is not told notices the silence.
        let _ = is_done.recv_timeout(FAREWELL);
    }
}

async fn work(shared: Shared, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut tasks: HashMap<u64, (mpsc::Sender<()>, JoinHandle<()>)> = HashMap::new();
    while let Some(order) = orders.recv().await {
        match order {
            Order::Step(Step::Open { line, address, wake }) => {
                let (end, ended) = mpsc::channel(1);
                let words = RefCell::new(ChannelLog::new(Instant::now()));
                let one = One { shared: Arc::clone(&shared), number: line, address, wake, words };
                tasks.insert(line, (end, tokio::task::spawn_local(one.run(ended))));
            }
            Order::Step(Step::Close { line }) => {
                if let Some((end, task)) = tasks.remove(&line) {
                    drop(end);
                    // The task has to end before the same guest is given another channel.
                    let _ = task.await;
                }
            }
            Order::End(done) => {
                for (_, (end, task)) in tasks.drain() {
                    drop(end);
                    let _ = task.await;
                }
                let _ = done.send(());
                return;
            }
        }
    }
}

/// The task of one channel.
struct One {
    shared: Shared,
    number: u64,
    address: HostAddress,
    wake: Arc<Notify>,
    words: RefCell<ChannelLog>,
}

impl One {
    /// Keeps the connection until nobody holds the other half of `ended`.
    async fn run(self, mut ended: mpsc::Receiver<()>) {
        loop {
            let connected = tokio::select! {
                _ = ended.recv() => return,
                connected = self.connect() => connected,
            };
            let why = match connected {
                Ok(pipe) => {
                    let outcome = tokio::select! {
                        _ = ended.recv() => {
                            let mut last = Vec::new();
                            self.with_end(|end| end.goodbye(&mut last));
                            pipe.write_now(&last);
                            return;
                        }
                        outcome = self.talk(&pipe) => outcome,
                    };
                    let change = self.with(|line| line.disconnected(Instant::now()));
                    self.tell(change.flatten());
                    outcome.err().map_or_else(|| "nobody is at the other end".to_owned(), |error| error.to_string())
                }
                Err(error) => error.to_string(),
            };
            if self.with(|line| line.fails(&why)) == Some(true) {
                let ((port, domain), channel) = (self.names(), &self.address);
                self.say(|left_out| {
                    tracing::info!(port, domain, %channel, left_out, "no connection to the guest: {why}");
                });
            }
            tokio::select! {
                _ = ended.recv() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    /// Connects to a guest of one of the ports.
    async fn connect(&self) -> io::Result<Pipe> {
        let may_be_anybody = self.with(|line| line.may_be_anybody()).unwrap_or(false);
        let (pipe, who) = Pipe::connect(&self.address, may_be_anybody).await?;
        match self.with(|line| line.connected(who, Instant::now())) {
            Some(Err(why)) => Err(io::Error::other(why)),
            // Without its line it is about to end.
            Some(Ok(())) | None => Ok(pipe),
        }
    }

    /// Talks until the connection is gone.
    async fn talk(&self, pipe: &Pipe) -> io::Result<()> {
        tokio::try_join!(self.listen(pipe), self.speak(pipe)).map(|_| ())
    }

    async fn listen(&self, pipe: &Pipe) -> io::Result<()> {
        let mut buffer = [0; CHUNK];
        loop {
            let length = pipe.read(&mut buffer).await?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let changes = self.with_end(|end| end.received(&buffer[..length], Instant::now())).unwrap_or_default();
            let rests = changes.contains(&Change::Rest);
            changes.into_iter().for_each(|change| self.tell(Some(change)));
            self.wake.notify_one();
            if rests {
                tokio::time::sleep(REST).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn speak(&self, pipe: &Pipe) -> io::Result<()> {
        let mut out = Vec::new();
        loop {
            let mut due = None;
            let change = self.with_end(|end| {
                let now = Instant::now();
                let change = end.expire(now);
                end.outgoing(now, &mut out);
                due = end.due();
                change
            });
            self.tell(change.flatten());
            let mut rest = &out[..];
            while !rest.is_empty() {
                // Meanwhile other messages wait, and of each kind only the newest is kept.
                let due = due.map_or_else(|| Instant::now() + RETRY, |due| due.max(Instant::now() + RETRY));
                tokio::select! {
                    written = pipe.write(rest) => rest = &rest[written?..],
                    () = tokio::time::sleep_until(due.into()) => {
                        let change = self.with_end(|end| end.expire(Instant::now()));
                        self.tell(change.flatten());
                    }
                }
            }
            out.clear();
            let due = due.unwrap_or_else(|| Instant::now() + RETRY);
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(due.into()) => {}
            }
        }
    }

    fn tell(&self, change: Option<Change>) {
        let Some(change) = change else { return };
        let (port, domain) = self.names();
        self.say(|left_out| match change {
            Change::Up(hello) => {
                let capabilities = hello.capabilities.0;
                tracing::info!(port, domain, capabilities, left_out, "the guest's agent is there");
            }
            Change::Down(why) => tracing::info!(port, domain, left_out, "the guest's agent is gone: {why}"),
            Change::Rest => {
                tracing::warn!(
                    port,
                    domain,
                    left_out,
                    "the guest sends garbage or too much: not listened to for a second"
                );
            }
        });
    }

    fn names(&self) -> (String, Option<String>) {
        self.with(|line| line.names()).unwrap_or_default()
    }

    /// Says a line in the log, unless the channel's budget is used up.
    fn say(&self, line: impl FnOnce(Option<u64>)) {
        self.words.borrow_mut().say(Instant::now(), line);
    }

    fn with_end<T>(&self, act: impl FnOnce(&mut HostEnd) -> T) -> Option<T> {
        self.with(|line| act(line.end_mut()))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Line) -> T) -> Option<T> {
        lock(&self.shared).get_mut(self.number).map(act)
    }
}
