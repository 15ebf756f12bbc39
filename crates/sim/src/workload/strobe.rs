//! The block strobe (PVTCP §III): ask all servers for a block, go on when all blocks are in.

use std::collections::BTreeMap;

use super::{FlowId, Members, Recording, Side, System};
use crate::packet::GuestId;
use crate::time::Instant;

/// Size of a request.
const REQUEST_BYTES: u64 = 8;

#[derive(Debug)]
pub(super) struct Strobe {
    client: GuestId,
    servers: Vec<GuestId>,
    bytes_per_server: u64,
    /// Requests after the mark; 0: no limit.
    limit: u32,
    /// In the order of servers.
    flows: Vec<FlowId>,
    /// How many requests were sent and answered on each flow.
    asked: BTreeMap<FlowId, Asked>,
    began: Instant,
    outstanding: usize,
    /// Requests begun and completed since the latest mark.
    completed: u32,
    /// A mark came while the present request was under way.
    marked_meanwhile: bool,
    marks: u32,
}

#[derive(Debug, Default)]
struct Asked {
    requests: u64,
    answered: u64,
}

impl Strobe {
    pub(super) fn new(members: Members, block_bytes: u64, limit: u32) -> Self {
        let servers: Vec<GuestId> = members.from.iter().map(|m| m.guest).collect();
        Self {
            client: members.to[0].guest,
            bytes_per_server: block_bytes / servers.len().max(1) as u64,
            servers,
            limit,
            flows: Vec::new(),
            asked: BTreeMap::new(),
            began: Instant::START,
            outstanding: 0,
            completed: 0,
            marked_meanwhile: false,
            marks: 0,
        }
    }

    /// Connects to one server after the other, as the lab's client does.
    pub(super) fn start(&mut self, system: &mut impl System) {
        if let Some(server) = self.servers.get(self.flows.len()) {
            let flow = system.open(self.client, *server);
            self.flows.push(flow);
        }
    }

    pub(super) fn on_established(&mut self, system: &mut impl System, flow: FlowId) {
        self.asked.insert(flow, Asked::default());
        system.expect(flow, Side::Acceptor, REQUEST_BYTES);
        if self.flows.len() < self.servers.len() {
            self.start(system);
        } else {
            self.ask(system);
        }
    }

    pub(super) fn mark(&mut self, system: &mut impl System) {
        self.marks += 1;
        let waits = self.limit > 0 && self.completed >= self.limit && self.outstanding == 0;
        self.completed = 0;
        self.marked_meanwhile = self.outstanding > 0;
        if waits {
            self.ask(system);
        }
    }

    fn ask(&mut self, system: &mut impl System) {
        self.began = system.now();
        self.outstanding = self.flows.len();
        for flow in &self.flows {
            let Some(asked) = self.asked.get_mut(flow) else { continue };
            asked.requests += 1;
            system.expect(*flow, Side::Opener, asked.requests * self.bytes_per_server);
            system.write(*flow, Side::Opener, REQUEST_BYTES);
        }
    }

    pub(super) fn on_delivered(
        &mut self,
        system: &mut impl System,
        recording: &mut Recording,
        flow: FlowId,
        side: Side,
    ) {
        if side == Side::Acceptor {
            let Some(asked) = self.asked.get_mut(&flow) else { return };
            asked.answered += 1;
            system.expect(flow, Side::Acceptor, (asked.answered + 1) * REQUEST_BYTES);
            system.write(flow, Side::Acceptor, self.bytes_per_server);
            return;
        }
        self.outstanding = self.outstanding.saturating_sub(1);
        if self.outstanding > 0 {
            return;
        }
        recording.block(self.client, self.began, system.now());
        // A request that was under way at a mark counts on neither side of it.
        if !std::mem::take(&mut self.marked_meanwhile) {
            self.completed += 1;
        }
        if self.limit == 0 || self.completed < self.limit {
            self.ask(system);
        } else if self.marks > 0 {
            system.stop();
        }
    }
}
