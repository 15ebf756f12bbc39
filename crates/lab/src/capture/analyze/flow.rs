//! One direction of a connection: its data segments, and the ACKs that come back.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::intervals::Intervals;
use crate::capture::packets::Packet;

/// Who sends data to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// Where the data comes from.
    pub sender: SocketAddr,
    /// Where it goes to.
    pub receiver: SocketAddr,
}

/// Data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// When it was seen.
    pub t_ns: i64,
    /// First byte, counted from the flow's first.
    pub seq: i64,
    /// Payload bytes, not zero.
    pub len: u32,
}

impl Segment {
    /// The byte after the last.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.seq + i64::from(self.len)
    }
}

/// What the receiver says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// When it was seen.
    pub t_ns: i64,
    /// The next byte it wants, counted from the flow's first.
    pub ack: i64,
    /// The window field, unscaled.
    pub window: u16,
    /// SACK blocks.
    pub sack: Vec<(i64, i64)>,
    /// Whether it carries no data and no FIN.
    pub pure: bool,
}

impl Ack {
    /// Whether it says that something above `ack` is there: a block at or below it is a DSACK.
    #[must_use]
    pub fn sacks_ahead(&self) -> bool {
        self.sack.iter().any(|&(_, end)| end > self.ack)
    }
}

/// Data or ACK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// From the sender.
    Data(Segment),
    /// From the receiver.
    Ack(Ack),
}

impl Event {
    /// When it was seen.
    #[must_use]
    pub fn t_ns(&self) -> i64 {
        match self {
            Self::Data(segment) => segment.t_ns,
            Self::Ack(ack) => ack.t_ns,
        }
    }
}

/// The span of time in which events are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// When it begins.
    pub from_ns: i64,
    /// When it ends.
    pub to_ns: i64,
}

impl Span {
    /// All that a capture shows.
    pub const ALL: Self = Self { from_ns: i64::MIN, to_ns: i64::MAX };

    /// The events up to the span's end, each with whether it lies in the span. Earlier ones tell what is in flight when
    /// it begins.
    pub(super) fn events(self, flow: &Flow) -> impl Iterator<Item = (&Event, bool)> {
        let events = flow.events.iter().take_while(move |event| event.t_ns() <= self.to_ns);
        events.map(move |event| (event, event.t_ns() >= self.from_ns))
    }
}

/// A flow as one capture shows it. SYNs and resets are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Addresses and ports.
    pub key: FlowKey,
    /// In the order of time.
    pub events: Vec<Event>,
}

/// The flows with data in a capture and their payload bytes (retransmissions included), the largest first.
#[must_use]
pub fn flows<'a>(packets: impl IntoIterator<Item = &'a Packet>) -> Vec<(FlowKey, u64)> {
    let mut bytes: BTreeMap<FlowKey, u64> = BTreeMap::new();
    for packet in packets.into_iter().filter(|packet| packet.len > 0) {
        *bytes.entry(FlowKey { sender: packet.src, receiver: packet.dst }).or_default() += u64::from(packet.len);
    }
    let mut flows: Vec<_> = bytes.into_iter().collect();
    flows.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    flows
}

/// The sequence number of a flow's first byte: the one after its SYN, or the lowest seen if the flow began before the
/// capture. Take it from one capture and use it for all, so that their numbers agree.
#[must_use]
pub fn first_byte<'a>(key: FlowKey, packets: impl IntoIterator<Item = &'a Packet>) -> Option<u32> {
    let mut sent =
        packets.into_iter().filter(|p| p.src == key.sender && p.dst == key.receiver && !p.flags.rst()).peekable();
    let any = sent.peek()?.seq;
    let mut unwrap = Unwrap::new(any);
    let mut lowest = None;
    for packet in sent {
        if packet.flags.syn() {
            return Some(packet.seq.wrapping_add(1));
        }
        if packet.len > 0 {
            let seq = unwrap.number(packet.seq);
            lowest = Some(lowest.map_or(seq, |lowest: i64| lowest.min(seq)));
        }
    }
    // Within 32 bits by construction: the sum wraps as sequence numbers do.
    lowest.map(|lowest| any.wrapping_add(lowest as u32))
}

impl Flow {
    /// Picks a flow's packets out of a capture; see [`first_byte`].
    #[must_use]
    pub fn new<'a>(key: FlowKey, first_byte: u32, packets: impl IntoIterator<Item = &'a Packet>) -> Self {
        let mut unwrap = Unwrap::new(first_byte);
        let mut events = Vec::new();
        for packet in packets.into_iter().filter(|packet| !packet.flags.syn() && !packet.flags.rst()) {
            if packet.src == key.sender && packet.dst == key.receiver && packet.len > 0 {
                events.push(Event::Data(Segment {
                    t_ns: packet.t_ns,
                    seq: unwrap.number(packet.seq),
                    len: packet.len,
                }));
            } else if packet.src == key.receiver && packet.dst == key.sender && packet.flags.ack() {
                events.push(Event::Ack(Ack {
                    t_ns: packet.t_ns,
                    ack: unwrap.number(packet.ack),
                    window: packet.window,
                    sack: packet.sack.iter().map(|&(start, end)| (unwrap.near(start), unwrap.near(end))).collect(),
                    pure: packet.len == 0 && !packet.flags.fin(),
                }));
            }
        }
        Self { key, events }
    }

    /// Its data segments.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.events.iter().filter_map(|event| match event {
            Event::Data(segment) => Some(*segment),
            Event::Ack(_) => None,
        })
    }

    /// Its ACKs.
    pub fn acks(&self) -> impl Iterator<Item = &Ack> {
        self.events.iter().filter_map(|event| match event {
            Event::Ack(ack) => Some(ack),
            Event::Data(_) => None,
        })
    }

    /// Its data segments, each with how many of its bytes this capture had shown before.
    pub fn segments_seen_before(&self) -> impl Iterator<Item = (Segment, u64)> + '_ {
        let mut seen = Intervals::default();
        self.segments().map(move |segment| (segment, seen.insert(segment.seq, segment.end())))
    }
}

/// Unwraps 32-bit sequence numbers to 64 bits.
#[derive(Debug, Clone, Copy)]
struct Unwrap {
    first_byte: u32,
    highest: i64,
}

impl Unwrap {
    fn new(first_byte: u32) -> Self {
        Self { first_byte, highest: 0 }
    }

    /// The number closest to the highest so far.
    fn near(&self, number: u32) -> i64 {
        let highest = self.first_byte.wrapping_add(self.highest as u32);
        self.highest + i64::from(number.wrapping_sub(highest) as i32)
    }

    /// Like `near`, and remembers the number if it is the highest so far.
    fn number(&mut self, number: u32) -> i64 {
        let near = self.near(number);
        self.highest = self.highest.max(near);
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::analyze::build::{KEY, packet};
    use crate::capture::packets::Flags;

    #[test]
    fn numbers_go_on_where_sequence_numbers_wrap() {
        let first = u32::MAX - 999;
        let packets = [packet(0, first, 1000), packet(1, 0, 1000), packet(2, first, 1000), packet(3, 1000, 500)];
        let flow = Flow::new(KEY, first, &packets);
        assert_eq!(flow.segments().map(|s| s.seq).collect::<Vec<_>>(), [0, 1000, 0, 2000]);
        assert_eq!(first_byte(KEY, &packets), Some(first));
        assert_eq!(flow.segments_seen_before().map(|(_, bytes)| bytes).collect::<Vec<_>>(), [0, 0, 1000, 0]);
    }

    #[test]
    fn the_first_byte_follows_the_syn_or_is_the_lowest() {
        let syn = Packet { flags: Flags(Flags::SYN), ..packet(0, 99, 0) };
        assert_eq!(first_byte(KEY, &[syn, packet(1, 100, 10)]), Some(100));
        assert_eq!(first_byte(KEY, &[packet(0, 500, 10), packet(1, 400, 10), packet(2, 510, 10)]), Some(400));
        assert_eq!(first_byte(KEY, &[packet(0, 5, 10), packet(1, u32::MAX - 4, 10)]), Some(u32::MAX - 4));
        assert_eq!(first_byte(KEY, &[packet(0, 500, 0)]), None);
    }

    #[test]
    fn flows_are_listed_by_size() {
        let back = Packet { src: KEY.receiver, dst: KEY.sender, ..packet(0, 0, 10) };
        let listed = flows(&[back.clone(), packet(0, 0, 100), packet(1, 100, 100)]);
        assert_eq!(listed, [(KEY, 200), (FlowKey { sender: KEY.receiver, receiver: KEY.sender }, 10)]);
    }

    #[test]
    fn a_dsack_says_nothing_of_what_is_ahead() {
        let ack = |sack| Ack { t_ns: 0, ack: 100, window: 1, sack, pure: true };
        assert!(!ack(vec![(50, 100)]).sacks_ahead());
        assert!(ack(vec![(50, 100), (150, 200)]).sacks_ahead());
    }
}
