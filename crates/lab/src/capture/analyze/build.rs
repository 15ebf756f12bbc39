//! Synthetic flows for tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::flow::{Ack, Event, Flow, FlowKey, Segment};
use crate::capture::packets::{Flags, Packet};

/// Nanoseconds of a millisecond.
pub const MS: i64 = 1_000_000;

/// The flow of all tests.
pub const KEY: FlowKey = FlowKey { sender: at(1), receiver: at(2) };

const fn at(host: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), 5001)
}

/// A packet of the sender.
pub fn packet(t_ns: i64, seq: u32, len: u32) -> Packet {
    Packet {
        t_ns,
        interface: None,
        outgoing: None,
        src: KEY.sender,
        dst: KEY.receiver,
        seq,
        ack: 0,
        len,
        flags: Flags(Flags::ACK),
        window: 1000,
        sack: Vec::new(),
    }
}

/// Data at a time in milliseconds.
pub fn data(t_ms: i64, seq: i64, len: u32) -> Event {
    Event::Data(Segment { t_ns: t_ms * MS, seq, len })
}

/// An ACK at a time in milliseconds.
pub fn ack(t_ms: i64, ack: i64) -> Event {
    sack(t_ms, ack, &[])
}

/// An ACK with SACK blocks.
pub fn sack(t_ms: i64, ack: i64, blocks: &[(i64, i64)]) -> Event {
    Event::Ack(Ack { t_ns: t_ms * MS, ack, window: 1000, sack: blocks.to_vec(), pure: true })
}

/// A flow of events.
pub fn flow(events: impl Into<Vec<Event>>) -> Flow {
    Flow { key: KEY, events: events.into() }
}

/// The flow as a capture whose clock is ahead shows it.
pub fn shifted(flow: &Flow, by_ns: i64) -> Flow {
    let events = flow.events.iter().cloned().map(|event| match event {
        Event::Data(segment) => Event::Data(Segment { t_ns: segment.t_ns + by_ns, ..segment }),
        Event::Ack(ack) => Event::Ack(Ack { t_ns: ack.t_ns + by_ns, ..ack }),
    });
    Flow { key: flow.key, events: events.collect() }
}
