//! Which ports hear which guest, without any I/O. A VM has one agent, which takes one connection at a time, but may
//! have several ports: they share that connection.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use evenkeel_settings::address::HostAddress;
use tokio::sync::Notify;

use super::endpoint::Reasons;
use super::host::{Change, Guest, HostEnd};
use super::peer::Counts;
use super::pipe::{Listener, Target, Who};
use super::session;
use super::wire::{Capabilities, Window};

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

/// What one port has to do with a channel.
#[derive(Debug)]
struct Ear {
    name: String,
    /// What the VM is called.
    domain: Option<String>,
    /// Who has to listen at the address for this port's guest to be there.
    listener: Listener,
    attested: Option<u32>,
    window: Window,
}

/// A channel, and the ports that lead to its guest.
#[derive(Debug)]
pub(super) struct Line {
    address: HostAddress,
    heartbeat_ms: u16,
    end: HostEnd,
    wake: Arc<Notify>,
    is_connected: bool,
    /// Who listened when it was last connected.
    listens: Option<Who>,
    trouble: Option<String>,
    ears: BTreeMap<u32, Ear>,
}

/// What is to be done about a channel's connection.
#[derive(Debug)]
pub(super) enum Step {
    /// It is to be kept.
    Open { line: u64, address: HostAddress, wake: Arc<Notify> },
    /// It is to end.
    Close { line: u64 },
}

/// All channels, each known by a number that no other gets, and their ports.
#[derive(Debug, Default)]
pub(super) struct Board {
    lines: BTreeMap<u64, Line>,
    of: HashMap<u32, u64>,
    last: u64,
}

impl Board {
    /// Gives a port this channel, or none. A channel that the port has already goes on, and one that another port has
    /// is shared.
    ///
    /// # Errors
    /// If no number can be drawn for the session.
    pub fn set(
        &mut self,
        (ifindex, name): (u32, &str),
        target: Option<&Target>,
        heartbeat_ms: u16,
        steps: &mut Vec<Step>,
    ) -> io::Result<()> {
        let now = Instant::now();
        if !self.line(ifindex).is_some_and(|line| line.is_at(ifindex, target)) {
            self.leave(ifindex, now, steps)?;
            let Some(target) = target else { return Ok(()) };
            self.join((ifindex, name), target, heartbeat_ms, now, steps)?;
        }
        let Some(number) = self.of.get(&ifindex).copied() else { return Ok(()) };
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        if let Some(ear) = line.ears.get_mut(&ifindex) {
            name.clone_into(&mut ear.name);
        }
        if line.heartbeat_ms != heartbeat_ms {
            // The same guest at another pace.
            let said = line.end.endpoint();
            self.renew(number, heartbeat_ms, said, now, steps)?;
        }
        Ok(())
    }

    fn join(
        &mut self,
        (ifindex, name): (u32, &str),
        target: &Target,
        heartbeat_ms: u16,
        now: Instant,
        steps: &mut Vec<Step>,
    ) -> io::Result<()> {
        let shared = self.lines.iter().find(|(_, line)| line.address == target.address).map(|(number, _)| *number);
        let number = match shared {
            Some(number) => number,
            None => self.open(Line::new(target.address.clone(), heartbeat_ms, now)?, steps),
        };
        self.of.insert(ifindex, number);
        if let Some(line) = self.lines.get_mut(&number) {
            let ear = Ear {
                name: name.to_owned(),
                domain: None,
                listener: target.listener,
                attested: None,
                window: Window::default(),
            };
            line.ears.insert(ifindex, ear);
            line.settle(now);
        }
        Ok(())
    }

    fn leave(&mut self, ifindex: u32, now: Instant, steps: &mut Vec<Step>) -> io::Result<()> {
        let Some(number) = self.of.remove(&ifindex) else { return Ok(()) };
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        line.ears.remove(&ifindex);
        if line.ears.is_empty() {
            self.lines.remove(&number);
            steps.push(Step::Close { line: number });
        } else if line.hearing().next().is_none() {
            // Whoever listens there is none of the guests of the ports that are left.
            let heartbeat_ms = line.heartbeat_ms;
            self.renew(number, heartbeat_ms, None, now, steps)?;
        } else {
            line.settle(now);
        }
        Ok(())
    }

    fn open(&mut self, line: Line, steps: &mut Vec<Step>) -> u64 {
        self.last += 1;
        steps.push(Step::Open { line: self.last, address: line.address.clone(), wake: Arc::clone(&line.wake) });
        self.lines.insert(self.last, line);
        self.last
    }

    /// Connects anew, for the same ports. The guest has said this of its TCP.
    fn renew(
        &mut self,
        number: u64,
        heartbeat_ms: u16,
        said: Option<Reasons>,
        now: Instant,
        steps: &mut Vec<Step>,
    ) -> io::Result<()> {
        let Some(before) = self.lines.get_mut(&number) else { return Ok(()) };
        let mut line = Line::new(before.address.clone(), heartbeat_ms, now)?;
        line.ears = std::mem::take(&mut before.ears);
        line.end.object(said);
        line.settle(now);
        self.lines.remove(&number);
        steps.push(Step::Close { line: number });
        let ports: Vec<u32> = line.ears.keys().copied().collect();
        let number = self.open(line, steps);
        self.of.extend(ports.into_iter().map(|ifindex| (ifindex, number)));
        Ok(())
    }

    /// A channel, unless it has ended.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Line> {
        self.lines.get_mut(&number)
    }

    /// All channels.
    pub fn lines_mut(&mut self) -> impl Iterator<Item = &mut Line> {
        self.lines.values_mut()
    }

    /// A port's channel, whether or not it is this port's guest that listens there.
    pub fn line(&self, ifindex: u32) -> Option<&Line> {
        self.lines.get(self.of.get(&ifindex)?)
    }

    /// The same, to change it.
    pub fn line_mut(&mut self, ifindex: u32) -> Option<&mut Line> {
        self.lines.get_mut(self.of.get(&ifindex)?)
    }
}

impl Line {
    fn new(address: HostAddress, heartbeat_ms: u16, now: Instant) -> io::Result<Self> {
        Ok(Self {
            address,
            heartbeat_ms,
            end: HostEnd::new(heartbeat_ms, session()?, now),
            wake: Arc::default(),
            is_connected: false,
            listens: None,
            trouble: None,
            ears: BTreeMap::new(),
        })
    }

    fn is_at(&self, ifindex: u32, target: Option<&Target>) -> bool {
        let ear = self.ears.get(&ifindex);
        target.is_some_and(|target| {
            self.address == target.address && ear.is_some_and(|ear| ear.listener == target.listener)
        })
    }

    /// Why this port's guest is not the one that is connected.
    fn refusal(&self, ear: &Ear) -> Option<String> {
        if self.is_connected { ear.listener.admits(&self.address, self.listens).err() } else { None }
    }

    /// The ports that lead to whoever is connected.
    fn hearing(&self) -> impl Iterator<Item = &Ear> {
        self.ears.values().filter(|ear| self.refusal(ear).is_none())
    }

    fn hears(&self, ifindex: u32) -> bool {
        self.ears.get(&ifindex).is_some_and(|ear| self.refusal(ear).is_none())
    }

    /// Whether the guest has only one port that the host knows.
    fn is_alone(&self) -> bool {
        self.hearing().nth(1).is_none()
    }

    /// Tells the guest what follows from all its ports.
    fn settle(&mut self, now: Instant) {
        // Which connections are held, tokens in their packets say.
        let attested = self.hearing().filter_map(|ear| ear.attested).min();
        let before = (self.end.serial(), self.end.window_set());
        self.end.attest(attested, now);
        let only = self.hearing().next().filter(|_| self.is_alone());
        // A window is for what goes by one port, and nothing tells the guest by which.
        let window = only.map_or(Window { segments: 0, ..before.1 }, |ear| ear.window);
        if window != before.1 {
            self.end.window(window.epoch, window.segments);
        }
        if before != (self.end.serial(), self.end.window_set()) {
            self.wake.notify_one();
        }
    }

    /// What the VM behind a port is called.
    pub fn name(&mut self, ifindex: u32, domain: Option<&str>) {
        if let Some(ear) = self.ears.get_mut(&ifindex) {
            ear.domain = domain.map(str::to_owned);
        }
    }

    /// A port's word on whether its packets are held, see [`HostEnd::attest`]. The guest may flood if some port holds.
    pub fn attest(&mut self, ifindex: u32, flood_segments: Option<u32>, now: Instant) -> bool {
        if let Some(ear) = self.ears.get_mut(&ifindex) {
            ear.attested = flood_segments;
        }
        self.settle(now);
        self.has(ifindex, Capabilities::VFLOOD)
    }

    /// See [`HostEnd::vouch`].
    pub fn vouch(&mut self, until: Instant, now: Instant) {
        let before = self.end.serial();
        self.end.vouch(until, now);
        if before != self.end.serial() {
            self.wake.notify_one();
        }
    }

    /// A port's window. Returns false if no client shares it out.
    pub fn window(&mut self, ifindex: u32, window: Window, now: Instant) -> bool {
        if let Some(ear) = self.ears.get_mut(&ifindex) {
            ear.window = window;
        }
        self.settle(now);
        self.has_client(ifindex)
    }

    /// Whether the guest shares out this port's windows.
    pub fn has_client(&self, ifindex: u32) -> bool {
        self.is_alone() && self.has(ifindex, Capabilities::CERA)
    }

    fn has(&self, ifindex: u32, capabilities: Capabilities) -> bool {
        self.guest(ifindex).is_some_and(|guest| guest.capabilities.has(capabilities))
    }

    /// A port's guest, if its heartbeats come.
    pub fn guest(&self, ifindex: u32) -> Option<Guest> {
        self.end.guest().filter(|_| self.hears(ifindex))
    }

    /// Whether a port's guest has said that it does what was attested last.
    pub fn is_obeyed(&self, ifindex: u32) -> bool {
        self.hears(ifindex) && self.end.is_obeyed()
    }

    /// What a port's guest says of its TCP.
    pub fn endpoint(&self, ifindex: u32) -> Option<Reasons> {
        self.end.endpoint().filter(|_| self.hears(ifindex))
    }

    /// The number of this end's session.
    pub fn session(&self) -> u32 {
        self.end.session()
    }

    /// What is to be shown at a port.
    pub fn status(&self, ifindex: u32) -> LineStatus {
        let refusal = self.ears.get(&ifindex).and_then(|ear| self.refusal(ear));
        LineStatus {
            address: self.address.clone(),
            is_connected: self.is_connected && refusal.is_none(),
            trouble: refusal.or_else(|| self.trouble.clone()),
            guest: self.guest(ifindex),
            counts: self.end.counts(),
        }
    }

    /// The end that talks.
    pub fn end_mut(&mut self) -> &mut HostEnd {
        &mut self.end
    }

    /// Whether what listens may be known by nothing but its place: the configuration names it.
    pub fn may_be_anybody(&self) -> bool {
        self.ears.values().any(|ear| ear.listener == Listener::Anybody)
    }

    /// There is a connection.
    ///
    /// # Errors
    /// Who listens there that is no port's guest.
    pub fn connected(&mut self, listens: Option<Who>, now: Instant) -> Result<(), String> {
        let refusals: Vec<_> =
            self.ears.values().filter_map(|ear| ear.listener.admits(&self.address, listens).err()).collect();
        if refusals.len() == self.ears.len() {
            return Err(refusals.into_iter().next().unwrap_or_default());
        }
        (self.is_connected, self.listens, self.trouble) = (true, listens, None);
        self.settle(now);
        self.end.connected(now);
        Ok(())
    }

    /// There is none any more.
    pub fn disconnected(&mut self, now: Instant) -> Option<Change> {
        self.is_connected = false;
        let change = self.end.disconnected();
        self.settle(now);
        change
    }

    /// Notes why there is no connection; false if that is known.
    pub fn fails(&mut self, why: &str) -> bool {
        self.trouble.replace(why.to_owned()).as_deref() != Some(why)
    }

    /// The ports' names, and what their VM is called, for the log.
    pub fn names(&self) -> (String, Option<String>) {
        let names: Vec<_> = self.ears.values().map(|ear| ear.name.as_str()).collect();
        (names.join(" "), self.ears.values().find_map(|ear| ear.domain.clone()))
    }
}
