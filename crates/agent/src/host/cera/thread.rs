//! The controller's thread: a timer, the queue, and what follows.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_settings::Bounded;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::clock_gettime;

use super::epoch::{Clients, Epochs, Found, Look, Share};
use super::setup::Setup;
use super::uplink::{Uplink, Uplinks};
use crate::channel::Channels;
use crate::common::clock::now_ns;
use crate::datapath::Shares;
use crate::host::error::HostError;

/// How often the uplinks are looked for anew: another shaper, another link speed, another device.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// The controller of this host.
#[derive(Debug)]
pub struct Controller {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the agent and the thread have in common.
#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    setup: Mutex<(Setup, bool)>,
    view: Mutex<View>,
}

/// What the controller sees.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The last epoch.
    pub look: Look,
    /// The uplinks.
    pub uplinks: Vec<Uplink>,
    /// S.
    pub segment_bytes: u32,
    /// Delta.
    pub epoch_us: u32,
    /// Why it does nothing.
    pub error: Option<String>,
    /// Time that the thread has used.
    pub cpu: Duration,
    /// VMs, by device.
    pub vms: Vec<(u32, Share)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clients for Channels {
    fn tell(&self, ifindex: u32, epoch: u64, window_segments: u32) -> bool {
        self.window(ifindex, epoch, window_segments)
    }

    fn is_there(&self, ifindex: u32) -> bool {
        self.has_client(ifindex)
    }
}

impl Controller {
    /// Starts to look at the uplinks of this thread's network namespace.
    ///
    /// # Errors
    /// [`HostError::Io`] if the system gives no socket, timer or thread.
    pub fn start(
        setup: Setup,
        shares: Shares,
        clients: impl Clients + Send + 'static,
        is_port: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<Self, HostError> {
        let failed = |error: io::Error| HostError::io("cannot start CERA's controller", error);
        let uplinks = Uplinks::new().map_err(failed)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).map_err(|e| failed(e.into()))?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            setup: Mutex::new((setup.clone(), true)),
            view: Mutex::default(),
        });
        let settings = setup.config.settings(uplinks.segment_bytes(), uplinks.bytes_per_s());
        let epochs = Epochs::new(settings, setup.config.rtt_us.map(Bounded::get));
        let epoch_us = 0;
        let worker =
            Worker { shared: Arc::clone(&shared), shares, clients, is_port, uplinks, timer, epoch_us, epochs, setup };
        let thread = std::thread::Builder::new().name("cera".into()).spawn(move || worker.run()).map_err(failed)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What it is to do from now on.
    pub fn set(&self, setup: Setup) {
        let mut mine = lock(&self.shared.setup);
        if mine.0 != setup {
            *mine = (setup, true);
        }
    }

    /// What it sees.
    pub fn view(&self) -> View {
        lock(&self.shared.view).clone()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the limits that it left run out by themselves.
            let _ = thread.join();
        }
    }
}

struct Worker<C, P> {
    shared: Arc<Shared>,
    shares: Shares,
    clients: C,
    is_port: P,
    uplinks: Uplinks,
    timer: TimerFd,
    /// What the timer is set to.
    epoch_us: u32,
    epochs: Epochs,
    setup: Setup,
}

impl<C: Clients, P: Fn(&str) -> bool> Worker<C, P> {
    fn run(mut self) {
        let mut looked: Option<Instant> = None;
        let mut is_first = true;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let changed = {
                let mut setup = lock(&self.shared.setup);
                std::mem::take(&mut setup.1).then(|| setup.0.clone())
            };
            if let Some(setup) = changed {
                let is_other = is_first || setup.config != self.setup.config;
                self.setup = setup;
                self.epochs.seat(&self.setup.members, &mut self.shares, &self.clients);
                if is_other {
                    is_first = false;
                    looked = None;
                }
            }
            if looked.is_none_or(|at| at.elapsed() >= LOOK_AROUND) {
                looked = Some(Instant::now());
                self.look_around();
                if let Err(error) = self.set_timer() {
                    self.fail(format!("its timer cannot be set: {error}"));
                    break;
                }
            }
            match self.wait() {
                Ok(ended) => {
                    if !self.uplinks.found().is_empty() && !self.end(ended) {
                        looked = None;
                    }
                }
                Err(error) => {
                    self.fail(format!("its timer cannot be read: {error}"));
                    break;
                }
            }
        }
        self.epochs.release(&mut self.shares, &self.clients);
    }

    /// Sets the timer to the settings' epoch.
    fn set_timer(&mut self) -> io::Result<()> {
        let epoch_us = self.epochs.settings().epoch_us;
        if self.epoch_us != epoch_us {
            let epoch = Duration::from_micros(epoch_us.into());
            let times = Expiration::Interval(TimeSpec::from_duration(epoch));
            self.timer.set(times, TimerSetTimeFlags::empty())?;
            self.epoch_us = epoch_us;
        }
        Ok(())
    }

    /// Waits for the end of an epoch. Returns how many have ended since the last wait.
    fn wait(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        loop {
            match nix::unistd::read(self.timer.as_fd().as_raw_fd(), &mut count) {
                Ok(_) => return Ok(u64::from_ne_bytes(count)),
                Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn look_around(&mut self) {
        match self.uplinks.find(&self.setup.config, &self.is_port) {
            Ok(_) => {
                let settings = self.setup.config.settings(self.uplinks.segment_bytes(), self.uplinks.bytes_per_s());
                self.epochs.adopt(settings, self.setup.config.rtt_us.map(Bounded::get));
                lock(&self.shared.view).error = None;
            }
            Err(error) => self.fail(error),
        }
        let mut view = lock(&self.shared.view);
        if view.uplinks != self.uplinks.found() {
            for uplink in self.uplinks.found() {
                let mbit = uplink.bytes_per_s / 125_000;
                tracing::info!(
                    uplink = uplink.name,
                    qdisc = uplink.qdisc,
                    mbit,
                    from = uplink.rate_from.name(),
                    "CERA"
                );
            }
            view.uplinks = self.uplinks.found().to_vec();
        }
        view.segment_bytes = self.uplinks.segment_bytes();
        view.epoch_us = self.epochs.settings().epoch_us;
        view.cpu = clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
    }

    /// Notes why the controller does nothing, and lifts all limits.
    fn fail(&mut self, error: String) {
        self.epochs.release(&mut self.shares, &self.clients);
        let mut view = lock(&self.shared.view);
        if view.error.as_ref() != Some(&error) {
            tracing::warn!("CERA does nothing: {error}");
            view.error = Some(error);
        }
        view.look = self.epochs.look();
    }

    /// Handles the end of epochs; false if the queue could not be read.
    fn end(&mut self, ended: u64) -> bool {
        let queue_bytes = match self.uplinks.backlog_bytes() {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::debug!(%error, "the uplink's queue cannot be read");
                return false;
            }
        };
        let found = Found { now_ns: now_ns(), ended, queue_bytes, bytes_per_s: self.uplinks.bytes_per_s() };
        self.epochs.end(&found, &mut self.shares, &self.clients);
        let mut view = lock(&self.shared.view);
        view.look = self.epochs.look();
        view.vms.clear();
        view.vms.extend(self.epochs.shares());
        true
    }
}
