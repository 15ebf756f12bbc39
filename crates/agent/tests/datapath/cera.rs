//! CERA at a port: what is counted, how long handshakes take, and the limit in ACKs.

use std::time::Duration;

use evenkeel_agent::datapath::{Gso, Limit, Outcome, Shares, intf};
use evenkeel_algo::cera::{Loop, Seen};
use evenkeel_algo::frames::{ACK, ECE, FIN, RST, Segment, URG, assert_sound};

use crate::conversation::{MSS, ack, connect, data, shown, syn, synack};
use crate::ports::{Bed, NEXT};

const LATER: u64 = u64::MAX;
/// Header bytes of a data segment: Ethernet, IPv4, TCP with timestamps.
const HEADERS: u64 = 14 + 20 + 32;

/// Ports on which only CERA is on.
fn place(cera: u32) -> (Bed, Shares) {
    with(intf::EK_MODE_OFF, cera)
}

fn with(proboscis: u32, cera: u32) -> (Bed, Shares) {
    let mut place = Bed::new(proboscis);
    let mut port = crate::ports::settings(proboscis);
    port.cera.mode = cera;
    for index in [place.pa, place.pb] {
        place.datapath.attach(index, &port).unwrap();
    }
    let shares = place.datapath.shares().unwrap();
    (place, shares)
}

fn slot(place: &Bed) -> u32 {
    place.datapath.slot_of(place.pa).unwrap().unwrap()
}

/// A connection of `pa` to somebody outside of this host.
fn open(place: &mut Bed, from: u16) {
    let of = |segment: Segment, is_back: bool| {
        let mut segment = segment;
        let end = if is_back { &mut segment.destination } else { &mut segment.source };
        end.1 = from;
        segment.frame()
    };
    assert_eq!(place.run_from_vm(place.pa, &of(syn(), false)).verdict, NEXT, "no probes where ProBoSCIS is off");
    place.run_to_vm(place.pa, &of(synack(), true));
    place.run_from_vm(place.pa, &of(Segment { payload: 0, ..data(0) }, false));
}

fn send(place: &mut Bed, from: u16, offset: u32) {
    let segment = data(offset);
    let frame = Segment { source: (segment.source.0, from), ..segment }.frame();
    let outcome = place.run_from_vm(place.pa, &frame);
    assert_eq!((outcome.verdict, outcome.frame), (NEXT, frame), "CERA changes no data");
}

fn acked(place: &mut Bed, to: u16, bytes: u32) -> u32 {
    let segment = ack(bytes, 0);
    let frame = Segment { destination: (segment.destination.0, to), ..segment }.frame();
    let outcome = place.run_to_vm(place.pa, &frame);
    assert_eq!(outcome.verdict, NEXT);
    assert_sound(&outcome.frame);
    u32::from(u16::from_be_bytes([outcome.frame[48], outcome.frame[49]])) << 7
}

#[test]
fn bytes_flows_and_handshakes_are_counted() {
    let (mut place, mut shares) = place(intf::EK_MODE_OBSERVE);
    let slot = slot(&place);
    open(&mut place, 40000);
    open(&mut place, 40001);
    let mut share = shares.get(slot).unwrap();
    let handshake = share.take_handshake().unwrap();
    assert!(handshake > 0 && handshake < 10_000_000, "{handshake}");
    assert_eq!(share.take_handshake(), None, "once");
    let before = share.turn(16, 1);
    assert_eq!(before.flows, 0, "neither has sent data");
    for offset in 0..3 {
        send(&mut place, 40000, offset * MSS);
    }
    send(&mut place, 40001, 0);
    let mut share = shares.get(slot).unwrap();
    let traffic = share.turn(1, 1);
    assert_eq!((traffic.bytes, traffic.flows), (4 * (u64::from(MSS) + HEADERS), 2));
    // One flow goes on; the other is forgotten after as many turns as there are slots.
    for _ in 0..15 {
        send(&mut place, 40000, 3 * MSS);
        shares.get(slot).unwrap().turn(1, 1);
    }
    send(&mut place, 40000, 3 * MSS);
    assert_eq!(shares.get(slot).unwrap().turn(1, 1).flows, 1);
    // Packets of other protocols count as well.
    let mut other = data(0).frame();
    other[23] = 17;
    place.run_from_vm(place.pa, &other);
    assert_eq!(shares.get(slot).unwrap().turn(1, 1).bytes, other.len() as u64);
}

#[test]
fn a_handshake_with_a_syn_sent_twice_says_nothing() {
    let (mut place, mut shares) = place(intf::EK_MODE_OBSERVE);
    place.run_from_vm(place.pa, &syn().frame());
    open(&mut place, 40000);
    assert_eq!(shares.get(slot(&place)).unwrap().take_handshake(), None);
    // The same the other way.
    place.run_to_vm(place.pb, &syn().frame());
    place.run_to_vm(place.pb, &syn().frame());
    place.run_from_vm(place.pb, &synack().frame());
    place.run_to_vm(place.pb, &Segment { payload: 0, ..data(0) }.frame());
    let of_b = place.datapath.slot_of(place.pb).unwrap().unwrap();
    assert_eq!(shares.get(of_b).unwrap().take_handshake(), None);
    // The answer is lost, and comes again.
    let third = |segment: Segment| Segment { source: (segment.source.0, 40003), ..segment }.frame();
    place.run_to_vm(place.pb, &third(syn()));
    for _ in 0..2 {
        let answer = synack();
        place.run_from_vm(place.pb, &Segment { destination: (answer.destination.0, 40003), ..answer }.frame());
        // Longer than the programs' clock stands still.
        std::thread::sleep(Duration::from_millis(20));
    }
    place.run_to_vm(place.pb, &third(Segment { payload: 0, ..data(0) }));
    assert_eq!(shares.get(of_b).unwrap().take_handshake(), None);
    // One that comes once, from outside, is timed.
    let other = |segment: Segment| Segment { source: (segment.source.0, 40002), ..segment }.frame();
    place.run_to_vm(place.pb, &other(syn()));
    let answer = synack();
    place.run_from_vm(place.pb, &Segment { destination: (answer.destination.0, 40002), ..answer }.frame());
    place.run_to_vm(place.pb, &other(Segment { payload: 0, ..data(0) }));
    assert!(shares.get(of_b).unwrap().take_handshake().is_some());
}

/// Connections are known before CERA is switched on. The first packet after that ends no handshake.
#[test]
fn the_age_of_a_connection_is_no_handshake() {
    let (mut place, mut shares) = with(intf::EK_MODE_OBSERVE, intf::EK_MODE_OFF);
    place.run_from_vm(place.pa, &syn().frame());
    place.run_to_vm(place.pa, &synack().frame());
    let mut port = crate::ports::settings(intf::EK_MODE_OBSERVE);
    port.cera.mode = intf::EK_MODE_OBSERVE;
    place.datapath.attach(place.pa, &port).unwrap();
    let slot = slot(&place);
    shares.get(slot).unwrap().turn(16, 1);
    send(&mut place, 40000, 0);
    let mut share = shares.get(slot).unwrap();
    assert_eq!((share.turn(1, 1).flows, share.take_handshake()), (1, None));
}

#[test]
fn the_vms_window_is_divided_among_its_flows_with_the_remainder_one_by_one() {
    let (mut place, mut shares) = place(intf::EK_MODE_ENFORCE);
    let slot = slot(&place);
    let offered = 8000 << 7;
    for port in 40000..40003 {
        open(&mut place, port);
    }
    for port in 40000..40002 {
        send(&mut place, port, 0);
    }
    let limit = Limit { window_segments: 9, flows: 2, next: 1, until_ns: LATER, ..Limit::default() };
    shares.get(slot).unwrap().limit(limit);
    let windows = [40000, 40001].map(|port| acked(&mut place, port, MSS));
    // Rounded up to the scale, so that there is room for the last segment.
    assert_eq!(windows, [4 * MSS, 5 * MSS].map(|bytes| bytes.div_ceil(128) * 128));
    assert_eq!(acked(&mut place, 40002, 0), offered, "one that never sent has no part");
    assert_eq!(place.count(place.pa, intf::EK_COUNT_CERA_WINDOWS_LIMITED), 2);
    let flows = place.datapath.flows().unwrap();
    assert_eq!(flows.iter().filter(|(_, f)| u32::from(f.window_by) == intf::WINDOW_BY_CERA).count(), 2);
    // Never less than two segments, and no more than the receiver's own.
    shares.get(slot).unwrap().limit(Limit { window_segments: 1, ..limit });
    assert_eq!(acked(&mut place, 40000, MSS), (2 * MSS).div_ceil(128) * 128);
    shares.get(slot).unwrap().limit(Limit { window_segments: 1 << 24, ..limit });
    assert_eq!(acked(&mut place, 40000, MSS), offered);
}

/// The path of one flow is 30 ms longer than those that the VM's windows are for.
#[test]
fn a_far_flow_has_its_part_for_its_own_round_trip() {
    const AWAY: Duration = Duration::from_millis(30);
    let (mut place, mut shares) = place(intf::EK_MODE_ENFORCE);
    let slot = slot(&place);
    for port in [40000, 40001] {
        open(&mut place, port);
        send(&mut place, port, 0);
        acked(&mut place, port, MSS);
    }
    let of_loop = Loop { rtt_us: 5_000, loop_us: 10_000, cover_us: 5_000 };
    let limit = Limit { window_segments: 20, flows: 2, next: 0, of_loop, until_ns: LATER };
    shares.get(slot).unwrap().limit(limit);
    let part = (10 * MSS).div_ceil(128) * 128;
    assert_eq!([40000, 40001].map(|port| acked(&mut place, port, MSS)), [part; 2]);
    // What is in the uplink's queue meanwhile is not its path.
    shares.get(slot).unwrap().queue(u32::MAX);
    open(&mut place, 40004);
    send(&mut place, 40004, 0);
    std::thread::sleep(AWAY);
    assert_eq!(acked(&mut place, 40004, MSS), part);
    shares.get(slot).unwrap().queue(0);
    for port in [40002, 40003] {
        open(&mut place, port);
    }
    // One fills its window, the other does not; what comes again tells nothing.
    for port in [40002, 40003] {
        send(&mut place, port, 0);
    }
    std::thread::sleep(AWAY);
    send(&mut place, 40003, 0);
    let far = acked(&mut place, 40002, MSS);
    assert!(far >= 3 * 10 * MSS, "{far} of {part}: three times as long a loop, and what the machine adds");
    assert_eq!(acked(&mut place, 40003, MSS), part);
    assert_eq!(shares.get(slot).unwrap().take_far(), 0, "its window is not used up");
    for offset in 1..far / MSS + 2 {
        send(&mut place, 40002, offset * MSS);
    }
    acked(&mut place, 40002, MSS);
    assert!(shares.get(slot).unwrap().take_far() >= 20_000);
    assert_eq!(shares.get(slot).unwrap().take_far(), 0, "once");
}

/// If the agent dies, the limit that it wrote last ends at its own time.
#[test]
fn a_limit_ends_by_itself() {
    let (mut place, mut shares) = place(intf::EK_MODE_ENFORCE);
    let slot = slot(&place);
    open(&mut place, 40000);
    send(&mut place, 40000, 0);
    let limit = Limit { window_segments: 4, flows: 1, until_ns: LATER, ..Limit::default() };
    shares.get(slot).unwrap().limit(limit);
    assert!(acked(&mut place, 40000, MSS) < 8000 << 7);
    let over = [Limit { until_ns: 1, ..limit }, Limit { window_segments: 0, ..limit }, Limit::default()];
    for over in over {
        shares.get(slot).unwrap().limit(over);
        assert_eq!(acked(&mut place, 40000, MSS), 8000 << 7, "{over:?}");
    }
}

#[test]
fn observing_writes_nothing_and_counts() {
    let (mut place, mut shares) = place(intf::EK_MODE_OBSERVE);
    let slot = slot(&place);
    open(&mut place, 40000);
    send(&mut place, 40000, 0);
    shares.get(slot).unwrap().limit(Limit { window_segments: 4, flows: 1, until_ns: LATER, ..Limit::default() });
    assert_eq!(acked(&mut place, 40000, MSS), 8000 << 7);
    assert_eq!(place.count(place.pa, intf::EK_COUNT_CERA_WINDOWS_LIMITED), 1);
}

/// ProBoSCIS would set a smaller window, and only observes: CERA's holds all the same.
#[test]
fn a_limit_that_is_only_observed_hides_no_other() {
    let (mut place, mut shares) = with(intf::EK_MODE_ENFORCE, intf::EK_MODE_ENFORCE);
    let slot = slot(&place);
    connect(&mut place);
    for i in 0..10 {
        place.run_from_vm(place.pa, &data(i * MSS).frame());
    }
    place.run_to_vm(place.pa, &shown(ack(MSS, 0)).frame());
    shares.get(slot).unwrap().limit(Limit { window_segments: 8, flows: 1, until_ns: LATER, ..Limit::default() });
    let marked = shown(Segment { flags: ACK | ECE, ..ack(10 * MSS, 0) });
    let of = |outcome: Outcome| u32::from(u16::from_be_bytes([outcome.frame[48], outcome.frame[49]])) << 7;
    let enforced = of(place.run_to_vm(place.pa, &marked.frame()));
    assert!(enforced < 6 * MSS, "ProBoSCIS has the smaller one");
    let mut port = crate::ports::settings(intf::EK_MODE_OBSERVE);
    port.cera.mode = intf::EK_MODE_ENFORCE;
    place.datapath.attach(place.pa, &port).unwrap();
    assert_eq!(of(place.run_to_vm(place.pa, &marked.frame())), (8 * MSS).div_ceil(128) * 128);
    assert_eq!(u32::from(place.only_flow(place.pa).window_by), intf::WINDOW_BY_PROBOSCIS, "what would have been");
}

/// A VM that has sent more than its window numbers its ACKs with the window's edge, and its peer takes them for old
/// segments.
#[test]
fn a_window_is_not_taken_back_from_what_was_sent() {
    let (mut place, mut shares) = place(intf::EK_MODE_ENFORCE);
    let slot = slot(&place);
    open(&mut place, 40000);
    for i in 0..10 {
        send(&mut place, 40000, i * MSS);
    }
    shares.get(slot).unwrap().limit(Limit { window_segments: 2, flows: 1, until_ns: LATER, ..Limit::default() });
    assert_eq!(acked(&mut place, 40000, MSS), (9 * MSS).div_ceil(128) * 128);
    assert_eq!(acked(&mut place, 40000, 10 * MSS), (2 * MSS).div_ceil(128) * 128, "all has arrived");
    // A window that was lowered before the host had seen what was sent.
    for i in 10..20 {
        send(&mut place, 40000, i * MSS);
    }
    let bare = |seq| Segment { seq, payload: 0, ..data(0) };
    for (seq, sent) in [
        (1001 + 12 * MSS, 1001 + 20 * MSS),
        (1001 + 10 * MSS, 1001 + 20 * MSS),
        (1001 + 10 * MSS - 1, 1001 + 10 * MSS - 1),
        (1001 + 20 * MSS, 1001 + 20 * MSS),
    ] {
        let frame = place.run_from_vm(place.pa, &bare(seq).frame()).frame;
        assert_sound(&frame);
        assert_eq!(frame, bare(sent).frame(), "{seq}");
    }
    // An urgent pointer counts from the number: with another one it would be about another byte.
    let plain = bare(1001 + 12 * MSS);
    let urgent = Segment { flags: plain.flags | URG, ..plain };
    let frame = place.run_from_vm(place.pa, &urgent.frame()).frame;
    assert_eq!(frame, bare(1001 + 20 * MSS).frame());
}

/// Traffic between two VMs of a host does not pass the uplink, nor does what a VM says to the host: its agent's words
/// are no flow of the VM's.
#[test]
fn what_stays_on_the_host_is_neither_counted_nor_limited() {
    const HOST: u32 = 0;
    stays(|place| place.pb);
    stays(|_| HOST);
}

fn stays(from: impl Fn(&Bed) -> u32) {
    let (mut place, mut shares) = place(intf::EK_MODE_ENFORCE);
    let slot = slot(&place);
    place.run_from_vm(place.pa, &syn().frame());
    let from = from(&place);
    place.datapath.trial_from("to_vm", place.pa, from, &synack().frame()).unwrap();
    place.run_from_vm(place.pa, &Segment { payload: 0, ..data(0) }.frame());
    assert_ne!(place.only_flow(place.pa).flags & intf::EK_FLOW_LOCAL, 0);
    let mut share = shares.get(slot).unwrap();
    assert_eq!(share.take_handshake(), None, "the RTT of a neighbour is not the network's");
    let before = share.turn(16, 1).bytes;
    send(&mut place, 40000, 0);
    shares.get(slot).unwrap().limit(Limit { window_segments: 4, flows: 1, until_ns: LATER, ..Limit::default() });
    assert_eq!(acked(&mut place, 40000, MSS), 8000 << 7);
    assert_eq!(shares.get(slot).unwrap().turn(16, 1).bytes, before);
}

#[test]
fn a_vm_that_is_silent_with_its_window_used_up_makes_a_pause() {
    const SILENT: Duration = Duration::from_millis(20);
    let (mut place, mut shares) = place(intf::EK_MODE_ENFORCE);
    let slot = slot(&place);
    open(&mut place, 40000);
    send(&mut place, 40000, 0);
    std::thread::sleep(SILENT);
    send(&mut place, 40000, MSS);
    assert_eq!(shares.get(slot).unwrap().take_pauses(), Seen::default(), "nobody limits it");
    shares.get(slot).unwrap().limit(Limit { window_segments: 4, flows: 1, until_ns: LATER, ..Limit::default() });
    acked(&mut place, 40000, 2 * MSS);
    send(&mut place, 40000, 2 * MSS);
    std::thread::sleep(SILENT);
    send(&mut place, 40000, 3 * MSS);
    assert_eq!(shares.get(slot).unwrap().take_pauses().pause_us, 0, "it had room");
    send(&mut place, 40000, 4 * MSS);
    send(&mut place, 40000, 5 * MSS);
    let seen = shares.get(slot).unwrap().take_pauses();
    assert!(seen.is_full, "{seen:?}");
    // The network is silent, and then the VM. On a busy machine the silence may be too long: hence several attempts.
    let mut pauses = (6..30).map(|number| {
        std::thread::sleep(SILENT);
        acked(&mut place, 40000, number * MSS);
        std::thread::sleep(SILENT);
        for sent in [number, number + 2] {
            send(&mut place, 40000, sent * MSS);
        }
        shares.get(slot).unwrap().take_pauses()
    });
    let seen = pauses.find(|seen| seen.pause_us > 0).unwrap();
    let least = SILENT.as_micros() as u32;
    assert!(seen.vm_pause_us >= least && seen.pause_us >= seen.vm_pause_us + least, "{seen:?}");
}

#[test]
fn a_flow_that_ends_leaves_its_part_to_the_others() {
    let (mut place, mut shares) = place(intf::EK_MODE_OBSERVE);
    let slot = slot(&place);
    for port in [40000, 40001, 40002] {
        open(&mut place, port);
        send(&mut place, port, 0);
    }
    assert_eq!(shares.get(slot).unwrap().turn(1, 1).flows, 3);
    let end = |port, flags, payload| {
        let segment = data(MSS);
        Segment { source: (segment.source.0, port), flags, payload, ..segment }.frame()
    };
    place.run_from_vm(place.pa, &end(40000, ACK | FIN, 100));
    place.run_from_vm(place.pa, &end(40001, ACK | RST, 0));
    assert_eq!(shares.get(slot).unwrap().turn(1, 1).flows, 1);
}

#[test]
fn where_cera_is_off_nothing_is_counted() {
    let (mut place, mut shares) = with(intf::EK_MODE_OBSERVE, intf::EK_MODE_OFF);
    place.run_from_vm(place.pa, &Segment { flags: ACK, ..data(0) }.frame());
    assert_eq!(shares.get(slot(&place)).unwrap().turn(16, 1).bytes, 0);
}

/// Segments count as qdiscs count them (`qdisc_pkt_len_init()`), whether or not the packet tells their number.
#[test]
fn each_segment_of_a_large_packet_counts_with_its_headers() {
    const SEGMENT: usize = 100;
    let (mut place, mut shares) = place(intf::EK_MODE_OBSERVE);
    let slot = slot(&place);
    open(&mut place, 40000);
    shares.get(slot).unwrap().turn(1, 1);
    let mut counted = |frame: &[u8], segments: u32| {
        let gso = Gso { segments, segment_bytes: SEGMENT as u32 };
        place.datapath.trial_gso("from_vm", place.pa, frame, gso).unwrap();
        shares.get(slot).unwrap().turn(1, 1).bytes
    };
    let large = |port, payload| {
        let segment = data(0);
        Segment { source: (segment.source.0, port), payload, ..segment }.frame()
    };
    for segments in [1, 2, 29] {
        for payload in [SEGMENT * (segments - 1) + 1, SEGMENT * segments] {
            let wire = payload as u64 + segments as u64 * HEADERS;
            let known = large(40000, payload);
            assert_eq!([counted(&known, segments as u32), counted(&known, 0)], [wire; 2], "{payload}");
            assert_eq!(counted(&large(40001, payload), 0), wire, "of a connection that is older than the datapath");
        }
    }
    // Datagrams that leave as one packet: 8 bytes of header in place of TCP's 32.
    let mut datagrams = large(40000, 10 * SEGMENT - 24);
    datagrams[23] = 17;
    assert_eq!(counted(&datagrams, 0), 10 * (SEGMENT as u64 + HEADERS - 24));
}

/// What is seen of a VM that is silent after an ACK has made room for `segments` in its window of fifteen.
fn silent_with_room(segments: u32, is_large: bool) -> Seen {
    let (mut place, mut shares) = place(intf::EK_MODE_ENFORCE);
    let slot = slot(&place);
    open(&mut place, 40000);
    shares.get(slot).unwrap().limit(Limit { window_segments: 15, flows: 1, until_ns: LATER, ..Limit::default() });
    let send_at = |place: &mut Bed, offset: u32| {
        let gso = Gso { segments: 2 * u32::from(is_large), segment_bytes: MSS / 2 * u32::from(is_large) };
        place.datapath.trial_gso("from_vm", place.pa, &data(offset * MSS).frame(), gso).unwrap();
    };
    send_at(&mut place, 0);
    acked(&mut place, 40000, MSS);
    send_at(&mut place, 15);
    acked(&mut place, 40000, (1 + segments) * MSS);
    std::thread::sleep(Duration::from_millis(20));
    send_at(&mut place, 16);
    shares.get(slot).unwrap().take_pauses()
}

/// A sender of large packets waits until a third of its window is free; one of single segments does not.
#[test]
fn a_sender_that_waits_for_a_larger_packet_makes_no_pause() {
    for (is_large, segments, is_pause) in [(false, 2, true), (true, 2, false), (true, 5, true)] {
        // On a busy machine the VM may be silent for too long: hence several attempts.
        let seen = (0..24).map(|_| silent_with_room(segments, is_large)).find(|seen| seen.pause_us > 0).unwrap();
        assert_eq!(seen.vm_pause_us > 0, is_pause, "{segments} {seen:?}");
    }
}
