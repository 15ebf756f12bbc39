//! vFlood and vSnoop at a simulated port, packet by packet: they do what the programs of real hosts do.

use evenkeel_algo::rest::{HANDSHAKE_US, Word};
use evenkeel_algo::vflood::{DEFAULTS, Settings as VfloodSettings};
use evenkeel_algo::vsnoop::{self, Settings as VsnoopSettings};
use evenkeel_settings::Mode;
use evenkeel_sim::host::shim::{Effects, FromVm, Shim, ToVm, Verdict};
use evenkeel_sim::host::vflood::{Spec as VfloodSpec, Vflood};
use evenkeel_sim::host::vsnoop::{Spec as VsnoopSpec, Vsnoop};
use evenkeel_sim::packet::{ConnId, Ecn, Flags, GuestId, HostId, Packet, Payload, Segment};
use evenkeel_sim::time::{Duration, Instant};

const MSS: u32 = 1000;
/// Large, and a whole number of segments.
const WINDOW: u16 = 60_000;
const END: ConnId = ConnId { index: 3, generation: 0 };
/// The VM's first byte, and the other end's.
const VM_SEQ: u32 = 5001;
const PEER_SEQ: u32 = 9001;

fn packet(segment: Segment) -> Packet {
    Packet {
        dst: HostId(1),
        guest: GuestId(1),
        flow_hash: 7,
        wire_bytes: segment.wire_bytes(),
        class: 0,
        ecn: Ecn::NotEct,
        gso_bytes: 0,
        remaining_bytes: 0,
        enqueued: Instant::START,
        payload: Payload::Tcp(ConnId::default(), segment),
    }
}

fn segment_of(packet: &Packet) -> Segment {
    let Payload::Tcp(_, segment) = packet.payload else { panic!("{packet:?}") };
    segment
}

fn acks(segment: Segment) -> Segment {
    Segment { flags: segment.flags.with(Flags::ACK), window: WINDOW, ..segment }
}

/// A port with vFlood, at which a VM sends on one connection.
struct Bed {
    vflood: Vflood,
    now: Instant,
    effects: Effects,
    sent: u32,
}

impl Bed {
    fn new(off_core_permille: u16) -> Self {
        let vflood = Vflood::new(VfloodSpec {
            mode: Mode::Enforce,
            settings: VfloodSettings { buffer_segments: 1000, ..DEFAULTS },
            mss_bytes: MSS,
            port_queue_segments: 1000,
            off_core_permille,
        });
        Self { vflood, now: Instant::START, effects: Effects::default(), sent: 0 }
    }

    fn connected() -> Self {
        let mut bed = Self::new(0);
        bed.connect(END);
        bed
    }

    fn connect(&mut self, end: ConnId) {
        self.sent = 0;
        let syn = Segment { seq: VM_SEQ - 1, window: WINDOW, flags: Flags::SYN, ..Segment::default() };
        self.vflood.on_from_vm(self.now, FromVm::Hold, Some(end), &mut packet(syn), &mut self.effects);
        self.now += Duration::from_ms(1);
        let synack = Segment { seq: PEER_SEQ - 1, ack: VM_SEQ, flags: Flags::SYN, ..Segment::default() };
        self.comes(end, acks(synack));
    }

    fn comes(&mut self, end: ConnId, segment: Segment) {
        let mut packet = packet(segment);
        for place in [ToVm::AckClock, ToVm::Window] {
            self.vflood.on_to_vm(self.now, place, Some(end), &mut packet, &mut self.effects);
        }
    }

    /// The other end acknowledges `segments` segments in all, a millisecond later.
    fn acked(&mut self, segments: u32) {
        self.now += Duration::from_ms(1);
        self.comes(END, acks(Segment { seq: PEER_SEQ, ack: VM_SEQ + segments * MSS, ..Segment::default() }));
    }

    /// The VM hands over a packet of `segments` segments; returns what of it leaves at once, as first segments and
    /// lengths in segments.
    fn sends(&mut self, segments: u32) -> Vec<(u32, u32)> {
        self.sends_on(END, segments)
    }

    fn sends_on(&mut self, end: ConnId, segments: u32) -> Vec<(u32, u32)> {
        let data = Segment {
            seq: VM_SEQ + self.sent * MSS,
            ack: PEER_SEQ,
            payload_bytes: segments * MSS,
            flags: Flags::PSH,
            ..Segment::default()
        };
        self.sent += segments;
        let mut packet = packet(acks(data));
        if segments > 1 {
            packet.gso_bytes = MSS as u16;
        }
        let verdict = self.vflood.on_from_vm(self.now, FromVm::Hold, Some(end), &mut packet, &mut self.effects);
        let mut left = self.left();
        if verdict == Verdict::Pass {
            left.push(place(&packet));
        }
        left
    }

    /// What else was let out.
    fn left(&mut self) -> Vec<(u32, u32)> {
        let data = self.effects.from_vm.drain(..).filter(|(_, packet)| segment_of(packet).payload_bytes > 0);
        data.map(|(_, packet)| place(&packet)).collect()
    }

    fn count(&self, name: &str) -> u64 {
        self.vflood.counters().into_iter().find(|(found, _)| *found == name).unwrap_or_else(|| panic!("{name}")).1
    }
}

fn place(packet: &Packet) -> (u32, u32) {
    let segment = segment_of(packet);
    assert_eq!(packet.gso_bytes > 0, segment.payload_bytes > MSS, "{packet:?}");
    ((segment.seq - VM_SEQ) / MSS, segment.payload_bytes / MSS)
}

#[test]
fn what_its_windows_let_go_leaves_past_the_queue() {
    let mut bed = Bed::connected();
    for at in 0..10 {
        assert_eq!(bed.sends(1), [(at, 1)]);
    }
    assert_eq!((bed.count("VfloodDirect"), bed.count("VfloodHeld")), (10, 0));
    // The window is full.
    assert_eq!(bed.sends(1), []);
    assert_eq!((bed.count("VfloodDirect"), bed.count("VfloodHeld")), (10, 1));
    // What was held is out: the next packet still goes by the queue, and leaves at once all the same.
    bed.acked(8);
    assert_eq!(bed.left(), [(10, 1)]);
    assert_eq!(bed.sends(1), [(11, 1)]);
    assert_eq!(bed.count("VfloodDirect"), 10);
    bed.acked(12);
    assert_eq!(bed.sends(1), [(12, 1)]);
    assert_eq!(bed.count("VfloodDirect"), 11);
}

/// Data of the other end that acknowledges nothing new is no reason for another burst.
#[test]
fn an_ack_without_news_lets_nothing_out() {
    let mut bed = Bed::connected();
    for sent in [10, 20] {
        (0..sent).for_each(|_| drop(bed.sends(1)));
        bed.acked(bed.sent);
    }
    // Ten segments are all that the last ACK allows at once, of a larger window.
    (0..4).for_each(|_| drop(bed.sends(1)));
    bed.acked(32);
    for _ in 0..10 {
        assert_eq!(bed.sends(1).len(), 1);
    }
    let ack = VM_SEQ + 32 * MSS;
    bed.comes(END, acks(Segment { seq: PEER_SEQ, ack, payload_bytes: 100, ..Segment::default() }));
    assert_eq!(bed.sends(1), []);
    assert_eq!(bed.count("VfloodHeld"), 1);
}

#[test]
fn packets_of_several_segments_leave_whole_where_there_is_room_for_all() {
    let mut bed = Bed::connected();
    assert_eq!(bed.sends(4), [(0, 4)]);
    assert_eq!(bed.sends(4), [(4, 4)]);
    assert_eq!((bed.count("VfloodDirect"), bed.count("VfloodSplit")), (2, 0));
    // There is room for two of four: they leave as segments, and the others wait.
    assert_eq!(bed.sends(4), [(8, 1), (9, 1)]);
    assert_eq!((bed.count("VfloodSplit"), bed.count("VfloodHeld")), (1, 2));
    // A packet behind what is held is held whole, and leaves whole.
    assert_eq!(bed.sends(4), []);
    assert_eq!((bed.count("VfloodSplit"), bed.count("VfloodHeld")), (1, 6));
    bed.acked(4);
    assert_eq!(bed.left(), [(10, 1), (11, 1), (12, 4)]);
    assert_eq!(bed.count("VfloodSplit"), 1);
}

#[test]
fn what_is_held_whole_is_split_where_a_part_of_it_may_leave() {
    let mut bed = Bed::connected();
    for _ in 0..11 {
        bed.sends(1);
    }
    assert_eq!(bed.sends(9), []);
    assert_eq!((bed.count("VfloodSplit"), bed.count("VfloodHeld")), (0, 10));
    // Two are acknowledged, and the window is 12: four may leave, one of which waits before the nine.
    bed.acked(2);
    assert_eq!(bed.left(), [(10, 1), (11, 1), (12, 1), (13, 1)]);
    assert_eq!((bed.count("VfloodSplit"), bed.count("VfloodHeld")), (1, 10));
    // The others are segments from here on, and what comes behind them stays behind.
    assert_eq!(bed.sends(2), []);
    bed.acked(14);
    let left = bed.left();
    assert_eq!(left[..6], [14, 15, 16, 17, 18, 19].map(|at| (at, 1)));
    assert_eq!(left[6..], [(20, 2)]);
}

/// A window that is small for its packets is not overrun by one of them.
#[test]
fn a_packet_larger_than_the_window_never_leaves_whole() {
    let mut bed = Bed::connected();
    let left = bed.sends(30);
    assert_eq!(left, (0..10).map(|at| (at, 1)).collect::<Vec<_>>());
    assert_eq!((bed.count("VfloodDirect"), bed.count("VfloodSplit"), bed.count("VfloodHeld")), (0, 1, 20));
}

#[test]
fn a_cut_packet_is_its_segments() {
    let data =
        Segment { seq: u32::MAX - 500, payload_bytes: 2500, flags: Flags::PSH.with(Flags::CWR), ..Segment::default() };
    let whole = Packet { gso_bytes: 1000, ..packet(acks(data)) };
    let found: Vec<_> = whole.cut().map(|p| (segment_of(&p), p.gso_bytes, p.wire_bytes)).collect();
    let flags = |segment: &Segment| (segment.flags.has(Flags::CWR), segment.flags.has(Flags::PSH));
    let seen: Vec<_> = found.iter().map(|(s, gso, _)| (s.seq, s.payload_bytes, flags(s), *gso)).collect();
    let first = u32::MAX - 500;
    assert_eq!(
        seen,
        [
            (first, 1000, (true, false), 0),
            (first.wrapping_add(1000), 1000, (false, false), 0),
            (first.wrapping_add(2000), 500, (false, true), 0)
        ]
    );
    assert!(found.iter().all(|(segment, _, wire)| segment.wire_bytes() == *wire && segment.ack == data.ack));
    let single = packet(acks(data));
    assert_eq!(single.cut().collect::<Vec<_>>(), [single]);
}

/// Whether a connection that begins now is managed.
fn is_managed(bed: &mut Bed, generation: u32) -> bool {
    let end = ConnId { index: 3, generation };
    let before = bed.count("VfloodPassedOver");
    bed.connect(end);
    // What does not fit the window leaves all the same where nobody holds it.
    let is_held = bed.sends_on(end, 20) != [(0, 20)];
    assert_eq!(bed.count("VfloodPassedOver") - before, u64::from(!is_held));
    is_held
}

#[test]
fn it_rests_below_the_share_and_acts_above_with_room_between() {
    let mut bed = Bed::new(250);
    let hears = |bed: &mut Bed, permille, ms| {
        for _ in 0..ms / 200 {
            bed.now += Duration::from_ms(200);
            let is_obedient = true;
            bed.vflood.hear(bed.now, Some(Word { off_core_permille: Some(permille), is_obedient }));
        }
    };
    assert!(is_managed(&mut bed, 1), "nobody has said anything");
    hears(&mut bed, 100, 400);
    assert!(!bed.vflood.attests() && bed.vflood.rests());
    assert!(!is_managed(&mut bed, 2));
    // Between two thirds of the share and the share nothing changes.
    hears(&mut bed, 249, 60_000);
    assert!(!is_managed(&mut bed, 3));
    hears(&mut bed, 250, 200);
    assert!(is_managed(&mut bed, 4), "at the share it acts");
    assert!(!bed.vflood.attests(), "a connection that was passed over may still begin");
    hears(&mut bed, 250, HANDSHAKE_US / 1000 + 200);
    assert!(bed.vflood.attests());
    hears(&mut bed, 170, 60_000);
    assert!(is_managed(&mut bed, 5), "nor does it on the way back");
    hears(&mut bed, 160, 9_800);
    assert!(is_managed(&mut bed, 6), "not before the VM had its core for a while");
    hears(&mut bed, 160, 1000);
    assert!(!is_managed(&mut bed, 7));
    // Nobody says anything any more.
    bed.vflood.hear(bed.now, None);
    assert!(is_managed(&mut bed, 8));
}

#[test]
fn vsnoop_keeps_the_hosts_reserve_unpromised() {
    let (places, cpus) = (100, 1);
    let reserve_segments = vsnoop::reserve(places, cpus);
    assert_eq!(reserve_segments, 50);
    let spec = VsnoopSpec {
        mode: Mode::Enforce,
        settings: VsnoopSettings { budget_segments: vsnoop::budget(places) },
        reserve_segments,
        mss_bytes: MSS,
    };
    let promises = |port_room: usize| {
        let mut snoop = Vsnoop::new(spec);
        let mut effects = Effects { port_room, ..Effects::default() };
        let to_vm = |snoop: &mut Vsnoop, effects: &mut Effects, segment| {
            snoop.on_to_vm(Instant::START, ToVm::EarlyAck, Some(END), &mut packet(segment), effects);
        };
        let of_vm = |snoop: &mut Vsnoop, effects: &mut Effects, segment| {
            snoop.on_from_vm(Instant::START, FromVm::AckFilter, Some(END), &mut packet(segment), effects);
        };
        of_vm(&mut snoop, &mut effects, Segment { seq: VM_SEQ - 1, flags: Flags::SYN, ..Segment::default() });
        let synack = Segment { seq: PEER_SEQ - 1, ack: VM_SEQ, flags: Flags::SYN, ..Segment::default() };
        to_vm(&mut snoop, &mut effects, acks(synack));
        of_vm(&mut snoop, &mut effects, acks(Segment { seq: VM_SEQ, ack: PEER_SEQ, ..Segment::default() }));
        for at in 0..2 {
            let data = Segment { seq: PEER_SEQ + at * MSS, ack: VM_SEQ, payload_bytes: MSS, ..Segment::default() };
            to_vm(&mut snoop, &mut effects, acks(data));
        }
        effects.from_vm.len()
    };
    assert_eq!(promises(51), 1, "the segment has its place beside the reserve: all but the last is acknowledged");
    assert_eq!(promises(50), 0, "it would take one of the reserve's");
}
