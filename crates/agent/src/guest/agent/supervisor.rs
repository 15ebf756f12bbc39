//! The guest agent's life: start, wait for what happens, end, and undo.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_settings::ConfigError;
use evenkeel_settings::guest::{self as config, Config};
use evenkeel_settings::vflood::Shadow;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sd_notify::NotifyState;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::endpoint::Watch;
use super::error::GuestError;
use super::kernel::KernelReading;
use super::line::Line;
use super::off_core::OffCore;
use super::programs::{self, Cera};
use super::state::State;
use super::work::{Work, congestion};
use crate::channel::{Effect, GuestEnd, Pipe, REST};
use crate::common::lock::{Lock, NotTaken};
use crate::file;

/// The lock's name in the run directory.
pub(super) const LOCK: &str = "guest.lock";
/// How long `--stop` waits for an agent to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a look at who has the lock may take.
const LOOK: Duration = Duration::from_millis(300);
/// This process's nice value: what the host says is worth nothing when it is read late.
const NICE: i32 = -10;
/// Bytes that are read at once.
const CHUNK: usize = 4096;
/// Time between two rounds of the loop when nothing is due.
const IDLE: Duration = Duration::from_secs(1);
/// Time before a connection with nobody at its other end is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Where the agent finds and keeps things.
#[derive(Debug, Clone)]
pub struct Options {
    /// The configuration file; `None`: the one in the usual place, or the defaults if there is none.
    pub config: Option<PathBuf>,
    /// The directory of lock and state.
    pub run_dir: PathBuf,
    /// The directory of pins, in a bpf file system.
    pub pin_dir: PathBuf,
}

/// What was undone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// Congestion controls that were unregistered.
    pub unregistered: Vec<String>,
    /// Connections that were taken from vFlood's congestion control.
    pub connections: u32,
    /// Settings that were put back, with what they are now.
    pub settings: BTreeMap<String, String>,
    /// Settings that somebody else has changed since: they stay.
    pub left: Vec<String>,
}

/// Runs the agent until it is told to end.
///
/// # Errors
/// [`GuestError`], with what to do next.
pub fn run(options: &Options) -> Result<(), GuestError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| GuestError::io("cannot start the event loop", error))?;
    runtime.block_on(agent(options))
}

/// Undoes everything that an agent has done in this guest, ending it if it runs.
///
/// # Errors
/// [`GuestError`] if something could not be removed or put back: then it can be tried again.
pub fn stop(run_dir: &Path, pin_dir: &Path) -> Result<Stopped, GuestError> {
    let _lock = end_running(run_dir)?;
    let mut stopped = Stopped::default();
    let mut left = put_back(&mut State::load(run_dir)?, &mut stopped);
    // A setting that stays may give new connections the congestion control, which stays then, too.
    if left.is_empty() {
        left.extend(take_off(pin_dir, &mut stopped).err().map(|error| error.to_string()));
    }
    if left.is_empty() { Ok(stopped) } else { Err(GuestError::Stays { why: left.join("; ") }) }
}

/// Puts the settings back; one that cannot be put back keeps none of the others. Returns those, in words.
fn put_back(state: &mut State, stopped: &mut Stopped) -> Vec<String> {
    let mut left = Vec::new();
    for name in state.changed().into_keys() {
        match state.put_back(&name) {
            Ok(Some(value)) => drop(stopped.settings.insert(name, value)),
            Ok(None) => stopped.left.push(name),
            Err(error) => left.push(error.to_string()),
        }
    }
    left
}

/// Takes connections from the congestion control, and that and all pins from the guest.
fn take_off(pin_dir: &Path, stopped: &mut Stopped) -> Result<(), GuestError> {
    stopped.unregistered = programs::registered(pin_dir).into_iter().map(str::to_owned).collect();
    if !stopped.unregistered.is_empty() && KernelReading::take().lacking().is_none() {
        let shadow = programs::read_control(pin_dir).map_or(congestion(Shadow::Cubic), |c| c.congestion);
        let mut cera = Cera::load(pin_dir)?;
        stopped.connections = cera.evict(shadow)?.evicted;
        cera.unload()?;
    }
    programs::remove(pin_dir)?;
    Ok(())
}

/// The lock, once an agent that had it has ended.
fn end_running(run_dir: &Path) -> Result<Lock, GuestError> {
    let path = run_dir.join(LOCK);
    let deadline = Instant::now() + STOP_TIMEOUT;
    let mut is_told = false;
    loop {
        match Lock::take(&path) {
            Ok(lock) => return Ok(lock),
            Err(NotTaken::Failed(error)) => {
                return Err(GuestError::io(format!("cannot lock {}", path.display()), error));
            }
            Err(NotTaken::Held(pid)) if Instant::now() >= deadline => return Err(GuestError::Running { pid }),
            Err(NotTaken::Held(pid)) => {
                if let (Some(pid), false) = (pid.and_then(|pid| i32::try_from(pid).ok()), is_told) {
                    kill(Pid::from_raw(pid), Signal::SIGTERM)
                        .map_err(|errno| GuestError::io(format!("cannot end the agent (process {pid})"), errno))?;
                    is_told = true;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// The lock, for an agent. It is tried for a while, because a look at who has it holds it for a moment.
fn take_lock(run_dir: &Path) -> Result<Lock, GuestError> {
    let path = run_dir.join(LOCK);
    let deadline = Instant::now() + LOOK;
    loop {
        match Lock::take(&path) {
            Ok(lock) => return Ok(lock),
            Err(NotTaken::Held(_)) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Err(NotTaken::Held(pid)) => return Err(GuestError::Running { pid }),
            Err(NotTaken::Failed(error)) => {
                return Err(GuestError::io(format!("cannot lock {}", path.display()), error));
            }
        }
    }
}

/// Checks a configuration file.
///
/// # Errors
/// [`GuestError::Config`] with all that is needed to mend the file.
pub fn check(file: &Path) -> Result<(), GuestError> {
    Ok(file::config(file, Config::parse).map(drop)?)
}

/// A configuration, and whether it is from a file. If the present one is from a file that is gone, that is an error.
fn load(options: &Options, had_file: bool) -> Result<(Config, bool), GuestError> {
    let file = options.config.clone().unwrap_or_else(|| config::DEFAULT_FILE.into());
    let is_there = file::is_there(&file).map_err(|source| ConfigError::Read { file: file.clone(), source })?;
    match is_there || options.config.is_some() {
        true => Ok((file::config(&file, Config::parse)?, true)),
        false if had_file => Err(ConfigError::Gone { file, loss: "all settings would be the defaults" }.into()),
        false => Ok((Config::default(), false)),
    }
}

/// Tells systemd, if it asked to be told.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}

/// The agent's connection and its end of the channel.
struct Talk {
    line: Line,
    end: GuestEnd,
    pipe: Option<Pipe>,
    /// What the last write left over.
    unsent: Vec<u8>,
    /// Nothing is read from the connection until then.
    deaf_until: Option<Instant>,
}

impl Talk {
    fn new(work: &Work) -> Result<Self, GuestError> {
        Ok(Self {
            line: Line::new(work.config().channel.address.0.clone()),
            end: work.end()?,
            pipe: None,
            unsent: Vec::new(),
            deaf_until: None,
        })
    }

    fn connected(&mut self, pipe: Pipe) -> Vec<Effect> {
        let effects = if self.pipe.is_some() { self.disconnected() } else { Vec::new() };
        tracing::debug!(channel = %self.line.address(), "connected");
        self.pipe = Some(pipe);
        self.end.connected(Instant::now());
        effects
    }

    fn disconnected(&mut self) -> Vec<Effect> {
        self.pipe = None;
        self.unsent.clear();
        self.end.disconnected()
    }

    /// Sends what is due, as far as it fits; the rest is sent when it does.
    fn speak(&mut self) -> io::Result<()> {
        let Some(pipe) = &self.pipe else { return Ok(()) };
        if self.unsent.is_empty() {
            self.end.outgoing(Instant::now(), &mut self.unsent);
        }
        while !self.unsent.is_empty() {
            match pipe.try_write(&self.unsent)? {
                Some(written) => drop(self.unsent.drain(..written)),
                None => break,
            }
        }
        Ok(())
    }

    /// A new session tells the host what this guest can do now.
    fn begin_again(&mut self, work: &mut Work) -> Result<(), GuestError> {
        self.goodbye();
        for effect in self.disconnected() {
            work.obey(effect)?;
        }
        *self = Self::new(work)?;
        Ok(())
    }

    fn goodbye(&mut self) {
        if let (Some(pipe), true) = (&self.pipe, self.unsent.is_empty()) {
            let mut last = Vec::new();
            self.end.goodbye(&mut last);
            pipe.write_now(&last);
        }
    }
}

/// Reads from a connection; without one, it waits forever.
async fn read(pipe: Option<&Pipe>, buffer: &mut [u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.read(buffer).await,
        None => std::future::pending().await,
    }
}

/// Waits until what did not fit can be written.
async fn drained(pipe: Option<&Pipe>, has_more: bool) -> io::Result<()> {
    match pipe {
        Some(pipe) if has_more => pipe.writable().await,
        _ => std::future::pending().await,
    }
}

async fn agent(options: &Options) -> Result<(), GuestError> {
    let (config, mut has_file) = load(options, false)?;
    let _lock = take_lock(&options.run_dir)?;
    let listen = |kind| signal(kind).map_err(|error| GuestError::io("cannot wait for signals", error));
    // Signals first: one that comes during the start is not lost.
    let mut hangup = listen(SignalKind::hangup())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut work = Work::begin(config, &options.run_dir, &options.pin_dir)?;
    let mut watch = Watch::new();
    work.cards(watch.look(Instant::now()).cards)?;
    let mut talk = Talk::new(&work)?;
    // SAFETY: it only changes this process's own priority. Without the right to do so the agent runs as others do.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } != 0 {
        tracing::debug!("runs at the priority that it was started with");
    }
    let off_core = OffCore::watch().map_err(|error| GuestError::io("cannot start a thread", error))?;
    notify(&[NotifyState::Ready]);
    let (vflood, cera) = (work.config().vflood.mode, work.config().cera.mode);
    tracing::info!(channel = %talk.line.address(), %vflood, %cera, "ready");

    let mut buffer = [0; CHUNK];
    loop {
        let mut effects = Vec::new();
        talk.end.off_core(off_core.permille());
        work.off_core(off_core.permille());
        // Before anything is sent, so that the first heartbeat has it; when it changes, a heartbeat is due at once.
        if talk.pipe.is_some() {
            let look = watch.look(Instant::now());
            if work.cards(look.cards)? {
                talk.begin_again(&mut work)?;
            }
            talk.end.endpoint(Some(look.said), Instant::now());
            work.endpoint(Some(look.said))?;
        }
        if let Err(error) = talk.speak() {
            tracing::debug!(%error, "cannot send");
            effects.extend(talk.disconnected());
        }
        let now = Instant::now();
        let due = [talk.end.due(), work.pass_at()].into_iter().flatten().min().unwrap_or(now + IDLE);
        let has_pipe = talk.pipe.is_some();
        let is_deaf = talk.deaf_until.is_some_and(|until| now < until);
        let deaf_until = talk.deaf_until.filter(|_| is_deaf).unwrap_or(now + IDLE);
        tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => reload(options, &mut has_file, &mut work, &mut talk),
            pipe = talk.line.next(has_pipe) => effects.extend(talk.connected(pipe)),
            length = read(talk.pipe.as_ref(), &mut buffer), if !is_deaf => match length {
                Ok(length) if length > 0 => effects.extend(talk.end.received(&buffer[..length], Instant::now())),
                ended => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "cannot read");
                    }
                    if talk.end.host().is_some() {
                        tracing::info!("nobody is at the other end of the channel");
                    }
                    effects.extend(talk.disconnected());
                    talk.deaf_until = Some(Instant::now() + RETRY);
                    tokio::time::sleep(RETRY).await;
                }
            },
            _ = drained(talk.pipe.as_ref(), !talk.unsent.is_empty()) => {}
            () = tokio::time::sleep_until(due.min(deaf_until).into()) => {}
        }
        effects.extend(talk.end.expire(Instant::now()));
        work.expect_host(talk.end.alive_until())?;
        for effect in effects {
            if effect == Effect::Rest {
                talk.deaf_until = Some(Instant::now() + REST);
            }
            if work.obey(effect)? {
                talk.end.report_soon(Instant::now());
            }
        }
        if work.pass_at().is_some_and(|at| at <= Instant::now()) {
            work.pass()?;
        }
    }
    notify(&[NotifyState::Stopping]);
    talk.goodbye();
    work.farewell()?;
    tracing::info!("ends; vFlood's congestion control stays as plain TCP (`evenkeel guest --stop` removes it)");
    Ok(())
}

/// Reads the configuration again. One that cannot be used is reported, and the settings before it stay.
fn reload(options: &Options, has_file: &mut bool, work: &mut Work, talk: &mut Talk) {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
    let before = work.config().clone();
    let outcome = load(options, *has_file).and_then(|(config, is_file)| {
        work.adopt(config)?;
        *has_file = is_file;
        Ok(())
    });
    match outcome {
        Ok(()) => tracing::info!("configuration read again"),
        Err(error) => tracing::error!("the configuration is refused, the settings before it stay: {error}"),
    }
    if *work.config() != before {
        if let Err(error) = talk.begin_again(work) {
            tracing::error!("the host is not told what this guest can do now: {error}");
        }
    }
    notify(&[NotifyState::Ready]);
}
