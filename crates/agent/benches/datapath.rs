//! What a packet costs: each program by BPF_PROG_TEST_RUN, beside one that does nothing; `from_vm` with packets that
//! really come in at a device, beside that one and nf_conntrack; vFlood's decisions by themselves. Prints tables in
//! Markdown. Needs root and, for nf_conntrack, nft. `cargo bench -p evenkeel-agent --bench datapath` runs all, or those
//! of its arguments: `programs`, `cera`, `vsnoop`, `vflood`, `decisions`, `received`.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use evenkeel_agent::datapath::{Limit, intf};
use evenkeel_algo::frames::{ACK, RST, Segment};
use evenkeel_testbed::place::{index, ip};
use evenkeel_testbed::program::Program;
use evenkeel_testbed::tap::TapFile;
use evenkeel_testbed::thread;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use conversation::{MSS, ack, connect, data, shown, syn, synack};
use ports::{Bed, NEXT, REDIRECT, settings, vcpus};

#[path = "../tests/datapath/conversation.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod conversation;
#[path = "../tests/datapath/ports.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod ports;

const ROUNDS: usize = 15;
const RUNS: u32 = 300_000;
/// The device whose packets XDP's test run lets in.
const LO: u32 = 1;

/// Nanoseconds of some rounds, for their median and the bounds of their middle half.
struct Times(Vec<f64>);

impl Times {
    fn at(&self, quarter: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[(sorted.len() - 1) * quarter / 4]
    }

    fn less(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a - b).collect())
    }
}

/// Prints tables; cycles are computed from the CPU's clock rate as the kernel knows it.
struct Table {
    mhz: f64,
}

impl Table {
    fn new() -> Self {
        let text = fs::read_to_string("/proc/cpuinfo").expect("procfs");
        let mhz = text.lines().find_map(|line| line.strip_prefix("cpu MHz")?.split(':').nth(1)?.trim().parse().ok());
        Self { mhz: mhz.expect("the kernel knows its CPU's clock") }
    }

    fn head(&self, what: &str) {
        println!("\n| {what} | ns | middle half | cycles at {:.0} MHz |\n|---|---:|---:|---:|", self.mhz);
    }

    fn row(&self, what: &str, times: &Times) {
        let (median, least, most) = (times.at(2), times.at(1), times.at(3));
        println!("| {what} | {median:.0} | {least:.0} to {most:.0} | {:.0} |", median * self.mhz / 1000.0);
    }
}

fn rounds(mut measure: impl FnMut() -> std::time::Duration) -> Times {
    Times((0..ROUNDS).map(|_| measure().as_nanos() as f64).collect())
}

/// Single programs on single frames.
fn programs(place: &mut Bed, table: &Table) {
    let (pa, pb) = (place.pa, place.pb);
    let (data, ack) = (data(0).frame(), ack(0, 0).frame());
    let echoed = shown(conversation::ack(0, 0)).frame();
    let mut other = data.clone();
    other[23] = 17;
    let empty = Program::empty();
    table.head("one run of a program, ProBoSCIS enforced");
    table.row("a program that does nothing", &rounds(|| empty.run(&ack, RUNS)));
    let nobody = index("vm-pa");
    let (syn, synack) = (syn().frame(), synack().frame());
    let v6 = Segment::new(("fd00::1", 40000), ("fd00::2", 80), ACK).frame();
    let cases: [(_, _, _, &[u8], _); 11] = [
        ("to_vm, a port without settings", "to_vm", nobody, &ack, RUNS),
        ("from_vm, a port without settings", "from_vm", nobody, &data, RUNS),
        ("to_vm, not TCP", "to_vm", pa, &other, RUNS),
        ("to_vm, an unknown flow", "to_vm", pb, &ack, RUNS),
        ("to_vm, an unknown flow over IPv6", "to_vm", pb, &v6, RUNS),
        ("to_vm, an ACK", "to_vm", pa, &echoed, RUNS),
        ("to_vm, data", "to_vm", pb, &data, RUNS),
        // After the first run the frame is ECN-capable already.
        ("from_vm, data", "from_vm", pa, &data, RUNS),
        ("from_vm, an ACK", "from_vm", pb, &ack, RUNS),
        ("from_vm, a SYN with ten probes sent", "from_vm", pa, &syn, 1000),
        ("from_vm, a SYN-ACK with its report and window", "from_vm", pb, &synack, 1000),
    ];
    for (what, name, port, frame, repeat) in cases {
        let times =
            rounds(|| place.datapath.trial(name, port, 0, frame, repeat).expect("root, and Linux 6.6").duration);
        table.row(what, &times);
    }
}

/// vSnoop on a tap that nobody reads: data that comes again, so that each run does the same, and the VM's ACK, which
/// says nothing new.
fn early_acks(place: &mut Bed, table: &Table) {
    const MANY: u32 = 20_000;
    let _vm = TapFile::new("vnet0", false);
    ip("link set vnet0 txqueuelen 4000 up");
    let tap = index("vnet0");
    table.head("vSnoop, ProBoSCIS observed");
    let asleep = vcpus(&[thread::asleep()]);
    for (mode, vcpus, what) in [
        (intf::EK_MODE_OFF, asleep, "vSnoop off"),
        (intf::EK_MODE_OBSERVE, vcpus(&[]), "vSnoop observed, virtual CPUs unknown"),
        (intf::EK_MODE_OBSERVE, vcpus(&[thread::own()]), "vSnoop observed, the VM has its core"),
        (intf::EK_MODE_OBSERVE, asleep, "vSnoop observed"),
        (intf::EK_MODE_ENFORCE, asleep, "vSnoop enforced"),
    ] {
        let mut port = settings(intf::EK_MODE_OBSERVE);
        port.vsnoop = intf::ek_vsnoop_settings {
            mode,
            settings: intf::vsnoop_settings { budget_segments: 2000 },
            reserve_segments: 1000,
            endpoint: intf::EK_VSNOOP_ENDPOINT_OBSERVED,
            vcpus,
        };
        place.datapath.attach(tap, &port).expect("a tap takes the programs");
        let mut run = |name: &str, segment: &Segment, repeat| {
            place.datapath.trial(name, tap, 0, &segment.frame(), repeat).expect("root, and Linux 6.6").duration
        };
        run("to_vm", &syn(), 1);
        run("from_vm", &synack(), 1);
        run("to_vm", &data(0), 1);
        run("from_vm", &ack(MSS, 0), 1);
        // The first of these is acknowledged early by the second, and again whenever it comes again.
        run("to_vm", &data(MSS), 1);
        run("to_vm", &data(2 * MSS), 1);
        // For a VM that does not react for a second, nothing more is acknowledged.
        let mut again = || {
            run("from_vm", &ack(MSS, 0), 1);
            run("to_vm", &data(MSS), MANY)
        };
        table.row(&format!("to_vm, data, {what}"), &rounds(&mut again));
        table.row(&format!("from_vm, an ACK, {what}"), &rounds(|| run("from_vm", &ack(MSS, 0), MANY)));
        // The next mode begins with a handshake of its own.
        run("from_vm", &Segment { flags: RST | ACK, ..ack(MSS, 0) }, 1);
    }
}

/// Mean time of runs with a frame of their own each, so that what is written into a packet is written each time.
/// Includes the start of each run.
fn single(place: &mut Bed, name: &str, port: u32, frame: &[u8]) -> std::time::Duration {
    const MANY: u32 = 3000;
    let mut run = || place.datapath.trial(name, port, 0, frame, 1).expect("root, and Linux 6.6").duration;
    (0..MANY).map(|_| run()).sum::<std::time::Duration>() / MANY
}

/// CERA beside ProBoSCIS, with a limit that is lower than what the receiver offers. A flow that has sent nothing has no
/// limit.
fn with_cera(place: &mut Bed, settings: &intf::ek_port, table: &Table) {
    let pa = place.pa;
    let (data, ack) = (data(0).frame(), ack(0, 0).frame());
    table.head("CERA enforced beside ProBoSCIS");
    let before = rounds(|| single(place, "to_vm", pa, &ack));
    let port = intf::ek_port {
        cera: intf::ek_cera_settings { mode: intf::EK_MODE_ENFORCE, ..Default::default() },
        ..*settings
    };
    place.datapath.attach(pa, &port).expect("it was there before");
    let mut run =
        |name, frame: &[u8]| place.datapath.trial(name, pa, 0, frame, RUNS).expect("root, and Linux 6.6").duration;
    table.row("from_vm, data counted", &rounds(|| run("from_vm", &data)));
    table.row("to_vm, an ACK, no limit", &rounds(|| run("to_vm", &ack)));
    let slot = place.datapath.slot_of(pa).expect("its settings are there").expect("it is a port");
    let mut shares = place.datapath.shares().expect("the map can be mapped");
    let limit = Limit { window_segments: 4, flows: 1, until_ns: u64::MAX, ..Limit::default() };
    shares.get(slot).expect("a slot of a port").limit(limit);
    let limited = rounds(|| single(place, "to_vm", pa, &ack));
    table.row("to_vm, an ACK: what CERA with a window that is written adds to ProBoSCIS", &limited.less(&before));
    place.datapath.attach(pa, settings).expect("it was there before");
}

/// The bytes of a structure of the programs' maps.
fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: they are plain structures without padding, as user space writes them.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of_val(value)) }
}

/// vFlood's part in `from_vm` and `to_vm`. The device for held packets drops them here: its qdisc is not measured.
fn with_vflood(place: &mut Bed, table: &Table) {
    // A bridge without ports.
    ip("link add drops type bridge");
    ip("link set drops up");
    let (drops, port) = (index("drops"), index("vm-pb"));
    let map = |name| MapHandle::from_pinned_path(place.pins().join(name)).expect("it is pinned");
    let (ports, hosts) = (map("ports"), map("host"));
    table.head("vFlood, ProBoSCIS off");
    let copy = Program::copy_to(drops);
    let ack_frame = ack(0, 0).frame();
    table.row("a program that sends a copy of an ACK to that device", &rounds(|| copy.run(&ack_frame, RUNS)));
    let off = settings(intf::EK_MODE_OFF);
    place.datapath.attach(port, &off).expect("a veth takes the programs");
    let host = intf::ek_host { version: intf::EK_INTF_VERSION, agent_until_ns: u64::MAX / 2, ..Default::default() };
    let slot = place.datapath.slot_of(port).expect("its settings are there").expect("it is a port");
    for (mode, what) in [(intf::EK_MODE_OBSERVE, "observed"), (intf::EK_MODE_ENFORCE, "enforced")] {
        let vflood = intf::ek_vflood_settings {
            mode,
            hold_ifindex: drops,
            split_ifindex: drops,
            settings: intf::vflood_settings { buffer_segments: 2048, initial_window: 10, ..Default::default() },
            token: 1,
            unread_acks: 250,
            ..Default::default()
        };
        let with = intf::ek_port { slot, vflood, ..off };
        ports.update(&port.to_ne_bytes(), bytes_of(&with), MapFlags::ANY).expect("the port is there");
        let mut run = |name: &str, segment: &Segment, repeat| {
            place.datapath.trial(name, port, 0, &segment.frame(), repeat).expect("root, and Linux 6.6")
        };
        run("from_vm", &syn(), 1);
        run("to_vm", &synack(), 1);
        if mode == intf::EK_MODE_ENFORCE {
            assert_eq!(run("from_vm", &data(0), 1).verdict, REDIRECT, "it is not held");
        }
        table.row(&format!("from_vm, data, vFlood {what}"), &rounds(|| run("from_vm", &data(0), RUNS).duration));
        if mode == intf::EK_MODE_ENFORCE {
            // The agent is there, and a segment out: each ACK says that something has left, and lets nothing out.
            hosts.update(&0u32.to_ne_bytes(), bytes_of(&host), MapFlags::ANY).expect("it was set before");
            assert_eq!(run("from_vm", &data(0), 1).verdict, NEXT, "it is held");
        }
        table.row(&format!("to_vm, an ACK, vFlood {what}"), &rounds(|| run("to_vm", &ack(0, 0), RUNS).duration));
        // The next mode begins with a handshake of its own.
        run("from_vm", &Segment { flags: RST | ACK, ..data(0) }, 1);
    }
    place.datapath.detach(port).expect("it was attached");
}

/// What vFlood decides for a segment, in steady state: it is held, an ACK comes, it is let out, and room is granted.
/// Runs the C that the programs are made of.
fn decisions(table: &Table) {
    use evenkeel_algo::vflood::{Ack, DEFAULTS, Flow, HostSettings, Verdict, Vm};
    const SEGMENTS: u32 = 200_000;
    /// What the receiver takes, and what waits behind that.
    const WINDOW: u32 = 10;
    let window = (WINDOW * MSS) as u16;
    let host = HostSettings::new(&DEFAULTS);
    let acked = |number| Ack { number, window, is_pure: true, ..Ack::default() };
    let times = rounds(|| {
        let (mut flow, mut vm) = (Flow::default(), Vm::default());
        flow.vm_syn(&host, 1000, 0);
        flow.peer_syn(window, 0, MSS, 0);
        flow.acked(&host, &acked(1001), 0);
        let seq = |segment: u32| 1001u32.wrapping_add(segment.wrapping_mul(MSS));
        let mut held = 0;
        let mut out = 0;
        let begin = std::time::Instant::now();
        for segment in 0..SEGMENTS {
            let now_us = u64::from(segment) * 10;
            if flow.data(&mut vm, &host, seq(segment), MSS, now_us) == Verdict::Pass {
                out = segment + 1;
                continue;
            }
            held += 1;
            flow.acked(&host, &acked(seq(segment.saturating_sub(2 * WINDOW))), now_us);
            while out <= segment && flow.release(&mut vm, &host, seq(out), MSS, now_us) == Verdict::Pass {
                out += 1;
            }
            flow.grant(&mut vm, &host);
        }
        let took = begin.elapsed() / SEGMENTS;
        assert!(held > SEGMENTS / 2, "{held} of {SEGMENTS} were held");
        took
    });
    table.head("vFlood's decisions (algo/vflood/vflood.h) for a segment, without packets");
    table.row("held, an ACK, let out, room granted", &times);
}

fn nft(rules: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft was there before");
    nft.stdin.take().expect("it was piped").write_all(rules.as_bytes()).expect("nft reads");
    assert!(nft.wait().expect("nft ends").success(), "nft refuses: {rules}");
}

/// Makes nf_conntrack see every packet of this namespace. The namespace sends none, so the rule itself costs nothing.
fn track(is_on: bool) {
    nft(if is_on {
        "table ip track {\n chain output {\n type filter hook output priority 0\n ct state invalid drop\n }\n }"
    } else {
        "delete table ip track"
    });
}

/// Packets come in at `lo` and are dropped behind nf_conntrack, at `prerouting`. Measures what each variant adds to the
/// time without any, in the same round.
fn received(place: &mut Bed, settings: &intf::ek_port, table: &Table) {
    if !Command::new("nft").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success()) {
        println!("not measured beside nf_conntrack: no nft");
        return;
    }
    let local = |segment: Segment| {
        let mut frame = segment.frame();
        frame[..6].fill(0);
        frame
    };
    let xdp = Program::to_stack();
    let empty = Program::empty();
    place.datapath.detach(LO).expect("it was attached");
    // nf_conntrack learns of the connection: its SYN reaches a local address, whose answer is dropped before
    // nf_conntrack.
    ip("addr add 10.0.0.2/32 dev lo");
    nft("table ip quiet {\n chain output {\n type filter hook output priority -350\n drop\n }\n }");
    track(true);
    // The hardware checks checksums; between VMs nobody does.
    fs::write("/proc/sys/net/netfilter/nf_conntrack_checksum", "0").expect("nf_conntrack is there");
    for segment in [syn(), synack(), Segment { payload: 0, ..data(0) }] {
        xdp.receive(&local(segment), 1);
    }
    let entries = fs::read_to_string("/proc/thread-self/net/nf_conntrack").expect("CONFIG_NF_CONNTRACK_PROCFS");
    assert!(entries.contains("ESTABLISHED"), "nf_conntrack does not know the connection: {entries}");
    track(false);
    nft("table ip end {\n chain prerouting {\n type filter hook prerouting priority -150\n drop\n }\n }");
    table.head("packets that come in at a device, ProBoSCIS enforced; each after the first is what it adds to that");
    for (what, frame) in [("data", local(data(0))), ("an ACK", local(Segment { payload: 0, ..data(0) }))] {
        let mut times = [(); 4].map(|()| Times(Vec::new()));
        for _ in 0..ROUNDS {
            let run = || xdp.receive(&frame, RUNS).as_nanos() as f64;
            let nothing = run();
            times[0].0.push(nothing);
            let link = empty.attach(LO, libbpf_sys::BPF_TCX_INGRESS);
            times[1].0.push(run() - nothing);
            drop(link);
            place.datapath.attach(LO, settings).expect("it was there before");
            times[2].0.push(run() - nothing);
            place.datapath.detach(LO).expect("it was attached");
            track(true);
            times[3].0.push(run() - nothing);
            track(false);
        }
        for (which, times) in
            ["received and dropped", "a program that does nothing", "from_vm", "nf_conntrack"].iter().zip(&times)
        {
            table.row(&format!("{what}, {which}"), times);
        }
    }
}

/// A part of the bench: its name, and what it does.
type Part<'a> = (&'a str, &'a mut dyn FnMut(&mut Bed));

fn main() {
    let mut place = Bed::new(intf::EK_MODE_ENFORCE);
    let mut port = settings(intf::EK_MODE_ENFORCE);
    port.proboscis.settings.budget_probes_per_s = 1_000_000_000;
    port.proboscis.settings.budget_burst_probes = 1_000_000_000;
    place.pa = LO;
    place.datapath.attach(LO, &port).expect("lo is there");
    connect(&mut place);
    let table = Table::new();
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let parts: [Part<'_>; 6] = [
        ("programs", &mut |place| programs(place, &table)),
        ("cera", &mut |place| with_cera(place, &port, &table)),
        ("vsnoop", &mut |place| early_acks(place, &table)),
        ("vflood", &mut |place| with_vflood(place, &table)),
        ("decisions", &mut |_| decisions(&table)),
        ("received", &mut |place| received(place, &port, &table)),
    ];
    for (name, part) in parts {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            part(&mut place);
        }
    }
}
