//! TCP as Linux speaks it, without I/O: time comes in as an argument, segments go out as values.
//!
//! A [`Connection`] is one end: a sender and a receiver. It works in whole segments of one MSS; only the last of a
//! write is shorter.

mod ack;
mod config;
mod connection;
mod control;
mod detect;
mod f_rto;
mod note;
mod output;
mod receiver;
mod recovery;
mod rtt;
mod scoreboard;
mod sender;
mod seq;
mod timer;
mod undo;

pub use config::{CongestionControl, EcnMode, Generation, SpuriousResponse, TcpConfig};
pub use connection::Connection;
pub use note::{ConnStats, Info, Note, UndoKind, Undone};
pub use rtt::RttFilter;

use crate::packet::{Ecn, Segment};
use crate::time::Instant;

/// Who opens the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends the SYN.
    Client,
    /// Waits for it.
    Server,
}

/// How far the handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Established,
}

/// A connection's timers. The first three are the ones that PVTCP may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerKind {
    /// Retransmission timeout, of a SYN too.
    Rto,
    /// Tail-loss probe.
    Tlp,
    /// RACK's reordering window.
    Reo,
    /// Zero-window probe.
    Persist,
    /// Delayed ACK.
    DelayedAck,
}

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its header.
    pub segment: Segment,
    /// Its IP header's ECN field.
    pub ecn: Ecn,
    /// Whether its payload was sent before.
    pub retransmission: bool,
}

/// What a call may use and fill.
pub struct Env<'a> {
    /// The present.
    pub now: Instant,
    /// The guest's settings.
    pub config: &'a TcpConfig,
    /// Segments to send, in order; the caller takes them out.
    pub out: &'a mut Vec<Outgoing>,
    /// What happened; the caller takes them out.
    pub notes: &'a mut Vec<Note>,
    /// PVTCP's filter of RTT samples.
    pub filter: RttFilter<'a>,
}
