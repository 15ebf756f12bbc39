//! FQ-CoDel (RFC 8290): flows are hashed to queues that take turns, each under CoDel; queues that were idle go first.

use std::collections::VecDeque;

use evenkeel_scenario::sweep::splitmix64;

use super::codel::Ruled;
use super::ledger::{Ledger, Waiting};
use super::pool::Pool;
use super::topology::FqCoDelSpec;
use crate::packet::PacketId;
use crate::time::Instant;

/// Most packets that an overflow drops from the longest queue at once (RFC 8290 §4.1).
const DROP_BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct FqCoDel {
    spec: FqCoDelSpec,
    salt: u64,
    queues: Vec<Flow>,
    new_flows: VecDeque<u32>,
    old_flows: VecDeque<u32>,
    waiting: Waiting,
}

#[derive(Debug, Default)]
struct Flow {
    ruled: Ruled,
    deficit: i64,
    listed: bool,
}

impl FqCoDel {
    pub fn new(spec: FqCoDelSpec, seed: u64) -> Self {
        // Without a queue or a quantum nothing would ever be sent.
        let spec = FqCoDelSpec { flows: spec.flows.max(1), quantum_bytes: spec.quantum_bytes.max(1), ..spec };
        Self {
            spec,
            salt: splitmix64(seed),
            queues: (0..spec.flows).map(|_| Flow::default()).collect(),
            new_flows: VecDeque::new(),
            old_flows: VecDeque::new(),
            waiting: Waiting::default(),
        }
    }

    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    pub fn offer(&mut self, now: Instant, id: PacketId, pool: Option<&Pool>, ledger: &mut Ledger) {
        let packet = &ledger.packets[id];
        let bytes = packet.wire_bytes;
        let drawn = splitmix64(self.salt ^ u64::from(packet.flow_hash)) >> 32;
        let index = (drawn * u64::from(self.spec.flows)) >> 32;
        // A shared memory may be full of other ports' packets; this port's own are not dropped for that.
        if pool.is_some_and(|pool| !pool.admits(self.waiting.bytes, bytes)) {
            ledger.refuse(id);
            return;
        }
        let flow = &mut self.queues[index as usize];
        flow.ruled.join(now, id, ledger);
        self.waiting.join(bytes);
        if !flow.listed {
            flow.listed = true;
            flow.deficit = i64::from(self.spec.quantum_bytes);
            self.new_flows.push_back(index as u32);
        }
        while !self.waiting.within(self.spec.codel.limit) {
            self.drop_from_longest(ledger);
        }
    }

    pub fn next(&mut self, now: Instant, ledger: &mut Ledger) -> Option<PacketId> {
        loop {
            let from_new = !self.new_flows.is_empty();
            let index = *if from_new { self.new_flows.front() } else { self.old_flows.front() }?;
            let flow = &mut self.queues[index as usize];
            if flow.deficit <= 0 {
                flow.deficit += i64::from(self.spec.quantum_bytes);
                self.leave_list(from_new);
                self.old_flows.push_back(index);
                continue;
            }
            let before = flow.ruled.waiting;
            let next = flow.ruled.next(now, &self.spec.codel, ledger);
            self.waiting.segments -= before.segments - flow.ruled.waiting.segments;
            self.waiting.bytes -= before.bytes - flow.ruled.waiting.bytes;
            if let Some(id) = next {
                flow.deficit -= i64::from(ledger.packets[id].wire_bytes);
                return Some(id);
            }
            // An empty new queue becomes an old one once, so that it cannot jump the line by sending one packet at a
            // time.
            let once_more = from_new && !self.old_flows.is_empty();
            flow.listed = once_more;
            self.leave_list(from_new);
            if once_more {
                self.old_flows.push_back(index);
            }
        }
    }

    fn leave_list(&mut self, from_new: bool) {
        if from_new {
            self.new_flows.pop_front()
        } else {
            self.old_flows.pop_front()
        };
    }

    /// Drops half of the queue with the most bytes, or a batch, from its head.
    fn drop_from_longest(&mut self, ledger: &mut Ledger) {
        let listed = self.new_flows.iter().chain(&self.old_flows);
        let Some(&longest) = listed.max_by_key(|&&index| (self.queues[index as usize].ruled.waiting.bytes, index))
        else {
            return;
        };
        let ruled = &mut self.queues[longest as usize].ruled;
        for _ in 0..ruled.packets.len().div_ceil(2).min(DROP_BATCH) {
            if let Some(id) = ruled.leave(ledger) {
                self.waiting.leave(ledger.packets[id].wire_bytes);
                ledger.drop_queued(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::PortStats;
    use super::super::tests::packet;
    use super::super::{CoDelSpec, Limit};
    use super::*;
    use crate::packet::{Packet, Packets};

    fn send_all(spec: FqCoDelSpec, flows: &[u32]) -> (Vec<u32>, PortStats) {
        let (mut packets, mut stats, mut queue) = (Packets::default(), PortStats::default(), FqCoDel::new(spec, 3));
        let mut ledger = Ledger { packets: &mut packets, stats: &mut stats };
        for &flow_hash in flows {
            let id = ledger.packets.insert(Packet { flow_hash, ..packet(0) });
            queue.offer(Instant::START, id, None, &mut ledger);
        }
        let order =
            std::iter::from_fn(|| queue.next(Instant::START, &mut ledger).map(|id| ledger.packets[id].flow_hash))
                .collect();
        assert_eq!(queue.waiting(), Waiting::default());
        (order, stats)
    }

    #[test]
    fn flows_take_turns() {
        let (order, _) = send_all(FqCoDelSpec::default(), &[1, 1, 1, 1, 2, 2, 3]);
        assert_eq!(order, [1, 2, 3, 1, 2, 1, 1]);
    }

    #[test]
    fn a_quantum_of_two_packets_sends_two_at_once() {
        let spec = FqCoDelSpec { quantum_bytes: 2 * 1538, ..FqCoDelSpec::default() };
        assert_eq!(send_all(spec, &[1, 1, 1, 1, 2, 2]).0, [1, 1, 2, 2, 1, 1]);
    }

    #[test]
    fn an_overflow_halves_the_longest_flow() {
        let codel = CoDelSpec { limit: Limit::segments(10), ..CoDelSpec::default() };
        let (order, stats) =
            send_all(FqCoDelSpec { codel, ..FqCoDelSpec::default() }, &[2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
        // The eleventh packet is one too many: flow 1 has nine and loses five.
        assert_eq!((stats.drops, stats.packets), (5, 6));
        assert_eq!(order.iter().filter(|&&flow| flow == 1).count(), 4);
        assert_eq!(order.iter().filter(|&&flow| flow == 2).count(), 2);
    }
}
