//! What both ends have in common: hellos, heartbeats, and whether the other one is there.
//!
//! An end is there while its heartbeats come and echo recent ones of the other's. A heartbeat that waited in some
//! buffer for its reader to come back does not, and attests nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::budget::Budget;
use super::wire::{Capabilities, Decoder, HEARTBEAT_MS, Heartbeat, Hello, Item, Message, Role, VERSION};

/// How many heartbeats must be missed before the other end counts as gone.
pub const MISSED_HEARTBEATS: u32 = 3;
/// Bytes that are no message and are put up with: per second, and at once.
const GARBAGE: (u32, u32) = (4096, 16_384);
/// Own heartbeats that are remembered at most; more are only sent within six intervals when much changes.
const REMEMBERED: usize = 64;

/// What an end says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Own {
    /// Which end it is.
    pub role: Role,
    /// The time between its heartbeats, in milliseconds; clamped to [`HEARTBEAT_MS`].
    pub heartbeat_ms: u16,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Drawn at random when the agent starts.
    pub session: u32,
    /// Messages that the other end may send: per second, and at once.
    pub messages: (u32, u32),
}

/// Why the other end is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It said goodbye.
    Goodbye,
    /// Three of its heartbeats did not come.
    Silent,
    /// The connection is gone.
    Disconnected,
    /// Another one has taken its place.
    Replaced,
    /// It sends more than it may, or what is no message.
    Unruly,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Goodbye => "it said goodbye",
            Self::Silent => "three heartbeats were missed",
            Self::Disconnected => "the connection is gone",
            Self::Replaced => "another agent has taken its place",
            Self::Unruly => "it sent garbage, or more than it may",
        })
    }
}

/// What came of bytes or of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// The other end is there.
    Up(Hello),
    /// It is gone.
    Down(Why),
    /// It has sent a heartbeat, and is there.
    Beat(Heartbeat),
    /// It has said something else, and is there; or it was missed, and has said goodbye.
    Said(Message),
    /// It is not to be read from for a while.
    Rest,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that came.
    pub messages: u64,
    /// Bytes that were no message.
    pub garbage_bytes: u64,
    /// Messages of a kind that is not known.
    pub unknown: u64,
    /// Times that the other end sent more than it may.
    pub rests: u64,
}

/// One end.
#[derive(Debug)]
pub struct Peer {
    own: Hello,
    may_send: (u32, u32),
    is_connected: bool,
    /// The number of the last heartbeat that was sent.
    number: u32,
    /// Those that may be echoed: number, and when it was sent.
    sent: VecDeque<(u32, Instant)>,
    hello_due: bool,
    /// When the next heartbeat is due.
    beat_at: Instant,
    theirs: Option<Hello>,
    heard: u32,
    alive_until: Option<Instant>,
    decoder: Decoder,
    garbage: Budget,
    messages: Budget,
    counts: Counts,
}

impl Peer {
    /// An end without a connection.
    pub fn new(own: Own, now: Instant) -> Self {
        Self {
            own: Hello {
                role: own.role,
                version: VERSION,
                heartbeat_ms: own.heartbeat_ms.clamp(*HEARTBEAT_MS.start(), *HEARTBEAT_MS.end()),
                capabilities: own.capabilities,
                session: own.session,
            },
            may_send: own.messages,
            is_connected: false,
            number: own.session,
            sent: VecDeque::new(),
            hello_due: false,
            beat_at: now,
            theirs: None,
            heard: 0,
            alive_until: None,
            decoder: Decoder::default(),
            garbage: Budget::new(GARBAGE.0, GARBAGE.1, now),
            messages: Budget::new(own.messages.0, own.messages.1, now),
            counts: Counts::default(),
        }
    }

    /// There is a connection.
    pub fn connected(&mut self, now: Instant) {
        self.is_connected = true;
        self.decoder.reset();
        self.garbage = Budget::new(GARBAGE.0, GARBAGE.1, now);
        self.messages = Budget::new(self.may_send.0, self.may_send.1, now);
        self.hello_due = true;
        self.beat_at = now;
    }

    /// There is none any more.
    pub fn disconnected(&mut self) -> Option<News> {
        self.is_connected = false;
        self.sent.clear();
        self.down(Why::Disconnected)
    }

    /// Who is there, if anybody is.
    pub fn there(&self) -> Option<&Hello> {
        self.alive_until.and(self.theirs.as_ref())
    }

    /// Until when the other end counts as there, should it say nothing more.
    pub fn alive_until(&self) -> Option<Instant> {
        self.alive_until
    }

    /// The number of this end's session.
    pub fn session(&self) -> u32 {
        self.own.session
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn down(&mut self, why: Why) -> Option<News> {
        self.alive_until.take().map(|_| News::Down(why))
    }

    /// Whether this end's heartbeats are answers, which wait a little for the other end's, so that a guest wakes up
    /// once for both. Answers are never closer together than half of the interval that this end has announced.
    fn answers(&self) -> bool {
        self.own.role == Role::Guest && self.alive_until.is_some()
    }

    /// The next heartbeat is due now.
    pub fn beat_soon(&mut self, now: Instant) {
        self.beat_at = self.beat_at.min(now);
    }

    /// Bytes came.
    pub fn received(&mut self, bytes: &[u8], now: Instant, news: &mut Vec<News>) {
        let mut items = Vec::new();
        self.decoder.decode(bytes, &mut items);
        for item in items {
            let is_within = match item {
                Item::Garbage(bytes) => {
                    self.counts.garbage_bytes += bytes as u64;
                    self.garbage.spend(bytes, now)
                }
                Item::Unknown(_) => {
                    self.counts.unknown += 1;
                    self.messages.spend(1, now)
                }
                Item::Message(_) => {
                    self.counts.messages += 1;
                    self.messages.spend(1, now)
                }
            };
            if !is_within {
                self.counts.rests += 1;
                self.decoder.reset();
                news.extend(self.down(Why::Unruly));
                news.push(News::Rest);
                return;
            }
            if let Item::Message(message) = item {
                self.message(message, now, news);
            }
        }
        // Only now: bytes that this end has not read yet are not the other's silence.
        news.extend(self.expire(now));
    }

    fn message(&mut self, message: Message, now: Instant, news: &mut Vec<News>) {
        match message {
            // This end's own hello, sent back: it is nobody's.
            Message::Hello(hello) if hello.role == self.own.role => {}
            Message::Hello(hello) => {
                let is_new = self.theirs.is_none_or(|theirs| theirs.session != hello.session);
                if is_new {
                    news.extend(self.down(Why::Replaced));
                    self.heard = hello.session;
                    // It may not have heard ours.
                    self.hello_due = true;
                    self.beat_at = now;
                }
                self.theirs = Some(hello);
            }
            Message::Heartbeat(beat) => {
                // Its hello has not come; it says it again with each heartbeat until it has heard ours.
                let Some(theirs) = self.theirs else { return };
                self.heard = beat.number;
                // An end that is off its core may be late itself.
                let recent = self.own.heartbeat().max(theirs.heartbeat()) * (2 * MISSED_HEARTBEATS);
                let is_fresh = self
                    .sent
                    .iter()
                    .any(|(number, at)| *number == beat.echo && now.saturating_duration_since(*at) <= recent);
                if !is_fresh {
                    return;
                }
                let was_down = self.alive_until.replace(now + theirs.heartbeat() * MISSED_HEARTBEATS).is_none();
                if was_down {
                    self.beat_at = now;
                    news.push(News::Up(theirs));
                }
                if self.answers() && now + self.own.heartbeat() / 2 >= self.beat_at {
                    self.beat_at = now;
                }
                news.push(News::Beat(beat));
            }
            // An end that was missed already may say goodbye as well.
            Message::Goodbye => news.push(self.down(Why::Goodbye).unwrap_or(News::Said(message))),
            other if self.alive_until.is_some() => news.push(News::Said(other)),
            // Said by an end that is not there, or no longer.
            _ => {}
        }
    }

    /// Time has passed.
    pub fn expire(&mut self, now: Instant) -> Option<News> {
        if self.alive_until.is_some_and(|until| now >= until) { self.down(Why::Silent) } else { None }
    }

    /// When [`expire`](Self::expire) or [`outgoing`](Self::outgoing) have something to do.
    pub fn due(&self) -> Option<Instant> {
        let beat = self.is_connected.then_some(self.beat_at);
        [beat, self.alive_until].into_iter().flatten().min()
    }

    /// What is to be sent now, with `report` as what a heartbeat says beside its numbers.
    pub fn outgoing(&mut self, now: Instant, report: Heartbeat, out: &mut Vec<u8>) {
        if !self.is_connected {
            return;
        }
        // An end that echoes no recent heartbeat may not have this end's hello.
        let is_unheard = self.alive_until.is_none() && now >= self.beat_at;
        if std::mem::take(&mut self.hello_due) || is_unheard {
            Message::Hello(self.own).encode(out);
            self.remember(self.own.session, now);
        }
        if now >= self.beat_at {
            self.number = self.number.wrapping_add(1);
            Message::Heartbeat(Heartbeat { number: self.number, echo: self.heard, ..report }).encode(out);
            self.remember(self.number, now);
            let patience = if self.answers() { self.own.heartbeat() / 4 } else { Duration::ZERO };
            self.beat_at = now + self.own.heartbeat() + patience;
        }
    }

    fn remember(&mut self, number: u32, now: Instant) {
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back((number, now));
    }

    /// Says goodbye.
    pub fn goodbye(&mut self, out: &mut Vec<u8>) {
        if self.is_connected {
            Message::Goodbye.encode(out);
        }
    }
}

/// How long an end reads nothing after it was sent too much.
pub const REST: Duration = Duration::from_secs(1);
