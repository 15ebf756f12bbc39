//! ACKs that are kept from a VM: its port does not fill with them, and it learns all that they say.

use evenkeel_algo::ack_filter::{self, GAP_US};
use evenkeel_algo::congestion::Kind;
use evenkeel_algo::vflood::{Ack, DEFAULTS, Flow, HostSettings, Sacked, Settings, Verdict, Vm};
use proptest::prelude::*;

const MSS: u32 = 1000;
const FLOWS: usize = 4;
const WINDOW: u16 = 65_535;

#[derive(Debug, Clone)]
enum Step {
    /// The VM runs: it reads all that has come, and hands over `segments` segments.
    Flood { flow: usize, segments: u32 },
    /// The other end acknowledges `segments` of those that have left, plainly or along with something else.
    Ack { flow: usize, segments: u32, is_plain: bool },
    /// The other end repeats its last ACK.
    Duplicate { flow: usize, tells_of_a_gap: bool },
    /// The VM has handed over its last data.
    End { flow: usize },
    /// Time passes.
    Wait { us: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let flow = 0..FLOWS;
    prop_oneof![
        1 => (flow.clone(), 1..120u32).prop_map(|(flow, segments)| Step::Flood { flow, segments }),
        12 => (flow.clone(), 1..4u32, proptest::bool::weighted(0.95))
            .prop_map(|(flow, segments, is_plain)| Step::Ack { flow, segments, is_plain }),
        1 => flow.clone().prop_map(|flow| Step::End { flow }),
        1 => (flow, any::<bool>()).prop_map(|(flow, tells_of_a_gap)| Step::Duplicate { flow, tells_of_a_gap }),
        4 => (1..3_000u64).prop_map(|us| Step::Wait { us }),
    ]
}

#[derive(Debug)]
struct Connection {
    flow: Flow,
    filter: ack_filter::Flow,
    isn: u32,
    /// Offsets: what the VM has handed over, in segments that are held, and what was acknowledged, by the other end and
    /// as the VM knows it.
    sent: u32,
    held: std::collections::VecDeque<u32>,
    acked: u32,
    known: u32,
    told_us: u64,
    is_over: bool,
}

struct World {
    host: HostSettings,
    vm: Vm,
    port: ack_filter::Vm,
    limit: u32,
    connections: Vec<Connection>,
    now_us: u64,
    /// ACKs at the port that the VM has not read.
    waiting: u32,
    filtered: u32,
}

impl World {
    fn new(limit: u32) -> Self {
        Self::with(limit, DEFAULTS)
    }

    fn with(limit: u32, settings: Settings) -> Self {
        let host = HostSettings::new(&settings);
        let connection = |number: usize| {
            let isn = [7, u32::MAX - 30_000][number % 2];
            let mut flow = Flow::default();
            flow.vm_syn(&host, isn, 1);
            flow.peer_syn(WINDOW, 2, MSS, 100);
            Connection {
                flow,
                filter: ack_filter::Flow::default(),
                isn,
                sent: 0,
                held: std::collections::VecDeque::new(),
                acked: 0,
                known: 0,
                told_us: 0,
                is_over: false,
            }
        };
        let connections = (0..FLOWS).map(connection).collect();
        let port = ack_filter::Vm::default();
        Self { host, vm: Vm::default(), port, limit, connections, now_us: 100_000, waiting: 0, filtered: 0 }
    }

    fn end(&mut self, index: usize) {
        let c = &mut self.connections[index];
        c.filter.ends();
        c.is_over = true;
    }

    fn flood(&mut self, index: usize, segments: u32) {
        let c = &mut self.connections[index];
        if c.is_over {
            return;
        }
        for _ in 0..segments {
            let seq = c.isn.wrapping_add(1 + c.sent);
            match c.flow.data(&mut self.vm, &self.host, seq, MSS, self.now_us) {
                Verdict::Pass => {}
                Verdict::Hold => c.held.push_back(c.sent),
                Verdict::Drop => break,
            }
            c.sent += MSS;
        }
        self.port.reads();
        self.waiting = 0;
    }

    /// An ACK comes; returns whether the VM gets it.
    fn ack(&mut self, index: usize, acked: u32, sacked: Option<Sacked>, is_plain: bool) -> bool {
        let c = &mut self.connections[index];
        let una = c.flow.snd_una();
        let ack = Ack {
            number: c.isn.wrapping_add(1 + acked),
            window: WINDOW,
            is_pure: true,
            sacked,
            ts_ecr: 0,
            came_twice: None,
        };
        c.flow.acked(&self.host, &ack, self.now_us);
        while let Some(&first) = c.held.front() {
            let seq = c.isn.wrapping_add(1 + first);
            if c.flow.release(&mut self.vm, &self.host, seq, MSS, self.now_us) == Verdict::Hold {
                break;
            }
            c.held.pop_front();
        }
        let is_news = acked > c.acked;
        c.acked = acked;
        let is_needless = ack_filter::is_needless(&c.flow, una, is_plain);
        let is_dropped = is_needless && c.filter.keeps(&self.port, &c.flow, self.limit, self.now_us);
        if is_dropped {
            let held = u32::try_from(c.held.len()).expect("few") * MSS;
            let untold = acked - c.known;
            assert!(is_plain && is_news, "a VM that repairs a loss, or is asked, needs it");
            assert!(acked < c.sent, "nobody says it later");
            assert!(
                self.waiting >= self.limit
                    || (4 * untold <= c.sent - acked && (untold <= held.min(16 * MSS) || c.is_over)),
                "the VM may have to do for it"
            );
            assert!(self.now_us - c.told_us < GAP_US, "its timer may run out");
            self.filtered += 1;
        } else {
            c.filter.passes(&mut self.port, &c.flow, self.limit, self.now_us);
            c.told_us = self.now_us;
            c.known = acked;
            self.waiting += 1;
        }
        !is_dropped
    }

    fn left(&self, index: usize) -> u32 {
        let c = &self.connections[index];
        c.flow.snd_nxt().wrapping_sub(c.isn).wrapping_sub(1)
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Flood { flow, segments } => self.flood(flow, segments),
            Step::Ack { flow, segments, is_plain } => {
                let acked = (self.connections[flow].acked + segments * MSS).min(self.left(flow));
                let is_news = acked > self.connections[flow].acked;
                let passes = self.ack(flow, acked, None, is_plain);
                assert!(passes || (is_plain && is_news));
            }
            Step::Duplicate { flow, tells_of_a_gap } => {
                let acked = self.connections[flow].acked;
                let (end, left) = (acked + 2 * MSS, self.left(flow));
                let end = self.connections[flow].isn.wrapping_add(1 + end);
                let sacked = (tells_of_a_gap && acked + 2 * MSS <= left).then_some(Sacked { end, segments: 1 });
                assert!(self.ack(flow, acked, sacked, sacked.is_none()), "a duplicate ACK tells of a loss");
            }
            Step::End { flow } => self.end(flow),
            Step::Wait { us } => self.now_us += us,
        }
    }

    /// Everything that was sent is acknowledged, without the VM.
    fn drain(&mut self) {
        for index in 0..FLOWS {
            while self.connections[index].acked < self.connections[index].sent {
                let acked = self.connections[index].acked;
                assert!(self.left(index) > acked, "nothing leaves any more");
                self.ack(index, acked + MSS, None, true);
            }
            let c = &self.connections[index];
            assert_eq!(c.known, c.sent, "the VM does not know what arrived");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_vm_learns_what_arrived_and_is_spared_only_what_is_said_again(
        limit in 1..60u32,
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut world = World::new(limit);
        for step in &steps {
            world.apply(step);
        }
        world.drain();
    }
}

#[test]
fn acks_of_a_vm_off_its_core_do_not_fill_its_port() {
    let mut world = World::new(20);
    for flow in 0..FLOWS {
        world.flood(flow, 200);
    }
    let sent: u32 = world.connections.iter().map(|c| c.sent / MSS).sum();
    world.drain();
    assert_eq!(world.waiting + world.filtered, sent);
    // Beyond the limit, the first and the last of each flow pass, because all came at once.
    assert!(
        world.waiting <= 20 + 2 * FLOWS as u32,
        "{} wait, {} of {sent} were kept from it",
        world.waiting,
        world.filtered
    );
}

#[test]
fn after_a_loss_a_vm_gets_all() {
    for congestion in [Kind::Reno, Kind::Cubic] {
        gets_all_after_a_loss(congestion, 1000);
    }
    // However little room others leave at its port, where its TCP counts ACKs.
    gets_all_after_a_loss(Kind::Reno, 20);
}

fn gets_all_after_a_loss(congestion: Kind, limit: u32) {
    let mut world = World::with(limit, Settings { congestion, ..DEFAULTS });
    world.flood(0, 200);
    assert!(world.ack(0, MSS, None, true) && !world.ack(0, 2 * MSS, None, true));
    let seq = world.connections[0].isn.wrapping_add(1 + 2 * MSS);
    for segments in 1..=3 {
        let sacked = Sacked { end: seq.wrapping_add((segments + 1) * MSS), segments };
        assert!(world.ack(0, 2 * MSS, Some(sacked), false));
    }
    assert_eq!(world.connections[0].flow.data(&mut world.vm, &world.host, seq, MSS, world.now_us), Verdict::Pass);
    while world.connections[0].acked < world.connections[0].sent {
        assert!(world.left(0) > world.connections[0].acked, "nothing leaves any more");
        assert!(world.ack(0, world.connections[0].acked + MSS, None, true));
    }
}

#[test]
fn a_vm_whose_data_is_held_learns_of_it_now_and_then() {
    let mut world = World::new(1000);
    world.flood(0, 200);
    let mut told = 0;
    while world.left(0) < world.connections[0].sent {
        told += u32::from(world.ack(0, world.connections[0].acked + MSS, None, true));
    }
    assert!(world.filtered > 4 * told, "{told} and {}", world.filtered);
    assert!(world.ack(0, world.connections[0].acked + MSS, None, true), "nothing is held any more");
}

#[test]
fn a_vm_that_has_ended_a_connection_learns_little_of_it() {
    let told = |is_over: bool| {
        let mut world = World::new(1000);
        world.flood(0, 200);
        while world.left(0) < world.connections[0].sent {
            world.ack(0, world.connections[0].acked + MSS, None, true);
        }
        if is_over {
            world.end(0);
        }
        let before = world.waiting;
        world.drain();
        world.waiting - before
    };
    assert!(4 * told(true) < told(false), "{} and {}", told(true), told(false));
}

#[test]
fn a_vm_that_must_send_again_gets_all() {
    let mut world = World::with(1, Settings { buffer_segments: 20, ..DEFAULTS });
    world.flood(0, 30);
    assert!(world.ack(0, MSS, None, true) && !world.ack(0, 2 * MSS, None, true), "its port is full");
    // More than there is room for.
    world.flood(0, 200);
    while world.connections[0].acked < world.connections[0].sent {
        assert!(world.ack(0, world.connections[0].acked + MSS, None, true));
    }
}

#[test]
fn a_vm_that_sends_for_itself_gets_all() {
    let mut world = World::new(20);
    for _ in 0..20 {
        world.flood(0, 10);
        while world.connections[0].acked < world.left(0) {
            assert!(world.ack(0, world.connections[0].acked + MSS, None, true));
        }
    }
    assert_eq!(world.filtered, 0);
}

#[test]
fn one_in_a_while_passes_all_the_same() {
    let mut world = World::new(1);
    world.flood(0, 100);
    assert!(world.ack(0, MSS, None, true) && !world.ack(0, 2 * MSS, None, true));
    world.now_us += GAP_US;
    assert!(world.ack(0, 3 * MSS, None, true) && !world.ack(0, 4 * MSS, None, true));
    assert!(world.ack(0, 5 * MSS, None, false), "with an echo, or another option");
}
