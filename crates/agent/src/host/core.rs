//! What the agent knows and does at once: ports, settings, timers. Whatever has to wait is the supervisor's.

mod answers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_algo::proboscis::Settings;
use nix::time::{ClockId, clock_gettime};

use super::cera;
use super::config::{ChannelAddress, Config, Mode, PortSettings};
use super::endpoint::Endpoint;
use super::error::HostError;
use super::links::{Kind, Link};
use super::resend::{Facts, Resend, Send};
use super::rest::{Rest, Word};
use super::settle;
use super::state::{HostState, QueueAction};
use crate::channel::wire::Capabilities;
use crate::channel::{Channels, Words};
use crate::datapath::{Datapath, DatapathError, Events, intf};

/// How often the datapath is told that the agent is here. What it holds for the agent's timers it holds for so long after the agent was last heard
/// of as that takes three times: a crash costs no more SYN-ACKs than those of this while.
const HEARTBEAT: Duration = Duration::from_millis(50);
/// The same where no SYN-ACK is held. On a small host each is worth sparing: in the lab it takes a millisecond of translated code.
const HEARTBEAT_AT_LEISURE: Duration = Duration::from_millis(500);
/// How long guests may flood after the datapath was last told that the agent is here. It holds packets for `EK_HOLD_PATIENCE_NS` from
/// then on, and a guest that is told nothing any more floods for three heartbeats.
const ATTESTED_FOR: Duration = Duration::from_secs(2);
/// How often vSnoop's and vFlood's connections are looked through for silent ones.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// Connections that were idle for so long are forgotten by vSnoop,
const SWEEP_IDLE: Duration = Duration::from_secs(3600);
/// or for so long, while the table is more than half full.
const SWEEP_IDLE_CROWDED: Duration = Duration::from_secs(30);
/// How often it is tried again to shorten a queue.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Why a macvtap is no port.
const MACVTAP: &str = "packets for the VM come in at a macvtap and those of the VM go out, so that what the host sends would go the wrong way. \
                       Give the VM a tap on a bridge";

/// A configuration with everything that it names.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The file that was read, or would have been.
    pub file: PathBuf,
    /// What is in it.
    pub config: Config,
    /// The probe keys.
    pub keys: Vec<intf::siphash_key>,
}

/// A port that is there.
#[derive(Debug)]
struct Port {
    link: Link,
    settings: PortSettings,
    error: Option<String>,
    /// Somebody else has set its queue while we ran: theirs stays.
    queue_is_theirs: bool,
    /// Its VM is about to leave.
    is_offline: bool,
    /// Whether vFlood has something to do for its VM.
    rest: Rest,
    /// Whether data may be acknowledged for it early, as the datapath has it.
    endpoint: Endpoint,
    /// What the log says of that, which is the VM's to change.
    words: Words,
}

/// The agent.
#[derive(Debug)]
pub struct Core {
    loaded: Loaded,
    datapath: Datapath,
    channels: Channels,
    ports: BTreeMap<u32, Port>,
    resend: Resend,
    run_dir: PathBuf,
    state: HostState,
    counts: HashMap<&'static str, u64>,
    config_refused: Option<String>,
    /// A port had vFlood, and may still hold packets.
    lets_go: bool,
    /// Ports whose VMs are about to leave.
    offline: BTreeSet<u32>,
    /// Devices whose queues are to be shortened when what waits there has been read.
    unsettled: BTreeSet<u32>,
    retried: Instant,
    started: Instant,
    swept: Instant,
    /// vSnoop's entries after the last sweep.
    snoops: u32,
    cera: Option<cera::Controller>,
    cera_error: Option<String>,
}

/// Nanoseconds of the clock that the datapath uses.
pub fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(|time| Duration::from(time).as_nanos().try_into().unwrap_or(u64::MAX))
        .unwrap_or_default()
}

impl Core {
    /// An agent without ports yet.
    pub fn new(loaded: Loaded, datapath: Datapath, channels: Channels, state: HostState, run_dir: &Path) -> Self {
        Self {
            loaded,
            datapath,
            channels,
            ports: BTreeMap::new(),
            resend: Resend::default(),
            run_dir: run_dir.to_owned(),
            state,
            counts: HashMap::new(),
            config_refused: None,
            lets_go: true,
            offline: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            retried: Instant::now(),
            started: Instant::now(),
            swept: Instant::now(),
            snoops: 0,
            cera: None,
            cera_error: None,
        }
    }

    /// The file that the configuration is in.
    pub fn file(&self) -> &Path {
        &self.loaded.file
    }

    /// One more of what `name`, of [`AGENT_COUNTERS`](super::metrics::AGENT_COUNTERS), counts.
    pub fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// Notes where the agent answers, so that `--stop` finds it.
    ///
    /// # Errors
    /// [`HostError::Io`]
    pub fn note_socket(&mut self, socket: &Path) -> Result<(), HostError> {
        self.state.socket = Some(socket.to_owned());
        self.state.store(&self.run_dir)
    }

    /// How often [`heartbeat`](Self::heartbeat) is to be called.
    pub fn heartbeat_every(&self) -> Duration {
        let holds_synacks = |port: &Port| port.settings.proboscis.mode == Mode::Enforce;
        if self.lets_go || !self.unsettled.is_empty() || self.ports.values().any(holds_synacks) {
            HEARTBEAT
        } else {
            HEARTBEAT_AT_LEISURE
        }
    }

    /// Whether some port acts, so that the datapath must know that somebody is here.
    pub fn acts(&self) -> bool {
        let acts = |port: &Port| {
            let PortSettings { proboscis, vsnoop, vflood, .. } = &port.settings;
            proboscis.mode == Mode::Enforce || vsnoop.mode != Mode::Off || vflood.mode != Mode::Off
        };
        self.lets_go || !self.unsettled.is_empty() || self.ports.values().any(acts)
    }

    /// No table takes a connection in the place of another: those that ended unseen have to go.
    fn sweep(&mut self) {
        if self.swept.elapsed() < SWEEP_EVERY {
            return;
        }
        self.swept = Instant::now();
        if self.ports.values().any(|port| port.settings.vsnoop.mode != Mode::Off) {
            self.sweep_snoops();
        }
        if let Err(error) = self.end_silent() {
            tracing::warn!(%error, "vFlood's table is not kept");
        }
    }

    /// Ends vFlood's silent connections. The whole table is read for it, so only where there are any.
    fn end_silent(&mut self) -> Result<(), DatapathError> {
        for ifindex in self.ports.keys() {
            if self.datapath.managed_of(*ifindex)?.is_some_and(|managed| managed > 0) {
                self.datapath.end_silent(Duration::from_nanos(intf::EK_HOLD_SILENCE_NS))?;
                break;
            }
        }
        Ok(())
    }

    fn sweep_snoops(&mut self) {
        let idle = if self.snoops > intf::EK_DEFAULT_SNOOPS / 2 { SWEEP_IDLE_CROWDED } else { SWEEP_IDLE };
        match self.datapath.sweep_snoops(idle) {
            Ok(left) => self.snoops = left,
            Err(error) => tracing::warn!(%error, "vSnoop's table is not kept"),
        }
    }

    /// Ports that are to hold packets no more have let out what they held, or not yet.
    pub fn let_go(&mut self) {
        if !self.lets_go {
            return;
        }
        match self.datapath.let_go() {
            Ok(waits) => self.lets_go = waits,
            Err(error) => tracing::warn!(%error, "cannot remove the devices that held packets"),
        }
    }

    /// Tells the datapath of the host: keys, and that somebody is here who lets SYN-ACKs go.
    pub fn heartbeat(&mut self) {
        let mut host = intf::ek_host {
            version: intf::EK_INTF_VERSION,
            keys: self.loaded.keys.len() as u32,
            agent_until_ns: now_ns() + 3 * self.heartbeat_every().as_nanos() as u64,
            ..Default::default()
        };
        for (to, from) in host.key.iter_mut().zip(&self.loaded.keys) {
            *to = *from;
        }
        if let Err(error) = self.datapath.set_host(&host) {
            tracing::warn!(%error, "cannot tell the datapath that the agent is here");
        } else {
            self.channels.vouch(Instant::now() + ATTESTED_FOR);
        }
        self.watch_events();
        self.sweep();
        self.judge();
    }

    /// vFlood rests on ports whose VMs have their core, and acts on those whose VMs wait for it.
    fn judge(&mut self) {
        let now = Instant::now();
        for (ifindex, port) in &mut self.ports {
            if port.settings.vflood.mode == Mode::Off || port.error.is_some() {
                continue;
            }
            let word = self.channels.guest(*ifindex).map(|guest| Word {
                off_core_permille: guest.off_core_permille,
                is_obedient: !guest.capabilities.has(Capabilities::VFLOOD) || self.channels.is_obeyed(*ifindex),
            });
            let acts_permille = 10 * port.settings.vflood.off_core_percent.get() as u16;
            let rest = port.rest.heard(word, acts_permille, now);
            if rest.passes_over() != port.rest.passes_over() {
                if let Err(error) = self.datapath.pass_over(*ifindex, rest.passes_over()) {
                    tracing::warn!(port = port.link.name, %error, "vFlood goes on as it did");
                    continue;
                }
                let what = if rest.passes_over() { "vFlood rests: the VM has its core" } else { "vFlood acts again" };
                port.words.say(now, |left_out| tracing::info!(port = port.link.name, left_out, "{what}"));
            }
            if rest.attests() != port.rest.attests() {
                let holds = self.datapath.holds(*ifindex).unwrap_or_default() && rest.attests();
                self.channels.attest(*ifindex, holds.then_some(intf::VFLOOD_FLOOD_SEGMENTS));
            }
            port.rest = rest;
        }
    }

    /// The agent is going: what it holds goes out, and nothing more is to be held.
    pub fn farewell(&mut self) {
        let keys = &self.loaded.keys;
        let mut host = intf::ek_host { version: intf::EK_INTF_VERSION, keys: keys.len() as u32, ..Default::default() };
        for (to, from) in host.key.iter_mut().zip(keys) {
            *to = *from;
        }
        if let Err(error) = self.datapath.set_host(&host) {
            tracing::warn!(%error, "cannot tell the datapath that the agent goes");
        }
        self.events();
        let sends = self.resend.drain();
        self.send(sends);
    }

    /// A new configuration holds from now on. What it makes of ports is up to [`seen`](Self::seen).
    pub fn adopt(&mut self, loaded: Loaded) {
        // A running controller knows ports by their names in the old one.
        if self.loaded.config.ports != loaded.config.ports {
            self.cera = None;
        }
        self.loaded = loaded;
        self.config_refused = None;
        self.heartbeat();
    }

    /// The configuration was refused.
    pub fn refuse(&mut self, why: String) {
        self.config_refused = Some(why);
    }

    /// All devices there are: ports that are gone are let go of.
    ///
    /// # Errors
    /// [`HostError::Io`] if the state cannot be noted.
    pub fn listed(&mut self, links: &[Link]) -> Result<(), HostError> {
        self.count("lists_taken");
        let is_there = |ifindex: u32| links.iter().any(|l| l.ifindex == ifindex);
        let gone: Vec<u32> = self.ports.keys().copied().filter(|ifindex| !is_there(*ifindex)).collect();
        for ifindex in gone {
            self.gone(ifindex)?;
        }
        // What an agent before this one had its programs on and this one is not to.
        for ifindex in self.datapath.ports()? {
            let name = links.iter().find(|l| l.ifindex == ifindex).map(|l| l.name.as_str());
            if !name.is_some_and(|name| self.loaded.config.is_port(name)) && !self.ports.contains_key(&ifindex) {
                self.lets_go |= self.datapath.detach(ifindex)?;
            }
        }
        let ports = &self.ports;
        if self.state.retain(links, |ifindex| ports.get(&ifindex).map(|port| port.link.name.as_str())) {
            self.state.store(&self.run_dir)?;
        }
        Ok(())
    }

    /// A device is there, or has changed. What is to be done with its queue; that is noted already.
    ///
    /// # Errors
    /// [`HostError::Io`] if the state cannot be noted: then nothing is changed.
    pub fn seen(&mut self, link: &Link) -> Result<QueueAction, HostError> {
        if let Some(port) = self.ports.get(&link.ifindex) {
            // The same device: one that had gone would not be known any more.
            if port.link.name != link.name && self.state.rename(link.ifindex, &port.link.name, &link.name) {
                self.state.store(&self.run_dir)?;
            }
        }
        if !self.loaded.config.is_port(&link.name) {
            // Raised by an agent with another configuration, or before it was renamed. Its programs are there while it settles.
            let action = self.plan_queue(link, 0)?;
            if self.ports.remove(&link.ifindex).is_some() {
                tracing::info!(port = link.name, "no longer a port");
                self.open_channel(link, None);
                self.lets_go |= self.datapath.detach(link.ifindex)?;
                self.arrange_cera();
            }
            return Ok(action);
        }
        let is_offline = self.offline.contains(&link.ifindex);
        let settings = self.loaded.config.settings(&link.name).while_offline(is_offline);
        let known = self.ports.get(&link.ifindex).filter(|port| port.link.name == link.name);
        let is_new = known.is_none();
        let is_settled = known.is_some_and(|port| {
            port.settings == settings
                && port.error.is_none()
                && port.link.queue_segments == link.queue_segments
                && port.is_offline == is_offline
        });
        let queue_is_theirs = known.is_some_and(|port| {
            port.queue_is_theirs && port.settings.port_queue_segments == settings.port_queue_segments
        });
        let mut rest = known.map(|port| port.rest).unwrap_or_default();
        let words = known.map_or_else(|| Words::new(Instant::now()), |port| port.words.clone());
        let endpoint = Endpoint::unheard(settings.vsnoop.endpoint);
        let managed = self.datapath.manages(link.ifindex)?;
        let mut error = None;
        if link.kind == Kind::Macvtap {
            error = Some(MACVTAP.to_owned());
            if is_new {
                tracing::error!(port = link.name, error = MACVTAP, "no port");
                self.count("ports_failed");
            }
        } else if !is_settled {
            let mut own = settings.to_intf(link, endpoint);
            own.vflood.passes_over = u32::from(rest.passes_over());
            if is_offline {
                // What was promised is still followed to its end.
                own.vsnoop.settings.budget_segments = 0;
            }
            if let Err(failure) = self.datapath.attach(link.ifindex, &own) {
                tracing::error!(port = link.name, error = %failure, "the datapath cannot be put on this port");
                self.count("ports_failed");
                error = Some(failure.to_string());
            } else if is_new {
                tracing::info!(port = link.name, mode = %settings.proboscis.mode, "port");
            }
            self.lets_go = true;
            if let Some(why) = self.datapath.cannot_hold(link.ifindex) {
                let help = why.help().unwrap_or_default();
                tracing::error!(port = link.name, "vFlood is off on this port: {why}; {help}");
            }
        }
        if is_new {
            self.count("ports_seen");
        }
        self.open_channel(link, settings.channel.as_ref());
        // Handshakes that passed before were not seen.
        if !managed && self.datapath.manages(link.ifindex)? {
            rest = Rest::Waking(Instant::now());
        }
        // The guest may flood only where its packets are held.
        let holds = self.datapath.holds(link.ifindex)? && rest.attests();
        self.channels.attest(link.ifindex, holds.then_some(intf::VFLOOD_FLOOD_SEGMENTS));
        let wanted = settings.port_queue_segments.get();
        self.ports.insert(
            link.ifindex,
            Port { link: link.clone(), settings, error, queue_is_theirs, is_offline, rest, endpoint, words },
        );
        self.arrange_cera();
        if queue_is_theirs { Ok(QueueAction::Leave) } else { self.plan_queue(link, wanted) }
    }

    /// Gives a port the channel that the configuration has for it.
    fn open_channel(&self, link: &Link, address: Option<&ChannelAddress>) {
        let heartbeat_ms = self.loaded.config.channel.heartbeat_ms.get() as u16;
        let opened = address.map(ChannelAddress::parse).transpose().and_then(|address| {
            let set = self.channels.set(link.ifindex, &link.name, address.as_ref(), heartbeat_ms);
            set.map_err(|error| error.to_string())
        });
        if let Err(why) = opened {
            tracing::error!(port = link.name, "the channel to the guest cannot be opened: {why}");
        }
    }

    /// A queue that [`seen`](Self::seen) asked for has its length.
    ///
    /// # Errors
    /// [`HostError::Io`] if that cannot be noted.
    pub fn queue_is_set(&mut self, ifindex: u32) -> Result<(), HostError> {
        if self.state.confirm(ifindex) { self.state.store(&self.run_dir) } else { Ok(()) }
    }

    fn plan_queue(&mut self, link: &Link, wanted_segments: u32) -> Result<QueueAction, HostError> {
        let before = self.state.clone();
        let action = self.state.plan(link, wanted_segments);
        if action == QueueAction::Theirs {
            tracing::info!(port = link.name, queue = link.queue_segments, "somebody else has set this queue: it stays");
            if let Some(port) = self.ports.get_mut(&link.ifindex) {
                port.queue_is_theirs = true;
            }
        }
        if matches!(action, QueueAction::Set(segments) if !self.settle(link, segments)) {
            self.state = before;
            return Ok(QueueAction::Leave);
        }
        self.unsettled.remove(&link.ifindex);
        if self.state != before {
            if let Err(error) = self.state.store(&self.run_dir) {
                self.state = before;
                return Err(error);
            }
        }
        Ok(action)
    }

    /// Whether nothing is dropped when a tap's queue is made shorter. Nothing is promised there from now on; the port's settings hold again when
    /// its new length is seen. What has not settled is tried again.
    fn settle(&mut self, link: &Link, segments: u32) -> bool {
        if !settle::shortens(link, segments) {
            return true;
        }
        let promising = |port: &&Port| port.settings.vsnoop.mode == Mode::Enforce && port.error.is_none();
        if let Some(port) = self.ports.get(&link.ifindex).filter(promising) {
            settle::end_promises(&mut self.datapath, link, &port.settings.to_intf(link, port.endpoint));
        }
        let patience = if self.unsettled.contains(&link.ifindex) { Duration::ZERO } else { settle::PATIENCE };
        let has_settled = settle::has_settled(&mut self.datapath, link, segments, patience);
        if !has_settled && self.unsettled.insert(link.ifindex) {
            let (now, then) = (link.queue_segments, segments);
            tracing::warn!(
                port = link.name,
                now,
                then,
                "the queue is not shortened before the VM has read what waits in it"
            );
        }
        has_settled
    }

    /// Whether it is time to look again at queues that could not be shortened: devices are to be listed.
    pub fn retries(&mut self) -> bool {
        let retries = !self.unsettled.is_empty() && self.retried.elapsed() >= RETRY_EVERY;
        if retries {
            self.retried = Instant::now();
        }
        retries
    }

    /// A device is gone.
    ///
    /// # Errors
    /// [`HostError::Io`] if that cannot be noted.
    pub fn gone(&mut self, ifindex: u32) -> Result<(), HostError> {
        self.offline.remove(&ifindex);
        self.unsettled.remove(&ifindex);
        if let Some(port) = self.ports.remove(&ifindex) {
            tracing::info!(port = port.link.name, "port gone");
            self.open_channel(&port.link, None);
            self.count("ports_gone");
            self.lets_go |= self.datapath.detach(ifindex)?;
            self.arrange_cera();
        }
        if self.state.queues.remove(&ifindex).is_some() {
            self.state.store(&self.run_dir)?;
        }
        Ok(())
    }

    /// Takes the programs off all ports and removes all pins. The names of the ports, what the queues were, and the devices whose queues must stay
    /// because of what waits there.
    ///
    /// # Errors
    /// [`HostError::Datapath`]
    pub fn dismantle(&mut self, links: &[Link]) -> Result<(Vec<String>, HostState, BTreeSet<u32>), HostError> {
        let ports = self.ports.values().filter(|p| p.error.is_none()).map(|p| p.link.name.clone()).collect();
        self.cera = None;
        let unsettled = settle::unsettled(&mut self.datapath, links, &self.state.queues);
        self.datapath.remove()?;
        self.ports.clear();
        Ok((ports, self.state.clone(), unsettled))
    }

    /// CERA's controller is there if some port needs it, and knows those that do.
    fn arrange_cera(&mut self) {
        let setup = cera::Setup { config: self.loaded.config.cera.clone(), members: self.cera_members() };
        self.cera_error = None;
        match &self.cera {
            _ if setup.members.is_empty() => self.cera = None,
            Some(controller) => controller.set(setup),
            None => match self.start_cera(setup) {
                Ok(controller) => self.cera = Some(controller),
                Err(error) => {
                    tracing::error!(%error, "CERA does nothing");
                    self.cera_error = Some(error.to_string());
                }
            },
        }
    }

    fn cera_members(&self) -> Vec<cera::Member> {
        let is_on = |port: &&Port| port.settings.cera.mode != Mode::Off && port.error.is_none();
        let member = |(ifindex, port): (&u32, &Port)| {
            let slot = self.datapath.slot_of(*ifindex).ok().flatten()?;
            let (mode, weight) = (port.settings.cera.mode, port.settings.cera.weight.get());
            Some(cera::Member { ifindex: *ifindex, slot, mode, weight })
        };
        self.ports.iter().filter(|(_, port)| is_on(port)).filter_map(member).collect()
    }

    fn start_cera(&self, setup: cera::Setup) -> Result<cera::Controller, HostError> {
        let config = self.loaded.config.clone();
        let is_port = move |name: &str| config.is_port(name);
        cera::Controller::start(setup, self.datapath.shares()?, self.channels.clone(), is_port)
    }

    /// Reads the datapath's events and acts on them. Whether that were all: others would not be told of.
    pub fn events(&mut self) -> bool {
        self.read_events().are_all
    }

    fn read_events(&mut self) -> Read {
        let Events { events, are_all } = match self.datapath.events() {
            Ok(events) => events,
            Err(error) => {
                tracing::warn!(%error, "cannot read the datapath's events");
                self.count("events_unread");
                return Read { events: 0, are_all: true };
            }
        };
        let read = Read { events: events.len(), are_all };
        let now_us = now_ns() / 1000;
        let view = View { datapath: &self.datapath, ports: &self.ports };
        let sends: Vec<Send> =
            events.into_iter().filter_map(|event| self.resend.event(Box::new(event), now_us, &view)).collect();
        self.send(sends);
        read
    }

    /// Reads the events that nobody was woken up for.
    fn watch_events(&mut self) {
        if !self.datapath.events_wait() {
            return;
        }
        let Read { events, .. } = self.read_events();
        // None: a program is still writing the first one.
        if events > 0 {
            self.count("events_found_waiting");
            tracing::error!(events, "events of the datapath were waiting, and nobody was woken up for them");
        }
    }

    /// Everything whose time has come.
    pub fn expire(&mut self) {
        let view = View { datapath: &self.datapath, ports: &self.ports };
        let sends = self.resend.expire(now_ns() / 1000, &view);
        self.send(sends);
    }

    /// How long until [`expire`](Self::expire) is to be called.
    pub fn due_in(&self) -> Option<Duration> {
        let due_us = self.resend.due_us()?;
        Some(Duration::from_nanos(due_us.saturating_mul(1000).saturating_sub(now_ns())))
    }

    fn send(&mut self, sends: Vec<Send>) {
        for send in sends {
            let outcome = match &send {
                Send::Syn { event, probes, train, with_syn } => self.datapath.inject(event, *probes, *train, *with_syn),
                Send::SynAck { event } => self.datapath.inject(event, 0, 0, true),
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "cannot send");
                self.count("sends_failed");
            }
        }
    }

    /// Takes a port offline before its VM leaves this host, or online again: vFlood lets out what it holds and the guest goes back to plain TCP,
    /// vSnoop promises nothing more, CERA's limit ends. False if there is no port of this name.
    ///
    /// # Errors
    /// [`HostError`] if the datapath does not take it.
    pub fn switch(&mut self, name: &str, online: bool) -> Result<bool, HostError> {
        let Some(link) = self.ports.values().find(|port| port.link.name == name).map(|port| port.link.clone()) else {
            return Ok(false);
        };
        let is_changed = if online { self.offline.remove(&link.ifindex) } else { self.offline.insert(link.ifindex) };
        if is_changed {
            tracing::info!(port = name, "{}", if online { "online again" } else { "offline" });
            // Its queue is as it is to be.
            self.seen(&link)?;
        }
        Ok(true)
    }
}

/// What was read of the datapath's events.
struct Read {
    events: usize,
    are_all: bool,
}

/// What the timers ask about.
struct View<'a> {
    datapath: &'a Datapath,
    ports: &'a BTreeMap<u32, Port>,
}

impl Facts for View<'_> {
    fn settings(&self, ifindex: u32) -> Option<Settings> {
        let port = self.ports.get(&ifindex)?;
        (port.settings.proboscis.mode == Mode::Enforce).then(|| port.settings.to_algo())
    }

    fn trains_sent(&self, flow: &intf::ek_flow_key, iss: u32) -> Option<u8> {
        let handshake = self.datapath.handshake(flow).ok().flatten()?;
        (handshake.iss == iss && handshake.from_vm == 1).then_some(handshake.trains)
    }

    fn is_train_complete(&self, flow: &intf::ek_flow_key, iss: u32) -> bool {
        let key = intf::ek_train_key { flow: *flow, iss };
        // What cannot be read is not worth waiting for.
        let train = self.datapath.train(&key).ok().flatten();
        train.is_none_or(|train| train.count.seen >= train.count.total)
    }
}
