//! Any bytes over a guest channel, in any pieces: what is read is what would be written, and neither end does anything
//! but rest until its heartbeats are echoed. `make fuzz`, or in crates/algo: `cargo +nightly fuzz run channel`.
#![no_main]
#![allow(dead_code, missing_docs, reason = "the agent uses the rest")]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;

#[path = "../../../agent/src/channel/budget.rs"]
mod budget;
#[path = "../../../agent/src/channel/endpoint.rs"]
mod endpoint;
#[path = "../../../agent/src/channel/guest.rs"]
mod guest;
#[path = "../../../agent/src/channel/host.rs"]
mod host;
#[path = "../../../agent/src/channel/peer.rs"]
mod peer;
#[path = "../../../agent/src/channel/wire.rs"]
mod wire;

fuzz_target!(|pieces: Vec<Vec<u8>>| {
    let mut now = Instant::now();
    let (mut decoder, mut items) = (wire::Decoder::default(), Vec::new());
    // A session that a fuzzer finds is one that is echoed.
    let mut host = host::HostEnd::new(200, 0xffff_0123, now);
    let mut guest = guest::GuestEnd::new(200, wire::Capabilities(3), 0xffff_4567, now);
    host.connected(now);
    guest.connected(now);
    let mut out = Vec::new();
    for piece in &pieces {
        decoder.decode(piece, &mut items);
        host.received(piece, now);
        guest.received(piece, now);
        host.outgoing(now, &mut out);
        guest.outgoing(now, &mut out);
        now += Duration::from_millis(piece.len() as u64);
        host.expire(now);
        guest.expire(now);
    }
    let mut garbage = 0;
    for item in items {
        match item {
            wire::Item::Message(message) => {
                let (mut frame, mut again) = (Vec::new(), Vec::new());
                message.encode(&mut frame);
                wire::Decoder::default().decode(&frame, &mut again);
                assert_eq!(again, [item]);
            }
            wire::Item::Garbage(bytes) => garbage += bytes,
            wire::Item::Unknown(_) => {}
        }
    }
    assert!(garbage <= pieces.iter().map(Vec::len).sum());
});
