//! vFlood's queue, on kernels that have qdiscs in BPF: in a guest of its own, with namespaces for VMs. What a VM floods
//! leaves as a standard TCP sender sends it, and all of it arrives, whatever happens to the agent meanwhile.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_lab::host::vm::{Channel, Vm as Machine};
use evenkeel_lab::interrupt::Interrupt;
use evenkeel_lab::prepare::{self, KernelSeries};
use evenkeel_settings::address::PORT_NAME;
use serde_json::Value;
use tempfile::TempDir;

use crate::bed::{Host, LIMIT, wait_until};
use crate::others::boot_with;

const BED: &str = include_str!("hold.sh");
/// What a segment carries, with timestamps.
const MSS_BYTES: u64 = 1448;
/// RFC 6928
const INITIAL_WINDOW_SEGMENTS: u64 = 10;
/// Segments allowed beyond a window: RFC 3042 and what was on its way between host and capture.
const MORE_SEGMENTS: u64 = 3;

pub fn configure(machine: &Machine, mode: &str, more: &str) {
    let text = format!(
        "ports = [\"vp*\"]\nport_queue_segments = 0\n[proboscis]\nmode = \"off\"\n[vflood]\nmode = \"{mode}\"\n\
         {more}\n[metrics]\nenabled = false"
    );
    machine.shell(&format!("cat >/tmp/host.toml <<'END'\n{text}\nEND")).unwrap();
}

/// Starts the agent, and waits for it: the verifier takes its time on a busy machine, and a call ends after a minute.
pub fn start(machine: &Machine) {
    machine
        .shell("setsid evenkeel host --config /tmp/host.toml >/tmp/host.log 2>&1 </dev/null & echo $! >/tmp/agent.pid")
        .unwrap();
    let end = Instant::now() + 5 * LIMIT;
    while machine.shell("evenkeel status --json 2>/dev/null | grep vp0 || true").unwrap().is_empty() {
        assert!(Instant::now() < end, "no agent: {}", machine.shell("cat /tmp/host.log").unwrap());
        std::thread::sleep(Duration::from_millis(500));
    }
}

pub fn status(machine: &Machine) -> Value {
    serde_json::from_str(&machine.shell("evenkeel status --json").unwrap()).unwrap()
}

pub fn count(machine: &Machine, name: &str) -> u64 {
    status(machine)["counters"][name].as_u64().unwrap_or_else(|| panic!("no counter {name}"))
}

/// The host's end of the guest's channel: a socket in the guest's directory.
pub const CHANNEL: &str = "channel";

/// A guest of two processors with a VM in it, whose agent has vFlood on.
pub fn bed(series: KernelSeries, interrupt: &Interrupt) -> (Host, TempDir, Machine) {
    let binary = Path::new(env!("CARGO_BIN_EXE_evenkeel"));
    let images = prepare::prepare(&[series], binary, &|line| println!("{line}")).unwrap();
    let host = Host::new();
    let directory = tempfile::tempdir().unwrap();
    let channel = Channel { name: PORT_NAME.into(), socket: directory.path().join(CHANNEL), listens: true };
    let machine = boot_with(&images[0], "hold", 40, 2, vec![channel], directory.path(), interrupt);
    machine.shell(BED).unwrap();
    // As in a VM, packets leave their sockets' accounts at the device, or sockets would wait for what the host holds.
    machine.shell("tc -n vm qdisc add dev eth1 root netem delay 10us limit 10000").unwrap();
    // The other end captures segments, as a wire has them, however many leave the host in one packet.
    machine.shell("ethtool -K up0 tso off gso off").unwrap();
    configure(&machine, "enforce", "");
    start(&machine);
    (host, directory, machine)
}

/// The other end fetches from the VM and compares; `meanwhile` happens while it does.
pub fn fetch(machine: &Machine, meanwhile: &str) {
    fetch_from(machine, "10.8.0.1", "data", meanwhile);
}

/// The same from this address of the VM's.
pub fn fetch_from(machine: &Machine, address: &str, file: &str, meanwhile: &str) {
    machine
        .shell(&format!(
            "rm -f /tmp/got; ip netns exec peer wget -q -T 50 -O /tmp/got http://{address}:8001/{file} & pid=$!; \
             sleep 0.3; {meanwhile}; wait $pid; cmp /tmp/got /tmp/{file}"
        ))
        .unwrap();
}

/// What the other end sees while it fetches.
fn captured(machine: &Machine) -> String {
    captured_with(machine, "data", "true")
}

/// The same of this file; `meanwhile` happens while it does.
fn captured_with(machine: &Machine, file: &str, meanwhile: &str) -> String {
    machine
        .shell(
            "ip netns exec peer tcpdump -s 96 -B 16384 -U -ni eth1 -w /tmp/cap 'tcp port 8001' 2>/dev/null & \
             echo $! >/tmp/tcpdump.pid; sleep 2",
        )
        .unwrap();
    fetch_from(machine, "10.8.0.1", file, meanwhile);
    let capture = machine.shell("sleep 1; kill $(cat /tmp/tcpdump.pid); tcpdump -nr /tmp/cap 2>/dev/null").unwrap();
    assert_none_is_too_old(&capture);
    capture
}

/// The other end drops new data with an older timestamp than that of what it last took in order (PAWS, RFC 7323 §5.3).
fn assert_none_is_too_old(capture: &str) {
    let (mut rcv_nxt, mut ts_recent, mut beyond) = (1, 0, BTreeMap::new());
    for line in capture.lines().filter(|line| line.contains("8001 > ")) {
        let word =
            |name: &str| line.split_once(name).map(|(_, rest)| rest.split([',', ' ']).next().unwrap_or_default());
        let (Some(range), Some(timestamp)) = (word("seq "), word("TS val ")) else { continue };
        let Some((start, end)) = range.split_once(':') else { continue };
        let (start, end): (u64, u64) = (start.parse().unwrap(), end.parse().unwrap());
        let timestamp: u32 = timestamp.parse().unwrap();
        assert!(timestamp >= ts_recent || end <= rcv_nxt, "older than {ts_recent}: {line}\n{capture}");
        if start <= rcv_nxt && end > rcv_nxt {
            ts_recent = timestamp;
        }
        beyond.insert(start, end);
        while let Some(first) = beyond.first_entry().filter(|first| *first.key() <= rcv_nxt) {
            rcv_nxt = rcv_nxt.max(first.remove());
        }
    }
}

/// What a line of tcpdump's says of a connection to port 8001.
enum Line {
    Data {
        end: u64,
        bytes: u64,
    },
    /// `is_gap`: it tells of data beyond a gap, and not of data that came twice (RFC 2883).
    Ack {
        ack: u64,
        is_gap: bool,
    },
}

/// Whether SACK blocks beside this acknowledgement tell of a gap. The first may tell of data that came twice: that is
/// acknowledged, or within the second.
fn is_gap(ack: u64, blocks: &[Range<u64>]) -> bool {
    let Some(first) = blocks.first() else { return false };
    let is_within = blocks.get(1).is_some_and(|second| first.start >= second.start && first.end <= second.end);
    first.end > ack && !is_within
}

fn lines(capture: &str) -> impl Iterator<Item = Line> {
    capture.lines().filter_map(|line| {
        let word =
            |name: &str| line.split_once(name).map(|(_, rest)| rest.split([',', ' ']).next().unwrap_or_default());
        if line.contains("8001 > ") {
            let (_, end) = word("seq ")?.split_once(':')?;
            Some(Line::Data { end: end.parse().unwrap(), bytes: word("length ").unwrap().parse().unwrap() })
        } else {
            let ack = word("ack ")?.parse().unwrap();
            let blocks = line.split_once("sack ").map_or("", |(_, rest)| rest).split('{').skip(1).map(|block| {
                let (start, end) = block.split_once('}').unwrap().0.split_once(':').unwrap();
                start.parse().unwrap()..end.parse().unwrap()
            });
            Some(Line::Ack { ack, is_gap: is_gap(ack, &blocks.collect::<Vec<_>>()) })
        }
    })
}

/// Segments that come for the first time behind later ones.
fn out_of_order(capture: &str) -> usize {
    let (mut highest, mut seen) = (0, HashSet::new());
    lines(capture)
        .filter(|line| {
            let Line::Data { end, .. } = line else { return false };
            let is_late = *end < highest && !seen.contains(end);
            highest = highest.max(*end);
            seen.insert(*end);
            is_late
        })
        .count()
}

/// Checks slow start at the other end: beyond what is acknowledged there is never more than the initial window and a
/// segment for each acknowledged one, however short (as Linux counts; RFC 5681 §3.1 lets no ACK add more). Returns how
/// many segments came.
pub fn slow_start(capture: &str) -> u64 {
    let (mut acked, mut sent, mut ends) = (0, 0, Vec::new());
    for line in lines(capture) {
        match line {
            Line::Data { end, bytes } => {
                sent = sent.max(end);
                ends.push(end);
                let acked_segments = ends.iter().filter(|end| **end <= acked).count() as u64;
                let window = acked + (INITIAL_WINDOW_SEGMENTS + 1 + acked_segments) * MSS_BYTES;
                assert!(
                    sent <= window,
                    "{sent} bytes after {acked} in {acked_segments} segments were acknowledged:\n{capture}"
                );
                assert!(bytes <= MSS_BYTES, "{bytes} bytes in one packet:\n{capture}");
            }
            Line::Ack { ack, .. } => acked = acked.max(ack),
        }
    }
    ends.len() as u64
}

/// Checks halving on loss at the other end. No more is out than the largest window that a standard sender can have (RFC
/// 5681 §3.1): it grows from the initial one by each acknowledged segment, is halved when the guest has repaired what
/// duplicate ACKs told of, and grows by a segment in a round trip from then on. Returns how many losses showed it,
/// because more was out before them; a timeout ends the check.
fn halvings(capture: &str) -> u32 {
    let (mut acked, mut sent, mut short_segments, mut duplicates, mut told) = (0, 0, 0, 0, 0);
    let (mut window, mut most_out) = (INITIAL_WINDOW_SEGMENTS, 0);
    // Where a loss is repaired and a round trip over; whether this round trip had no loss yet; whether one shows
    // halving.
    let (mut recover, mut round_end, mut is_new_round, mut tells) = (None, 0, true, false);
    let mut is_slow_start = true;
    for line in lines(capture) {
        match line {
            Line::Ack { ack, .. } if ack > acked => {
                (acked, duplicates) = (ack, 0);
                if is_slow_start {
                    window = INITIAL_WINDOW_SEGMENTS + acked.div_ceil(MSS_BYTES) + short_segments;
                }
                if recover.is_some_and(|recover| acked >= recover) {
                    (recover, round_end) = (None, sent);
                    told += u32::from(tells);
                } else if recover.is_none() && acked >= round_end {
                    (is_new_round, round_end) = (true, sent);
                    window += u64::from(!is_slow_start);
                }
            }
            Line::Ack { ack, is_gap } => duplicates += u32::from(ack == acked && is_gap),
            Line::Data { end, bytes } => {
                let is_head_again = end - bytes == acked && end < sent;
                short_segments += u64::from(end > sent && bytes < MSS_BYTES);
                sent = sent.max(end);
                let out = sent.saturating_sub(acked).div_ceil(MSS_BYTES);
                if recover.is_none() && !is_head_again {
                    most_out = most_out.max(out);
                }
                if is_head_again && duplicates > 0 && recover.is_none() && is_new_round {
                    window = (window / 2).max(2);
                    tells = most_out > window + MORE_SEGMENTS;
                    (recover, is_new_round, is_slow_start, most_out) = (Some(sent), false, false, 0);
                } else if is_head_again && recover.is_none() {
                    // A timeout: it sets another window, and puts the old one back if nothing was lost (RFC 5682).
                    return told;
                } else if !is_slow_start && recover.is_none() && duplicates == 0 {
                    let most = window + MORE_SEGMENTS;
                    assert!(out <= most, "{out} segments out after {acked}, a standard sender has {most}:\n{capture}");
                }
            }
        }
    }
    told
}

/// Segments about a timeout at the other end, if there was one.
struct Timeout {
    /// Segments out when the oldest data that the VM knows of came again without a duplicate ACK before it. The VM gets
    /// few ACKs, so that data may have arrived.
    out: u64,
    /// The most segments out with new data behind that, until something beyond what was out then was acknowledged: one
    /// ACK may be for all of that.
    out_with_new: u64,
}

fn timeout(capture: &str) -> Option<Timeout> {
    let (mut acked, mut sent, mut has_duplicate) = (0, 0, false);
    let mut recover = None;
    let mut timeout = Timeout { out: 0, out_with_new: 0 };
    for line in lines(capture) {
        match line {
            Line::Ack { ack, .. } if ack > acked => {
                (acked, has_duplicate) = (ack, false);
                if recover.is_some_and(|recover| acked > recover) {
                    return Some(timeout);
                }
            }
            Line::Ack { ack, is_gap } => has_duplicate |= ack == acked && is_gap,
            Line::Data { end, bytes } => {
                let is_new = end > sent;
                sent = sent.max(end);
                let out = sent.saturating_sub(acked).div_ceil(MSS_BYTES);
                if recover.is_some() && is_new {
                    timeout.out_with_new = timeout.out_with_new.max(out);
                } else if recover.is_none() && !is_new && end - bytes <= acked && !has_duplicate {
                    (recover, timeout.out) = (Some(sent), out);
                }
            }
        }
    }
    None
}

#[test]
fn what_a_vm_floods_leaves_as_a_standard_sender_sends_and_all_of_it_arrives() {
    let interrupt = Interrupt::install().unwrap();
    let (_host, _directory, machine) = bed(KernelSeries::Newest, &interrupt);

    for offload in ["on", "off"] {
        machine.shell(&format!("ip netns exec vm ethtool -K eth1 tso {offload} gso {offload}")).unwrap();
        let segments = slow_start(&captured(&machine));
        assert!(segments >= 2_000_000 / MSS_BYTES, "{segments} segments");
    }
    let (held, split) = (count(&machine, "vflood_held"), count(&machine, "vflood_split"));
    assert!(held > 100 && split > 0, "{held} held, {split} split");
    leaves_whole(&machine);
    leaves_joined(&machine);

    for address in ["[fd00:8::1]", "10.7.0.1"] {
        for offload in ["on", "off"] {
            let before = count(&machine, "vflood_held");
            fetch_from(
                &machine,
                address,
                "data",
                &format!("ip netns exec vm ethtool -K eth1 tso {offload} gso {offload}"),
            );
            assert!(count(&machine, "vflood_held") > before + 100, "{address}, offload {offload}");
        }
    }
    outlives_the_vm(&machine);
    outlives_the_port(&machine);
    outlives_a_pause_of_the_receiver(&machine);

    // Reno's windows are simple sums.
    let reload = "kill -HUP $(cat /tmp/agent.pid)";
    configure(&machine, "enforce", "congestion_control = \"reno\"");
    fetch(&machine, reload);
    assert!(
        (0..5).any(|_| takes_back_a_loss_that_was_none(&machine)),
        "no timeout of the VM's that its host took for a loss"
    );
    // Not every transfer would show a changed order.
    for _ in 0..2 {
        keeps_order_after_a_timeout(&machine);
    }

    for (mode, more) in [
        ("enforce", "policy = \"none\""),
        ("enforce", "policy = \"priority\"\ncongestion_control = \"cubic\"\nbuffer_segments = 100"),
        ("observe", ""),
        ("enforce", "congestion_control = \"vegas\""),
        ("off", ""),
        ("enforce", "congestion_control = \"reno\""),
    ] {
        configure(&machine, mode, more);
        fetch(&machine, reload);
    }
    // Losses on the way: the guest repairs them, the host's window halves.
    machine.shell("tc qdisc add dev up0 root netem loss 0.5% limit 10000").unwrap();
    assert!((0..10).any(|_| halvings(&captured(&machine)) > 0), "no loss at a window that shows it");
    machine.shell("tc qdisc del dev up0 root").unwrap();
    assert!(count(&machine, "vflood_losses") > 0);

    fetch(&machine, "kill -9 $(cat /tmp/agent.pid)");
    start(&machine);
    // The agent that takes over holds, too.
    let before = count(&machine, "vflood_held");
    fetch(&machine, "true");
    assert!(count(&machine, "vflood_held") > before + 100, "{}", machine.shell("cat /tmp/host.log").unwrap());
    fetch(&machine, "evenkeel host --stop >/tmp/stopped");
    let left =
        machine.shell("ip -br link | grep ek || true; tc qdisc | grep evenkeel || true; ls /sys/fs/bpf").unwrap();
    assert_eq!(left.trim(), "", "left: {left}");
}

/// What fits the window goes past the devices that hold packets. Beyond it, packets of several segments leave as the VM
/// handed them over.
fn leaves_whole(machine: &Machine) {
    const BYTES: u64 = 4 * MSS_BYTES;
    let packets =
        || machine.shell("cat /sys/class/net/eks*/statistics/rx_packets").unwrap().trim().parse::<u64>().unwrap();
    machine
        .shell(&format!("head -c {BYTES} /tmp/data >/tmp/four; ip netns exec vm ethtool -K eth1 tso on gso on"))
        .unwrap();
    let mut before = packets();
    fetch_from(machine, "10.8.0.1", "four", "true");
    assert_eq!(packets() - before, 0, "packets of {BYTES} bytes, which the first window lets go");
    before = packets();
    fetch_from(machine, "10.8.0.1", "small", "true");
    let packets = packets() - before;
    assert!((1..200_000 / MSS_BYTES).contains(&packets), "{packets} packets of 200,000 bytes");
}

/// Segments that one ACK lets out leave the host in one packet, though the VM has handed them over one by one.
fn leaves_joined(machine: &Machine) {
    let packets =
        || machine.shell("cat /sys/class/net/up0/statistics/tx_packets").unwrap().trim().parse::<u64>().unwrap();
    machine.shell("ip netns exec vm ethtool -K eth1 tso off gso off; ethtool -K up0 tso on gso on").unwrap();
    let before = packets();
    fetch_from(machine, "10.8.0.1", "small", "true");
    let packets = packets() - before;
    machine.shell("ethtool -K up0 tso off gso off").unwrap();
    assert!(packets < 200_000 / MSS_BYTES * 3 / 4, "{packets} packets of 200,000 bytes");
}

/// The VM is gone once it has handed everything over; the other end gets it all.
fn outlives_the_vm(machine: &Machine) {
    let before = count(machine, "vflood_held");
    machine
        .shell(
            "ip -n peer neigh replace 10.8.0.1 lladdr $(ip netns exec vm cat /sys/class/net/eth1/address) dev eth1 nud \
             permanent; \
             tc -n peer qdisc change dev eth1 root netem delay 400ms limit 10000",
        )
        .unwrap();
    let handed_over = format!(
        "for i in $(seq 60); do \
             [ $(evenkeel status --json | grep -o 'vflood_held\": *[0-9]*' | grep -o '[0-9]*$' | sort -n | tail -n 1) \
             -ge {} ] && break; \
             sleep 0.05; \
         done; \
         ip -4 -n vm addr flush dev eth1",
        before + 100
    );
    fetch_from(machine, "10.8.0.1", "small", &handed_over);
    machine
        .shell(
            "ip -n vm addr add 10.8.0.1/24 dev eth1; sh -e /tmp/flood.sh; ip -n peer neigh del 10.8.0.1 dev eth1; \
             tc -n peer qdisc change dev eth1 root netem delay 20ms limit 10000",
        )
        .unwrap();
}

/// The device ceases to be a port while data is held for it. It keeps its programs until the data is out, and is plain
/// then.
fn outlives_the_port(machine: &Machine) {
    let delay = |ms: u32| {
        machine.shell(&netem(&format!("delay {ms}ms"))).unwrap();
    };
    let held = "ls -d /sys/class/net/ekh* /sys/fs/bpf/evenkeel/links/* 2>/dev/null";
    let reload = "kill -HUP $(cat /tmp/agent.pid)";
    let held_some =
        "for i in $(seq 60); do evenkeel status --json | grep -q 'held_segments\": *[1-9]' && break; sleep 0.05; done";
    let rename =
        format!("{held_some}; sed -i 's/vp\\*/none*/' /tmp/host.toml; {reload}; sleep 0.2; {held} >/tmp/left || true");
    // A connection that is idle meanwhile.
    machine
        .shell("sh -c 'echo $$ >/tmp/idle.pid; exec sleep 300' | ip netns exec peer nc 10.8.0.1 8001 >/dev/null 2>&1 &")
        .unwrap();
    wait_until("a connection to be managed", || status(machine)["vflood_connections"] == 1);
    // So that what is held takes some more round trips to leave.
    delay(400);
    fetch(machine, &rename);
    delay(20);
    let left = machine.shell("cat /tmp/left").unwrap();
    assert!(left.contains("ekh") && left.contains("to_vm"), "{left}");
    assert!(machine.shell("evenkeel status --json").unwrap().contains("\"ports\": []"));
    let end = Instant::now() + LIMIT;
    while !machine.shell(&format!("{held} || true")).unwrap().is_empty() {
        assert!(Instant::now() < end, "it still has {}", machine.shell(held).unwrap());
        std::thread::sleep(Duration::from_millis(100));
    }
    let log = machine.shell("cat /tmp/host.log").unwrap();
    assert!(log.contains("their ports are gone connections=1"), "the idle one's place is free: {log}");
    machine.shell("kill $(cat /tmp/idle.pid)").unwrap();
    fetch(machine, "true");
    machine.shell(&format!("sed -i 's/none\\*/vp*/' /tmp/host.toml; {reload}; sleep 1")).unwrap();
}

/// The receiver does not read for longer than the VM sends again in vain: as without a host that holds, the VM's
/// timeouts are window probes, which are answered and end no connection.
fn outlives_a_pause_of_the_receiver(machine: &Machine) {
    let set = |retries: u32, buffer: u32| {
        machine
            .shell(&format!(
                "echo {retries} | ip netns exec vm tee /proc/sys/net/ipv4/tcp_retries2; \
                 echo 4096 {buffer} {buffer} | ip netns exec peer tee /proc/sys/net/ipv4/tcp_rmem"
            ))
            .unwrap();
    };
    // With three it gives up after three seconds. More than its socket takes, so that the server does not close it.
    set(3, 60_000);
    let before = count(machine, "vflood_held");
    machine
        .shell(
            "for i in 1 2 3 4; do cat /tmp/data; done >/tmp/large; \
             ip netns exec peer wget -q -O - http://10.8.0.1:8001/large | { sleep 12; cat; } >/tmp/got; \
             cmp /tmp/got /tmp/large; rm /tmp/got",
        )
        .unwrap();
    assert!(count(machine, "vflood_held") > before + 100);
    set(15, 6_000_000);
}

/// The command that shapes what the other end sends, mostly ACKs, in this way.
fn netem(what: &str) -> String {
    format!("tc -n peer qdisc change dev eth1 root netem {what} limit 10000")
}

/// ACKs are late, so that the VM's timer runs out and it sends its oldest data again: what its host sends on them must
/// be more than a reduced sender's. They are also slow, so that none is kept from the VM: a VM that lacks ACKs begins
/// with data that has arrived, which is no loss. Returns whether a loss was taken back.
fn takes_back_a_loss_that_was_none(machine: &Machine) -> bool {
    /// Packets until some of the third round trip have left.
    const PACKETS: u64 = INITIAL_WINDOW_SEGMENTS * 4;
    /// One ACK in 20 ms.
    const SLOW: &str = "rate 26kbit";
    /// Above the VM's RTO: its data waits for up to 1.5 s, so it sends again after 2 to 3 s.
    const PAUSE: &str = "delay 6s";
    let counts = || (count(machine, "vflood_losses"), count(machine, "vflood_undone"));
    let (losses, undone) = counts();
    let slow = netem(&format!("delay 200ms {SLOW}"));
    let packets: u64 = machine
        .shell(&format!("head -c 1000000 /tmp/data >/tmp/late; {slow}; cat /sys/class/net/up0/statistics/tx_packets"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let late = format!(
        "for i in $(seq 500); do [ $(cat /sys/class/net/up0/statistics/tx_packets) -ge {} ] && break; sleep 0.02; \
         done; {}",
        packets + PACKETS,
        netem(&format!("{PAUSE} rate 1gbit"))
    );
    let capture = captured_with(machine, "late", &late);
    machine.shell(&netem("delay 20ms rate 1gbit")).unwrap();
    let Some(timeout) = timeout(&capture) else { return false };
    let (losses, undone) = (counts().0 - losses, counts().1 - undone);
    assert_eq!(undone, losses, "{} segments were out, and their loss stood:\n{capture}", timeout.out);
    // A timeout leaves half of what was out as the threshold (RFC 5681 §3.1).
    let reduced = timeout.out / 2 + MORE_SEGMENTS;
    let Timeout { out, out_with_new } = timeout;
    assert!(out_with_new > reduced, "{out_with_new} segments out after {out}, as a reduced sender's:\n{capture}");
    undone > 0
}

/// A timeout gives a container's packets another hash (`sk_rethink_txhash()` in Linux), by which CPUs are chosen: later
/// packets must stay behind what is held already.
fn keeps_order_after_a_timeout(machine: &Machine) {
    machine.shell(&format!("head -c 1000000 /tmp/data >/tmp/late; {}", netem("delay 200ms"))).unwrap();
    let capture = captured_with(machine, "late", &format!("sleep 0.3; {}", netem("delay 1500ms")));
    machine.shell(&netem("delay 20ms")).unwrap();
    assert_eq!(out_of_order(&capture), 0, "segments are out of order:\n{capture}");
}

#[test]
fn a_kernel_that_cannot_hold_is_told_in_one_line_and_the_rest_runs() {
    let interrupt = Interrupt::install().unwrap();
    let (_host, _directory, machine) = bed(KernelSeries::V6_12, &interrupt);
    let log = machine.shell("grep -c 'vFlood is off on this port.*6.16.*CONFIG_NET_SCH_BPF' /tmp/host.log").unwrap();
    assert_eq!(log.trim(), "1");
    fetch(&machine, "true");
    assert_eq!(count(&machine, "vflood_flows"), 0);
    // ProBoSCIS beside it: only its mode is `off`.
    machine.shell("sed -i 's/\"off\"/\"observe\"/' /tmp/host.toml && kill -HUP $(cat /tmp/agent.pid)").unwrap();
    machine
        .shell(
            "for i in $(seq 40); do evenkeel status | grep -q 'vp0.*observe' && exit 0; sleep 0.5; done; evenkeel \
             status; exit 1",
        )
        .unwrap();
    fetch(&machine, "true");
    assert!(count(&machine, "flows") > 0);
}
