//! TCP as Linux implements it, without I/O: time comes in as an argument, segments go out as values.
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
mod tso;
mod undo;

pub use config::{CongestionControl, EcnMode, Generation, SpuriousResponse, TcpConfig};
pub use connection::Connection;
pub use note::{ConnStats, Info, Note, UndoKind, UndoOf, Undone};

use evenkeel_algo::pvtcp::{Settings, Vcpu};

use crate::packet::{Ecn, Flags, Segment};
use crate::time::Instant;

/// Who opens the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends the SYN.
    Client,
    /// Waits for the SYN.
    Server,
}

/// The progress of the handshake.
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
    /// Payload of each of its segments but the last, if it is several that others are to cut (GSO); 0: it is one
    /// segment.
    pub gso_bytes: u16,
}

impl Outgoing {
    /// The first packet of segments that go out together, with at most `most` segments in it, and the rest. New data in
    /// full segments shares a packet as long as the headers are equal.
    pub(crate) fn first_of(out: &[Self], most: u32) -> Option<(Self, &[Self])> {
        let (first, behind) = out.split_first()?;
        let size = first.segment.payload_bytes;
        let mut whole = *first;
        let mut joined = 0;
        for next in behind.iter().take(most.saturating_sub(1) as usize) {
            if !whole.takes(next, size) {
                break;
            }
            whole.segment.payload_bytes += next.segment.payload_bytes;
            whole.segment.flags = whole.segment.flags.with(next.segment.flags);
            whole.gso_bytes = size as u16;
            joined += 1;
            if next.segment.payload_bytes < size {
                break;
            }
        }
        Some((whole, &behind[joined..]))
    }

    /// Whether a segment can join this packet, whose segments have `size` bytes.
    fn takes(&self, next: &Self, size: u32) -> bool {
        let (own, other) = (&self.segment, &next.segment);
        let header = |of: &Segment| Segment { seq: 0, payload_bytes: 0, flags: of.flags.without(FLAGS_OF_ONE), ..*of };
        let is_new = !(self.retransmission || next.retransmission);
        is_new
            && (1..=size).contains(&other.payload_bytes)
            && size <= u32::from(u16::MAX)
            && own.seq.wrapping_add(own.payload_bytes) == other.seq
            && self.ecn == next.ecn
            && header(own) == header(other)
    }
}

/// Flags that only the first or the last segment of a packet has.
const FLAGS_OF_ONE: Flags = Flags::PSH.with(Flags::CWR);

/// What PVTCP knows of the absences of a guest's virtual CPU.
#[derive(Clone, Copy, Debug)]
pub struct Absences<'a> {
    /// The virtual CPU.
    pub vcpu: &'a Vcpu,
    /// The module's parameters.
    pub settings: &'a Settings,
    /// Whether it changes what happens, or only counts.
    pub acts: bool,
}

/// What a call may read and fill.
pub struct Env<'a> {
    /// The present.
    pub now: Instant,
    /// The guest's settings.
    pub config: &'a TcpConfig,
    /// Segments to send, in order; the caller takes them out.
    pub out: &'a mut Vec<Outgoing>,
    /// What happened; the caller takes them out.
    pub notes: &'a mut Vec<Note>,
    /// PVTCP, where the guest has it.
    pub pvtcp: Option<Absences<'a>>,
}
