//! A key-value store beside long-lived flows, as memcached beside iperf3.

use super::bulk::Bulk;
use super::request_response::{self, RequestResponse, Sizes};
use super::{FlowId, Members, Recording, Side, System};
use crate::time::{Duration, Instant};

/// memaslap's keys.
const KEY_BYTES: u64 = 64;
/// `get KEY`, and the line's end.
const GET_BYTES: u64 = 4 + KEY_BYTES + 2;
/// `VALUE KEY FLAGS BYTES`, the value, `END`, and the lines' ends.
const VALUE_OVERHEAD_BYTES: u64 = 6 + KEY_BYTES + 2 + 5 + 2 + 2 + 5;
/// `set KEY FLAGS EXPIRY BYTES`, the value, and the lines' ends.
const SET_OVERHEAD_BYTES: u64 = 4 + KEY_BYTES + 4 + 5 + 2 + 2;
/// `STORED`, and the line's end.
const STORED_BYTES: u64 = 8;
/// Tags from this one on belong to the long-lived flows.
const BULK_TAGS: u32 = 1 << 28;

/// Number and sizes of requests, and the flows beside them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub outstanding: u32,
    pub gets_permille: u32,
    pub value_bytes: u64,
    pub flows: u32,
    pub late_start: Duration,
}

#[derive(Debug)]
pub(super) struct Memcached {
    requests: RequestResponse,
    bulk: Bulk,
}

impl Memcached {
    pub(super) fn new(members: Members, settings: &Settings) -> Self {
        let sizes = Sizes {
            often: (GET_BYTES, settings.value_bytes + VALUE_OVERHEAD_BYTES),
            seldom: (settings.value_bytes + SET_OVERHEAD_BYTES, STORED_BYTES),
            often_permille: settings.gets_permille,
        };
        let mut senders = members.from.clone();
        let asker = senders.drain(..senders.len().min(1)).collect();
        let asking = Members { from: members.to.clone(), to: asker, ..members };
        let requests = RequestResponse::new(
            &asking,
            request_response::Settings { sizes, outstanding: settings.outstanding, think_time: Duration::ZERO },
        );
        let sending = Members { from: senders, to: members.to, ..asking };
        Self { requests, bulk: Bulk::new(sending, settings.flows).with_late_start(settings.late_start) }
    }

    /// Records what is under way at the end.
    pub(super) fn leave(&self, recording: &mut Recording, end: Instant) {
        self.requests.leave(recording, end);
    }

    pub(super) fn start(&self, system: &mut impl System) {
        self.requests.start(system);
        self.bulk.start_with(system, BULK_TAGS);
    }

    pub(super) fn on_call(&mut self, system: &mut impl System, tag: u32) {
        match tag.checked_sub(BULK_TAGS) {
            Some(tag) => self.bulk.on_call(system, tag),
            None => self.requests.on_call(system, tag),
        }
    }

    pub(super) fn on_established(&mut self, system: &mut impl System, flow: FlowId) {
        if self.requests.owns(flow) {
            self.requests.on_established(system, flow);
        } else {
            self.bulk.on_established(system, flow);
        }
    }

    pub(super) fn on_delivered(
        &mut self,
        system: &mut impl System,
        recording: &mut Recording,
        flow: FlowId,
        side: Side,
    ) {
        self.requests.on_delivered(system, recording, flow, side);
    }
}
