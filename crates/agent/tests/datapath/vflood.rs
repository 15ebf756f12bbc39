//! vFlood: what its windows let out at once, past the device that holds packets, and whose turn it is to say so.

use std::mem::offset_of;
use std::time::Duration;

use evenkeel_agent::datapath::intf;
use evenkeel_algo::frames::{ACK, CWR, ECE, RST, SYN, Segment, URG, assert_sound};
use evenkeel_testbed::place::{index, ip};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::conversation::{MSS, ack, data, syn, synack, with_ip_options};
use crate::ports::{Bed, KEY, NEXT, REDIRECT};

const WINDOW: u32 = 10;
const TOKEN: u16 = 0xbeef;

/// A VM's connection that vFlood manages. The device that would hold packets drops them: this kernel need not have the
/// qdisc.
struct Managed {
    place: Bed,
    flows: MapHandle,
    /// How many connections of each port are managed.
    counts: MapHandle,
}

fn patch(map: &MapHandle, key: u32, changes: &[(usize, &[u8])]) {
    let mut value = map.lookup(&key.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    for (offset, bytes) in changes {
        value[*offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    map.update(&key.to_ne_bytes(), &value, MapFlags::ANY).unwrap();
}

impl Managed {
    fn new() -> Self {
        let mut managed = Self::without_connections();
        managed.connect();
        managed
    }

    fn without_connections() -> Self {
        let place = Bed::new(intf::EK_MODE_OFF);
        ip("link add drops type bridge mcast_snooping 0");
        // The device must send nothing of its own.
        std::fs::write("/proc/sys/net/ipv6/conf/drops/disable_ipv6", "1").unwrap();
        ip("link set drops up");
        let mut host = intf::ek_host {
            version: intf::EK_INTF_VERSION,
            keys: 1,
            agent_until_ns: u64::MAX / 2,
            ..Default::default()
        };
        host.key[0] = KEY;
        place.datapath.set_host(&host).unwrap();
        let ports = MapHandle::from_pinned_path(place.pins().join("ports")).unwrap();
        let vflood = offset_of!(intf::ek_port, vflood);
        let settings = vflood + offset_of!(intf::ek_vflood_settings, settings);
        let numbers = [
            (vflood + offset_of!(intf::ek_vflood_settings, mode), intf::EK_MODE_ENFORCE),
            (vflood + offset_of!(intf::ek_vflood_settings, hold_ifindex), index("drops")),
            (vflood + offset_of!(intf::ek_vflood_settings, split_ifindex), index("drops")),
            (settings + offset_of!(intf::vflood_settings, buffer_segments), 2048),
            (settings + offset_of!(intf::vflood_settings, initial_window), WINDOW),
        ]
        .map(|(offset, number)| (offset, number.to_ne_bytes()));
        patch(&ports, place.pa, &numbers.each_ref().map(|(offset, bytes)| (*offset, &bytes[..])));
        let map = |name| MapHandle::from_pinned_path(place.pins().join(name)).unwrap();
        let (flows, counts) = (map("vflood_flows"), map("vflood_managed"));
        Self { place, flows, counts }
    }

    fn connect(&mut self) {
        let pa = self.place.pa;
        self.place.run_from_vm(pa, &syn().frame());
        self.place.run_to_vm(pa, &synack().frame());
        self.place.run_to_vm(pa, &ack(0, 0).frame());
    }

    /// Changes a number in vFlood's settings on the port.
    fn set(&self, offset: usize, number: u32) {
        let ports = MapHandle::from_pinned_path(self.place.pins().join("ports")).unwrap();
        patch(&ports, self.place.pa, &[(offset_of!(intf::ek_port, vflood) + offset, &number.to_ne_bytes())]);
    }

    /// The urgent pointer with which this reaches the VM.
    fn token_of(&mut self, segment: &Segment) -> u16 {
        let reached = self.place.run_to_vm(self.place.pa, &segment.frame());
        assert_eq!(reached.verdict, NEXT);
        assert_sound(&reached.frame);
        let at = segment.l4() + 18;
        u16::from_be_bytes([reached.frame[at], reached.frame[at + 1]])
    }

    /// Sets the number of the port's connections that are counted as managed.
    fn count(&self, number: u32) {
        let ports = MapHandle::from_pinned_path(self.place.pins().join("ports")).unwrap();
        let port = ports.lookup(&self.place.pa.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        let slot = &port[offset_of!(intf::ek_port, slot)..][..size_of::<u32>()];
        self.counts.update(slot, &number.to_ne_bytes(), MapFlags::ANY).unwrap();
    }

    fn is_managed(&self) -> bool {
        self.place.datapath.vflood(&self.place.only_flow(self.place.pa)).unwrap().is_some()
    }

    fn state(&self) -> intf::ek_vflood_flow {
        self.place.datapath.vflood(&self.place.only_flow(self.place.pa)).unwrap().expect("it is managed")
    }

    fn change(&self, changes: &[(usize, &[u8])]) {
        patch(&self.flows, self.place.only_flow(self.place.pa).vflood_index, changes);
    }

    /// How many packets and copies have come to the device that would hold packets.
    fn told(&self) -> u64 {
        let links: serde_json::Value = serde_json::from_str(&ip("-s -j link show drops")).unwrap();
        links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
    }

    /// The other end acknowledges `bytes` bytes and offers `window`.
    fn acknowledge(&mut self, bytes: u32, window: u16) {
        self.place.run_to_vm(self.place.pa, &Segment { window, ..ack(bytes, 0) }.frame());
    }

    /// Makes the flow look as if the qdisc held a packet of one segment, and had told of it if `is_known`.
    fn hold(&self, segment: u32, is_known: bool) {
        let seq = 1001 + segment * MSS;
        let first = if is_known { u64::from(seq + MSS) << 32 | u64::from(seq) } else { 0 };
        let flow = offset_of!(intf::ek_vflood_flow, flow);
        self.change(&[
            (offset_of!(intf::ek_vflood_flow, packets), &1u32.to_ne_bytes()),
            (offset_of!(intf::ek_vflood_flow, first), &first.to_ne_bytes()),
            (flow + offset_of!(intf::vflood_flow, held_segments), &1u32.to_ne_bytes()),
            (flow + offset_of!(intf::vflood_flow, vm_end), &(seq + MSS).to_ne_bytes()),
        ]);
    }

    /// The window that the VM is told with this, and the ACK that the flow has had then.
    fn told_by(&mut self, segment: &Segment, frame: &[u8]) -> (u16, u32) {
        let reached = self.place.run_to_vm(self.place.pa, frame);
        assert_eq!(reached.verdict, NEXT);
        let at = segment.l4() + 14;
        (u16::from_be_bytes([reached.frame[at], reached.frame[at + 1]]), self.state().flow.snd_una)
    }

    /// The agent is there, or has not been for long.
    fn has_agent(&self, is_there: bool) {
        let agent_until_ns = if is_there { u64::MAX / 2 } else { 1 };
        let host = intf::ek_host { version: intf::EK_INTF_VERSION, agent_until_ns, ..Default::default() };
        self.place.datapath.set_host(&host).unwrap();
    }

    /// The verdict on the VM's segment of this number, from 0.
    fn send(&mut self, segment: u32) -> i32 {
        self.place.run_from_vm(self.place.pa, &data(segment * MSS).frame()).verdict
    }
}

#[test]
fn the_first_window_passes_and_what_is_beyond_it_is_the_qdiscs() {
    let mut managed = Managed::new();
    for segment in 0..WINDOW {
        assert_eq!(managed.send(segment), NEXT, "segment {segment}");
        assert_eq!(managed.state().flow.snd_nxt, 1001 + (segment + 1) * MSS);
    }
    let before = managed.state().flow;
    assert_eq!(managed.send(WINDOW), REDIRECT);
    assert_eq!(managed.state().flow.snd_nxt, before.snd_nxt);
    assert_eq!(managed.state().is_taken, 0);
}

/// CERA's figure of a flow's own round trip is of the path, not of the time that data is held.
#[test]
fn what_is_held_is_timed_from_when_it_leaves() {
    let mut managed = Managed::without_connections();
    let ports = MapHandle::from_pinned_path(managed.place.pins().join("ports")).unwrap();
    let mode = offset_of!(intf::ek_port, cera) + offset_of!(intf::ek_cera_settings, mode);
    patch(&ports, managed.place.pa, &[(mode, &intf::EK_MODE_OBSERVE.to_ne_bytes())]);
    managed.connect();
    let is_timed = |managed: &Managed| managed.place.only_flow(managed.place.pa).cera_trip.left_us != 0;
    assert_eq!((managed.send(0), is_timed(&managed)), (NEXT, true), "it passes at once");
    managed.acknowledge(MSS, 8000);
    assert!(!is_timed(&managed));
    managed.hold(1, true);
    assert_eq!((managed.send(2), is_timed(&managed)), (REDIRECT, false), "it is held");
    let segment = data(2 * MSS);
    let range = u64::from(segment.seq + MSS) << 32 | u64::from(segment.seq);
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    let now_ms = (now.tv_sec() * 1000) as u32;
    let returns = offset_of!(intf::ek_vflood_flow, returns);
    managed.change(&[
        (returns + offset_of!(intf::vflood_returns, ranges), &range.to_ne_bytes()),
        (returns + offset_of!(intf::vflood_returns, ts_val), &2u32.to_ne_bytes()),
        (returns + offset_of!(intf::vflood_returns, noted_ms), &now_ms.to_ne_bytes()),
        (returns + offset_of!(intf::vflood_returns, used), &1u32.to_ne_bytes()),
    ]);
    assert_eq!((managed.send(2), is_timed(&managed)), (NEXT, true), "it was let out");
}

/// Through the qdisc, it would be overtaken by an ACK that the VM sends after it.
#[test]
fn what_is_sent_again_passes_where_nothing_is_held() {
    let mut managed = Managed::new();
    assert_eq!((managed.send(0), managed.send(1)), (NEXT, NEXT));
    let before = managed.state().flow;
    assert_eq!(managed.send(0), NEXT, "its head");
    assert_eq!(managed.state().flow.snd_nxt, before.snd_nxt);
    // All data has arrived: one copy per round trip passes, to get another ACK; more are the qdisc's to drop.
    let snd_una = offset_of!(intf::ek_vflood_flow, flow) + offset_of!(intf::vflood_flow, snd_una);
    managed.change(&[(snd_una, &before.snd_nxt.to_ne_bytes())]);
    assert_eq!(managed.send(1), NEXT);
    let srtt_us = offset_of!(intf::ek_vflood_flow, flow) + offset_of!(intf::vflood_flow, srtt_us);
    managed.change(&[(srtt_us, &1_000_000_000u32.to_ne_bytes())]);
    assert_eq!(managed.send(1), REDIRECT);
}

#[test]
fn what_the_qdisc_works_on_is_left_to_it() {
    let mut managed = Managed::new();
    managed.change(&[(offset_of!(intf::ek_vflood_flow, is_taken), &1u64.to_ne_bytes())]);
    assert_eq!(managed.send(0), REDIRECT);
    assert_eq!(managed.state().is_taken, 1, "the turn is the other's to end");
    managed.change(&[(offset_of!(intf::ek_vflood_flow, is_taken), &0u64.to_ne_bytes())]);
    assert_eq!(managed.send(0), NEXT);
}

/// Another processor read its clock later than this one, and had its turn first: the difference must not become a pause
/// of hundreds of years.
#[test]
fn a_flows_time_does_not_go_back() {
    let mut managed = Managed::new();
    assert_eq!(managed.send(0), NEXT);
    let later_ns = managed.state().clock_ns + 3_600_000_000_000;
    let sent_us = offset_of!(intf::ek_vflood_flow, flow) + offset_of!(intf::vflood_flow, sent_us);
    managed.change(&[
        (offset_of!(intf::ek_vflood_flow, clock_ns), &later_ns.to_ne_bytes()),
        (sent_us, &(later_ns / 1000).to_ne_bytes()),
    ]);
    assert_eq!(managed.send(1), NEXT);
    let state = managed.state();
    assert_eq!((state.clock_ns, state.flow.sent_us), (later_ns, later_ns / 1000));
}

#[test]
fn no_port_has_all_places() {
    for (number, has_place) in [(intf::EK_VFLOOD_PORT_FLOWS - 1, true), (intf::EK_VFLOOD_PORT_FLOWS, false)] {
        let mut managed = Managed::without_connections();
        managed.count(number);
        managed.connect();
        assert_eq!(managed.is_managed(), has_place, "after {number}");
        let without = managed.place.count(managed.place.pa, intf::EK_COUNT_VFLOOD_NO_PLACE);
        assert_eq!(without, u64::from(!has_place));
    }
    const { assert!(intf::EK_VFLOOD_PORT_FLOWS < intf::EK_VFLOOD_FLOWS) };
}

#[test]
fn the_qdisc_is_told_to_end_what_is_silent() {
    let mut managed = Managed::new();
    let (long, short) = (Duration::from_secs(600), Duration::from_millis(1));
    std::thread::sleep(2 * short);
    assert_eq!(managed.place.datapath.end_silent(long).unwrap(), 0);
    // The qdisc itself looks after what it holds.
    managed.change(&[(offset_of!(intf::ek_vflood_flow, packets), &1u32.to_ne_bytes())]);
    assert_eq!(managed.place.datapath.end_silent(short).unwrap(), 0);
    managed.change(&[(offset_of!(intf::ek_vflood_flow, packets), &0u32.to_ne_bytes())]);
    assert_eq!(managed.place.datapath.end_silent(short).unwrap(), 1);
    // If the device is gone, nobody is told either.
    managed.change(&[(offset_of!(intf::ek_vflood_flow, hold_ifindex), &u32::MAX.to_ne_bytes())]);
    assert_eq!(managed.place.datapath.end_silent(short).unwrap(), 0);
}

/// If an ACK lets nothing out, the port's program does what the qdisc would do with it.
#[test]
fn an_ack_goes_to_the_qdisc_where_something_held_may_leave() {
    let mut managed = Managed::new();
    for segment in 0..WINDOW {
        assert_eq!(managed.send(segment), NEXT);
    }
    let before = managed.told();
    managed.acknowledge(MSS, 8000);
    let state = managed.state();
    assert_eq!((state.flow.snd_una, managed.told()), (1001 + MSS, before), "nothing is held");
    assert!(state.flow.granted > state.flow.snd_una, "the VM is told what it may hand over");
    assert_eq!(state.is_taken, 0);
    // The window is full, and a segment waits.
    let cwnd = offset_of!(intf::ek_vflood_flow, flow) + offset_of!(intf::vflood_flow, congestion.window.cwnd);
    managed.change(&[(cwnd, &(WINDOW - 1).to_ne_bytes())]);
    let (before, edge) = (managed.told(), managed.state().flow.edge);
    managed.hold(WINDOW, true);
    managed.acknowledge(MSS, 8001);
    assert!(managed.state().flow.edge != edge, "the receiver's window is larger");
    assert_eq!(managed.told(), before, "the congestion window is not");
    managed.acknowledge(3 * MSS, 8001);
    assert_eq!((managed.state().flow.snd_una, managed.told()), (1001 + 3 * MSS, before + 1), "it lets the segment out");
    // A held packet that the qdisc has not told of may leave at any time.
    managed.hold(10 * WINDOW, false);
    managed.acknowledge(3 * MSS, 8002);
    assert_eq!(managed.told(), before + 2);
}

/// A receiver that resets has an ACK number, too. What is held then drains without it: the reset may be forged.
#[test]
fn a_reset_lets_nothing_out_by_its_number() {
    // The VM takes no reset with the other sequence numbers.
    let window = u32::from(data(0).window) << 7;
    let others = [5000, 5001 + window + 1, 5001 + (1 << 29), 5001 ^ 1 << 31];
    for (seq, ends) in [(5001, true), (5001 + window, true)].into_iter().chain(others.map(|seq| (seq, false))) {
        let mut managed = Managed::new();
        for segment in 0..WINDOW {
            assert_eq!(managed.send(segment), NEXT);
        }
        managed.hold(WINDOW, false);
        let (flow, before) = (managed.place.only_flow(managed.place.pa), managed.told());
        let reset = Segment { seq, flags: RST | ACK, ..ack(3 * MSS, 0) };
        assert_eq!(managed.place.run_to_vm(managed.place.pa, &reset.frame()).verdict, NEXT);
        assert_eq!(managed.told() - before, u64::from(ends), "one order at most: to close");
        assert_eq!(managed.place.datapath.vflood(&flow).unwrap().unwrap().flow.snd_una, 1001);
    }
}

/// A VM that is told of no room only sends window probes, and their answers tell it no more.
#[test]
fn what_a_vm_is_told_never_closes_an_open_window() {
    let granted = offset_of!(intf::ek_vflood_flow, flow) + offset_of!(intf::vflood_flow, granted);
    let mut managed = Managed::new();
    managed.send(0);
    let receiver = ack(MSS, 0);
    let una = 1001 + MSS;
    assert!(managed.told_by(&receiver, &receiver.frame()).0 > 12);
    let used_up = |managed: &Managed| managed.change(&[(granted, &(una + 100).to_ne_bytes())]);
    // The next ACK, which says nothing new, tells it more.
    used_up(&managed);
    assert!(managed.told_by(&receiver, &receiver.frame()).0 > 12);
    // Nobody grants more without the agent, but what is held keeps its order: a segment at a time.
    managed.has_agent(false);
    managed.hold(1, true);
    used_up(&managed);
    assert_eq!(managed.told_by(&receiver, &receiver.frame()).0, 12, "1448 bytes, rounded up to 128");
    // Once nothing is held, the receiver's own window holds.
    managed.change(&[(offset_of!(intf::ek_vflood_flow, packets), &0u32.to_ne_bytes())]);
    assert_eq!(managed.told_by(&receiver, &receiver.frame()).0, receiver.window);
}

/// What an ACK lets out counts as arrived once the ACK says so: the VM, which drops that ACK, sends it again, and it is
/// taken for needless.
#[test]
fn an_ack_that_the_vm_drops_lets_nothing_out() {
    let window = u32::from(data(0).window) << 7;
    let off = window + 65_536;
    type Change = fn(&mut Vec<u8>);
    let spoil: Change = |frame| *frame.last_mut().unwrap() ^= 1;
    let cases: [(&str, u32, Change, bool, bool); 8] = [
        ("as it should be", 0, |_| {}, true, true),
        ("the end of the window", window, |_| {}, true, true),
        ("overtaken", 0u32.wrapping_sub(3 * MSS), |_| {}, true, true),
        ("beyond the window", off + 1, |_| {}, true, false),
        ("far off", 1 << 31, |_| {}, true, false),
        ("far off, nothing is held", 1 << 29, |_| {}, false, false),
        ("its checksum is wrong", 0, spoil, true, false),
        ("its checksum is wrong, nothing is held", 0, spoil, false, true),
    ];
    for (what, offset, change, is_held, counts) in cases {
        let mut managed = Managed::new();
        for segment in 0..WINDOW {
            assert_eq!(managed.send(segment), NEXT);
        }
        if is_held {
            managed.hold(WINDOW, true);
            // Nothing more may leave: the ACK is dealt with here.
            let cwnd = offset_of!(intf::ek_vflood_flow, flow) + offset_of!(intf::vflood_flow, congestion.window.cwnd);
            managed.change(&[(cwnd, &1u32.to_ne_bytes())]);
        }
        let receiver = Segment { seq: 5001u32.wrapping_add(offset), ..ack(2 * MSS, 0) };
        let mut frame = receiver.frame();
        change(&mut frame);
        let (_, snd_una) = managed.told_by(&receiver, &frame);
        assert_eq!(snd_una, if counts { 1001 + 2 * MSS } else { 1001 }, "{what}");
        let found = managed.place.count(managed.place.pa, intf::EK_COUNT_VFLOOD_FALSE_ACKS);
        assert_eq!(found, u64::from(!counts), "{what}");
    }
}

#[test]
fn an_ack_goes_to_the_qdisc_that_works_on_its_flow() {
    let mut managed = Managed::new();
    assert_eq!(managed.send(0), NEXT);
    managed.change(&[(offset_of!(intf::ek_vflood_flow, is_taken), &1u64.to_ne_bytes())]);
    let before = managed.told();
    managed.acknowledge(MSS, 8000);
    let state = managed.state();
    assert_eq!((state.flow.snd_una, state.is_taken, managed.told()), (1001, 1, before + 1));
}

#[test]
fn a_vm_that_opens_a_connection_learns_that_it_is_held() {
    let mut managed = Managed::without_connections();
    managed.set(offset_of!(intf::ek_vflood_settings, token), u32::from(TOKEN));
    managed.place.run_from_vm(managed.place.pa, &syn().frame());
    assert_eq!(managed.token_of(&synack()), TOKEN);
    assert_eq!(managed.send(0), NEXT);
    assert_eq!(managed.token_of(&ack(MSS, 0)), TOKEN);
    assert_eq!(managed.token_of(&Segment { payload: 100, ..ack(MSS, 0) }), TOKEN, "data");
}

#[test]
fn a_vm_that_accepts_a_connection_learns_that_it_is_held() {
    let mut managed = Managed::without_connections();
    let pa = managed.place.pa;
    managed.set(offset_of!(intf::ek_vflood_settings, token), u32::from(TOKEN));
    let opens = Segment { flags: SYN, ack: 0, ..synack() };
    managed.place.run_to_vm(pa, &opens.frame());
    managed.place.run_from_vm(pa, &Segment { ack: 5001, flags: SYN | ACK, ..syn() }.frame());
    let first = ack(0, 0);
    assert_eq!(managed.token_of(&first), TOKEN);
    assert_eq!(managed.token_of(&Segment { flags: ACK | URG, ..first }), 0, "that would say something else");
}

#[test]
fn a_vm_learns_that_it_is_held_no_more() {
    let token = offset_of!(intf::ek_vflood_settings, token);
    type End = (&'static str, fn(&mut Managed));
    let ends: [End; 4] = [
        ("its mode is another", |managed| {
            managed.set(offset_of!(intf::ek_vflood_settings, mode), intf::EK_MODE_OFF);
        }),
        ("it is not managed", |managed| managed.change(&[(offset_of!(intf::ek_vflood_flow, owner), &[0; 8])])),
        ("it ends", |managed| managed.change(&[(offset_of!(intf::ek_vflood_flow, is_closing), &1u32.to_ne_bytes())])),
        ("there is no agent", |managed| managed.has_agent(false)),
    ];
    for (what, end) in ends {
        let mut managed = Managed::new();
        managed.set(token, u32::from(TOKEN));
        assert_eq!(managed.token_of(&ack(0, 0)), TOKEN);
        end(&mut managed);
        assert_eq!(managed.token_of(&ack(0, 0)), 0, "{what}");
    }
}

#[test]
fn nobody_says_that_it_holds_what_it_does_not() {
    let token = offset_of!(intf::ek_vflood_settings, token);
    let mode = offset_of!(intf::ek_vflood_settings, mode);
    for (what, offset, number) in [("no channel", token, 0), ("it observes", mode, intf::EK_MODE_OBSERVE)] {
        let mut managed = Managed::without_connections();
        managed.set(token, u32::from(TOKEN));
        managed.set(offset, number);
        managed.place.run_from_vm(managed.place.pa, &syn().frame());
        assert_eq!(managed.token_of(&synack()), 0, "{what}");
        assert!(managed.is_managed());
    }
    let mut managed = Managed::without_connections();
    managed.set(token, u32::from(TOKEN));
    managed.count(intf::EK_VFLOOD_PORT_FLOWS);
    managed.place.run_from_vm(managed.place.pa, &syn().frame());
    assert_eq!(managed.token_of(&synack()), 0, "there is no place");
}

/// An urgent pointer counts from the packet's number: with another number it would be about another byte.
#[test]
fn what_gets_another_number_is_not_urgent() {
    let mut managed = Managed::new();
    for segment in 0..WINDOW {
        assert_eq!(managed.send(segment), NEXT);
    }
    managed.hold(WINDOW, true);
    let snd_nxt = managed.state().flow.snd_nxt;
    for (seq, leaves_with, flags) in
        [(snd_nxt + MSS, snd_nxt, ACK), (snd_nxt - MSS, snd_nxt, ACK), (snd_nxt, snd_nxt, ACK | URG)]
    {
        let urgent = Segment { seq, flags: ACK | URG, payload: 0, ..data(0) };
        let left = managed.place.run_from_vm(managed.place.pa, &urgent.frame());
        assert_eq!(left.verdict, NEXT);
        assert_sound(&left.frame);
        let at = urgent.l4();
        assert_eq!((&left.frame[at + 4..at + 8], left.frame[at + 13]), (&leaves_with.to_be_bytes()[..], flags));
    }
}

/// A connection that vFlood only observes, or no longer has, has its numbers as others have them: those of a VM beyond
/// a window that was lowered are old to the other end.
#[test]
fn the_arbiter_numbers_what_vflood_does_not() {
    type Case = (&'static str, u32, fn(&Managed));
    let cases: [Case; 3] = [
        ("it is held", intf::EK_MODE_ENFORCE, |_| {}),
        ("it is observed", intf::EK_MODE_OBSERVE, |_| {}),
        ("it is forgotten", intf::EK_MODE_ENFORCE, |managed| {
            managed.change(&[(offset_of!(intf::ek_vflood_flow, owner), &0u64.to_ne_bytes())]);
        }),
    ];
    for (what, mode, then) in cases {
        let mut managed = Managed::without_connections();
        let pa = managed.place.pa;
        managed.set(offset_of!(intf::ek_vflood_settings, mode), mode);
        let map = |name| MapHandle::from_pinned_path(managed.place.pins().join(name)).unwrap();
        let (ports, flows) = (map("ports"), map("flows"));
        let cera = offset_of!(intf::ek_port, cera) + offset_of!(intf::ek_cera_settings, mode);
        patch(&ports, pa, &[(cera, &intf::EK_MODE_ENFORCE.to_ne_bytes())]);
        managed.connect();
        for segment in 0..WINDOW {
            managed.send(segment);
        }
        then(&managed);
        let key = flows.keys().next().unwrap();
        let mut flow = flows.lookup(&key, MapFlags::ANY).unwrap().unwrap();
        flow[offset_of!(intf::ek_flow, windows_limited)] = 1;
        flows.update(&key, &flow, MapFlags::ANY).unwrap();
        let bare = |seq| Segment { seq, payload: 0, ..data(0) };
        for (seq, leaves_with) in [(1001 + 2 * MSS, 1001 + WINDOW * MSS), (1000, 1000)] {
            let left = managed.place.run_from_vm(pa, &bare(seq).frame());
            assert_eq!(left.frame, bare(leaves_with).frame(), "{what}: {seq}");
        }
    }
}

/// The qdisc may not have dealt with an ACK yet when its packet goes on, and what it found of an earlier one still
/// stands. vSnoop may have acknowledged the data.
#[test]
fn only_an_ack_alone_is_kept_from_the_vm() {
    let mut managed = Managed::new();
    for segment in 0..WINDOW {
        assert_eq!(managed.send(segment), NEXT);
    }
    managed.hold(WINDOW, true);
    // Somebody works on the flow: nobody looks at the ACK here.
    let filtered = 1u64 << 32 | u64::from(1001 + MSS);
    managed.change(&[
        (offset_of!(intf::ek_vflood_flow, is_taken), &1u64.to_ne_bytes()),
        (offset_of!(intf::ek_vflood_flow, filtered), &filtered.to_ne_bytes()),
    ]);
    for segment in [Segment { payload: 1000, ..ack(MSS, 0) }, ack(MSS, 0)] {
        assert_eq!(managed.place.run_to_vm(managed.place.pa, &segment.frame()).verdict, NEXT);
        assert_eq!(managed.state().filtered, 0, "what stands there is of this ACK");
    }
}

/// The VM has given the connection up without a word, and opens or accepts another with the same addresses and ports:
/// nothing of the first may come among the second's data.
#[test]
fn what_is_held_of_a_connection_before_is_dropped() {
    let mut managed = Managed::new();
    let pa = managed.place.pa;
    for segment in 0..WINDOW {
        assert_eq!(managed.send(segment), NEXT);
    }
    managed.hold(WINDOW, true);
    let (first, before) = (managed.place.only_flow(pa), managed.told());
    managed.place.run_to_vm(pa, &synack().frame());
    assert_eq!(managed.told(), before + 1, "the same SYN-ACK once more is of the same connection, and has a grant");
    managed.place.run_from_vm(pa, &later(syn(), 1 << 20, 0).frame());
    assert_eq!(managed.told(), before + 2, "the order to drop what is held, whatever comes of it");
    managed.place.run_to_vm(pa, &later(synack(), 1 << 21, 1 << 20).frame());
    let second = managed.place.only_flow(pa);
    assert_eq!(managed.told(), before + 3, "the second's grant");
    assert!(second.iss != first.iss && managed.is_managed());
    assert!((second.vflood_index, second.vflood_owner) != (first.vflood_index, first.vflood_owner));
}

/// The same segment with other numbers.
fn later(segment: Segment, seq: u32, ack: u32) -> Segment {
    Segment { seq: segment.seq.wrapping_add(seq), ack: segment.ack.wrapping_add(ack), ..segment }
}

/// The other end's reset takes a connection out of the table, and what is held of it drains: the same addresses and
/// ports may connect again meanwhile, and it would come by as the new connection's data.
#[test]
fn what_still_drains_of_a_connection_before_is_dropped() {
    let remote_port = offset_of!(intf::ek_vflood_flow, key) + offset_of!(intf::ek_flow_key, remote_port);
    for (vm_opens, is_others) in [(true, false), (false, false), (true, true)] {
        let mut managed = Managed::new();
        let pa = managed.place.pa;
        for segment in 0..WINDOW {
            assert_eq!(managed.send(segment), NEXT);
        }
        managed.hold(WINDOW, false);
        let first = managed.place.only_flow(pa);
        managed.place.run_to_vm(pa, &Segment { flags: RST | ACK, ..ack(0, 0) }.frame());
        assert!(managed.place.datapath.flows().unwrap().is_empty());
        if is_others {
            patch(&managed.flows, first.vflood_index, &[(remote_port, &81u16.to_ne_bytes())]);
        }
        let before = managed.told();
        if vm_opens {
            managed.place.run_from_vm(pa, &later(syn(), 1 << 20, 0).frame());
        } else {
            let opens = Segment { flags: SYN, ack: 0, ..later(synack(), 1 << 20, 0) };
            managed.place.run_to_vm(pa, &opens.frame());
            assert_eq!(managed.told(), before, "it may be forged");
            let accepts = Segment { flags: SYN | ACK, ack: opens.seq + 1, ..later(syn(), 1 << 20, 0) };
            managed.place.run_from_vm(pa, &accepts.frame());
        }
        assert_eq!(managed.told() - before, u64::from(!is_others), "the order to drop what is held");
        if vm_opens {
            managed.place.run_to_vm(pa, &later(synack(), 1 << 20, 1 << 20).frame());
        }
        let second = managed.place.only_flow(pa);
        assert!(managed.is_managed() && second.vflood_index != first.vflood_index);
    }
}

/// What is behind the queue already when the order comes has an earlier connection's numbers. The new one does not go
/// by them: its own data would be taken for old, and its ACKs for false.
#[test]
fn what_is_left_of_a_connection_before_is_not_the_new_ones() {
    for ack in [5001u32.wrapping_add(1 << 30), 5001u32.wrapping_sub(1 << 30)] {
        let mut managed = Managed::new();
        assert_eq!(managed.send(0), NEXT);
        let (flow, before) = (managed.place.only_flow(managed.place.pa), managed.told());
        let state = managed.state();
        let left = Segment { ack, ..data(1 << 20) }.frame();
        let passed = managed.place.run_from_vm(managed.place.pa, &left);
        assert_eq!((passed.verdict, passed.frame), (NEXT, left));
        assert!(managed.place.datapath.flows().unwrap().is_empty(), "it goes on without help");
        assert_eq!(managed.told(), before + 1, "what is held drains");
        let after = managed.place.datapath.vflood(&flow).unwrap().unwrap();
        assert_eq!((after.flow.vm_end, after.last), (state.flow.vm_end, state.last));
    }
}

/// A SYN-ACK that answers another SYN than the flow's, or data with it.
#[test]
fn only_a_synack_of_its_own_tells_a_vm_that_it_is_held() {
    for (ack, is_its) in [(1001, true), (1002, false), (1 << 20, false)] {
        let mut managed = Managed::new();
        managed.set(offset_of!(intf::ek_vflood_settings, token), u32::from(TOKEN));
        let before = managed.told();
        let token = managed.token_of(&Segment { ack, ..synack() });
        assert_eq!((token != 0, managed.told() - before), (is_its, u64::from(is_its)), "{ack}");
    }
}

/// IP's options and extensions may name other addresses than its header does, and the sum covers those: nobody knows
/// that it is wrong, and what is held has to leave.
#[test]
fn a_sum_over_other_addresses_is_no_wrong_one() {
    let over = |segment: Segment, is_v6: bool| {
        let to = |(address, port): (std::net::IpAddr, u16)| match address {
            std::net::IpAddr::V4(address) if is_v6 => (address.to_ipv6_mapped().into(), port),
            _ => (address, port),
        };
        Segment { source: to(segment.source), destination: to(segment.destination), ..segment }
    };
    for (is_v6, has_options) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut managed = Managed::without_connections();
        let pa = managed.place.pa;
        managed.place.run_from_vm(pa, &over(syn(), is_v6).frame());
        managed.place.run_to_vm(pa, &over(synack(), is_v6).frame());
        managed.place.run_to_vm(pa, &over(ack(0, 0), is_v6).frame());
        for segment in 0..WINDOW {
            assert_eq!(managed.place.run_from_vm(pa, &over(data(segment * MSS), is_v6).frame()).verdict, NEXT);
        }
        managed.hold(WINDOW, true);
        let cwnd = offset_of!(intf::ek_vflood_flow, flow) + offset_of!(intf::vflood_flow, congestion.window.cwnd);
        managed.change(&[(cwnd, &1u32.to_ne_bytes())]);
        let receiver = over(ack(2 * MSS, 0), is_v6);
        let mut frame = if has_options { with_ip_options(&receiver) } else { receiver.frame() };
        *frame.last_mut().unwrap() ^= 1;
        assert_eq!(managed.place.run_to_vm(pa, &frame).verdict, NEXT);
        let expected = if has_options { 1001 + 2 * MSS } else { 1001 };
        assert_eq!(managed.state().flow.snd_una, expected, "IPv6: {is_v6}, options: {has_options}");
    }
}

/// Echoes of marks are for a sender's window, which would be the host's.
#[test]
fn guests_with_ecn_are_left_alone() {
    for (agrees, is_held) in [(ECE, false), (0, true)] {
        let mut managed = Managed::without_connections();
        managed.set(offset_of!(intf::ek_vflood_settings, token), u32::from(TOKEN));
        let offers = Segment { flags: SYN | ECE | CWR, ..syn() };
        managed.place.run_from_vm(managed.place.pa, &offers.frame());
        let token = managed.token_of(&Segment { flags: SYN | ACK | agrees, ..synack() });
        assert_eq!((managed.is_managed(), token), (is_held, if is_held { TOKEN } else { 0 }));
        let left = managed.place.count(managed.place.pa, intf::EK_COUNT_VFLOOD_NATIVE_ECN);
        assert_eq!(left, u64::from(!is_held));
    }
}
