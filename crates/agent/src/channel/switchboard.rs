//! The host's channels: a thread of their own, so that no guest's bytes ever wait for the agent, nor the agent for
//! them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_settings::address::HostAddress;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, LocalSet};

use super::endpoint::Reasons;
use super::host::{Change, Guest, HostEnd};
use super::log::ChannelLog;
use super::peer::{Counts, REST};
use super::pipe::{Pipe, Target};
use super::session;
use super::wire::Capabilities;

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

/// A port's channel.
#[derive(Debug)]
struct Line {
    target: Target,
    /// What the VM is called.
    domain: Option<String>,
    heartbeat_ms: u16,
    end: HostEnd,
    wake: Arc<Notify>,
    is_connected: bool,
    trouble: Option<String>,
}

#[derive(Debug)]
enum Order {
    Open { ifindex: u32, name: String, target: Target, wake: Arc<Notify> },
    Close { ifindex: u32 },
    End(std::sync::mpsc::Sender<()>),
}

/// A channel's state, to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineStatus {
    /// Where it is.
    pub address: HostAddress,
    /// Whether there is a connection; a guest need not be at the other end.
    pub is_connected: bool,
    /// Why there is none.
    pub trouble: Option<String>,
    /// The guest, if its heartbeats come.
    pub guest: Option<Guest>,
    /// What was counted since the channel was opened.
    pub counts: Counts,
}

type Shared = Arc<Mutex<BTreeMap<u32, Line>>>;

fn lock(shared: &Shared) -> MutexGuard<'_, BTreeMap<u32, Line>> {
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

    /// Gives a port this channel, or none. A channel that the port has already goes on.
    ///
    /// # Errors
    /// If no number can be drawn for the session.
    pub fn set(&self, ifindex: u32, name: &str, target: Option<&Target>, heartbeat_ms: u16) -> io::Result<()> {
        let mut lines = lock(&self.shared);
        let wanted = target.map(|target| (target, heartbeat_ms));
        if lines.get(&ifindex).map(|line| (&line.target, line.heartbeat_ms)) == wanted {
            return Ok(());
        }
        let before = lines.remove(&ifindex);
        if before.is_some() {
            self.order(Order::Close { ifindex });
        }
        let Some(target) = target else { return Ok(()) };
        let mut end = HostEnd::new(heartbeat_ms, session()?, Instant::now());
        // The same guest at another pace.
        end.object(before.filter(|before| before.target == *target).and_then(|before| before.end.endpoint()));
        let wake = Arc::new(Notify::new());
        let line = Line {
            target: target.clone(),
            domain: None,
            heartbeat_ms,
            end,
            wake: Arc::clone(&wake),
            is_connected: false,
            trouble: None,
        };
        lines.insert(ifindex, line);
        self.order(Order::Open { ifindex, name: name.to_owned(), target: target.clone(), wake });
        Ok(())
    }

    /// What the VM behind a port is called: the log says so.
    pub fn name(&self, ifindex: u32, domain: Option<&str>) {
        self.with(ifindex, |line| line.domain = domain.map(str::to_owned));
    }

    fn order(&self, order: Order) {
        // Without the thread there are no channels, and guests are plain.
        let _ = self.orders.send(order);
    }

    /// The number of this end's session with a port's guest.
    pub fn session(&self, ifindex: u32) -> Option<u32> {
        self.with(ifindex, |line| line.end.session())
    }

    /// Attests to a port's guest that the host holds its packets, or no longer (`None`). A guest that comes later is
    /// told what was attested last. Returns whether a guest that can flood is there now.
    pub fn attest(&self, ifindex: u32, flood_segments: Option<u32>) -> bool {
        self.with(ifindex, |line| {
            let before = line.end.serial();
            let is_there = line.end.attest(flood_segments, Instant::now());
            if before != line.end.serial() {
                line.wake.notify_one();
            }
            is_there
        })
        .unwrap_or(false)
    }

    /// What was attested to all guests holds until `until`. The datapath holds packets only as long as it hears of the
    /// agent, and the channels' thread would go on even if the thread that tells the datapath did not.
    pub fn vouch(&self, until: Instant) {
        let now = Instant::now();
        for line in lock(&self.shared).values_mut() {
            let before = line.end.serial();
            line.end.vouch(until, now);
            if before != line.end.serial() {
                line.wake.notify_one();
            }
        }
    }

    /// Whether a port's guest has said that it does what was attested last.
    pub fn is_obeyed(&self, ifindex: u32) -> bool {
        self.with(ifindex, |line| line.end.is_obeyed()).unwrap_or(false)
    }

    /// Sends a port's guest its window, in segments; 0: no limit any more. Returns false if no client is there to share
    /// it out: then only the host enforces it.
    pub fn window(&self, ifindex: u32, epoch: u64, segments: u32) -> bool {
        self.with(ifindex, |line| {
            let is_there = line.end.window(epoch, segments);
            if is_there {
                line.wake.notify_one();
            }
            is_there
        })
        .unwrap_or(false)
    }

    /// Whether a port's guest shares out windows.
    pub fn has_client(&self, ifindex: u32) -> bool {
        self.guest(ifindex).is_some_and(|guest| guest.capabilities.has(Capabilities::CERA))
    }

    /// A port's guest, if its heartbeats come.
    pub fn guest(&self, ifindex: u32) -> Option<Guest> {
        self.with(ifindex, |line| line.end.guest()).flatten()
    }

    /// What a port's guest says of its TCP, see [`HostEnd::endpoint`].
    pub fn endpoint(&self, ifindex: u32) -> Option<Reasons> {
        self.with(ifindex, |line| line.end.endpoint()).flatten()
    }

    /// A port's channel, if it has one.
    pub fn status(&self, ifindex: u32) -> Option<LineStatus> {
        self.with(ifindex, |line| LineStatus {
            address: line.target.address.clone(),
            is_connected: line.is_connected,
            trouble: line.trouble.clone(),
            guest: line.end.guest(),
            counts: line.end.counts(),
        })
    }

    fn with<T>(&self, ifindex: u32, act: impl FnOnce(&mut Line) -> T) -> Option<T> {
        lock(&self.shared).get_mut(&ifindex).map(act)
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
    let mut tasks: HashMap<u32, (mpsc::Sender<()>, JoinHandle<()>)> = HashMap::new();
    while let Some(order) = orders.recv().await {
        match order {
            Order::Open { ifindex, name, target, wake } => {
                let (end, ended) = mpsc::channel(1);
                let words = RefCell::new(ChannelLog::new(Instant::now()));
                let one = One { shared: Arc::clone(&shared), ifindex, name, target, wake, words };
                tasks.insert(ifindex, (end, tokio::task::spawn_local(one.run(ended))));
            }
            Order::Close { ifindex } => {
                if let Some((end, task)) = tasks.remove(&ifindex) {
                    drop(end);
                    // The task has to end before the same port is given another channel.
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
    ifindex: u32,
    name: String,
    target: Target,
    wake: Arc<Notify>,
    words: RefCell<ChannelLog>,
}

impl One {
    /// Keeps the connection until nobody holds the other half of `ended`.
    async fn run(self, mut ended: mpsc::Receiver<()>) {
        loop {
            let connected = tokio::select! {
                _ = ended.recv() => return,
                connected = Pipe::connect(&self.target) => connected,
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
                    let change = self.with(|line| {
                        line.is_connected = false;
                        line.end.disconnected()
                    });
                    self.tell(change.flatten());
                    outcome.err().map_or_else(|| "nobody is at the other end".to_owned(), |error| error.to_string())
                }
                Err(error) => error.to_string(),
            };
            let is_news = self.with(|line| line.trouble.replace(why.clone()).as_ref() != Some(&why));
            if is_news == Some(true) {
                let (domain, channel) = (self.domain(), &self.target.address);
                self.say(|left_out| {
                    tracing::info!(port = self.name, domain, %channel, left_out, "no connection to the guest: {why}");
                });
            }
            tokio::select! {
                _ = ended.recv() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    /// Talks until the connection is gone.
    async fn talk(&self, pipe: &Pipe) -> io::Result<()> {
        self.with(|line| {
            line.is_connected = true;
            line.trouble = None;
            line.end.connected(Instant::now());
        });
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
        let domain = self.domain();
        self.say(|left_out| match change {
            Change::Up(hello) => {
                let capabilities = hello.capabilities.0;
                tracing::info!(port = self.name, domain, capabilities, left_out, "the guest's agent is there");
            }
            Change::Down(why) => tracing::info!(port = self.name, domain, left_out, "the guest's agent is gone: {why}"),
            Change::Rest => {
                tracing::warn!(
                    port = self.name,
                    domain,
                    left_out,
                    "the guest sends garbage or too much: not listened to for a second"
                );
            }
        });
    }

    fn domain(&self) -> Option<String> {
        self.with(|line| line.domain.clone()).flatten()
    }

    /// Says a line in the log, unless the channel's budget is used up.
    fn say(&self, line: impl FnOnce(Option<u64>)) {
        self.words.borrow_mut().say(Instant::now(), line);
    }

    fn with_end<T>(&self, act: impl FnOnce(&mut HostEnd) -> T) -> Option<T> {
        self.with(|line| act(&mut line.end))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Line) -> T) -> Option<T> {
        lock(&self.shared).get_mut(&self.ifindex).filter(|line| Arc::ptr_eq(&line.wake, &self.wake)).map(act)
    }
}
