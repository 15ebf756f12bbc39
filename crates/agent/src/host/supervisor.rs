//! The agent's life: start, take over, wait for what happens, end, and undo.

use std::cell::RefCell;
use std::future::pending;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use evenkeel_settings::ConfigError;
use evenkeel_settings::host::{self as config, Config};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use sd_notify::NotifyState;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, LocalSet};

use super::control::proto::{Ask, Response, Stopped};
use super::control::server::{Listener, Service};
use super::core::{Core, Loaded};
use super::devices::set_queues;
use super::error::HostError;
use super::links::{LinkEvent, LinkWatch, Links};
use super::lock;
use super::namespaces::{Namespaces, News};
use super::proboscis::keys;
use super::state::HostState;
use super::stop::dismantle;
use super::watch::Watch;
use super::{http, limits, metrics, vms};
use crate::channel::Channels;
use crate::datapath::{self, Datapath};
use crate::file;
use crate::netns::{self, HERE};

/// How many devices are looked at before their queues are changed, so that all changes are noted at once. A burst takes
/// some 30 ms, less than a heartbeat.
const BURST: usize = 16;
/// How long an earlier control socket is still answered: a client has its answer in milliseconds.
const FAREWELL: Duration = Duration::from_secs(1);

/// Where the agent finds and keeps things.
#[derive(Debug, Clone)]
pub struct Options {
    /// The configuration file; `None` is the usual place, or the defaults if no file is there.
    pub config: Option<PathBuf>,
    /// The directory of lock and state.
    pub run_dir: PathBuf,
    /// The directory of pins, in a bpf file system.
    pub pin_dir: PathBuf,
}

/// Runs the agent until it is told to end.
///
/// # Errors
/// [`HostError`], with what to do next.
pub fn run(options: &Options) -> Result<(), HostError> {
    limits::raise();
    block_on(agent(options))
}

fn block_on<T>(future: impl Future<Output = Result<T, HostError>>) -> Result<T, HostError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| HostError::io("cannot start the event loop", error))?;
    LocalSet::new().block_on(&runtime, future)
}

/// A configuration that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Its file.
    pub file: PathBuf,
    /// Keys in the file of keys that it names; 0: there is no such file.
    pub probe_keys: usize,
}

/// Reads a configuration and what it names, as an agent does when it starts.
///
/// # Errors
/// [`HostError::Config`], also if there is no file.
pub fn check(file: Option<&Path>) -> Result<Checked, HostError> {
    let file = file.unwrap_or(Path::new(config::DEFAULT_FILE)).to_owned();
    let config = file::config(&file, Config::parse)?;
    Ok(Checked { file, probe_keys: keys::load(&config.probe_key_file)?.map_or(0, |keys| keys.len()) })
}

/// Whether a datapath is pinned that an agent of this version would take over.
///
/// # Errors
/// [`HostError::Datapath`] if a datapath is pinned that it would not take over.
pub fn check_pins(pin_dir: &Path) -> Result<bool, HostError> {
    Ok(datapath::pins_are_there(pin_dir)?)
}

/// Reads the configuration and what it names. Fails if a file that the current configuration was read from is gone.
fn load(options: &Options, holds: Option<&Loaded>) -> Result<Loaded, ConfigError> {
    let file = options.config.clone().unwrap_or_else(|| config::DEFAULT_FILE.into());
    let is_there = file::is_there(&file).map_err(|source| ConfigError::Read { file: file.clone(), source })?;
    let is_default = options.config.is_none() && !is_there;
    if is_default && holds.is_some_and(|holds| !holds.is_default) {
        return Err(ConfigError::Gone { file, loss: "all settings would be the defaults" });
    }
    let config = if is_default { Config::default() } else { file::config(&file, Config::parse)? };
    let keys = keys::load(&config.probe_key_file)?;
    if keys.is_none() && holds.is_some_and(|holds| !holds.keys.is_empty()) {
        let file = config.probe_key_file;
        return Err(ConfigError::Gone { file, loss: "no probes would be sent or believed" });
    }
    Ok(Loaded { file, is_default, config, keys: keys.unwrap_or_default() })
}

/// The agent's listening tasks, each with the configuration that it was started with.
struct Listeners {
    control: (config::Control, JoinHandle<()>),
    metrics: (config::Metrics, Option<JoinHandle<()>>),
}

impl Listeners {
    /// Closes the metrics' socket if the next one has its port: the kernel has no room for one of all addresses beside
    /// one of a single address.
    async fn make_room(&mut self, next: &config::Metrics) {
        if !next.enabled || next.listen.port() != self.metrics.0.listen.port() {
            return;
        }
        if let Some(task) = self.metrics.1.take() {
            task.abort();
            // Its listener is closed once the task has ended.
            let _ = task.await;
        }
    }

    /// Opens the metrics' socket that was closed for a configuration that is refused.
    async fn serve_metrics_again(&mut self, core: &Rc<RefCell<Core>>) {
        if self.metrics.1.is_some() {
            return;
        }
        match bind_metrics(&self.metrics.0).await {
            Ok(listener) => self.metrics.1 = listener.map(|listener| serve_metrics(listener, core)),
            Err(error) => tracing::error!("metrics are not served any more: {error}"),
        }
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.control.1.abort();
        if let Some(task) = &self.metrics.1 {
            task.abort();
        }
    }
}

/// Where the outcome of a `--stop` goes, or what it has not put back.
type Reply = oneshot::Sender<Result<Stopped, String>>;

struct ControlService {
    core: Rc<RefCell<Core>>,
    stop: mpsc::Sender<Reply>,
}

impl Service for ControlService {
    async fn answer(&self, ask: Ask) -> Box<dyn Iterator<Item = Response>> {
        let refused = |error: HostError| Response::Refused { why: format!("could not do it: {error}") };
        let lines = match ask {
            Ask::Status => match self.core.borrow_mut().status() {
                Ok(status) => vec![Response::Status(Box::new(status))],
                Err(error) => vec![refused(error)],
            },
            Ask::Flows { tuple, limit } => {
                self.core.borrow_mut().flows(tuple, limit).unwrap_or_else(|error| vec![refused(error)])
            }
            Ask::Switch { port, online } => match self.core.borrow_mut().switch(&port, online) {
                Ok(true) => vec![Response::Done],
                Ok(false) => {
                    vec![Response::Refused { why: format!("has no port {port}; `evenkeel status` lists those it has") }]
                }
                Err(why) => vec![Response::Refused { why: format!("does not serve {port}: {why}") }],
            },
            Ask::Lease(wanted) => self.core.borrow_mut().lease(&wanted),
            Ask::Renew { id, mode, for_ms } => self.core.borrow_mut().renew_lease(id, mode, for_ms),
            Ask::Return { id } => self.core.borrow_mut().return_lease(id),
            Ask::Stop => {
                let (reply, answer) = oneshot::channel();
                let is_heard = self.stop.send(reply).await.is_ok();
                vec![match answer.await {
                    Ok(Ok(stopped)) if is_heard => Response::Stopped(stopped),
                    Ok(Err(why)) => Response::Stays { why },
                    _ => Response::Refused { why: "ended before it could".to_owned() },
                }]
            }
        };
        Box::new(lines.into_iter())
    }
}

async fn agent(options: &Options) -> Result<(), HostError> {
    let loaded = load(options, None)?;
    let _lock = lock::take(&options.run_dir)?;
    let state = HostState::load(&options.run_dir)?;
    // Signals first: one that comes during the start is not lost.
    let mut hangup = listen(SignalKind::hangup())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let config = loaded.config.clone();
    let mut control = Listener::bind(&config.control.socket, &config.control.group)?;
    let metrics = bind_metrics(&config.metrics).await?;
    control.show()?;

    let is_elsewhere = !config.netns.is_empty();
    if is_elsewhere {
        netns::may_enter().map_err(may_not_enter)?;
    }
    Datapath::recall_namespaces(&options.pin_dir)?;
    let left_behind = netns::all();
    if !left_behind.is_empty() {
        netns::may_enter().map_err(|error| may_not_leave(&left_behind, error))?;
    }
    let datapath = Datapath::open_by(&options.pin_dir, config.attach, is_elsewhere)?;
    if datapath.took_over() {
        tracing::info!("took over a running datapath");
    }
    if loaded.is_default {
        tracing::warn!(file = %loaded.file.display(), "there is no such file: the defaults hold");
    }
    if loaded.keys.is_empty() {
        tracing::warn!(file = %config.probe_key_file.display(), "no probe key: no probes are sent or believed");
    }
    let ring = readable(datapath.events_fd())?;
    let channels = Channels::start().map_err(|error| HostError::io("cannot start the channels' thread", error))?;
    let core = Core::new(loaded, datapath, channels.clone(), state, &options.run_dir);
    let core = Rc::new(RefCell::new(core));
    core.borrow_mut().note_socket(control.path());
    core.borrow_mut().heartbeat();

    let mut watch = Some(LinkWatch::new(HERE)?);
    let mut domains = Watch::new(Path::new(vms::DIRECTORY));
    let mut links = Links::new()?;
    let mut namespaces = Namespaces::new();
    namespaces.look(&mut core.borrow_mut(), &mut links);
    core.borrow_mut().listed(&links.list()?);
    catch_up(&core, &mut links).await;

    let (stop_sender, mut stop_requests) = mpsc::channel(1);
    let mut listeners = Listeners {
        control: (config.control.clone(), serve_control(control, &core, &stop_sender)),
        metrics: (config.metrics.clone(), metrics.map(|listener| serve_metrics(listener, &core))),
    };
    let timer = Timer::new()?;
    notify(&[NotifyState::Ready]);
    tracing::info!(config = %core.borrow().file().display(), "ready");

    loop {
        timer.set(core.borrow().due_in())?;
        if !core.borrow().is_behind() {
            core.borrow_mut().arrange();
        }
        let (acts, is_behind) = (core.borrow().acts(), core.borrow().is_behind());
        let (beats_at, keeps_at) = (core.borrow().beats_at(), core.borrow().keeps_at());
        let looks_at = core.borrow().looks_at();
        let (tends_at, fresh_at) = (core.borrow().tends_at(), core.borrow().fresh_at());
        let namespaces_at = namespaces.looks_at(&core.borrow());
        tokio::select! {
            events = news(&mut watch) => match events {
                Ok(events) => hear(&core, events),
                Err(error) => {
                    tracing::error!(%error, "news of devices is lost");
                    // The next periodic check (`keeps_at`) opens it again.
                    watch = None;
                }
            },
            news = namespaces.news() => match news {
                News::Names => namespaces.look_soon(),
                News::Devices(events) => hear(&core, events),
            },
            () = until(namespaces_at) => namespaces.look(&mut core.borrow_mut(), &mut links),
            ready = ring.readable() => {
                let mut ready = ready.map_err(|error| HostError::io("cannot wait for the datapath's events", error))?;
                // Only once all events are read does a new one wake the agent.
                if core.borrow_mut().events() {
                    ready.clear_ready();
                }
            }
            () = timer.expired() => core.borrow_mut().expire(),
            () = tokio::time::sleep_until(beats_at.into()), if acts => beat(&core),
            () = tokio::time::sleep_until(keeps_at.into()) => {
                core.borrow_mut().keep();
                namespaces.keep(&mut core.borrow_mut());
                if watch.is_none() {
                    let opened = LinkWatch::new(HERE);
                    watch = opened.inspect_err(|error| tracing::error!(%error, "no news of devices")).ok();
                    core.borrow_mut().ask_for_list();
                }
            }
            // It is due then.
            () = until(fresh_at) => {}
            () = until(tends_at) => core.borrow_mut().tend_leases(),
            () = domains.changed() => core.borrow_mut().ask_for_vms(),
            () = tokio::time::sleep_until(looks_at.into()), if !is_behind => {
                domains.keep();
                core.borrow_mut().look_for_vms();
            }
            // One burst of devices per turn, so that other events are not kept waiting.
            () = tokio::task::yield_now(), if is_behind => look(&core, &mut links),
            _ = hangup.recv() => {
                reload(options, &core, &mut links, &mut listeners, &stop_sender).await;
                namespaces.look_soon();
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            Some(reply) = stop_requests.recv() => {
                notify(&[NotifyState::Stopping]);
                // Guests must be back to plain TCP before what holds their packets is removed.
                channels.end();
                core.borrow_mut().farewell();
                let outcome = dismantle(&core, &mut links, &options.run_dir);
                if outcome.is_ok() {
                    tracing::info!("everything is removed");
                }
                // The client may have gone meanwhile; its request is done all the same.
                let _ = reply.send(outcome.clone());
                // The task that took the request writes the answer, and needs this time.
                tokio::time::sleep(Duration::from_millis(100)).await;
                // Guests and the datapath have been told that nobody is here: an agent must not go on.
                return outcome.map(drop).map_err(|why| HostError::Stays { why });
            }
        }
    }
    notify(&[NotifyState::Stopping]);
    channels.end();
    core.borrow_mut().farewell();
    tracing::info!("ends; the datapath goes on without it (`evenkeel host --stop` removes it)");
    Ok(())
}

async fn bind_metrics(config: &config::Metrics) -> Result<Option<TcpListener>, HostError> {
    if config.enabled { http::bind(config.listen).await.map(Some) } else { Ok(None) }
}

fn serve_control(listener: Listener, core: &Rc<RefCell<Core>>, stop: &mpsc::Sender<Reply>) -> JoinHandle<()> {
    let desk = Rc::new(ControlService { core: Rc::clone(core), stop: stop.clone() });
    tokio::task::spawn_local(async move { listener.serve(desk).await })
}

fn serve_metrics(listener: TcpListener, core: &Rc<RefCell<Core>>) -> JoinHandle<()> {
    let core = Rc::clone(core);
    let text = move || {
        let status = core.borrow_mut().status()?;
        metrics::text(status).map_err(|error| HostError::io("cannot write metrics", std::io::Error::other(error)))
    };
    tokio::task::spawn_local(http::serve(listener, Rc::new(text)))
}

/// News of devices; none as long as nobody listens.
async fn news(watch: &mut Option<LinkWatch>) -> Result<Vec<LinkEvent>, HostError> {
    match watch {
        Some(watch) => watch.next().await,
        None => pending().await,
    }
}

/// Waits until that time; forever if there is none.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => pending().await,
    }
}

fn hear(core: &Rc<RefCell<Core>>, events: Vec<LinkEvent>) {
    let mut core = core.borrow_mut();
    for event in events {
        match event {
            LinkEvent::Changed { ifindex, name } => core.appeared(ifindex, name),
            LinkEvent::Gone { ifindex } => core.gone(ifindex),
            LinkEvent::Lost => core.ask_for_list(),
        }
    }
    core.commit();
}

fn beat(core: &Rc<RefCell<Core>>) {
    let mut core = core.borrow_mut();
    core.heartbeat();
}

/// Takes a list, if one is due, or looks at some devices.
fn look(core: &Rc<RefCell<Core>>, links: &mut Links) {
    let mut core = core.borrow_mut();
    if core.list_is_due() {
        match links.list() {
            Ok(listing) => core.listed(&listing),
            Err(error) => core.unlisted(&error),
        }
        return;
    }
    let mut planned = Vec::new();
    for _ in 0..BURST {
        let Some(ifindex) = core.next() else { break };
        match links.get(ifindex) {
            Ok(Some(link)) => {
                let action = core.seen(&link);
                planned.push((link, action));
            }
            Ok(None) => core.gone(ifindex),
            Err(error) => core.missed(ifindex, &error),
        }
    }
    set_queues(&mut core, links, &planned);
}

/// Looks at all devices that there is news of.
async fn catch_up(core: &Rc<RefCell<Core>>, links: &mut Links) {
    while core.borrow().is_behind() {
        look(core, links);
        if core.borrow().beats_at() <= Instant::now() {
            beat(core);
        }
        tokio::task::yield_now().await;
    }
}

/// Reads the configuration again. One that cannot be used is reported, and the settings before it stay.
async fn reload(
    options: &Options,
    core: &Rc<RefCell<Core>>,
    links: &mut Links,
    listeners: &mut Listeners,
    stop: &mpsc::Sender<Reply>,
) {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
    match prepare(options, core, listeners).await {
        Ok((loaded, control, metrics)) => {
            let config = loaded.config.clone();
            core.borrow_mut().adopt(loaded);
            if let Some(listener) = control {
                core.borrow_mut().note_socket(listener.path());
                let own = (config.control, serve_control(listener, core, stop));
                let (_, before) = std::mem::replace(&mut listeners.control, own);
                // Clients that found the earlier socket are still answered there.
                tokio::task::spawn_local(async move {
                    tokio::time::sleep(FAREWELL).await;
                    before.abort();
                });
            }
            if let Some(listener) = metrics {
                if let Some(task) = listeners.metrics.1.take() {
                    task.abort();
                }
                listeners.metrics = (config.metrics, listener.map(|listener| serve_metrics(listener, core)));
            }
            core.borrow_mut().ask_for_list();
            catch_up(core, links).await;
            tracing::info!("configuration read again");
        }
        Err(error) => {
            tracing::error!("the configuration is refused, the settings before it stay: {error}");
            core.borrow_mut().count("reloads_refused");
            core.borrow_mut().refuse(error.to_string());
            listeners.serve_metrics_again(core).await;
        }
    }
    // Counted last: a reader that sees the count also sees the outcome.
    core.borrow_mut().count("reloads");
    notify(&[NotifyState::Ready]);
}

/// Does everything that can fail about a new configuration, before any of it takes effect.
async fn prepare(
    options: &Options,
    core: &Rc<RefCell<Core>>,
    listeners: &mut Listeners,
) -> Result<(Loaded, Option<Listener>, Option<Option<TcpListener>>), HostError> {
    let loaded = load(options, Some(core.borrow().loaded()))?;
    core.borrow().check_hook(&loaded.config)?;
    if loaded.config.netns.is_empty() == core.borrow().is_elsewhere() {
        return Err(HostError::Missing {
            what: "whether ports are in other network namespaces (netns) is settled when the agent starts".to_owned(),
            help: "restart it; the datapath goes on meanwhile".to_owned(),
        });
    }
    let config = &loaded.config;
    let mut control = (config.control != listeners.control.0)
        .then(|| Listener::bind(&config.control.socket, &config.control.group))
        .transpose()?;
    let (served, is_served) = (&listeners.metrics.0, listeners.metrics.1.is_some());
    // Of a socket that stays, only what is checked when the file is read can have changed.
    let stays = if config.metrics.enabled { is_served && served.listen == config.metrics.listen } else { !is_served };
    let metrics = if stays {
        None
    } else {
        listeners.make_room(&config.metrics).await;
        Some(bind_metrics(&config.metrics).await?)
    };
    // Last of all: until then the earlier socket is answered.
    if let Some(control) = &mut control {
        control.show()?;
    }
    Ok((loaded, control, metrics))
}

fn may_not_enter(error: std::io::Error) -> HostError {
    HostError::Missing {
        what: format!("this process may not enter other network namespaces, where netns looks for ports: {error}"),
        help:
            "it takes CAP_SYS_ADMIN, and RestrictNamespaces=net in its unit: docs/platforms/kubevirt-kata.md has both"
                .to_owned(),
    }
}

/// What an agent before this one did in other namespaces could not be undone, and would be forgotten.
fn may_not_leave(left_behind: &[(u32, String, u32)], error: std::io::Error) -> HostError {
    let names: Vec<_> = left_behind.iter().map(|(_, name, _)| name.as_str()).collect();
    HostError::Missing {
        what: format!(
            "the agent before this one has ports in other network namespaces ({}), and this process may not enter \
             them to undo that: {error}",
            names.join(", ")
        ),
        help: "`evenkeel host --stop` as root undoes it, or start the agent once with CAP_SYS_ADMIN, and \
               RestrictNamespaces=net in its unit: docs/platforms/kubevirt-kata.md has both"
            .to_owned(),
    }
}

fn listen(kind: SignalKind) -> Result<Signal, HostError> {
    signal(kind).map_err(|error| HostError::io("cannot wait for signals", error))
}

/// Tells systemd, if it asked to be told.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}

/// Waits for a descriptor to be readable.
fn readable(fd: BorrowedFd<'_>) -> Result<AsyncFd<OwnedFd>, HostError> {
    let wait = || -> std::io::Result<AsyncFd<OwnedFd>> {
        let fd = fd.try_clone_to_owned()?;
        // SAFETY: the `AsyncFd` owns the descriptor, so it stays open for as long as it is registered.
        Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
    };
    wait().map_err(|error| HostError::io("cannot wait for events", error))
}

/// A timer in microseconds; the event loop's own counts milliseconds.
struct Timer {
    fd: TimerFd,
    expired: AsyncFd<OwnedFd>,
}

impl Timer {
    fn new() -> Result<Self, HostError> {
        let fd = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)
            .map_err(|errno| HostError::io("cannot make a timer", errno))?;
        let expired = readable(fd.as_fd())?;
        Ok(Self { fd, expired })
    }

    fn set(&self, delay: Option<Duration>) -> Result<(), HostError> {
        let outcome = match delay {
            // 0 would switch it off.
            Some(delay) => self.fd.set(
                Expiration::OneShot(TimeSpec::from_duration(delay.max(Duration::from_nanos(1)))),
                TimerSetTimeFlags::empty(),
            ),
            None => self.fd.unset(),
        };
        outcome.map_err(|errno| HostError::io("cannot set a timer", errno))
    }

    async fn expired(&self) {
        match self.expired.readable().await {
            Ok(mut ready) => {
                // The descriptor does not block; reading it only confirms that the timer expired.
                let _ = nix::unistd::read(self.fd.as_fd().as_raw_fd(), &mut [0; 8]);
                ready.clear_ready();
            }
            Err(_) => pending().await,
        }
    }
}
