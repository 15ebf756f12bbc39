//! Requests and responses in a closed loop.

use std::collections::BTreeMap;

use super::{FlowDone, FlowId, Members, Random, Recording, START_SPREAD, Side, System};
use crate::packet::GuestId;
use crate::time::{Duration, Instant};

/// Sizes, number and pace of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub sizes: Sizes,
    pub outstanding: u32,
    pub think_time: Duration,
}

/// Sizes of a request and its response, of two kinds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub often: (u64, u64),
    pub seldom: (u64, u64),
    /// How many of a thousand requests are of the frequent kind. Both kinds are spread evenly.
    pub often_permille: u32,
}

impl Sizes {
    /// All requests are of one kind.
    pub(super) const fn same(request_bytes: u64, response_bytes: u64) -> Self {
        let sizes = (request_bytes, response_bytes);
        Self { often: sizes, seldom: sizes, often_permille: 1000 }
    }

    /// The sizes for a loop's request with this number. Loops begin at different places of the pattern.
    fn of(&self, position: u64, number: u64) -> (u64, u64) {
        let seldom = u64::from(1000 - self.often_permille.min(1000));
        let before = (number + position) * seldom;
        if before / 1000 == (before + seldom) / 1000 { self.often } else { self.seldom }
    }
}

impl Settings {
    /// The size of the response to a loop's latest request.
    fn response_bytes(&self, tag: u32, one: &Loop) -> u64 {
        self.sizes.of(u64::from(tag), one.asked - 1).1
    }
}

#[derive(Debug)]
pub(super) struct RequestResponse {
    settings: Settings,
    loops: Vec<Loop>,
    by_flow: BTreeMap<FlowId, u32>,
}

/// One request at a time on a connection of its own.
#[derive(Debug)]
struct Loop {
    asker: GuestId,
    answerer: GuestId,
    flow: Option<FlowId>,
    starts: Instant,
    asked: u64,
    answered: u64,
    /// Bytes of all requests and responses so far, the next ones' included.
    requests_bytes: u64,
    responses_bytes: u64,
    /// When the request that is under way began.
    began: Option<Instant>,
}

impl RequestResponse {
    pub(super) fn new(members: &Members, settings: Settings) -> Self {
        let mut random = Random::new(members.seed, 0);
        let mut loops = Vec::new();
        for (position, asker) in members.to.iter().enumerate() {
            for number in 0..settings.outstanding as usize {
                // Askers take the answerers in turn, and so do the connections of each.
                let answerer = members.from[(position + number) % members.from.len()];
                loops.push(Loop {
                    asker: asker.guest,
                    answerer: answerer.guest,
                    flow: None,
                    starts: Instant::START + random.span(START_SPREAD),
                    asked: 0,
                    answered: 0,
                    requests_bytes: 0,
                    responses_bytes: 0,
                    began: None,
                });
            }
        }
        Self { settings, loops, by_flow: BTreeMap::new() }
    }

    pub(super) fn start(&self, system: &mut impl System) {
        for (tag, one) in self.loops.iter().enumerate() {
            system.call_in(one.asker, one.starts, tag as u32);
        }
    }

    pub(super) fn on_call(&mut self, system: &mut impl System, tag: u32) {
        let Some(one) = self.loops.get_mut(tag as usize) else { return };
        match one.flow {
            Some(flow) => self.ask(system, tag, flow),
            None => {
                let flow = system.open(one.asker, one.answerer);
                one.flow = Some(flow);
                self.by_flow.insert(flow, tag);
            }
        }
    }

    pub(super) fn on_established(&mut self, system: &mut impl System, flow: FlowId) {
        if let Some(tag) = self.by_flow.get(&flow).copied() {
            self.await_request(system, tag, flow);
            self.ask(system, tag, flow);
        }
    }

    /// Whether a connection is one of these.
    pub(super) fn owns(&self, flow: FlowId) -> bool {
        self.by_flow.contains_key(&flow)
    }

    fn await_request(&mut self, system: &mut impl System, tag: u32, flow: FlowId) {
        let one = &mut self.loops[tag as usize];
        one.requests_bytes += self.settings.sizes.of(u64::from(tag), one.answered).0;
        system.expect(flow, Side::Acceptor, one.requests_bytes);
    }

    fn ask(&mut self, system: &mut impl System, tag: u32, flow: FlowId) {
        let one = &mut self.loops[tag as usize];
        let (request_bytes, response_bytes) = self.settings.sizes.of(u64::from(tag), one.asked);
        one.asked += 1;
        one.began = Some(system.now());
        one.responses_bytes += response_bytes;
        system.expect(flow, Side::Opener, one.responses_bytes);
        system.write(flow, Side::Opener, request_bytes);
    }

    pub(super) fn on_delivered(
        &mut self,
        system: &mut impl System,
        recording: &mut Recording,
        flow: FlowId,
        side: Side,
    ) {
        let Some(tag) = self.by_flow.get(&flow).copied() else { return };
        let one = &mut self.loops[tag as usize];
        if side == Side::Acceptor {
            let response_bytes = self.settings.sizes.of(u64::from(tag), one.answered).1;
            one.answered += 1;
            self.await_request(system, tag, flow);
            system.write(flow, Side::Acceptor, response_bytes);
            return;
        }
        let now = system.now();
        if let Some(start) = one.began.take() {
            let bytes = self.settings.response_bytes(tag, one);
            let (from, to) = (one.answerer, one.asker);
            recording.flow(FlowDone { from, to, bytes, start, took: now.since(start), connected_took: None });
        }
        if self.settings.think_time == Duration::ZERO {
            self.ask(system, tag, flow);
        } else {
            system.call_in(one.asker, now + self.settings.think_time, tag);
        }
    }

    /// Records what is under way at the end.
    pub(super) fn leave(&self, recording: &mut Recording, end: Instant) {
        for (tag, one) in (0..).zip(&self.loops) {
            if let Some(start) = one.began {
                recording.under_way(self.settings.response_bytes(tag, one), start, end);
            }
        }
    }
}
