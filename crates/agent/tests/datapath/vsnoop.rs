//! vSnoop: which data is acknowledged early, what the ACK says, and what of the VM's own ACKs passes.

use std::mem::offset_of;

use evenkeel_agent::datapath::{Datapath, intf};
use evenkeel_algo::frames::{ACK, ECE, FIN, LINUX_OPTIONS, RST, SYN, Segment, TIMESTAMPS, assert_sound, set_ecn};
use evenkeel_algo::noise::{self, Random};
use evenkeel_algo::packet::{self, Kind};
use evenkeel_testbed::place::{Tap, index, ip, leave};
use evenkeel_testbed::tap::TapFile;
use evenkeel_testbed::thread;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::conversation::with_ip_options;
use crate::ports::{A, B, DROP, MARK, NEXT, REDIRECT, vcpus};

const BYTES: u32 = 1448;
/// Scale of the VM's windows.
const SCALE: u32 = 7;
/// The sender's initial sequence number; the VM's is [`VM_ISS`].
const ISS: u32 = 1000;
/// Timestamp of what the VM sends.
const VM_TS: u32 = 31;
const VM_ISS: u32 = 0xffff_0000;

/// A VM behind a tap that nobody reads, on a bridge with a wire to the sender.
struct Bed {
    datapath: Datapath,
    port: u32,
    /// What leaves the host.
    wire: Tap,
    vm: Option<TapFile>,
    /// The VM's last ACK of each connection.
    acks: Vec<Segment>,
    directory: tempfile::TempDir,
}

/// Ends of a connection from a sender to the VM.
#[derive(Clone, Copy)]
struct Ends {
    sender: (&'static str, u16),
    vm: (&'static str, u16),
    has_timestamps: bool,
    vlan: Option<u16>,
}

const V4: Ends = Ends { sender: (A, 40000), vm: (B, 80), has_timestamps: true, vlan: None };

impl Ends {
    fn options(&self, value: u32, echo: u32) -> Vec<u8> {
        let mut options = Vec::new();
        if self.has_timestamps {
            options.extend([1, 1, 8, 10]);
            options.extend(value.to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        options
    }

    fn handshake(&self) -> Vec<u8> {
        let mut options = LINUX_OPTIONS.to_vec();
        if !self.has_timestamps {
            options[6..16].fill(1);
        }
        options
    }

    /// A data segment of the sender's, `offset` bytes after the first.
    fn data(&self, offset: u32) -> Segment {
        Segment {
            seq: ISS + 1 + offset,
            ack: VM_ISS + 1,
            options: self.options(700, 30),
            payload: BYTES as usize,
            vlan: self.vlan,
            ..Segment::new(self.sender, self.vm, ACK)
        }
    }

    /// The VM's ACK for `bytes` bytes.
    fn ack(&self, bytes: u32) -> Segment {
        Segment {
            seq: VM_ISS + 1,
            ack: ISS + 1 + bytes,
            window: 500,
            options: self.options(VM_TS, 600),
            vlan: self.vlan,
            ..Segment::new(self.vm, self.sender, ACK)
        }
    }
}

fn settings(mode: u32, budget_segments: u32, reserve_segments: u32) -> intf::ek_port {
    intf::ek_port {
        vsnoop: intf::ek_vsnoop_settings {
            mode,
            settings: intf::vsnoop_settings { budget_segments },
            reserve_segments,
            endpoint: intf::EK_VSNOOP_ENDPOINT_OBSERVED,
            ..Default::default()
        },
        ..Default::default()
    }
}

impl Bed {
    fn new(mode: u32) -> Self {
        Self::with(&settings(mode, 400, 10), 100)
    }

    fn with(settings: &intf::ek_port, queue_segments: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path());
        // Neither neighbour discovery nor the bridge's reports are to be in the port's queue.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        ip("link add br0 type bridge mcast_snooping 0");
        ip("link set br0 up");
        let vm = TapFile::new("vnet0", false);
        vm.persist();
        ip(&format!("link set vnet0 master br0 txqueuelen {queue_segments} up"));
        ip("link add uplink type veth peer name wire");
        ip("link set uplink master br0 up");
        ip("link set wire up");
        let mut datapath = Datapath::open(&directory.path().join("evenkeel")).unwrap();
        let port = index("vnet0");
        datapath.attach(port, settings).unwrap();
        datapath.set_vcpus(port, vcpus(&[thread::asleep()])).unwrap();
        let host = intf::ek_host { version: intf::EK_INTF_VERSION, ..Default::default() };
        datapath.set_host(&host).unwrap();
        Self { datapath, port, wire: Tap::new(index("wire")), vm: Some(vm), acks: Vec::new(), directory }
    }

    fn send_to_vm(&mut self, segment: &Segment) -> i32 {
        self.datapath.trial("to_vm", self.port, 0, &segment.frame(), 1).unwrap().verdict
    }

    fn send_from_vm(&mut self, segment: &Segment) -> (i32, Vec<u8>) {
        if segment.flags == ACK && segment.payload == 0 {
            self.acks.retain(|ack| ack.destination != segment.destination);
            self.acks.push(segment.clone());
        }
        let outcome = self.datapath.trial("from_vm", self.port, 0, &segment.frame(), 1).unwrap();
        (outcome.verdict, outcome.frame)
    }

    fn count(&self, which: u32) -> u64 {
        self.datapath.counters(self.port).unwrap().value[which as usize]
    }

    fn early(&self) -> u64 {
        self.count(intf::EK_COUNT_VSNOOP_EARLY_ACKS)
    }

    fn snoop(&self) -> intf::ek_vsnoop_flow {
        let snoops = self.datapath.snoops().unwrap();
        assert_eq!(snoops.len(), 1);
        snoops[0].1
    }

    /// The handshake, and the first data, which the VM acknowledges itself.
    fn connect(&mut self, ends: &Ends) {
        let syn =
            Segment { seq: ISS, options: ends.handshake(), vlan: ends.vlan, ..Segment::new(ends.sender, ends.vm, SYN) };
        let answer = Segment {
            seq: VM_ISS,
            ack: ISS + 1,
            options: ends.handshake(),
            vlan: ends.vlan,
            ..Segment::new(ends.vm, ends.sender, SYN | ACK)
        };
        let before = self.early();
        assert_eq!(self.send_to_vm(&syn), NEXT);
        assert_eq!(self.send_from_vm(&answer).0, NEXT);
        assert_eq!(self.send_to_vm(&Segment { payload: 0, ..ends.data(0) }), NEXT);
        assert_eq!(self.send_to_vm(&ends.data(0)), NEXT);
        assert_eq!(self.early(), before, "the VM has acknowledged nothing yet");
        assert_eq!(self.send_from_vm(&ends.ack(BYTES)).0, NEXT);
    }

    /// Sends `segments` segments after the first; the last of them is the VM's to acknowledge.
    fn receive(&mut self, ends: &Ends, segments: u32) {
        assert_eq!(self.send_to_vm(&ends.data(BYTES)), NEXT);
        for i in 2..=segments {
            self.early_ack(&ends.data(i * BYTES));
        }
    }

    /// Sends data that must be acknowledged early, and returns the ACK as it leaves the host.
    fn early_ack(&mut self, data: &Segment) -> Vec<u8> {
        // The VM is known to live, however slow this machine is.
        let alive = self.acks.iter().find(|ack| ack.destination == data.source).unwrap().frame();
        self.datapath.trial("from_vm", self.port, 0, &alive, 1).unwrap();
        let before = self.early();
        assert_eq!(self.send_to_vm(data), NEXT);
        assert_eq!(self.early(), before + 1);
        let frames = self.wire.tcp(1);
        assert_eq!(frames.len(), 1, "no ACK left the host");
        assert_eq!(self.count(intf::EK_COUNT_VSNOOP_FAILED), 0);
        frames.into_iter().next().unwrap()
    }
}

/// The whole ACK, as it must be.
fn an_ack_is_what_the_vm_would_say(ends: Ends) {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&ends);
    assert_eq!(place.send_to_vm(&ends.data(BYTES)), NEXT);
    assert_eq!(place.early(), 0, "the last segment is the VM's to acknowledge");
    for i in 2..5 {
        let ack = place.early_ack(&ends.data(i * BYTES));
        let expected = Segment {
            seq: VM_ISS + 1,
            ack: ISS + 1 + i * BYTES,
            // The VM's last window less what it has not taken yet.
            window: (((500 << SCALE) - (i - 1) * BYTES) >> SCALE) as u16,
            // The VM's clock, and the data's.
            options: ends.options(31, 700),
            ..Segment::new(ends.vm, ends.sender, ACK)
        };
        assert_sound(&ack);
        let mut expected = expected.frame();
        if ack[14] == 0x45 {
            // IPv4's identification means nothing.
            let (given, wanted) = (&ack[18..20], [0, 0]);
            assert_eq!(given, wanted);
            expected[18..20].fill(0);
            expected[24..26].copy_from_slice(&ack[24..26]);
        }
        assert_eq!(ack, expected, "ACK {i}");
    }
    let snoop = place.snoop();
    assert_eq!((snoop.early_acks, snoop.flow.outstanding), (3, 4));
    assert_eq!(place.datapath.snoop_port(place.port).unwrap().vm.outstanding, 4);
}

#[test]
fn an_early_ack_over_ipv4() {
    an_ack_is_what_the_vm_would_say(V4);
}

#[test]
fn an_early_ack_over_ipv6() {
    an_ack_is_what_the_vm_would_say(Ends { sender: ("fd00::1", 40000), vm: ("fd00::2", 80), ..V4 });
}

#[test]
fn an_early_ack_without_timestamps() {
    an_ack_is_what_the_vm_would_say(Ends { has_timestamps: false, ..V4 });
}

#[test]
fn an_early_ack_in_a_vlan() {
    let ends = Ends { vlan: Some(42), ..V4 };
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&ends);
    // A packet socket shows the tag apart, and the rest as if there were none.
    place.receive(&ends, 1);
    let ack = place.early_ack(&ends.data(2 * BYTES));
    assert_sound(&ack);
    assert_eq!(ack.len(), 14 + 20 + 32);
}

#[test]
fn data_that_the_vm_did_not_offer_room_for_is_its_own() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    // As many segments as have memory for certain.
    place.receive(&V4, 14);
    place.send_to_vm(&V4.data(15 * BYTES));
    assert_eq!((place.early(), place.count(intf::EK_COUNT_VSNOOP_NO_BUFFER)), (13, 1));
    assert_eq!(u32::from(place.snoop().flow.state), intf::VSNOOP_NO_BUFFER);
    assert_eq!(u32::from(place.snoop().flow.doubt), intf::VSNOOP_DOUBT_MEMORY);
}

#[test]
fn a_vm_that_takes_its_window_back_is_promised_for_no_more() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    place.receive(&V4, 3);
    let narrow = Segment { window: 20, ..V4.ack(2 * BYTES) };
    assert_eq!(place.send_from_vm(&narrow), (NEXT, narrow.frame()));
    place.send_to_vm(&V4.data(4 * BYTES));
    assert_eq!((place.early(), place.count(intf::EK_COUNT_VSNOOP_BROKEN)), (2, 1));
    assert_eq!(place.datapath.snoop_port(place.port).unwrap().vm.doubt, intf::VSNOOP_DOUBT_TOOK_BACK);
}

/// A listener whose queue is full has answered the last ACK of a handshake by nothing, and answers a keepalive's octet
/// all the same: that is no sign that it takes data.
#[test]
fn an_octet_before_all_data_is_no_sign_that_the_vm_takes_data() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let syn = Segment { seq: ISS, options: V4.handshake(), ..Segment::new(V4.sender, V4.vm, SYN) };
    let answer =
        Segment { seq: VM_ISS, ack: ISS + 1, options: V4.handshake(), ..Segment::new(V4.vm, V4.sender, SYN | ACK) };
    place.send_to_vm(&syn);
    place.send_from_vm(&answer);
    place.send_to_vm(&Segment { payload: 0, ..V4.data(0) });
    place.send_to_vm(&Segment { seq: ISS, payload: 1, ..V4.data(0) });
    place.send_from_vm(&V4.ack(0));
    for i in 0..4 {
        place.send_to_vm(&V4.data(i * BYTES));
    }
    assert_eq!((place.early(), u32::from(place.snoop().flow.doubt)), (0, intf::VSNOOP_DOUBT_TTL));
    place.send_from_vm(&V4.ack(4 * BYTES));
    place.send_to_vm(&V4.data(4 * BYTES));
    place.early_ack(&V4.data(5 * BYTES));
}

/// The VM's TCP reads no data of a reset's. One whose number it only challenges must not count as what it has.
#[test]
fn what_a_reset_carries_is_not_expected_of_the_vm() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    place.receive(&V4, 3);
    place.send_from_vm(&V4.ack(4 * BYTES));
    let (next, early) = (place.snoop().flow.next, place.early());
    let reset = Segment { seq: next.wrapping_sub(1), flags: RST | ACK, ..V4.data(0) };
    assert_eq!(place.send_to_vm(&reset), NEXT);
    let flow = place.snoop().flow;
    assert_eq!((flow.next, u32::from(flow.doubt), place.early()), (next, intf::VSNOOP_DOUBT_HEADERS, early));
}

#[test]
fn the_budget_is_the_ports() {
    let mut place = Bed::with(&settings(intf::EK_MODE_ENFORCE, 12, 10), 100);
    place.connect(&V4);
    let other = Ends { sender: (A, 40001), ..V4 };
    place.connect(&other);
    for i in 1..5 {
        place.send_to_vm(&V4.data(i * BYTES));
        place.send_to_vm(&other.data(i * BYTES));
    }
    assert_eq!(place.early(), 4);
    // What the VM takes frees the budget.
    place.send_from_vm(&V4.ack(5 * BYTES));
    place.send_from_vm(&other.ack(5 * BYTES));
    assert_eq!(place.datapath.snoop_port(place.port).unwrap().vm.outstanding, 0);
    place.send_to_vm(&other.data(5 * BYTES));
    place.send_to_vm(&other.data(6 * BYTES));
    assert_eq!(place.early(), 5);
}

#[test]
fn a_vm_that_has_its_core_acknowledges_itself() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    place.receive(&V4, 3);
    let (asleep, early) = (thread::asleep(), place.early());
    let gone = std::thread::spawn(thread::own).join().unwrap();
    let mut next = 4;
    let mut receive = |place: &mut Bed, threads: &[u32]| {
        place.datapath.set_vcpus(place.port, vcpus(threads)).unwrap();
        place.send_to_vm(&V4.data(next * BYTES));
        place.send_to_vm(&V4.data((next + 1) * BYTES));
        next += 2;
        place.send_from_vm(&V4.ack(next * BYTES));
    };
    // The program runs in this thread, and nothing of this process is thread 1.
    for (threads, doubt) in [
        (&[asleep, thread::own()][..], intf::VSNOOP_DOUBT_RUNS),
        (&[], intf::VSNOOP_DOUBT_CORE),
        (&[asleep, gone], intf::VSNOOP_DOUBT_CORE),
        (&[1], intf::VSNOOP_DOUBT_CORE),
    ] {
        receive(&mut place, threads);
        assert_eq!((place.early(), u32::from(place.snoop().flow.doubt)), (early, doubt), "{threads:?}");
    }
    assert_eq!(place.count(intf::EK_COUNT_VSNOOP_RUNNING), 8);
    receive(&mut place, &[asleep]);
    assert!(place.early() > early);
}

#[test]
fn data_after_a_gap_is_the_vms_until_it_has_caught_up() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    place.send_to_vm(&V4.data(2 * BYTES));
    place.send_to_vm(&V4.data(BYTES));
    assert_eq!((place.early(), place.count(intf::EK_COUNT_VSNOOP_UNEXPECTED_SEQUENCE)), (0, 1));
    // A duplicate ACK tells of it.
    assert_eq!(place.send_from_vm(&V4.ack(BYTES)).0, NEXT);
    assert_eq!(place.send_from_vm(&V4.ack(3 * BYTES)).0, NEXT);
    place.send_to_vm(&V4.data(3 * BYTES));
    place.early_ack(&V4.data(4 * BYTES));
}

#[test]
fn acks_without_news_are_dropped_and_others_pass() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    place.receive(&V4, 4);
    let edge = |segments: u32| (((500 << SCALE) - segments * BYTES) >> SCALE) as u16;
    let old = Segment { window: edge(1), ..V4.ack(2 * BYTES) };
    let same = Segment { window: edge(3), ..V4.ack(4 * BYTES) };
    let before = place.count(intf::EK_COUNT_VSNOOP_DROPPED);
    for nothing in [&old, &same] {
        assert_eq!(place.send_from_vm(nothing).0, DROP);
    }
    assert_eq!(place.count(intf::EK_COUNT_VSNOOP_DROPPED), before + 2);
    // A DSACK: a segment came twice (RFC 2883).
    let mut sack = TIMESTAMPS.to_vec();
    sack.extend([1, 1, 5, 10, 0, 0, 3, 0xe9, 0, 0, 4, 0]);
    for news in [
        Segment { options: sack, ..old.clone() },
        Segment { flags: ACK | ECE, ..old.clone() },
        Segment { seq: VM_ISS, ..old.clone() },
        V4.ack(4 * BYTES),
        V4.ack(5 * BYTES),
    ] {
        let frame = news.frame();
        assert_eq!(place.send_from_vm(&news), (NEXT, frame), "{news:?}");
    }
}

#[test]
fn data_of_the_vm_takes_the_told_number_along() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    place.receive(&V4, 4);
    let own = Segment { payload: 100, ..V4.ack(2 * BYTES) };
    let window = ((500u32 << SCALE) - 2 * BYTES) >> SCALE;
    // With the data's timestamp, or the other end's round trip would include the VM's time off its core.
    let carries =
        Segment { ack: ISS + 1 + 4 * BYTES, window: window as u16, options: V4.options(31, 700), ..own.clone() }
            .frame();
    let (verdict, frame) = place.send_from_vm(&own);
    assert_sound(&frame);
    assert_eq!((verdict, frame), (NEXT, carries));
    assert_eq!((place.count(intf::EK_COUNT_VSNOOP_ON_DATA), place.snoop().rode), (1, 1));
    // The next early ACK is numbered behind that data, unless this is beyond what the other end takes.
    let ack = place.early_ack(&V4.data(5 * BYTES));
    assert_eq!(ack[38..42], (VM_ISS + 1 + 100).to_be_bytes());
    let ack = place.early_ack(&Segment { window: 0, ..V4.data(6 * BYTES) });
    assert_eq!(ack[38..42], (VM_ISS + 1).to_be_bytes());
}

#[test]
fn what_was_held_takes_the_early_ack_along_which_then_does_not_go_alone() {
    for ends in [V4, Ends { sender: ("fd00::1", 40000), vm: ("fd00::2", 80), has_timestamps: false, ..V4 }] {
        std::thread::spawn(move || early_acks_ride_on_what_was_held(ends)).join().unwrap();
    }
}

fn patch(map: &MapHandle, key: &[u8], changes: &[(usize, &[u8])]) {
    let mut value = map.lookup(key, MapFlags::ANY).unwrap().unwrap();
    for (offset, bytes) in changes {
        value[*offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    map.update(key, &value, MapFlags::ANY).unwrap();
}

/// Makes the only connection one that vFlood manages, whose queue has let out the first 100 bytes `times` times, and
/// `acks` ACKs, none of which have come back. Their timestamp is that of [`Ends::ack`], or 0.
fn let_out(place: &Bed, times: usize, acks: u64, ts_val: u32) {
    let map = |name| MapHandle::from_pinned_path(place.directory.path().join("evenkeel").join(name)).unwrap();
    let (flows, managed, ports) = (map("flows"), map("vflood_flows"), map("ports"));
    if nix::net::if_::if_nametoindex("holds").is_err() {
        ip("link add holds type bridge");
    }
    let hold = index("holds").to_ne_bytes();
    let port = offset_of!(intf::ek_port, vflood) + offset_of!(intf::ek_vflood_settings, hold_ifindex);
    patch(&ports, &place.port.to_ne_bytes(), &[(port, &hold)]);
    let key = flows.keys().next().unwrap();
    patch(&flows, &key, &[(offset_of!(intf::ek_flow, vflood_owner), &7u32.to_ne_bytes())]);
    let flow = offset_of!(intf::ek_vflood_flow, flow);
    let returns = offset_of!(intf::ek_vflood_flow, returns);
    let end = (VM_ISS + 1001).to_ne_bytes();
    let range = u64::from(VM_ISS + 101) << 32 | u64::from(VM_ISS + 1);
    let ranges = range.to_ne_bytes().repeat(times);
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    let now_ms = (now.tv_sec() * 1000) as u32;
    patch(
        &managed,
        &0u32.to_ne_bytes(),
        &[
            (offset_of!(intf::ek_vflood_flow, owner), &7u64.to_ne_bytes()),
            (offset_of!(intf::ek_vflood_flow, hold_ifindex), &hold),
            (offset_of!(intf::ek_vflood_flow, is_enforced), &1u32.to_ne_bytes()),
            (flow + offset_of!(intf::vflood_flow, snd_nxt), &end),
            (flow + offset_of!(intf::vflood_flow, vm_end), &end),
            (returns + offset_of!(intf::vflood_returns, ranges), &ranges),
            (returns + offset_of!(intf::vflood_returns, ts_val), &ts_val.to_ne_bytes().repeat(times)),
            (returns + offset_of!(intf::vflood_returns, noted_ms), &now_ms.to_ne_bytes().repeat(times)),
            (returns + offset_of!(intf::vflood_returns, used), &(times as u32).to_ne_bytes()),
            (offset_of!(intf::ek_vflood_flow, back_acks), &acks.to_ne_bytes()),
        ],
    );
}

fn early_acks_ride_on_what_was_held(ends: Ends) {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&ends);
    place.receive(&ends, 4);
    let_out(&place, 2, 1, if ends.has_timestamps { VM_TS } else { 0 });
    let port = place.port;
    let mut run_frame = |frame: &[u8]| {
        let outcome = place.datapath.trial("from_vm", port, MARK, frame, 1).unwrap();
        assert_eq!(outcome.mark, MARK);
        (outcome.verdict, outcome.frame)
    };
    let held = Segment { payload: 100, ..ends.ack(BYTES) };
    // The copy that becomes the last early ACK, with the addresses of an answer.
    let mut newest = ends.data(4 * BYTES).frame();
    newest[..12].rotate_left(6);
    assert_eq!(run_frame(&newest).0, NEXT, "nothing has taken it along");
    // SACK blocks go with the number that they were made for, and nothing rides on a bare ACK.
    let mut sack = held.options.clone();
    sack.extend([1, 1, 5, 10, 0, 0, 0x20, 0, 0, 0, 0x30, 0]);
    for other in [Segment { options: sack, ..held.clone() }, Segment { payload: 0, ..held.clone() }] {
        let frame = other.frame();
        assert_eq!(run_frame(&frame), (NEXT, frame));
    }
    assert_eq!(run_frame(&newest).0, NEXT, "still nothing");
    let window = ((500u32 << SCALE) - 3 * BYTES) >> SCALE;
    let carries =
        Segment { ack: ISS + 1 + 4 * BYTES, window: window as u16, options: ends.options(31, 700), ..held.clone() };
    let (verdict, frame) = run_frame(&held.frame());
    assert_sound(&frame);
    assert_eq!((verdict, frame), (NEXT, carries.frame()));
    assert_eq!(run_frame(&newest).0, DROP, "it has gone");
    assert_eq!(place.count(intf::EK_COUNT_VSNOOP_ON_DATA), 1);
    // A sender that sends again may not have got it.
    let ack = place.early_ack(&ends.data(2 * BYTES));
    let l4 = ends.data(0).l4();
    assert_eq!(ack[l4 + 8..l4 + 12], (ISS + 1 + 4 * BYTES).to_be_bytes());
    // What is new goes out as ever.
    place.early_ack(&ends.data(5 * BYTES));
}

/// An early ACK has the timestamp of the VM's last ACK. What vFlood lets out later must not be older.
#[test]
fn what_vsnoop_keeps_back_is_known_to_vflood() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    place.receive(&V4, 4);
    let_out(&place, 1, 0, VM_TS);
    let newer = Segment { options: V4.options(VM_TS + 50, 650), ..V4.ack(2 * BYTES) };
    assert_eq!(place.send_from_vm(&newer).0, DROP, "it says nothing new");
    let last = |place: &Bed| place.datapath.vflood(&place.datapath.flows().unwrap()[0].1).unwrap().unwrap().last;
    let known = last(&place);
    assert_eq!((known.ack, known.ts_val, known.ts_ecr), (ISS + 1 + 2 * BYTES, VM_TS + 50, 650));
    // An early ACK has ridden on data of the VM's: its own is older, and its timestamp the newest.
    let ridden = intf::ek_vflood_last { ack: ISS + 1 + 4 * BYTES, window: 400, ..known };
    let map = MapHandle::from_pinned_path(place.directory.path().join("evenkeel/vflood_flows")).unwrap();
    let bytes = [&ridden.ack.to_ne_bytes()[..], &[0; 8], &ridden.window.to_ne_bytes()].concat();
    let at = offset_of!(intf::ek_vflood_flow, last);
    patch(&map, &0u32.to_ne_bytes(), &[(at, &bytes[..4]), (at + 12, &bytes[12..])]);
    assert_eq!(last(&place), ridden);
    let later = Segment { options: V4.options(VM_TS + 90, 690), ..V4.ack(2 * BYTES) };
    assert_eq!(place.send_from_vm(&later).0, DROP, "it says nothing new");
    assert_eq!(last(&place), intf::ek_vflood_last { ts_val: VM_TS + 90, ..ridden });
}

/// The VM's TCP drops data that is older than what came before it, with data or without (PAWS, RFC 7323 §5).
#[test]
fn data_that_is_older_than_an_ack_is_the_vms() {
    let bare = |ts_val, offset| Segment { payload: 0, options: V4.options(ts_val, 30), ..V4.data(offset) };
    let cases = [
        (bare(701, 2 * BYTES), false),
        (bare(699, 2 * BYTES), true),
        (bare(701, 9 * BYTES), true),
        // The VM has acknowledged all before BYTES.
        (bare(701, BYTES), false),
        (bare(701, BYTES - 1), true),
        (bare(700 + (1 << 30), 0u32.wrapping_sub(1 << 20)), true),
        // Its TCP finds a timestamp wherever it stands.
        (Segment { options: [&V4.options(701, 30)[2..], &[1, 1]].concat(), ..bare(701, BYTES) }, false),
        // It reads no segment without this flag.
        (Segment { flags: 0, ..bare(701, 2 * BYTES) }, true),
    ];
    for (other, is_early) in cases {
        let mut place = Bed::new(intf::EK_MODE_ENFORCE);
        place.connect(&V4);
        place.receive(&V4, 1);
        assert_eq!(place.send_to_vm(&other), NEXT);
        let before = place.early();
        assert_eq!(place.send_to_vm(&V4.data(2 * BYTES)), NEXT);
        assert_eq!(place.early() - before, u64::from(is_early), "{other:?}");
    }
    // An ACK whose checksum is wrong tells nothing.
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    place.receive(&V4, 1);
    let mut spoilt = bare(701, 2 * BYTES).frame();
    *spoilt.last_mut().unwrap() ^= 1;
    place.datapath.trial("to_vm", place.port, 0, &spoilt, 1).unwrap();
    place.early_ack(&V4.data(2 * BYTES));
    // One with options of IP's has sums that are not judged here.
    place.datapath.trial("to_vm", place.port, 0, &with_ip_options(&bare(701, 3 * BYTES)), 1).unwrap();
    let before = place.early();
    place.send_to_vm(&V4.data(3 * BYTES));
    assert_eq!(place.early(), before);
}

/// Data that is left to the VM is taken by it, with its timestamp: what is older then, it drops.
#[test]
fn data_that_is_older_than_doubtful_data_is_the_vms() {
    let elsewhere = |ts_val| [&V4.options(ts_val, 30)[2..], &[1, 1]].concat();
    for (name, doubtful, ttl, ts_is_newer) in [
        ("a lower TTL", [V4.options(700, 30), V4.options(701, 30)], 63, true),
        ("a lower TTL, and no newer timestamp", [V4.options(700, 30), V4.options(700, 30)], 63, false),
        ("its timestamp stands elsewhere", [elsewhere(700), elsewhere(701)], 64, true),
    ] {
        let mut place = Bed::new(intf::EK_MODE_ENFORCE);
        place.connect(&V4);
        place.receive(&V4, 1);
        place.send_from_vm(&V4.ack(2 * BYTES));
        // The VM may have acknowledged the first before it has the second.
        for (i, options) in (2..).zip(doubtful) {
            let mut frame = Segment { options, ..V4.data(i * BYTES) }.frame();
            frame[22] = ttl;
            set_ecn(&mut frame, 0);
            place.datapath.trial("to_vm", place.port, 0, &frame, 1).unwrap();
        }
        assert_ne!(place.snoop().flow.doubt, 0, "{name}");
        place.send_from_vm(&V4.ack(4 * BYTES));
        let before = place.early();
        place.send_to_vm(&V4.data(4 * BYTES));
        place.send_from_vm(&V4.ack(4 * BYTES));
        place.send_to_vm(&V4.data(5 * BYTES));
        assert_eq!(place.early() == before, ts_is_newer, "{name}");
    }
}

/// One packet that somebody makes up, without having seen any of the connection's.
#[test]
fn what_is_off_the_window_is_no_reason_for_anything() {
    let edge = 500 << SCALE;
    for offset in [edge + BYTES + 1, 1 << 20, 1 << 31, 0u32.wrapping_sub(10_000), 0u32.wrapping_sub(1 << 20)] {
        for forged in [
            V4.data(offset),
            Segment { flags: ACK | FIN, payload: 0, ..V4.data(offset) },
            Segment { flags: ACK | FIN, ..V4.data(offset) },
            Segment { payload: 0, options: V4.options(700 + (1 << 30), 30), ..V4.data(offset) },
            Segment { flags: RST, payload: 0, ..V4.data(offset) },
        ] {
            let mut place = Bed::new(intf::EK_MODE_ENFORCE);
            place.connect(&V4);
            place.receive(&V4, 1);
            assert_eq!(place.send_to_vm(&forged), NEXT);
            let answer = V4.ack(BYTES);
            assert_eq!(place.send_from_vm(&answer).0, NEXT, "the VM answers: {forged:?}");
            place.early_ack(&V4.data(2 * BYTES));
        }
    }
}

/// A held packet goes by the port twice, and no more often: once the queue has let it out, it passes.
#[test]
fn what_was_held_passes_as_often_as_it_was_let_out() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    let_out(&place, 1, 0, VM_TS);
    let own = Segment { payload: 100, ..V4.ack(2 * BYTES) };
    let before = place.count(intf::EK_COUNT_PACKETS_FROM_VM);
    let has = |place: &Bed| place.datapath.flows().unwrap()[0].1.vm_ack;
    assert_eq!(place.send_from_vm(&own), (NEXT, own.frame()));
    assert_eq!(place.count(intf::EK_COUNT_PACKETS_FROM_VM), before, "it was counted when it came");
    assert_eq!(has(&place), ISS + 1 + BYTES, "its number may be an early ACK's");
    assert_eq!(place.send_from_vm(&own).0, REDIRECT, "the VM sends it again");
    assert_eq!(has(&place), ISS + 1 + 2 * BYTES);
    // Nothing else passes, however often the queue has let out.
    let_out(&place, 16, 0, VM_TS);
    for offset in [1, 50, 100, 1001] {
        assert_eq!(place.send_from_vm(&Segment { seq: VM_ISS + 1 + offset, ..own.clone() }).0, REDIRECT, "{offset}");
    }
    // The VM sends it again while it is on its way.
    let later = Segment { options: V4.options(VM_TS + 1, 600), ..own.clone() };
    assert_eq!(place.send_from_vm(&later).0, REDIRECT);
    assert_eq!(place.send_from_vm(&own).0, NEXT);
}

#[test]
fn a_keepalive_is_answered_by_the_vm() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    let answer = V4.ack(BYTES);
    assert_eq!(place.send_from_vm(&answer).0, DROP);
    let keepalive = Segment { payload: 0, seq: V4.data(BYTES).seq - 1, ..V4.data(BYTES) };
    for question in [keepalive, Segment { flags: SYN, ..V4.data(BYTES) }] {
        assert_eq!(place.send_to_vm(&question), NEXT);
        assert_eq!(place.send_from_vm(&answer).0, NEXT);
        assert_eq!(place.send_from_vm(&answer).0, DROP);
    }
    assert_eq!(place.early(), 0);
}

#[test]
fn data_that_comes_again_is_acknowledged_with_the_told_number() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    place.receive(&V4, 4);
    let ack = place.early_ack(&V4.data(BYTES));
    assert_eq!(ack[42..46], (ISS + 1 + 4 * BYTES).to_be_bytes());
    // Not data that is the VM's to acknowledge, or that it has acknowledged.
    let early = place.early();
    place.send_to_vm(&V4.data(4 * BYTES));
    place.send_from_vm(&V4.ack(5 * BYTES));
    place.send_to_vm(&V4.data(2 * BYTES));
    assert_eq!(place.early(), early);
}

#[test]
fn a_fin_ends_it_and_closed_connections_leave_the_table() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    place.receive(&V4, 2);
    place.send_to_vm(&Segment { flags: ACK | FIN, ..V4.data(3 * BYTES) });
    assert_eq!(place.early(), 1, "the FIN is the VM's to acknowledge");
    place.send_from_vm(&Segment { flags: ACK | FIN, ack: ISS + 2 + 4 * BYTES, ..V4.ack(0) });
    place.send_to_vm(&Segment { payload: 0, seq: ISS + 2 + 4 * BYTES, ack: VM_ISS + 2, ..V4.data(0) });
    assert!(place.datapath.snoops().unwrap().is_empty());
    assert_eq!(place.datapath.snoop_port(place.port).unwrap().vm.outstanding, 0);
    place.connect(&V4);
    place.receive(&V4, 2);
    place.send_from_vm(&Segment { flags: RST | ACK, ..V4.ack(0) });
    assert!(place.datapath.snoops().unwrap().is_empty());
    assert_eq!(place.datapath.snoop_port(place.port).unwrap().vm.outstanding, 0);
}

/// Whether the ring has a place, or why not, and how many ACKs were early.
fn place_for(prepare: impl FnOnce(&mut Bed) + Send + 'static) -> (u32, u64) {
    // A thread of its own for each: a namespace of its own.
    let case = move || {
        let mut place = Bed::new(intf::EK_MODE_ENFORCE);
        place.connect(&V4);
        place.send_to_vm(&V4.data(BYTES));
        while place.vm.as_ref().unwrap().take().is_some() {}
        prepare(&mut place);
        place.send_to_vm(&V4.data(2 * BYTES));
        (place.datapath.snoop_port(place.port).unwrap().ring, place.early())
    };
    std::thread::spawn(case).join().unwrap()
}

/// Packets that nobody takes out.
fn fill(packets: u32) -> impl FnOnce(&mut Bed) + Send + 'static {
    move |place| {
        let wire = Tap::new(place.port);
        for _ in 0..packets {
            wire.send(&[0xff; 60]);
        }
    }
}

fn run(command: &'static str) -> impl FnOnce(&mut Bed) + Send + 'static {
    move |_| {
        let output = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Closes the tap and waits: a program that another thread starts has it open, too, until it runs.
fn detach(place: &mut Bed) {
    place.vm = None;
    while ip("link show vnet0").contains("LOWER_UP") {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn only_what_the_queue_takes_for_certain_is_acknowledged() {
    assert_eq!(place_for(|_| ()), (intf::EK_VSNOOP_RING_FREE, 1));
    // Of 100 places 10 are reserved and one is the packet's.
    assert_eq!(place_for(fill(89)), (intf::EK_VSNOOP_RING_FREE, 1));
    assert_eq!(place_for(fill(90)), (intf::EK_VSNOOP_RING_FULL, 0));
    assert_eq!(place_for(fill(99)), (intf::EK_VSNOOP_RING_FULL, 0));
    assert_eq!(place_for(fill(100)), (intf::EK_VSNOOP_RING_FULL, 0));
    assert_eq!(place_for(fill(200)), (intf::EK_VSNOOP_RING_FULL, 0));
    assert_eq!(place_for(detach), (intf::EK_VSNOOP_RING_DETACHED, 0));
    assert_eq!(place_for(run("tc qdisc replace dev vnet0 root pfifo limit 10")), (intf::EK_VSNOOP_RING_FREE, 1));
    let shaper = "tc qdisc replace dev vnet0 root tbf rate 1mbit burst 10kb limit 100kb";
    assert_eq!(place_for(run(shaper)), (intf::EK_VSNOOP_RING_QDISC, 0));
}

#[test]
fn places_are_free_again_when_the_vm_takes_packets() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    for round in 0..7 {
        fill(95)(&mut place);
        place.send_to_vm(&V4.data((1 + 3 * round) * BYTES));
        assert_eq!(place.datapath.snoop_port(place.port).unwrap().ring, intf::EK_VSNOOP_RING_FULL, "round {round}");
        while place.vm.as_ref().unwrap().take().is_some() {}
        place.send_from_vm(&V4.ack((2 + 3 * round) * BYTES));
        place.send_to_vm(&V4.data((2 + 3 * round) * BYTES));
        place.early_ack(&V4.data((3 + 3 * round) * BYTES));
        place.send_from_vm(&V4.ack((4 + 3 * round) * BYTES));
    }
}

#[test]
fn observing_counts_and_changes_nothing() {
    let mut place = Bed::new(intf::EK_MODE_OBSERVE);
    place.connect(&V4);
    place.send_to_vm(&V4.data(BYTES));
    place.send_to_vm(&V4.data(2 * BYTES));
    let own = V4.ack(BYTES);
    assert_eq!(place.send_from_vm(&own), (NEXT, own.frame()));
    assert_eq!((place.early(), place.count(intf::EK_COUNT_VSNOOP_DROPPED)), (1, 1));
    let data = Segment { payload: 10, ..V4.ack(BYTES) };
    assert_eq!(place.send_from_vm(&data), (NEXT, data.frame()));
    assert!(place.wire.tcp(1).is_empty());
}

#[test]
fn turned_off_it_forgets_and_idle_connections_are_forgotten() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    place.connect(&V4);
    place.receive(&V4, 2);
    assert_eq!(place.datapath.sweep_snoops(std::time::Duration::from_secs(3600)).unwrap(), 1);
    assert_eq!(place.snoop().flow.outstanding, 2);
    assert_eq!(place.datapath.sweep_snoops(std::time::Duration::ZERO).unwrap(), 0);
    assert!(place.datapath.snoops().unwrap().is_empty());
    assert_eq!(place.datapath.snoop_port(place.port).unwrap().vm.outstanding, 0);
    // Another connection, and the mode goes off and on while it is there.
    let other = Ends { sender: (A, 40001), ..V4 };
    place.connect(&other);
    place.receive(&other, 2);
    for mode in [intf::EK_MODE_OFF, intf::EK_MODE_ENFORCE] {
        place.datapath.attach(place.port, &settings(mode, 50, 10)).unwrap();
        place.send_to_vm(&other.data(3 * BYTES));
        assert_eq!(place.early(), 2);
        assert!(place.datapath.snoops().unwrap().is_empty());
    }
    assert_eq!(place.datapath.snoop_port(place.port).unwrap().vm.outstanding, 0);
}

/// Random and mutated packets, both ways: what cannot be read passes unchanged, and the port's total stays a number of
/// segments.
#[test]
fn packets_of_noise_through_vsnoop() {
    const SEED: u64 = 2;
    let packets = noise::count(100_000);
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let v6 = Ends { sender: ("fd00::1", 40000), vm: ("fd00::2", 80), ..V4 };
    let mut seeds = Vec::new();
    for ends in [V4, v6] {
        place.connect(&ends);
        place.receive(&ends, 4);
        seeds.extend((0..4).map(|i| ends.data(i * BYTES).frame()));
        seeds.extend((0..4).map(|i| ends.ack(i * BYTES).frame()));
        seeds.push(Segment { payload: 30, ..ends.ack(BYTES) }.frame());
    }
    let mut random = Random::new(SEED);
    let (mut unreadable, mut acks) = (0, 0);
    for i in 0..packets {
        // BPF_PROG_TEST_RUN takes no shorter frames that claim to be IPv6.
        let frame = noise::packet(&seeds, 54, &mut random);
        // Data that comes from the VM is taken for the copy that becomes an early ACK.
        let name = if i % 8 < 5 { "from_vm" } else { "to_vm" };
        let outcome = place.datapath.trial(name, place.port, MARK, &frame, 1).unwrap();
        assert!([NEXT, DROP].contains(&outcome.verdict), "packet {i} of seed {SEED}: {frame:02x?}");
        if !matches!(packet::parse(&frame), Kind::Tcp(..)) {
            unreadable += 1;
            assert_eq!((outcome.verdict, &outcome.frame), (NEXT, &frame), "packet {i} of seed {SEED}");
        }
        if outcome.verdict == NEXT && outcome.frame.len() != frame.len() {
            assert_sound(&outcome.frame);
            acks += 1;
        }
        if i % 1000 == 0 {
            // Somebody takes them, and connections that were reset begin anew, in the same way.
            while place.vm.as_ref().unwrap().take().is_some() {}
            place.datapath.sweep_snoops(std::time::Duration::ZERO).unwrap();
            assert_eq!(place.datapath.snoop_port(place.port).unwrap().vm.outstanding, 0, "packet {i} of seed {SEED}");
            // Noise has shown many MACs, a doubt about the VM that would stay.
            let ports = MapHandle::from_pinned_path(place.directory.path().join("evenkeel/vsnoop_ports")).unwrap();
            let slot = 0u32.to_ne_bytes();
            patch(&ports, &slot, &[(offset_of!(intf::ek_vsnoop_port, vm), &[0; size_of::<intf::vsnoop_vm>()])]);
            for ends in [V4, v6] {
                // Noise may have had FINs of both ends: the handshake's last ACK would end such a connection.
                place.send_from_vm(&Segment { flags: RST, ..ends.ack(0) });
                place.connect(&ends);
                place.receive(&ends, 4);
            }
        }
    }
    assert!(unreadable > packets / 20, "{unreadable}");
    assert!(place.early() > 0 && acks > 0, "nothing was acknowledged early");
    println!("{packets} packets, {unreadable} unreadable, {} acknowledged early", place.early());
}
