//! Long-lived flows.

use super::{FlowId, Members, Random, START_SPREAD, Side, System};
use crate::packet::GuestId;
use crate::time::{Duration, Instant};

/// More than a run can send.
const ENDLESS_BYTES: u64 = 1 << 50;

#[derive(Debug)]
pub(super) struct Bulk {
    members: Members,
    flows: u32,
    /// How much later the last sender begins.
    late_start: Duration,
}

impl Bulk {
    pub(super) fn new(members: Members, flows: u32) -> Self {
        Self { members, flows, late_start: Duration::ZERO }
    }

    /// Makes the last sender begin this much later.
    pub(super) fn with_late_start(self, late_start: Duration) -> Self {
        Self { late_start, ..self }
    }

    pub(super) fn start(&self, system: &mut impl System) {
        self.start_with(system, 0);
    }

    /// Starts with tags from `first` on.
    pub(super) fn start_with(&self, system: &mut impl System, first: u32) {
        let mut random = Random::new(self.members.seed, 0);
        for (position, sender) in self.members.from.iter().enumerate() {
            let late = if position + 1 == self.members.from.len() { self.late_start } else { Duration::ZERO };
            let at = Instant::START + random.span(START_SPREAD) + late;
            system.call_in(sender.guest, at, first + position as u32);
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
