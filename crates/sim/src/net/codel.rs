//! CoDel (RFC 8289): drops or marks packets when they leave, by how long they waited.

use std::collections::VecDeque;

use super::ledger::{Ledger, Waiting};
use super::pool::Pool;
use super::topology::CoDelSpec;
use crate::packet::{Ecn, PacketId};
use crate::time::{Duration, Instant};

/// CoDel's state and the packets that it governs: all of a port, or one of FQ-CoDel's queues.
#[derive(Debug, Default)]
pub(super) struct Ruled {
    pub packets: VecDeque<PacketId>,
    pub waiting: Waiting,
    control: Control,
}

/// RFC 8289's variables, under its names.
#[derive(Debug, Default)]
struct Control {
    first_above_time: Option<Instant>,
    drop_next: Instant,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

impl Ruled {
    pub fn join(&mut self, now: Instant, id: PacketId, ledger: &mut Ledger) {
        let packet = &mut ledger.packets[id];
        packet.enqueued = now;
        let bytes = packet.wire_bytes;
        self.waiting.join(bytes);
        self.packets.push_back(id);
        ledger.accept(bytes);
    }

    /// Takes out the oldest packet, without CoDel's judgement.
    pub fn leave(&mut self, ledger: &Ledger) -> Option<PacketId> {
        let id = self.packets.pop_front()?;
        self.waiting.leave(ledger.packets[id].wire_bytes);
        Some(id)
    }

    /// The packet to send (the RFC's `dequeue`).
    pub fn next(&mut self, now: Instant, spec: &CoDelSpec, ledger: &mut Ledger) -> Option<PacketId> {
        let (mut head, mut ok_to_drop) = self.dodequeue(now, spec, ledger);
        if self.control.dropping {
            self.control.dropping = ok_to_drop;
            while self.control.dropping && now >= self.control.drop_next {
                self.control.count = self.control.count.saturating_add(1);
                let marked = punish(head, spec, ledger);
                if !marked {
                    (head, ok_to_drop) = self.dodequeue(now, spec, ledger);
                    self.control.dropping = ok_to_drop;
                }
                if self.control.dropping {
                    self.control.drop_next = control_law(self.control.drop_next, spec.interval, self.control.count);
                }
                if marked {
                    break;
                }
            }
        } else if ok_to_drop {
            if !punish(head, spec, ledger) {
                (head, _) = self.dodequeue(now, spec, ledger);
            }
            self.control.dropping = true;
            // Soon after the queue was last bad, the rate that controlled it then is a good start.
            let delta = self.control.count.wrapping_sub(self.control.lastcount);
            let recent = now.since(self.control.drop_next) < spec.interval * 16;
            self.control.count = if delta > 1 && recent { delta } else { 1 };
            self.control.drop_next = control_law(now, spec.interval, self.control.count);
            self.control.lastcount = self.control.count;
        }
        head
    }

    fn dodequeue(&mut self, now: Instant, spec: &CoDelSpec, ledger: &Ledger) -> (Option<PacketId>, bool) {
        let Some(id) = self.leave(ledger) else {
            self.control.first_above_time = None;
            return (None, false);
        };
        let sojourn = now.since(ledger.packets[id].enqueued);
        if sojourn < spec.target || self.waiting.bytes <= u64::from(spec.mtu_bytes) {
            self.control.first_above_time = None;
            return (Some(id), false);
        }
        let first_above = *self.control.first_above_time.get_or_insert(now + spec.interval);
        (Some(id), now >= first_above)
    }
}

/// Marks a packet, or drops it if it cannot be marked. Returns whether it was marked and so still exists.
fn punish(id: Option<PacketId>, spec: &CoDelSpec, ledger: &mut Ledger) -> bool {
    let Some(id) = id else { return false };
    if ledger.packets[id].ecn == Ecn::NotEct {
        ledger.stats.drops_not_ect += u64::from(spec.ecn);
    } else if spec.ecn {
        ledger.mark(id);
        return true;
    }
    ledger.drop_queued(id);
    false
}

/// When to drop next: the interval divided by the square root of the number of drops, after the last drop was due.
fn control_law(from: Instant, interval: Duration, count: u32) -> Instant {
    let square = u128::from(interval.ps()) * u128::from(interval.ps());
    // The root of a square of 64 bits, or of less, has 64 bits.
    from + Duration::from_ps((square / u128::from(count.max(1))).isqrt() as u64)
}

#[derive(Debug)]
pub(super) struct CoDel {
    spec: CoDelSpec,
    queue: Ruled,
}

impl CoDel {
    pub fn new(spec: CoDelSpec) -> Self {
        Self { spec, queue: Ruled::default() }
    }

    pub fn waiting(&self) -> Waiting {
        self.queue.waiting
    }

    pub fn offer(&mut self, now: Instant, id: PacketId, pool: Option<&Pool>, ledger: &mut Ledger) {
        if ledger.fits(id, self.queue.waiting, self.spec.limit, pool) {
            self.queue.join(now, id, ledger);
        } else {
            ledger.refuse(id);
        }
    }

    pub fn next(&mut self, now: Instant, ledger: &mut Ledger) -> Option<PacketId> {
        self.queue.next(now, &self.spec, ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::PortStats;
    use super::super::tests::packet;
    use super::*;
    use crate::packet::Packets;

    const SPEC: CoDelSpec = CoDelSpec {
        limit: super::super::Limit::NONE,
        target: Duration::from_ms(5),
        interval: Duration::from_ms(100),
        mtu_bytes: 1538,
        ecn: true,
    };

    fn at_us(us: u64) -> Instant {
        Instant::START + Duration::from_us(us)
    }

    /// When packets were dropped or marked, in milliseconds, if one leaves every millisecond and all have been there
    /// from the start.
    fn punished(ecn: Ecn, packets_waiting: u32, until_ms: u64) -> (Vec<u64>, Ruled) {
        let (mut packets, mut stats, mut queue) = (Packets::default(), PortStats::default(), Ruled::default());
        let mut ledger = Ledger { packets: &mut packets, stats: &mut stats };
        for _ in 0..packets_waiting {
            let id = ledger.packets.insert(crate::packet::Packet { ecn, ..packet(0) });
            queue.join(Instant::START, id, &mut ledger);
        }
        let mut times = Vec::new();
        for ms in 1..=until_ms {
            let before = ledger.stats.drops + ledger.stats.marks;
            queue.next(at_us(ms * 1000), &SPEC, &mut ledger);
            times.extend((before..ledger.stats.drops + ledger.stats.marks).map(|_| ms));
        }
        (times, queue)
    }

    #[test]
    fn control_law_divides_the_interval_by_the_root_of_the_count() {
        let after = |count| control_law(at_us(7), Duration::from_ms(100), count).since(at_us(7)).ps();
        assert_eq!(after(1), 100_000_000_000);
        assert_eq!(after(2), 70_710_678_118);
        assert_eq!(after(3), 57_735_026_918);
        assert_eq!(after(4), 50_000_000_000);
        assert_eq!(after(100), 10_000_000_000);
    }

    #[test]
    fn drops_begin_an_interval_after_the_target_is_passed_and_come_faster() {
        // Above the target from 5 ms on, so the first drop is at 105; then 100 ms later, and as the root of the count:
        // 70.7, 57.7, 50 ms.
        let (times, queue) = punished(Ecn::NotEct, 2000, 440);
        assert_eq!(times, [105, 205, 276, 334, 384, 429]);
        assert_eq!(queue.control.count, 6);
    }

    #[test]
    fn capable_packets_are_marked_at_the_same_times() {
        assert_eq!(punished(Ecn::Ect0, 2000, 440).0, punished(Ecn::NotEct, 2000, 440).0);
    }

    #[test]
    fn one_packet_left_ends_dropping() {
        // 106 packets: behind the 105th, which leaves at 105 ms, only one waits. That is no more than an MTU, so none
        // is dropped.
        let (times, queue) = punished(Ecn::NotEct, 106, 105);
        assert!(times.is_empty());
        assert!(!queue.control.dropping);
        let (times, _) = punished(Ecn::NotEct, 108, 200);
        assert_eq!(times, [105]);
    }

    #[test]
    fn a_short_good_spell_starts_again_at_the_earlier_rate() {
        let (mut packets, mut stats) = (Packets::default(), PortStats::default());
        let mut ledger = Ledger { packets: &mut packets, stats: &mut stats };
        let (_, mut queue) = punished(Ecn::NotEct, 0, 0);
        queue.control = Control { count: 9, lastcount: 3, drop_next: at_us(900_000), ..Control::default() };
        queue.control.first_above_time = Some(at_us(1_000_000));
        for _ in 0..10 {
            let id = ledger.packets.insert(packet(0));
            queue.join(Instant::START, id, &mut ledger);
        }
        queue.next(at_us(1_000_000), &SPEC, &mut ledger);
        assert_eq!((queue.control.count, queue.control.lastcount), (6, 6));
        // 100 ms over the root of 6.
        assert_eq!(queue.control.drop_next.since(at_us(1_000_000)).ps(), 40_824_829_046);
    }
}
