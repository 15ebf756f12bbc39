use proptest::prelude::*;

use super::*;
use crate::event::Event;
use crate::packet::{Ecn, GuestId, Packet, Payload};
use crate::time::Duration;
use crate::units::Rate;

/// A packet of 1,538 bytes on the wire: 1,230.4 ns at 10 Gbit/s.
pub(super) fn packet(dst: u32) -> Packet {
    Packet {
        dst: HostId(dst),
        guest: GuestId(0),
        flow_hash: 1,
        wire_bytes: 1538,
        class: 0,
        ecn: Ecn::NotEct,
        gso_bytes: 0,
        remaining_bytes: 0,
        enqueued: Instant::START,
        payload: Payload::Echo { from: GuestId(0), number: 0, reply: false },
    }
}

fn link(gbit: u64, queue: QueueSpec) -> PortSpec {
    PortSpec { rate: Rate::from_mbit(gbit * 1000), delay: Duration::from_us(1), queue }
}

fn topology(shape: Shape, edge: QueueSpec) -> TopologySpec {
    let core = link(10, edge.clone());
    TopologySpec {
        shape,
        nic: link(100, QueueSpec::drop_tail(10_000)),
        edge: link(10, edge),
        top: core.clone(),
        core,
        buffer: BufferSpec::PerPort,
    }
}

struct Run {
    net: Network,
    packets: Packets,
    events: Events,
    /// When, where, which.
    arrived: Vec<(Instant, HostId, Packet)>,
}

impl Run {
    fn new(spec: &TopologySpec) -> Self {
        Self { net: Network::new(spec, 1), packets: Packets::default(), events: Events::default(), arrived: Vec::new() }
    }

    /// Sends packets in the order of their times, and does everything up to the last of them.
    fn send(&mut self, sends: &[(Instant, u32, Packet)]) {
        for (at, from, packet) in sends {
            while self.events.next_at().is_some_and(|next| next <= *at) {
                self.step();
            }
            let id = self.packets.insert(*packet);
            self.net.send(*at, HostId(*from), id, &mut self.packets, &mut self.events);
        }
    }

    fn step(&mut self) {
        let Some((now, event)) = self.events.pop() else { return };
        match event {
            Event::Arrival(port, onward) => {
                if let Some(id) = self.net.on_arrival(now, port, onward, &mut self.packets, &mut self.events) {
                    let packet = self.packets.remove(id);
                    self.arrived.push((now, packet.dst, packet));
                }
            }
            Event::PortFree(port) => self.net.on_port_free(now, port, &mut self.packets, &mut self.events),
            other => panic!("{other:?} is none of the network's"),
        }
    }

    fn finish(&mut self) {
        while !self.events.is_empty() {
            self.step();
        }
    }
}

fn at_ns(ns: u64) -> Instant {
    Instant::START + Duration::from_ns(ns)
}

/// `count` packets at once from host 0 to host 1.
fn burst(count: u32, ecn: Ecn) -> Vec<(Instant, u32, Packet)> {
    (0..count).map(|number| (Instant::START, 0, Packet { ecn, remaining_bytes: number, ..packet(1) })).collect()
}

#[test]
fn a_packet_takes_its_transmissions_and_the_delays() {
    let mut run =
        Run::new(&topology(Shape::LeafSpine { leaves: 2, spines: 2, hosts_per_leaf: 2 }, QueueSpec::drop_tail(9)));
    run.send(&[(Instant::START, 0, packet(3))]);
    run.finish();
    // 100 Gbit/s once, 10 Gbit/s three times, 1 us four times.
    assert_eq!(run.arrived[0].0.ps(), 123_040 + 3 * 1_230_400 + 4 * 1_000_000);
    assert_eq!(run.arrived[0].1, HostId(3));
    assert_eq!(run.events.handled(), 4);
}

#[test]
fn a_full_queue_drops_and_the_backlog_drains() {
    let mut run = Run::new(&topology(Shape::Star { hosts: 2 }, QueueSpec::drop_tail(5)));
    run.send(&burst(20, Ecn::NotEct));
    let port = run.net.port_to(HostId(1));
    run.finish();
    let stats = *run.net.stats(port);
    // 20 arrive within two transmissions: one is on the link, five wait, and one more finds room when the second is
    // begun.
    assert_eq!((stats.packets, stats.drops, stats.peak_segments), (7, 13, 5));
    assert_eq!(stats.peak_bytes, 5 * 1538);
    assert_eq!(run.net.backlog(port, at_ns(1_000_000)), (0, 0));
    assert_eq!(run.arrived.len(), 7);
    assert!(run.packets.is_empty());
}

#[test]
fn the_backlog_is_what_has_not_begun() {
    let mut run = Run::new(&topology(Shape::Star { hosts: 2 }, QueueSpec::drop_tail(50)));
    let nic = run.net.nic_of(HostId(0));
    run.send(&burst(4, Ecn::NotEct));
    assert_eq!(run.net.backlog(nic, at_ns(0)), (3, 3 * 1538));
    assert_eq!(run.net.backlog(nic, at_ns(123)), (3, 3 * 1538));
    assert_eq!(run.net.backlog(nic, at_ns(124)), (2, 2 * 1538), "the first takes 123.04 ns");
    assert_eq!(run.net.backlog(nic, at_ns(370)), (0, 0));
}

#[test]
fn marks_begin_exactly_at_the_threshold() {
    let mut run = Run::new(&topology(Shape::Star { hosts: 2 }, QueueSpec::ecn(100, 4)));
    run.send(&burst(9, Ecn::Ect0));
    run.finish();
    let marked: Vec<u32> = run.arrived.iter().filter(|a| a.2.ecn == Ecn::Ce).map(|a| a.2.remaining_bytes).collect();
    // Packet 0 is on the link; 5 is the first to find four waiting.
    assert_eq!(marked, [5, 6, 7, 8]);
    assert_eq!(run.net.totals().marks, 4);
}

#[test]
fn packets_that_cannot_be_marked_are_dropped_instead() {
    let mut run = Run::new(&topology(Shape::Star { hosts: 2 }, QueueSpec::ecn(100, 4)));
    run.send(&burst(9, Ecn::NotEct));
    run.finish();
    let stats = run.net.totals();
    assert_eq!((stats.marks, stats.drops, stats.drops_not_ect, run.arrived.len()), (0, 4, 4, 5));
}

#[test]
fn lower_classes_go_first_and_share_the_buffer() {
    let spec = PrioritySpec { classes: 3, limit: Limit::segments(4), red: Some(RedSpec::threshold(3)) };
    let mut run = Run::new(&topology(Shape::Star { hosts: 2 }, QueueSpec::Priority(spec)));
    let classes = [2, 2, 1, 9, 0, 0];
    run.send(&classes.map(|class| (Instant::START, 0, Packet { class, ecn: Ecn::Ect0, ..packet(1) })));
    run.finish();
    let order: Vec<u8> = run.arrived.iter().map(|a| a.2.class).collect();
    assert_eq!(order, [2, 0, 1, 2, 9], "the first finds the link free, the last no room");
    let marked: Vec<u8> = run.arrived.iter().filter(|a| a.2.ecn == Ecn::Ce).map(|a| a.2.class).collect();
    assert_eq!(marked, [0], "three wait in all classes together");
}

#[test]
fn a_shared_buffer_is_divided_by_the_dynamic_threshold() {
    let mut spec = topology(Shape::Star { hosts: 4 }, QueueSpec::Fifo { limit: Limit::NONE, red: None });
    spec.buffer = BufferSpec::Shared { bytes: 90 * 1538, alpha: Alpha { num: 1, den: 1 } };
    // One port alone holds half of the memory; of two equal ones, each a third.
    let mut alone = Run::new(&spec);
    alone.send(&burst(200, Ecn::NotEct));
    alone.finish();
    assert!(alone.net.totals().drops > 0);
    assert_eq!(alone.net.stats(alone.net.port_to(HostId(1))).peak_segments, 45);
    let mut two = Run::new(&spec);
    let both: Vec<_> = (0..200).flat_map(|_| [(at_ns(0), 0, packet(1)), (at_ns(0), 3, packet(2))]).collect();
    two.send(&both);
    two.finish();
    for host in [1, 2] {
        assert!((30..=31).contains(&two.net.stats(two.net.port_to(HostId(host))).peak_segments));
    }
}

#[test]
fn memory_that_other_ports_have_freed_is_seen() {
    let mut spec = topology(Shape::Star { hosts: 4 }, QueueSpec::Fifo { limit: Limit::NONE, red: None });
    spec.buffer = BufferSpec::Shared { bytes: 20 * 1538, alpha: Alpha { num: 8, den: 1 } };
    let mut run = Run::new(&spec);
    run.send(&burst(18, Ecn::NotEct));
    // Long after port 1's queue is empty, nothing has looked at it but arrivals: all of the memory is port 2's.
    let later = at_ns(100_000);
    run.send(&(0..18).map(|_| (later, 0, packet(2))).collect::<Vec<_>>());
    run.finish();
    assert_eq!(run.net.totals().drops, 0);
}

const TREE: Shape = Shape::FatTree { pods: 3, leaves: 2, spines: 2, cores_per_spine: 3, hosts_per_leaf: 2 };

#[test]
fn in_a_fat_tree_each_host_reaches_each_other_by_the_fewest_hops() {
    for from in 0..12u32 {
        for to in (0..12).filter(|to| *to != from) {
            for flow_hash in 0..20 {
                let mut run = Run::new(&topology(TREE, QueueSpec::drop_tail(9)));
                run.send(&[(Instant::START, from, Packet { flow_hash, ..packet(to) })]);
                run.finish();
                assert_eq!(run.arrived.len(), 1, "{from} to {to}");
                assert_eq!(run.arrived[0].1, HostId(to));
                // A leaf has two hosts, a pod four.
                let hops = if from / 2 == to / 2 { 2 } else { 4 + 2 * u64::from(from / 4 != to / 4) };
                assert_eq!(run.net.fifo_hops(), hops, "{from} to {to}");
            }
        }
    }
}

#[test]
fn links_of_a_fat_tree_have_the_rates_of_their_tiers() {
    let mut spec = topology(TREE, QueueSpec::drop_tail(9));
    (spec.core, spec.top) = (link(20, QueueSpec::drop_tail(9)), link(40, QueueSpec::drop_tail(9)));
    let mut run = Run::new(&spec);
    run.send(&[(Instant::START, 0, packet(11))]);
    run.finish();
    // 100 Gbit/s once, 20 and 40 Gbit/s twice each, 10 Gbit/s once, 1 us six times.
    assert_eq!(run.arrived[0].0.ps(), 123_040 + 2 * 615_200 + 2 * 307_600 + 1_230_400 + 6 * 1_000_000);
}

#[test]
fn a_dumbbell_has_one_link_in_the_middle() {
    let mut run = Run::new(&topology(Shape::Dumbbell { left: 2, right: 3 }, QueueSpec::drop_tail(50)));
    run.send(&[(at_ns(0), 0, packet(4)), (at_ns(0), 3, packet(1)), (at_ns(0), 2, packet(4))]);
    run.finish();
    assert_eq!(run.arrived.len(), 3);
    let middle: Vec<u64> = (0..run.net.ports())
        .map(PortId)
        .filter(|&port| matches!(run.net.role(port), PortRole::Middle(_)))
        .map(|port| run.net.stats(port).packets)
        .collect();
    assert_eq!(middle, [1, 1]);
}

#[test]
fn fifo_hops_are_one_event_and_others_at_most_two() {
    let shape = Shape::LeafSpine { leaves: 3, spines: 2, hosts_per_leaf: 4 };
    for (queue, most) in [(QueueSpec::drop_tail(1000), 1.0), (QueueSpec::PFabric(Limit::segments(1000)), 2.0)] {
        let mut run = Run::new(&topology(shape, queue));
        let sends: Vec<_> = (0..5000u32)
            .map(|i| (at_ns(u64::from(i) * 100), i % 12, Packet { flow_hash: i, ..packet((i * 7 + 5) % 12) }))
            .collect();
        run.send(&sends);
        run.finish();
        let hops = run.net.totals().packets;
        assert!(hops > 10_000);
        assert!(run.events.handled() as f64 <= most * hops as f64, "{} events, {hops} hops", run.events.handled());
        assert_eq!(run.events.handled() == run.net.fifo_hops(), most == 1.0);
    }
}

fn any_queue() -> impl Strategy<Value = QueueSpec> {
    let limit = (1u32..40, prop::option::of(2000u64..40_000))
        .prop_map(|(segments, bytes)| Limit { segments, bytes: bytes.unwrap_or(u64::MAX) });
    let red = prop::option::of((0u32..10, 0u32..10, 0u32..1_000_000).prop_map(|(min, more, ppm)| RedSpec {
        min_segments: min,
        max_segments: min + more,
        max_probability_ppm: ppm,
    }));
    let codel = (limit.clone(), any::<bool>()).prop_map(|(limit, ecn)| CoDelSpec {
        limit,
        target: Duration::from_us(5),
        interval: Duration::from_us(50),
        mtu_bytes: 1538,
        ecn,
    });
    prop_oneof![
        (limit.clone(), red.clone()).prop_map(|(limit, red)| QueueSpec::Fifo { limit, red }),
        codel.clone().prop_map(QueueSpec::CoDel),
        (codel, 1u32..20, 1u32..4000).prop_map(|(codel, flows, quantum_bytes)| QueueSpec::FqCoDel(FqCoDelSpec {
            codel,
            flows,
            quantum_bytes
        })),
        (limit.clone(), red, 0u8..5).prop_map(|(limit, red, classes)| QueueSpec::Priority(PrioritySpec {
            classes,
            limit,
            red
        })),
        limit.prop_map(QueueSpec::PFabric),
    ]
}

fn any_buffer() -> impl Strategy<Value = BufferSpec> {
    let shared =
        (2000u64..100_000, 1u32..9).prop_map(|(bytes, num)| BufferSpec::Shared { bytes, alpha: Alpha { num, den: 2 } });
    prop_oneof![Just(BufferSpec::PerPort), shared]
}

fn any_sends(hosts: u32) -> impl Strategy<Value = Vec<(Instant, u32, Packet)>> {
    let send = (0u64..2000, 0..hosts, 0..hosts, 0u32..6, 64u32..1539, 0u8..5, any::<bool>(), 0u32..100_000);
    prop::collection::vec(send, 1..300).prop_map(|sends| {
        let mut now = Instant::START;
        let send = |(number, (gap, from, dst, flow, wire_bytes, class, ect, remaining_bytes))| {
            now += Duration::from_ns(gap);
            let ecn = if ect { Ecn::Ect0 } else { Ecn::NotEct };
            let payload = Payload::Echo { from: GuestId(from), number, reply: false };
            let flow_hash = from * 31 + dst * 7 + flow;
            (now, from, Packet { flow_hash, wire_bytes, class, ecn, remaining_bytes, payload, ..packet(dst) })
        };
        (0u32..).zip(sends).map(send).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_lost_made_or_kept_beyond_the_buffer(
        queue in any_queue(),
        buffer in any_buffer(),
        sends in any_sends(6),
        tiers in 2..=3,
    ) {
        let shape = match tiers {
            2 => Shape::LeafSpine { leaves: 3, spines: 2, hosts_per_leaf: 2 },
            _ => Shape::FatTree { pods: 3, leaves: 1, spines: 2, cores_per_spine: 2, hosts_per_leaf: 2 },
        };
        let mut spec = topology(shape, queue.clone());
        spec.buffer = buffer;
        let mut run = Run::new(&spec);
        run.send(&sends);
        // Half-way: what was sent is at a host, was dropped, or is in flight.
        let drops = run.net.totals().drops as usize;
        prop_assert_eq!(sends.len(), run.arrived.len() + drops + run.packets.len());
        run.finish();
        let totals = run.net.totals();
        prop_assert_eq!(sends.len(), run.arrived.len() + totals.drops as usize);
        prop_assert!(run.packets.is_empty());
        let limit = match &queue {
            QueueSpec::Fifo { limit, .. } | QueueSpec::PFabric(limit) => *limit,
            QueueSpec::CoDel(spec) => spec.limit,
            QueueSpec::FqCoDel(spec) => spec.codel.limit,
            QueueSpec::Priority(spec) => spec.limit,
        };
        let end = at_ns(1_000_000_000);
        for port in (0..run.net.ports()).map(PortId) {
            prop_assert_eq!(run.net.backlog(port, end), (0, 0));
            let stats = *run.net.stats(port);
            if !matches!(run.net.role(port), PortRole::Nic(_)) {
                prop_assert!(stats.peak_segments <= limit.segments && stats.peak_bytes <= limit.bytes);
                if let BufferSpec::Shared { bytes, .. } = buffer {
                    prop_assert!(stats.peak_bytes <= bytes);
                }
            }
        }
        for (_, host, packet) in &run.arrived {
            prop_assert_eq!(*host, packet.dst);
        }
        prop_assert!(run.net.pools.iter().all(|pool| pool.used == 0));
    }

    #[test]
    fn a_flow_keeps_its_order(queue in any_queue(), mut sends in any_sends(6)) {
        // A flow of one class: PIAS lowers it, and then reorders on purpose.
        sends.iter_mut().for_each(|send| send.2.class = 1);
        let shape = Shape::LeafSpine { leaves: 3, spines: 2, hosts_per_leaf: 2 };
        let mut run = Run::new(&topology(shape, queue));
        run.send(&sends);
        run.finish();
        let number = |packet: &Packet| match packet.payload {
            Payload::Echo { from, number, .. } => (from, number),
            _ => unreachable!(),
        };
        let mut last = std::collections::BTreeMap::new();
        for (_, _, packet) in &run.arrived {
            let (from, number) = number(packet);
            let before = last.insert((from, packet.dst, packet.flow_hash), number);
            prop_assert!(before.is_none_or(|before| before < number));
        }
    }

    #[test]
    fn a_dynamic_threshold_is_what_an_eager_count_says(
        sends in any_sends(4),
        bytes in 5_000u64..60_000,
        num in 1u32..6,
    ) {
        let alpha = Alpha { num, den: 2 };
        let mut spec = topology(Shape::Star { hosts: 4 }, QueueSpec::Fifo { limit: Limit::NONE, red: None });
        spec.buffer = BufferSpec::Shared { bytes, alpha };
        let mut lazy = Run::new(&spec);
        let mut eager = Run::new(&spec);
        for send in &sends {
            lazy.send(std::slice::from_ref(send));
            while eager.events.next_at().is_some_and(|next| next <= send.0) {
                let now = eager.events.next_at().unwrap();
                eager.net.drain_pool(0, now);
                eager.step();
            }
            eager.send(std::slice::from_ref(send));
        }
        lazy.finish();
        while let Some(now) = eager.events.next_at() {
            eager.net.drain_pool(0, now);
            eager.step();
        }
        prop_assert_eq!(lazy.net.totals(), eager.net.totals());
        prop_assert_eq!(lazy.arrived.len(), eager.arrived.len());
    }
}

/// Waiting packets do not count as sent: a port sends no more than its link can carry, whatever its queue.
#[test]
fn a_port_has_sent_what_its_link_could_carry() {
    for queue in [QueueSpec::drop_tail(1000), QueueSpec::PFabric(Limit::segments(1000))] {
        let mut spec = topology(Shape::Star { hosts: 2 }, QueueSpec::drop_tail(10));
        spec.nic = link(1, queue);
        let mut run = Run::new(&spec);
        let port = run.net.nic_of(HostId(0));
        run.send(&burst(100, Ecn::NotEct));
        // 1538 bytes take 12.304 us at 1 Gbit/s, 125 bytes one.
        for us in [0, 1, 12, 100, 1230] {
            let at = Instant::START + Duration::from_us(us);
            while run.events.next_at().is_some_and(|next| next <= at) {
                run.step();
            }
            assert_eq!(run.net.sent_bytes(port, at), us * 125, "{us} us");
        }
        run.finish();
        let end = Instant::START + Duration::from_us(1_000_000);
        assert_eq!(run.net.sent_bytes(port, end), 100 * 1538);
    }
}
