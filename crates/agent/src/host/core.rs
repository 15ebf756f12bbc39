//! What the agent knows and does at once: ports, settings, timers. Whatever has to wait is the supervisor's.

mod answers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_algo::proboscis::Settings;

use super::cera;
use super::config::{ChannelAddress, Config, Mode, PortSettings};
use super::endpoint::Endpoint;
use super::error::HostError;
use super::links::{Kind, Link, Listing};
use super::resend::{Facts, Resend, Send};
use super::rest::{Rest, Word};
use super::settle;
use super::state::{HostState, QueueAction};
use crate::channel::wire::Capabilities;
use crate::channel::{Channels, Words};
use crate::common::clock::now_ns;
use crate::datapath::{Datapath, DatapathError, Events, intf};

/// How often the datapath is told that the agent is here. What it holds for the agent's timers it holds for so long after the agent was last heard
/// of as that takes three times: a crash costs no more SYN-ACKs than those of this while.
const HEARTBEAT: Duration = Duration::from_millis(50);
/// The same where no SYN-ACK is held. On a small host each is worth sparing: in the lab it takes a millisecond of translated code.
const HEARTBEAT_AT_LEISURE: Duration = Duration::from_millis(500);
/// How long guests may flood after the datapath was last told that the agent is here. It holds packets for `EK_VFLOOD_AGENT_NS` from
/// then on, and a guest that is told nothing any more floods for three heartbeats.
const ATTESTED_FOR: Duration = Duration::from_secs(2);
/// How often vSnoop's and vFlood's connections are looked through for silent ones.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// Connections that were idle for so long are forgotten by vSnoop,
const SWEEP_IDLE: Duration = Duration::from_secs(3600);
/// or for so long, while the table is more than half full.
const SWEEP_IDLE_CROWDED: Duration = Duration::from_secs(30);
/// How often it is tried again to shorten a queue, or to note what was changed.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How often ports are looked at whether their programs are still on them, where nothing is to be tried again.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often devices are listed although no news of them was lost.
const LIST_EVERY: Duration = Duration::from_secs(60);
/// Why a macvtap is no port.
const MACVTAP: &str = "packets for the VM come in at a macvtap and those of the VM go out, so that what the host sends would go the wrong way. \
                       Give the VM a tap on a bridge";

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
    ports: BTreeMap<u32, Port>,
    /// Devices that there is news of, one after the other.
    waiting: BTreeMap<u32, Waiting>,
    list_is_due: bool,
    /// The last list may lack devices, or there was none.
    list_is_partial: bool,
    listed: Instant,
    resend: Resend,
    run_dir: PathBuf,
    state: HostState,
    /// Why what was changed could not be noted when that was tried last.
    notes_error: Option<String>,
    counts: HashMap<&'static str, u64>,
    config_refused: Option<String>,
    /// A port had vFlood, and may still hold packets.
    lets_go: bool,
    /// Ports whose VMs are about to leave.
    offline: BTreeSet<u32>,
    /// Devices whose queues are to be shortened when what waits there has been read.
    unsettled: BTreeSet<u32>,
    beaten: Instant,
    kept: Instant,
    started: Instant,
    swept: Instant,
    /// vSnoop's entries after the last sweep.
    snoops: u32,
    cera: Option<cera::Controller>,
    /// Ports have changed since the controller heard of them.
    cera_is_old: bool,
    cera_error: Option<String>,
}

impl Core {
    /// An agent without ports yet.
    pub fn new(loaded: Loaded, datapath: Datapath, channels: Channels, state: HostState, run_dir: &Path) -> Self {
        Self {
            loaded,
            datapath,
            channels,
            ports: BTreeMap::new(),
            waiting: BTreeMap::new(),
            list_is_due: true,
            list_is_partial: false,
            listed: Instant::now(),
            resend: Resend::default(),
            run_dir: run_dir.to_owned(),
            state,
            notes_error: None,
            counts: HashMap::new(),
            config_refused: None,
            lets_go: true,
            offline: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            beaten: Instant::now(),
            kept: Instant::now(),
            started: Instant::now(),
            swept: Instant::now(),
            snoops: 0,
            cera: None,
            cera_is_old: true,
            cera_error: None,
        }
    }

    /// What holds.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
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
    pub fn note_socket(&mut self, socket: &Path) {
        self.state.socket = Some(socket.to_owned());
        self.note();
    }

    /// Notes what was changed, or is about to be; whether that is noted now. Otherwise it is tried again.
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
        self.lets_go || !self.unsettled.is_empty() || self.datapath.knows_gone() || self.ports.values().any(acts)
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
                self.datapath.end_silent(Duration::from_nanos(intf::EK_VFLOOD_IDLE_NS))?;
                break;
            }
        }
        Ok(())
    }

    fn sweep_snoops(&mut self) {
        let idle = if self.snoops > intf::EK_VSNOOP_FLOWS / 2 { SWEEP_IDLE_CROWDED } else { SWEEP_IDLE };
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
        self.watch_events();
        if let Err(error) = self.datapath.forget_gone() {
            tracing::warn!(%error, "what is known of ports that are gone is not forgotten");
        }
        self.sweep();
        self.judge();
        self.hear();
    }

    /// vSnoop acknowledges for VMs as their agents' words have it now.
    fn hear(&mut self) {
        let now = Instant::now();
        let settled = |port: &&mut Port| port.settings.vsnoop.mode != Mode::Off && port.error.is_none();
        for port in self.ports.values_mut().filter(settled) {
            let ifindex = port.link.ifindex;
            let said = self.channels.endpoint(ifindex);
            let endpoint = Endpoint::of(port.settings.vsnoop.endpoint, said);
            if endpoint == port.endpoint {
                continue;
            }
            if let Err(error) = self.datapath.set_endpoint(ifindex, endpoint.to_intf()) {
                tracing::warn!(port = port.link.name, %error, "vSnoop goes on as it did");
                continue;
            }
            port.endpoint = endpoint;
            let why = said.filter(|reasons| !reasons.is_empty()).map(|reasons| reasons.words().join("; "));
            port.words.say(now, |left_out| {
                tracing::info!(port = port.link.name, %endpoint, why, left_out, "vSnoop knows another thing of the VM");
            });
        }
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
        self.cera_is_old = true;
        self.loaded = loaded;
        self.config_refused = None;
        self.heartbeat();
    }

    /// The configuration was refused.
    pub fn refuse(&mut self, why: String) {
        self.config_refused = Some(why);
    }

    /// A device is new or has changed: it is to be looked at, if that is a port or was changed here.
    pub fn heard(&mut self, ifindex: u32, name: String) {
        let was_changed = self.ports.contains_key(&ifindex) || self.state.queues.contains_key(&ifindex);
        if was_changed || self.loaded.config.is_port(&name) {
            self.waiting.insert(ifindex, Waiting { name, error: None });
        } else {
            self.waiting.remove(&ifindex);
        }
    }

    /// News was lost, or another configuration holds: devices are to be listed.
    pub fn ask_for_list(&mut self) {
        self.list_is_due = true;
    }

    /// Whether devices are to be listed now.
    pub fn list_is_due(&self) -> bool {
        self.list_is_due
    }

    /// A device that is to be looked at now.
    pub fn next(&self) -> Option<u32> {
        self.waiting.iter().find(|(_, waiting)| waiting.error.is_none()).map(|(ifindex, _)| *ifindex)
    }

    /// Whether there is something to list or to look at.
    pub fn is_behind(&self) -> bool {
        self.list_is_due || self.next().is_some()
    }

    /// A device could not be looked at: it is tried again.
    pub fn missed(&mut self, ifindex: u32, error: &HostError) {
        tracing::error!(ifindex, %error, "a device cannot be looked at");
        self.count("looks_failed");
        if let Some(waiting) = self.waiting.get_mut(&ifindex) {
            waiting.error = Some(error.to_string());
        }
    }

    /// Devices could not be listed: it is tried again.
    pub fn unlisted(&mut self, error: &HostError) {
        tracing::error!(%error, "news of devices was lost");
        self.count("looks_failed");
        (self.list_is_due, self.list_is_partial) = (false, true);
    }

    /// All devices there are: ports that are gone are let go of, the others are to be looked at.
    pub fn listed(&mut self, listing: &Listing) {
        self.count("lists_taken");
        // One that may lack devices is taken again, but not at once.
        (self.list_is_due, self.list_is_partial) = (false, !listing.is_whole);
        self.listed = Instant::now();
        let links = &listing.links;
        let is_there = |ifindex: u32| links.iter().any(|l| l.ifindex == ifindex);
        let gone: Vec<u32> = self.ports.keys().copied().filter(|ifindex| !is_there(*ifindex)).collect();
        for ifindex in gone {
            match self.ports.get(&ifindex).map(|port| port.link.name.clone()).filter(|_| !listing.is_whole) {
                Some(name) => self.heard(ifindex, name),
                None => self.gone(ifindex),
            }
        }
        // What an agent before this one had its programs on and this one is not to.
        match self.datapath.ports() {
            Ok(pinned) => pinned.into_iter().for_each(|ifindex| self.leave(ifindex, listing)),
            Err(error) => tracing::error!(%error, "ports of the agent before this one are not looked at"),
        }
        let ports = &self.ports;
        if listing.is_whole
            && self.state.retain(links, |ifindex| ports.get(&ifindex).map(|port| port.link.name.as_str()))
        {
            self.note();
        }
        for link in links {
            self.heard(link.ifindex, link.name.clone());
        }
    }

    /// Takes the programs off a device that is no port.
    fn leave(&mut self, ifindex: u32, listing: &Listing) {
        let name = listing.links.iter().find(|l| l.ifindex == ifindex).map(|l| l.name.as_str());
        let is_port = name.is_some_and(|name| self.loaded.config.is_port(name));
        if is_port || self.ports.contains_key(&ifindex) || (name.is_none() && !listing.is_whole) {
            return;
        }
        self.detach(ifindex, name.unwrap_or("a device that is gone"));
    }

    fn detach(&mut self, ifindex: u32, name: &str) {
        match self.datapath.detach(ifindex) {
            Ok(stays) => self.lets_go |= stays,
            Err(error) => {
                tracing::error!(port = name, ifindex, %error, "the datapath cannot be taken off");
                self.count("ports_failed");
            }
        }
    }

    /// A device is there, or has changed. What is to be done with its queue; that is noted already.
    pub fn seen(&mut self, link: &Link) -> QueueAction {
        self.waiting.remove(&link.ifindex);
        self.meet(link);
        if !self.loaded.config.is_port(&link.name) {
            // Raised by an agent with another configuration, or before it was renamed. Its programs are there while it settles.
            let action = self.plan_queue(link, 0);
            if self.ports.remove(&link.ifindex).is_some() {
                tracing::info!(port = link.name, "no longer a port");
                self.open_channel(link, None);
                self.detach(link.ifindex, &link.name);
                self.cera_is_old = true;
            }
            return action;
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
        let before = known.and_then(|port| port.error.clone());
        let rest = known.map(|port| port.rest).unwrap_or_default();
        let words = known.map_or_else(|| Words::new(Instant::now()), |port| port.words.clone());
        let heard = Endpoint::of(settings.vsnoop.endpoint, self.channels.endpoint(link.ifindex));
        // The datapath is told of another one when it is next judged.
        let endpoint = known.filter(|_| is_settled).map_or(heard, |port| port.endpoint);
        let wanted = settings.port_queue_segments.get();
        if is_new {
            self.count("ports_seen");
        }
        let mut port =
            Port { link: link.clone(), settings, error: None, queue_is_theirs, is_offline, rest, endpoint, words };
        let served = self.serve(&mut port, is_settled);
        // Not before the programs are there: its connection may be one through the port.
        self.open_channel(link, port.settings.channel.as_ref());
        match served.and_then(|()| self.attest(&port)) {
            Ok(()) if is_new => tracing::info!(port = link.name, mode = %port.settings.proboscis.mode, "port"),
            Ok(()) => {}
            Err(why) => {
                if before.as_ref() != Some(&why) {
                    self.count("ports_failed");
                    tracing::error!(port = link.name, error = why, "this port is not served");
                }
                port.error = Some(why);
            }
        }
        self.ports.insert(link.ifindex, port);
        self.cera_is_old = true;
        if queue_is_theirs { QueueAction::Leave } else { self.plan_queue(link, wanted) }
    }

    /// Whether a device is the one that was known by its index, perhaps by another name; what was known of another
    /// that had it is forgotten.
    fn meet(&mut self, link: &Link) {
        let Some(port) = self.ports.get(&link.ifindex) else {
            // An agent before this one has noted its length, and put programs on what is no longer there.
            let note = self.state.queues.get(&link.ifindex);
            let is_as_set = note.is_some_and(|change| change.set_segments == link.queue_segments);
            if note.is_some() && !is_as_set && self.datapath.was_on(link.ifindex) {
                self.state.queues.remove(&link.ifindex);
                self.note();
            }
            return;
        };
        if port.error.is_none() && !self.datapath.is_on(link.ifindex) {
            tracing::warn!(
                port = link.name,
                "its programs are gone: it is another device with the same index, or somebody has taken them off; \
                 they are put on"
            );
            self.count("ports_bare");
            // One that has the length that was set here is most likely the same.
            let note = self.state.queues.get(&link.ifindex).filter(|c| c.set_segments == link.queue_segments).cloned();
            self.gone(link.ifindex);
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

    /// Puts the programs on a port and the port's settings into them, if they have changed.
    ///
    /// # Errors
    /// Why it is not served, in words.
    fn serve(&mut self, port: &mut Port, is_settled: bool) -> Result<(), String> {
        let (ifindex, name) = (port.link.ifindex, &port.link.name);
        if port.link.kind == Kind::Macvtap {
            return Err(MACVTAP.to_owned());
        }
        let failed = |error: DatapathError| error.to_string();
        let managed = self.datapath.manages(ifindex).map_err(failed)?;
        if !is_settled {
            let mut own = port.settings.to_intf(&port.link, port.endpoint);
            own.vflood.passes_over = u32::from(port.rest.passes_over());
            if port.is_offline {
                // What was promised is still followed to its end.
                own.vsnoop.settings.budget_segments = 0;
            }
            self.lets_go = true;
            self.datapath.attach(ifindex, &own).map_err(failed)?;
            if let Some(why) = self.datapath.cannot_hold(ifindex) {
                let help = why.help().unwrap_or_default();
                tracing::error!(port = name, "vFlood is off on this port: {why}; {help}");
            }
        }
        // Handshakes that passed before were not seen.
        if !managed && self.datapath.manages(ifindex).map_err(failed)? {
            port.rest = Rest::Waking(Instant::now());
        }
        Ok(())
    }

    /// Attests to a port's guest what holds there: it may flood only where its packets are held.
    fn attest(&self, port: &Port) -> Result<(), String> {
        let ifindex = port.link.ifindex;
        let holds = self.datapath.holds(ifindex).map_err(|error| error.to_string())? && port.rest.attests();
        self.channels.attest(ifindex, holds.then_some(intf::VFLOOD_FLOOD_SEGMENTS));
        Ok(())
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
    pub fn queue_is_set(&mut self, ifindex: u32) {
        if self.state.confirm(ifindex) {
            self.note();
        }
    }

    fn plan_queue(&mut self, link: &Link, wanted_segments: u32) -> QueueAction {
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
            return QueueAction::Leave;
        }
        self.unsettled.remove(&link.ifindex);
        if self.state != before && !self.note() {
            self.state = before;
            return QueueAction::Leave;
        }
        action
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

    /// A device is gone.
    pub fn gone(&mut self, ifindex: u32) {
        self.waiting.remove(&ifindex);
        self.offline.remove(&ifindex);
        self.unsettled.remove(&ifindex);
        // A device that gets its index is not to be sent what was meant for it.
        self.resend.gone(ifindex);
        if let Some(port) = self.ports.remove(&ifindex) {
            tracing::info!(port = port.link.name, "port gone");
            self.open_channel(&port.link, None);
            self.count("ports_gone");
            self.detach(ifindex, &port.link.name);
            self.cera_is_old = true;
        }
        if self.state.queues.remove(&ifindex).is_some() {
            self.note();
        }
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

    /// CERA's controller is there if some port needs it, and knows those that do. Of many that come or go together it
    /// hears once.
    pub fn arrange_cera(&mut self) {
        if !std::mem::take(&mut self.cera_is_old) {
            return;
        }
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
    /// Why the datapath does not take it.
    pub fn switch(&mut self, name: &str, online: bool) -> Result<bool, String> {
        let Some(link) = self.ports.values().find(|port| port.link.name == name).map(|port| port.link.clone()) else {
            return Ok(false);
        };
        let is_changed = if online { self.offline.remove(&link.ifindex) } else { self.offline.insert(link.ifindex) };
        if is_changed {
            tracing::info!(port = name, "{}", if online { "online again" } else { "offline" });
            // Its queue is as it is to be.
            self.seen(&link);
            self.arrange_cera();
        }
        match self.ports.get(&link.ifindex).and_then(|port| port.error.clone()) {
            Some(why) => Err(why),
            None => Ok(true),
        }
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
