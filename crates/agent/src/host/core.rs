//! What the agent knows and does at once: ports, settings, timers. Whatever has to wait is the supervisor's.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_settings::Mode;
use evenkeel_settings::host::Config;

use super::error::HostError;
use super::fresh::Fresh;
use super::lease::Leases;
use super::links::{Kind, Link};
use super::mechanism::{Mechanism, Presence, Tools};
use super::port::{self, Port, Ports, is_port};
use super::settle;
use super::state::{HostState, QueueAction, QueueChange};
use super::vms::Vms;
use super::wings::Wings;
use crate::channel::{ChannelLog, Channels};
use crate::common::clock::now_ns;
use crate::datapath::{Datapath, DatapathError, Removed, intf};

/// How often the agent tells the datapath that it is alive. The datapath holds SYN-ACKs for three heartbeats, so a
/// crash delays only those of that time.
const HEARTBEAT: Duration = Duration::from_millis(50);
/// The heartbeat where no SYN-ACK is held. Fewer of them spare a small host: in the lab each takes a millisecond of
/// translated code.
const HEARTBEAT_AT_LEISURE: Duration = Duration::from_millis(500);
/// How long guests may flood after the agent last told the datapath that it is alive. The datapath holds packets for at
/// least `EK_VFLOOD_AGENT_NS` from then on, and a guest that hears nothing more floods for three heartbeats.
const ATTESTED_FOR: Duration = Duration::from_secs(2);
/// How often the agent tries again what failed: to shorten a queue, to note a change, to look at or list devices.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How often the agent checks that its programs are still on the ports, when it has nothing to try again.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often the tables are searched for ports that are gone: once for a whole burst of them. A new device with the
/// index of one becomes a port only after that ([`Datapath::attach`]).
const FORGET_EVERY: Duration = Duration::from_secs(1);
/// How often devices are listed although no news of them was lost.
const LIST_EVERY: Duration = Duration::from_secs(60);
/// Why a macvtap is no port.
const MACVTAP: &str = "packets for the VM come in at a macvtap and those of the VM go out, so that what the host sends \
    would go the wrong way. Give the VM a tap on a bridge";

/// A configuration with everything that it names.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The file that was read, or would have been.
    pub file: PathBuf,
    /// Whether there was no file, and the defaults hold.
    pub is_default: bool,
    /// What is in it.
    pub config: Config,
    /// The probe keys.
    pub keys: Vec<intf::siphash_key>,
}

/// A device that is to be looked at.
#[derive(Debug)]
struct Waiting {
    name: String,
    /// Why that has failed; then it is tried again, but not at once.
    error: Option<String>,
}

/// The agent.
#[derive(Debug)]
pub struct Core {
    loaded: Loaded,
    datapath: Datapath,
    channels: Channels,
    ports: Ports,
    /// The VMs behind them.
    vms: Vms,
    wings: Wings,
    /// Devices that there is news of, one after the other.
    waiting: BTreeMap<u32, Waiting>,
    fresh: Fresh,
    list_is_due: bool,
    /// The last list may lack devices, or there was none.
    list_is_partial: bool,
    listed: Instant,
    run_dir: PathBuf,
    state: HostState,
    /// Devices whose queues are to be changed once that is noted, with what was noted of them before.
    planned: Vec<(u32, Option<QueueChange>)>,
    /// Devices have gone that are still in the notes.
    notes_are_old: bool,
    /// Why the last attempt to note what was changed failed.
    notes_error: Option<String>,
    counts: HashMap<&'static str, u64>,
    config_refused: Option<String>,
    /// Ports whose VMs are about to leave.
    offline: BTreeSet<u32>,
    /// Ports that trials have.
    leases: Leases,
    /// Devices whose queues are to be shortened once the VM has read what waits in them.
    unsettled: BTreeSet<u32>,
    beaten: Instant,
    forgot: Instant,
    kept: Instant,
    started: Instant,
}

/// What wings work with: other parts of the core than its ports and the wings.
macro_rules! tools {
    ($core:ident) => {
        Tools { datapath: &mut $core.datapath, channels: &$core.channels, config: &$core.loaded.config }
    };
}

mod answers;
mod leases;
mod namespaces;
mod news;
mod vms;

impl Core {
    /// An agent without ports yet.
    pub fn new(loaded: Loaded, datapath: Datapath, channels: Channels, state: HostState, run_dir: &Path) -> Self {
        Self {
            loaded,
            datapath,
            channels,
            ports: Ports::new(),
            vms: Vms::new(Instant::now()),
            wings: Wings::default(),
            waiting: BTreeMap::new(),
            fresh: Fresh::default(),
            list_is_due: true,
            list_is_partial: false,
            listed: Instant::now(),
            run_dir: run_dir.to_owned(),
            state,
            planned: Vec::new(),
            notes_are_old: false,
            notes_error: None,
            counts: HashMap::new(),
            config_refused: None,
            offline: BTreeSet::new(),
            leases: Leases::default(),
            unsettled: BTreeSet::new(),
            beaten: Instant::now(),
            forgot: Instant::now(),
            kept: Instant::now(),
            started: Instant::now(),
        }
    }

    /// The configuration that holds.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Checks that the kernel can attach the programs in the way that a configuration wants.
    ///
    /// # Errors
    /// [`HostError::Datapath`]
    pub fn check_hook(&self, config: &Config) -> Result<(), HostError> {
        self.datapath.hook_for(config.attach)?;
        Ok(())
    }

    /// The file that the configuration is in.
    pub fn file(&self) -> &Path {
        &self.loaded.file
    }

    /// Counts one more under `name`, one of [`AGENT_COUNTERS`](super::metrics::AGENT_COUNTERS).
    pub fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// Notes where the agent answers, so that `--stop` finds it.
    pub fn note_socket(&mut self, socket: &Path) {
        self.state.socket = Some(socket.to_owned());
        self.note();
    }

    /// Notes what was changed, or is about to be. Returns whether that worked; if not, it is tried again.
    fn note(&mut self) -> bool {
        let error = self.state.store(&self.run_dir).err().map(|error| error.to_string());
        if let Some(why) = &error {
            self.count("notes_failed");
            // Once, not for each port.
            if self.notes_error.as_ref() != Some(why) {
                tracing::error!(
                    "what is changed here cannot be noted: {why}; no more queues are changed before it can"
                );
            }
        }
        self.notes_are_old &= error.is_some();
        self.notes_error = error;
        self.notes_error.is_none()
    }

    /// When [`heartbeat`](Self::heartbeat) is to be called, if some port acts.
    pub fn beats_at(&self) -> Instant {
        self.beaten + self.heartbeat_every()
    }

    /// When [`keep`](Self::keep) is to be called.
    pub fn keeps_at(&self) -> Instant {
        let has_failed = self.waiting.values().any(|waiting| waiting.error.is_some());
        let retries = !self.unsettled.is_empty() || self.notes_error.is_some() || self.list_is_partial || has_failed;
        self.kept + if retries { RETRY_EVERY } else { LOOK_EVERY }
    }

    /// Tries again what has failed, and looks whether all is as it should be.
    pub fn keep(&mut self) {
        self.kept = Instant::now();
        if self.notes_error.is_some() && self.note() {
            tracing::info!("what is changed here can be noted again");
            self.list_is_due = true;
        }
        self.list_is_due |= !self.unsettled.is_empty() || self.list_is_partial || self.listed.elapsed() >= LIST_EVERY;
        self.waiting.values_mut().for_each(|waiting| waiting.error = None);
        let is_bare = |(ifindex, port): &(&u32, &Port)| port.error.is_none() && !self.datapath.is_on(**ifindex);
        let bare = self.ports.iter().filter(is_bare).map(|(ifindex, port)| (*ifindex, port.link.name.clone()));
        for (ifindex, name) in bare.collect::<Vec<_>>() {
            self.heard(ifindex, name);
        }
    }

    /// How often [`heartbeat`](Self::heartbeat) is to be called.
    pub fn heartbeat_every(&self) -> Duration {
        if self.presence() == Presence::Close { HEARTBEAT } else { HEARTBEAT_AT_LEISURE }
    }

    /// Whether some port acts, so that the datapath must know that somebody is here.
    pub fn acts(&self) -> bool {
        self.presence() != Presence::None || self.datapath.knows_gone()
    }

    fn presence(&self) -> Presence {
        if !self.unsettled.is_empty() {
            return Presence::Close;
        }
        let settings = || self.ports.values().map(|port| &port.settings);
        let of_wing = |wing: &dyn Mechanism| {
            settings().map(|settings| wing.presence(settings)).fold(wing.lasting_presence(), Presence::max)
        };
        self.wings.all().into_iter().map(of_wing).max().unwrap_or_default()
    }

    /// Tells the datapath the host's keys, and that an agent is here that lets SYN-ACKs go.
    pub fn heartbeat(&mut self) {
        self.beaten = Instant::now();
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
        if self.forgot.elapsed() >= FORGET_EVERY && self.datapath.knows_gone() {
            self.forgot = Instant::now();
            if let Err(error) = self.datapath.forget_gone() {
                tracing::warn!(%error, "what is known of ports that are gone is not forgotten");
            }
        }
        let mut tools = tools!(self);
        for wing in self.wings.all_mut() {
            wing.tick(&mut self.ports, &mut tools);
        }
    }

    /// The agent is going: what it holds goes out, and nothing more is to be held.
    pub fn farewell(&mut self) {
        self.end_leases();
        let keys = &self.loaded.keys;
        let mut host = intf::ek_host { version: intf::EK_INTF_VERSION, keys: keys.len() as u32, ..Default::default() };
        for (to, from) in host.key.iter_mut().zip(keys) {
            *to = *from;
        }
        if let Err(error) = self.datapath.set_host(&host) {
            tracing::warn!(%error, "cannot tell the datapath that the agent goes");
        }
        self.wings.proboscis.drain(&self.ports, &mut self.datapath);
    }

    /// Takes over a new configuration. [`seen`](Self::seen) applies it to ports.
    pub fn adopt(&mut self, loaded: Loaded) {
        if let Err(error) = self.datapath.hook_by(loaded.config.attach) {
            tracing::error!("programs are put on ports as before: {error}");
        }
        for wing in self.wings.all_mut() {
            wing.reconfigured(&self.loaded.config, &loaded.config);
        }
        self.loaded = loaded;
        self.config_refused = None;
        self.heartbeat();
    }

    /// The configuration was refused.
    pub fn refuse(&mut self, why: String) {
        self.config_refused = Some(why);
    }

    fn detach(&mut self, ifindex: u32, name: &str) {
        match self.datapath.detach(ifindex) {
            Ok(stays) => self.wings.all_mut().into_iter().for_each(|wing| wing.detached(stays)),
            Err(error) => {
                tracing::error!(port = name, ifindex, %error, "the datapath cannot be taken off");
                self.count("ports_failed");
            }
        }
    }

    /// A device is there, or has changed. Returns what to do with its queue once [`commit`](Self::commit) has noted it.
    pub fn seen(&mut self, link: &Link) -> QueueAction {
        self.waiting.remove(&link.ifindex);
        if self.fresh.puts_off(link.ifindex, link.kind == Kind::Tap, Instant::now()) {
            self.waiting.insert(link.ifindex, Waiting { name: link.name.clone(), error: None });
            return QueueAction::Leave;
        }
        self.meet(link);
        if !is_port(&self.loaded.config, &link.name) {
            return self.release(link);
        }
        let is_offline = self.offline.contains(&link.ifindex);
        let mut settings = port::settings(&self.loaded.config, &link.name, is_offline);
        let leased = self.leases.check(link.ifindex, &link.name, &settings, is_offline);
        self.leave_ports(leased);
        let timed_ns = self.leases.lay_over(link.ifindex, &mut settings);
        let known = self.ports.get(&link.ifindex).filter(|port| port.link.name == link.name);
        let is_new = known.is_none();
        let is_settled = known.is_some_and(|port| {
            port.settings == settings
                && port.error.is_none()
                && port.link.queue_segments == link.queue_segments
                && port.is_offline == is_offline
                && port.timed_ns == timed_ns
                && self.datapath.is_by_hook(link.ifindex)
        });
        let before = known.and_then(|port| port.error.clone());
        let words = known.map_or_else(|| ChannelLog::new(Instant::now()), |port| port.words.clone());
        let wanted = settings.port_queue_segments.get();
        if is_new {
            self.count("ports_seen");
            self.wings.all_mut().into_iter().for_each(|wing| wing.begin(link.ifindex));
        }
        let domain = self.domain(link.ifindex);
        let mut port = Port { link: link.clone(), domain, settings, error: None, is_offline, timed_ns, words };
        let served = if is_settled { Ok(()) } else { self.serve(&port) };
        // Only once the programs are there: the channel's connection may pass through the port.
        self.open_channel(link, port.settings.channel.as_ref());
        match served.and_then(|()| self.attend(&port)) {
            Ok(()) if is_new => tracing::info!(port = link.name, mode = %port.settings.proboscis.mode, "port"),
            Ok(()) => {}
            Err(why) => {
                if before.as_ref() != Some(&why) {
                    self.count("ports_failed");
                    tracing::error!(port = link.name, domain = port.domain, error = why, "this port is not served");
                }
                port.error = Some(why);
            }
        }
        self.ports.insert(link.ifindex, port);
        self.wings.all_mut().into_iter().for_each(|wing| wing.changed());
        self.plan_queue(link, wanted)
    }

    /// A device is no port any more. Returns what to do with its queue, which may have been raised under another
    /// configuration or another name. The programs stay while the queue settles.
    fn release(&mut self, link: &Link) -> QueueAction {
        let action = self.plan_queue(link, 0);
        let leased = self.leases.end_on(link.ifindex, "a port of it is no port any more");
        self.leave_ports(leased);
        if self.ports.remove(&link.ifindex).is_some() {
            tracing::info!(port = link.name, domain = self.domain(link.ifindex), "no longer a port");
            self.open_channel(link, None);
            self.vms.forget(link.ifindex);
            self.detach(link.ifindex, &link.name);
            for wing in self.wings.all_mut() {
                wing.gone(link.ifindex);
                wing.changed();
            }
        }
        action
    }

    /// Checks that a device is the one known by its index, perhaps under another name now. What was known of an earlier
    /// device with that index is forgotten.
    fn meet(&mut self, link: &Link) {
        let Some(port) = self.ports.get(&link.ifindex) else {
            // An earlier agent noted this index, but put its programs on a device that is no longer there.
            let note = self.state.queues.get(&link.ifindex);
            if note.is_some_and(|note| !note.is_of(link)) && self.datapath.was_on(link.ifindex) {
                self.state.queues.remove(&link.ifindex);
                self.note();
            }
            return;
        };
        if port.error.is_none() && !self.datapath.is_on(link.ifindex) {
            // Its VM may be on its way. One that is not gains nothing until somebody says that it is online.
            let is_offline = port.link.name == link.name && self.offline.contains(&link.ifindex);
            tracing::warn!(
                port = link.name,
                "its programs are gone: it is another device with the same index, or somebody has taken them off; \
                 they are put on"
            );
            self.count("ports_bare");
            let note = self.state.queues.get(&link.ifindex).filter(|note| note.is_of(link)).cloned();
            self.gone(link.ifindex);
            if is_offline {
                tracing::warn!(port = link.name, "it stays offline until `evenkeel port online`");
                self.offline.insert(link.ifindex);
            }
            if let Some(note) = note {
                self.state.queues.insert(link.ifindex, note);
                self.note();
            }
        } else if port.link.name != link.name {
            let before = port.link.name.clone();
            if self.state.rename(link.ifindex, &before, &link.name) {
                self.note();
            }
        }
    }

    /// A port's settings for the datapath, as the wings write them.
    fn own(&mut self, port: &Port) -> Result<intf::ek_port, DatapathError> {
        let (mut own, mut tools) = (intf::ek_port::default(), tools!(self));
        for wing in self.wings.all_mut() {
            wing.configure(port, &mut tools, &mut own)?;
        }
        own.timed_ns = port.timed_ns;
        Ok(own)
    }

    /// Puts the programs on a port and the port's settings into them.
    ///
    /// # Errors
    /// Why it is not served, in words.
    fn serve(&mut self, port: &Port) -> Result<(), String> {
        if port.link.kind == Kind::Macvtap {
            return Err(MACVTAP.to_owned());
        }
        let failed = |error: DatapathError| error.to_string();
        let own = self.own(port).map_err(failed)?;
        self.datapath.attach(port.link.ifindex, &own).map_err(failed)?;
        let mut tools = tools!(self);
        self.wings.all_mut().into_iter().try_for_each(|wing| wing.served(port, &mut tools)).map_err(failed)
    }

    /// A port is served, and its guest's channel open.
    fn attend(&mut self, port: &Port) -> Result<(), String> {
        let mut tools = tools!(self);
        let attended = self.wings.all_mut().into_iter().try_for_each(|wing| wing.attend(port, &mut tools));
        attended.map_err(|error| error.to_string())
    }

    /// A queue that [`seen`](Self::seen) asked for has its length.
    pub fn queue_is_set(&mut self, ifindex: u32) {
        if self.state.confirm(ifindex) {
            self.note();
        }
    }

    fn plan_queue(&mut self, link: &Link, wanted_segments: u32) -> QueueAction {
        let before = self.state.queues.get(&link.ifindex).cloned();
        let action = self.state.plan(link, wanted_segments);
        if action == QueueAction::Theirs {
            tracing::info!(port = link.name, queue = link.queue_segments, "somebody else has set this queue: it stays");
        }
        if matches!(action, QueueAction::Set(segments) if !self.settle(link, segments)) {
            self.state.restore(link.ifindex, before);
            return QueueAction::Leave;
        }
        self.unsettled.remove(&link.ifindex);
        if self.state.queues.get(&link.ifindex) != before.as_ref() {
            self.planned.push((link.ifindex, before));
        }
        action
    }

    /// Notes what was planned and which devices went, all at once, as the file is written whole and synced. Returns
    /// whether queues may be changed as planned; if not, the plans are dropped.
    pub fn commit(&mut self) -> bool {
        let planned = std::mem::take(&mut self.planned);
        if planned.is_empty() && !self.notes_are_old {
            return true;
        }
        let is_noted = self.note();
        if !is_noted {
            planned.into_iter().rev().for_each(|(ifindex, before)| self.state.restore(ifindex, before));
        }
        is_noted
    }

    /// Whether a tap's queue can be shortened without dropping anything. vSnoop promises nothing more there; the port's
    /// settings hold again once its new length is seen. A queue that has not settled is tried again.
    fn settle(&mut self, link: &Link, segments: u32) -> bool {
        if !settle::shortens(link, segments) {
            return true;
        }
        let promising = |port: &Port| port.settings.vsnoop.mode == Mode::Enforce && port.error.is_none();
        if let Some(port) = self.ports.remove(&link.ifindex) {
            if promising(&port) {
                match self.own(&port) {
                    Ok(own) => settle::end_promises(&mut self.datapath, link, &own),
                    Err(error) => tracing::warn!(port = link.name, %error, "vSnoop goes on while its queue changes"),
                }
            }
            self.ports.insert(link.ifindex, port);
        }
        let patience = if self.unsettled.contains(&link.ifindex) { Duration::ZERO } else { settle::TIMEOUT };
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

    /// A device is gone; [`commit`](Self::commit) notes it.
    pub fn gone(&mut self, ifindex: u32) {
        self.waiting.remove(&ifindex);
        self.fresh.forget(ifindex);
        self.offline.remove(&ifindex);
        self.unsettled.remove(&ifindex);
        self.vms.forget(ifindex);
        let leased = self.leases.end_on(ifindex, "a port of it went away");
        self.leave_ports(leased.into_iter().filter(|(other, _)| *other != ifindex).collect());
        self.wings.all_mut().into_iter().for_each(|wing| wing.gone(ifindex));
        if let Some(port) = self.ports.remove(&ifindex) {
            tracing::info!(port = port.link.name, domain = port.domain, "port gone");
            self.open_channel(&port.link, None);
            self.count("ports_gone");
            self.detach(ifindex, &port.link.name);
            self.wings.all_mut().into_iter().for_each(|wing| wing.changed());
        }
        self.planned.retain(|(planned, _)| *planned != ifindex);
        self.notes_are_old |= self.state.queues.remove(&ifindex).is_some();
    }

    /// What was changed on this host.
    pub fn state(&self) -> &HostState {
        &self.state
    }

    /// Takes the programs off all ports and removes all pins. Returns what was removed, and which of these devices must
    /// keep their queues because of what waits in them.
    pub fn dismantle(&mut self, links: &[Link]) -> (Removed, BTreeSet<u32>) {
        self.wings.all_mut().into_iter().for_each(|wing| wing.stop());
        let unsettled = settle::unsettled(&mut self.datapath, links, &self.state.queues);
        let removed = self.datapath.remove();
        self.ports.clear();
        (removed, unsettled)
    }

    /// All devices that there was news of have been looked at.
    pub fn arrange(&mut self) {
        let mut tools = tools!(self);
        for wing in self.wings.all_mut() {
            wing.arrange(&self.ports, &mut tools);
        }
    }

    /// Reads the datapath's events and acts on them. Returns whether all were read: only then does a new one wake the
    /// agent.
    pub fn events(&mut self) -> bool {
        self.wings.proboscis.events(&self.ports, &mut self.datapath)
    }

    /// Everything whose time has come.
    pub fn expire(&mut self) {
        self.wings.proboscis.expire(&self.ports, &mut self.datapath);
    }

    /// How long until [`expire`](Self::expire) is to be called.
    pub fn due_in(&self) -> Option<Duration> {
        self.wings.proboscis.due_in()
    }

    /// Takes a port offline before its VM leaves this host, or online again: vFlood lets out what it holds and the
    /// guest goes back to plain TCP, vSnoop promises nothing more, CERA's limit ends. False if there is no port of this
    /// name.
    ///
    /// # Errors
    /// Why the datapath does not take it.
    pub fn switch(&mut self, name: &str, online: bool) -> Result<bool, String> {
        let Some(link) = self.ports.values().find(|port| port.link.name == name).map(|port| port.link.clone()) else {
            return Ok(false);
        };
        let is_changed = if online { self.offline.remove(&link.ifindex) } else { self.offline.insert(link.ifindex) };
        if is_changed {
            let domain = self.domain(link.ifindex);
            tracing::info!(port = name, domain, "{}", if online { "online again" } else { "offline" });
            // Its queue needs no change, so the returned action is ignored.
            self.seen(&link);
            self.commit();
            self.arrange();
        }
        match self.ports.get(&link.ifindex).and_then(|port| port.error.clone()) {
            Some(why) => Err(why),
            None => Ok(true),
        }
    }
}
