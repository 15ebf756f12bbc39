//! Long-lived flows.

use super::{FlowId, Members, Random, START_SPREAD, Side, System};
use crate::packet::GuestId;
use crate::time::Instant;

/// More than a run can send.
const ENDLESS_BYTES: u64 = 1 << 50;

#[derive(Debug)]
pub(super) struct Bulk {
    members: Members,
    flows: u32,
}

impl Bulk {
    pub(super) fn new(members: Members, flows: u32) -> Self {
        Self { members, flows }
    }

    pub(super) fn start(&self, system: &mut impl System) {
        let mut random = Random::new(self.members.seed, 0);
        for (position, sender) in self.members.from.iter().enumerate() {
            let at = Instant::START + random.span(START_SPREAD);
            system.call_in(sender.guest, at, position as u32);
        }
    }

    pub(super) fn on_call(&self, system: &mut impl System, tag: u32) {
        let Some((from, to)) = self.pair(tag as usize) else { return };
        for _ in 0..self.flows {
            system.open(from, to);
        }
    }

    /// Senders take the receivers in turn.
    fn pair(&self, position: usize) -> Option<(GuestId, GuestId)> {
        let to = &self.members.to;
        Some((self.members.from.get(position)?.guest, to.get(position % to.len().max(1))?.guest))
    }

    pub(super) fn on_established(&self, system: &mut impl System, flow: FlowId) {
        system.write(flow, Side::Opener, ENDLESS_BYTES);
    }
}
