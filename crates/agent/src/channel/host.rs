//! The host's end of one guest's channel.

use std::time::Instant;

use super::endpoint::Reasons;
use super::peer::{Counts, News, Own, Peer, Why};
use super::wire::{Capabilities, Heartbeat, Hello, Message, Role, Vflood, Window};

/// Heartbeats are 20 per second at most, and a guest that changes something says so at once.
const MESSAGES: (u32, u32) = (200, 400);

/// A guest that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guest {
    /// What it can do.
    pub capabilities: Capabilities,
    /// The settings of vFlood that hold there; 0: none.
    pub vflood_serial: u32,
    /// Whether its sockets flood.
    pub is_flooding: bool,
    /// The last epoch of CERA whose window was shared out; 0: none.
    pub epoch: u64,
    /// For how much of the last seconds it had no core; nothing where it does not know.
    pub off_core_permille: Option<u16>,
    /// What speaks against its TCP as the end of its connections; nothing where it does not say.
    pub endpoint: Option<Reasons>,
}

/// What has become of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is there.
    Up(Hello),
    /// It is gone.
    Down(Why),
    /// It is not to be read from for [`REST`](super::peer::REST).
    Rest,
}

/// One guest's channel.
#[derive(Debug)]
pub struct HostEnd {
    peer: Peer,
    vflood: Vflood,
    vflood_due: bool,
    /// What was attested last, which holds while somebody vouches for it.
    attested: Option<u32>,
    vouched_until: Option<Instant>,
    window: Window,
    window_due: bool,
    guest: Option<Guest>,
    /// What a guest that is silent now has said against its TCP.
    objections: Option<Reasons>,
}

impl HostEnd {
    /// An end without a connection, which attests nothing.
    pub fn new(heartbeat_ms: u16, session: u32, now: Instant) -> Self {
        let own =
            Own { role: Role::Host, heartbeat_ms, capabilities: Capabilities::default(), session, messages: MESSAGES };
        Self {
            peer: Peer::new(own, now),
            vflood: Vflood { serial: 1, is_online: false, flood_segments: 0 },
            vflood_due: false,
            attested: None,
            vouched_until: None,
            window: Window::default(),
            window_due: false,
            guest: None,
            objections: None,
        }
    }

    /// Takes over what the guest has said against its TCP to an end that this one replaces.
    pub fn object(&mut self, said: Option<Reasons>) {
        self.objections = said.filter(|said| !said.is_empty());
    }

    /// There is a connection.
    pub fn connected(&mut self, now: Instant) {
        self.peer.connected(now);
    }

    /// There is none any more.
    pub fn disconnected(&mut self) -> Option<Change> {
        let news = self.peer.disconnected();
        let change = self.turn(news);
        self.objections = None;
        change
    }

    /// The guest, if it is there.
    pub fn guest(&self) -> Option<Guest> {
        self.guest
    }

    /// What the guest says of its TCP as the end of its connections. Its vouching ends when it falls silent. Its
    /// objections outlive silence, in which it may only wait for its core: they end when it says so, goes or is another
    /// guest.
    pub fn endpoint(&self) -> Option<Reasons> {
        self.guest.map_or(self.objections, |guest| guest.endpoint)
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.peer.counts()
    }

    /// Attests that the host holds the guest's packets, or no longer; `None` is offline. Returns false if no guest is
    /// there that could be told.
    pub fn attest(&mut self, flood_segments: Option<u32>, now: Instant) -> bool {
        self.attested = flood_segments;
        self.settle(now);
        self.guest.is_some_and(|guest| guest.capabilities.has(Capabilities::VFLOOD))
    }

    /// What is attested holds until `until`, and no longer unless this is called again.
    pub fn vouch(&mut self, until: Instant, now: Instant) {
        self.vouched_until = Some(until);
        self.settle(now);
    }

    fn settle(&mut self, now: Instant) {
        let is_vouched = self.vouched_until.is_none_or(|until| now < until);
        let flood_segments = self.attested.filter(|_| is_vouched);
        let (is_online, flood_segments) = (flood_segments.is_some(), flood_segments.unwrap_or_default());
        if (self.vflood.is_online, self.vflood.flood_segments) != (is_online, flood_segments) {
            let serial = self.vflood.serial.wrapping_add(1).max(1);
            self.vflood = Vflood { serial, is_online, flood_segments };
            self.vflood_due = true;
        }
    }

    /// The number of this session.
    pub fn session(&self) -> u32 {
        self.peer.session()
    }

    /// The number of what was attested last.
    pub fn serial(&self) -> u32 {
        self.vflood.serial
    }

    /// Whether the guest has said that it does what was attested last.
    pub fn is_obeyed(&self) -> bool {
        self.guest.is_some_and(|guest| guest.vflood_serial == self.vflood.serial)
    }

    /// Sets the guest's window; 0: no limit. It replaces a window that has not left yet. Returns false if no client is
    /// there that would share it out.
    pub fn window(&mut self, epoch: u64, segments: u32) -> bool {
        self.window = Window { epoch, segments };
        self.window_due = true;
        self.guest.is_some_and(|guest| guest.capabilities.has(Capabilities::CERA))
    }

    /// The guest's window.
    pub fn window_set(&self) -> Window {
        self.window
    }

    /// Bytes came.
    pub fn received(&mut self, bytes: &[u8], now: Instant) -> Vec<Change> {
        let mut news = Vec::new();
        self.peer.received(bytes, now, &mut news);
        news.into_iter().filter_map(|news| self.turn(Some(news))).collect()
    }

    /// Time has passed.
    pub fn expire(&mut self, now: Instant) -> Option<Change> {
        self.settle(now);
        let news = self.peer.expire(now);
        self.turn(news)
    }

    fn turn(&mut self, news: Option<News>) -> Option<Change> {
        match news? {
            News::Up(hello) => {
                self.guest = Some(Guest {
                    capabilities: hello.capabilities,
                    vflood_serial: 0,
                    is_flooding: false,
                    epoch: 0,
                    off_core_permille: None,
                    endpoint: None,
                });
                self.vflood_due = true;
                // Also that there is none: a guest that was missed may have heard this end all the time.
                self.window_due = true;
                Some(Change::Up(hello))
            }
            News::Down(why) => {
                let stays = matches!(why, Why::Silent | Why::Unruly);
                self.objections = self.endpoint().filter(|said| stays && !said.is_empty());
                self.guest = None;
                Some(Change::Down(why))
            }
            News::Beat(beat) => {
                if let Some(guest) = &mut self.guest {
                    guest.vflood_serial = beat.vflood_serial;
                    guest.is_flooding = beat.is_flooding;
                    guest.epoch = beat.epoch;
                    guest.off_core_permille = beat.off_core_permille;
                    guest.endpoint = beat.endpoint;
                    // The guest takes no word while it misses the host's heartbeats: what it lacks is said again.
                    self.vflood_due |= beat.vflood_serial != self.vflood.serial;
                    self.window_due |= beat.epoch != self.window.epoch;
                }
                None
            }
            News::Said(Message::Goodbye) => {
                self.objections = None;
                None
            }
            // Nothing else is a guest's to say.
            News::Said(_) => None,
            News::Rest => Some(Change::Rest),
        }
    }

    /// When [`expire`](Self::expire) or [`outgoing`](Self::outgoing) have something to do.
    pub fn due(&self) -> Option<Instant> {
        let vouched = self.vouched_until.filter(|_| self.vflood.is_online);
        self.peer.due().into_iter().chain(vouched).min()
    }

    /// What is to be sent now: at most one message of each kind, so that what cannot be sent at once does not pile up.
    pub fn outgoing(&mut self, now: Instant, out: &mut Vec<u8>) {
        self.peer.outgoing(now, Heartbeat::default(), out);
        let Some(guest) = self.guest else { return };
        if guest.capabilities.has(Capabilities::VFLOOD) && std::mem::take(&mut self.vflood_due) {
            Message::Vflood(self.vflood).encode(out);
        }
        if guest.capabilities.has(Capabilities::CERA) && std::mem::take(&mut self.window_due) {
            Message::Window(self.window).encode(out);
        }
    }

    /// The agent is going.
    pub fn goodbye(&mut self, out: &mut Vec<u8>) {
        self.peer.goodbye(out);
    }
}
