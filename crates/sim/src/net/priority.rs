//! Strict priority: the first class that has a packet sends.

use std::collections::VecDeque;

use super::ledger::{Ledger, Waiting};
use super::pool::Pool;
use super::red::Red;
use super::topology::{Limit, PrioritySpec};
use crate::packet::{Ecn, PacketId};

#[derive(Debug)]
pub(super) struct Priority {
    classes: Vec<VecDeque<(PacketId, u32)>>,
    limit: Limit,
    red: Option<Red>,
    waiting: Waiting,
}

impl Priority {
    pub fn new(spec: &PrioritySpec, red: Option<Red>) -> Self {
        let classes = (0..spec.classes.max(1)).map(|_| VecDeque::new()).collect();
        Self { classes, limit: spec.limit, red, waiting: Waiting::default() }
    }

    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    pub fn offer(&mut self, id: PacketId, pool: Option<&Pool>, ledger: &mut Ledger) {
        if !ledger.fits(id, self.waiting, self.limit, pool) {
            ledger.refuse(id);
        } else if ledger.passes(self.red.as_mut(), self.waiting, id, ledger.packets[id].ecn != Ecn::NotEct) {
            let packet = &ledger.packets[id];
            let bytes = packet.wire_bytes;
            let class = usize::from(packet.class).min(self.classes.len() - 1);
            self.classes[class].push_back((id, bytes));
            self.waiting.join(bytes);
            ledger.accept(bytes);
        }
    }

    pub fn next(&mut self) -> Option<PacketId> {
        let (id, bytes) = self.classes.iter_mut().find_map(VecDeque::pop_front)?;
        self.waiting.leave(bytes);
        Some(id)
    }
}
