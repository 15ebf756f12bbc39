//! The guest's end of its channel.

use std::time::Instant;

use super::endpoint::Reasons;
use super::peer::{Counts, News, Own, Peer, Why};
use super::wire::{Capabilities, Heartbeat, Hello, Message, Role, Window};

/// CERA sends a window every quarter of a millisecond at most.
const MESSAGES: (u32, u32) = (20_000, 20_000);

/// What the guest has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A host is there.
    Up(Hello),
    /// It is gone: what it said holds no longer.
    Down(Why),
    /// Sockets may flood until `until`, with `flood_segments` where nothing was granted.
    Attested {
        /// Until when, should the host say nothing more.
        until: Instant,
        /// The window where nothing was granted; 0: the mechanism's own.
        flood_segments: u32,
        /// The session of the host's agent.
        host: u32,
    },
    /// Sockets may not flood.
    Retracted,
    /// The window to share out over the active flows.
    Share(Window),
    /// There is no limit any more.
    Released,
    /// The host is not to be read from for [`REST`](super::peer::REST).
    Rest,
}

/// The guest's end.
#[derive(Debug)]
pub struct GuestEnd {
    peer: Peer,
    report: Heartbeat,
    online: Option<u32>,
    is_limited: bool,
    off_core_permille: Option<u16>,
    endpoint: Option<Reasons>,
}

impl GuestEnd {
    /// An end without a connection.
    pub fn new(heartbeat_ms: u16, capabilities: Capabilities, session: u32, now: Instant) -> Self {
        let own = Own { role: Role::Guest, heartbeat_ms, capabilities, session, messages: MESSAGES };
        Self {
            peer: Peer::new(own, now),
            report: Heartbeat::default(),
            online: None,
            is_limited: false,
            off_core_permille: None,
            endpoint: None,
        }
    }

    /// There is a connection.
    pub fn connected(&mut self, now: Instant) {
        self.peer.connected(now);
    }

    /// There is none any more.
    pub fn disconnected(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(news) = self.peer.disconnected() {
            self.turn(news, &mut effects);
        }
        effects
    }

    /// The host, if it is there.
    pub fn host(&self) -> Option<&Hello> {
        self.peer.there()
    }

    /// Until when it counts as there, should it say nothing more.
    pub fn alive_until(&self) -> Option<Instant> {
        self.peer.alive_until()
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.peer.counts()
    }

    /// Bytes came. Of several windows only the last one is to be shared out.
    pub fn received(&mut self, bytes: &[u8], now: Instant) -> Vec<Effect> {
        let (mut news, mut effects) = (Vec::new(), Vec::new());
        self.peer.received(bytes, now, &mut news);
        for news in news {
            let is_beat = matches!(news, News::Beat(_));
            self.turn(news, &mut effects);
            if is_beat && self.online.is_some() {
                effects.extend(self.attested());
            }
        }
        let last = effects.iter().rposition(|effect| matches!(effect, Effect::Share(_)));
        let mut place = 0;
        effects.retain(|effect| {
            place += 1;
            !matches!(effect, Effect::Share(_)) || Some(place - 1) == last
        });
        effects
    }

    fn attested(&self) -> Option<Effect> {
        let host = self.peer.there()?.session;
        Some(Effect::Attested { until: self.peer.alive_until()?, flood_segments: self.online?, host })
    }

    /// Time has passed.
    pub fn expire(&mut self, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(news) = self.peer.expire(now) {
            self.turn(news, &mut effects);
        }
        effects
    }

    fn turn(&mut self, news: News, effects: &mut Vec<Effect>) {
        match news {
            News::Up(hello) => {
                // Its epochs and serials are not those of the one before.
                self.report = Heartbeat::default();
                effects.push(Effect::Up(hello));
            }
            News::Down(why) => {
                self.report = Heartbeat::default();
                if self.online.take().is_some() {
                    effects.push(Effect::Retracted);
                }
                if std::mem::take(&mut self.is_limited) {
                    effects.push(Effect::Released);
                }
                effects.push(Effect::Down(why));
            }
            News::Beat(_) => {}
            News::Said(Message::Vflood(vflood)) => {
                self.report.vflood_serial = vflood.serial;
                self.report.is_flooding = vflood.is_online;
                self.online = vflood.is_online.then_some(vflood.flood_segments);
                effects.push(self.attested().unwrap_or(Effect::Retracted));
            }
            News::Said(Message::Window(window)) => {
                self.report.epoch = window.epoch;
                if window.segments > 0 {
                    self.is_limited = true;
                    effects.push(Effect::Share(window));
                } else if std::mem::take(&mut self.is_limited) {
                    effects.push(Effect::Released);
                }
            }
            News::Said(_) => {}
            News::Rest => effects.push(Effect::Rest),
        }
    }

    /// For how much of the last seconds this guest had no core; the host hears of it with the next heartbeat.
    pub fn off_core(&mut self, permille: Option<u16>) {
        self.off_core_permille = permille;
    }

    /// What speaks against this guest's TCP as the end of its connections. The host hears of it with the next
    /// heartbeat, which is due now if this is another word than before.
    pub fn endpoint(&mut self, said: Option<Reasons>, now: Instant) {
        if self.endpoint != said {
            self.endpoint = said;
            self.peer.beat_soon(now);
        }
    }

    /// What was ordered is done: the host is to hear of it at once.
    pub fn report_soon(&mut self, now: Instant) {
        self.peer.beat_soon(now);
    }

    /// When [`expire`](Self::expire) or [`outgoing`](Self::outgoing) have something to do.
    pub fn due(&self) -> Option<Instant> {
        self.peer.due()
    }

    /// What is to be sent now.
    pub fn outgoing(&mut self, now: Instant, out: &mut Vec<u8>) {
        let report = Heartbeat { off_core_permille: self.off_core_permille, endpoint: self.endpoint, ..self.report };
        self.peer.outgoing(now, report, out);
    }

    /// The agent is going.
    pub fn goodbye(&mut self, out: &mut Vec<u8>) {
        self.peer.goodbye(out);
    }
}
