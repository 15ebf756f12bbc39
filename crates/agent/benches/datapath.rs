//! What a packet costs: each program by BPF_PROG_TEST_RUN beside one that does nothing, and, as packets that really come in at a
//! device, `from_vm` beside that and nf_conntrack. Needs root and, for nf_conntrack, nft. `cargo bench -p evenkeel-agent --bench datapath`

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use evenkeel_agent::datapath::{Limit, intf};
use evenkeel_testbed::conversation::{MSS, ack, connect, data, syn, synack};
use evenkeel_testbed::frames::{ACK, RST, Segment};
use evenkeel_testbed::place::{Place, index, ip, settings};
use evenkeel_testbed::program::Program;
use evenkeel_testbed::tap::TapFile;

const ROUNDS: usize = 15;
const RUNS: u32 = 300_000;
/// The device whose packets XDP's test run lets in.
const LO: u32 = 1;

/// Nanoseconds: the median of some rounds, and between which two of them the middle half lies.
struct Times(Vec<f64>);

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share: usize| sorted[(sorted.len() - 1) * share / 4];
        write!(f, "{:>6.0} ns ({:.0} to {:.0})", at(2), at(1), at(3))
    }
}

fn rounds(mut measure: impl FnMut() -> std::time::Duration) -> Times {
    Times((0..ROUNDS).map(|_| measure().as_nanos() as f64).collect())
}

/// Single programs on single frames.
fn programs(place: &mut Place) {
    let (pa, pb) = (place.pa, place.pb);
    let (data, ack) = (data(0).frame(), ack(0, 0).frame());
    let mut other = data.clone();
    other[23] = 17;
    let empty = Program::empty();
    println!("{:<58} {}", "a program that does nothing", rounds(|| empty.run(&ack, RUNS)));
    let nobody = index("vm-pa");
    let (syn, synack) = (syn().frame(), synack().frame());
    let cases: [(_, _, _, &[u8], _); 10] = [
        ("to_vm, a port without settings", "to_vm", nobody, &ack, RUNS),
        ("from_vm, a port without settings", "from_vm", nobody, &data, RUNS),
        ("to_vm, not TCP", "to_vm", pa, &other, RUNS),
        ("to_vm, an unknown flow", "to_vm", pb, &ack, RUNS),
        ("to_vm, an ACK", "to_vm", pa, &ack, RUNS),
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
        println!("{what:<58} {times}");
    }
}

/// vSnoop on a tap that nobody reads: data that comes again, so that each run does the same, and the VM's ACK, which says nothing new.
fn early_acks(place: &mut Place) {
    const MANY: u32 = 20_000;
    let _vm = TapFile::new("vnet0", false);
    ip("link set vnet0 txqueuelen 4000 up");
    let tap = index("vnet0");
    println!();
    for (mode, what) in [
        (intf::EK_MODE_OFF, "vSnoop off"),
        (intf::EK_MODE_OBSERVE, "vSnoop observed"),
        (intf::EK_MODE_ENFORCE, "vSnoop enforced"),
    ] {
        let mut port = settings(intf::EK_MODE_OBSERVE);
        port.vsnoop = intf::ek_vsnoop_port {
            mode,
            settings: intf::vsnoop_settings { budget_segments: 2000 },
            reserve_segments: 1000,
            ..Default::default()
        };
        place.datapath.attach(tap, &port).expect("a tap takes the programs");
        let mut run = |name: &str, segment: &Segment, repeat| {
            place.datapath.trial(name, tap, 0, &segment.frame(), repeat).expect("root, and Linux 6.6").duration
        };
        run("to_vm", &syn(), 1);
        run("from_vm", &synack(), 1);
        run("to_vm", &data(0), 1);
        run("from_vm", &ack(MSS, 0), 1);
        run("to_vm", &data(MSS), 1);
        println!("{:<58} {}", format!("to_vm, data, {what}"), rounds(|| run("to_vm", &data(MSS), MANY)));
        println!("{:<58} {}", format!("from_vm, an ACK, {what}"), rounds(|| run("from_vm", &ack(MSS, 0), MANY)));
        // The next mode begins with a handshake of its own.
        run("from_vm", &Segment { flags: RST | ACK, ..ack(MSS, 0) }, 1);
    }
}

/// The same with CERA on, and a limit that is lower than what the receiver offers. A flow that has sent nothing has none.
fn with_cera(place: &mut Place, settings: &intf::ek_port) {
    let port =
        intf::ek_port { cera: intf::ek_cera_port { mode: intf::EK_MODE_ENFORCE, ..Default::default() }, ..*settings };
    let pa = place.pa;
    place.datapath.attach(pa, &port).expect("it was there before");
    let slot = place.datapath.slot_of(pa).expect("its settings are there").expect("it is a port");
    let mut shares = place.datapath.shares().expect("the map can be mapped");
    let limit = Limit { window_segments: 4, flows: 1, next: 0, until_ns: u64::MAX };
    shares.get(slot).expect("a slot of a port").limit(limit);
    for (what, name, frame) in
        [("from_vm, data, CERA", "from_vm", data(0).frame()), ("to_vm, an ACK, CERA", "to_vm", ack(0, 0).frame())]
    {
        let times = rounds(|| place.datapath.trial(name, pa, 0, &frame, RUNS).expect("root, and Linux 6.6").duration);
        println!("{what:<58} {times}");
    }
    place.datapath.attach(pa, settings).expect("it was there before");
}

fn nft(rules: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft was there before");
    nft.stdin.take().expect("it was piped").write_all(rules.as_bytes()).expect("nft reads");
    assert!(nft.wait().expect("nft ends").success(), "nft refuses: {rules}");
}

/// Makes nf_conntrack see every packet of this namespace. No packet here is sent by it, so the rule costs none anything.
fn track(is_on: bool) {
    nft(if is_on {
        "table ip track {\n chain output {\n type filter hook output priority 0\n ct state invalid drop\n }\n }"
    } else {
        "delete table ip track"
    });
}

/// Packets come in at `lo` and end behind nf_conntrack's place, at `prerouting`. What is measured is one variant's time less the
/// others' in the same round.
fn received(place: &mut Place, settings: &intf::ek_port) {
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
    // nf_conntrack is told of the connection: its SYN has an end to go to, whose answer nobody is to see.
    ip("addr add 10.0.0.2/32 dev lo");
    nft("table ip quiet {\n chain output {\n type filter hook output priority -350\n drop\n }\n }");
    track(true);
    // Checksums are hardware's to see to, or nobody's between VMs.
    fs::write("/proc/sys/net/netfilter/nf_conntrack_checksum", "0").expect("nf_conntrack is there");
    for segment in [syn(), synack(), Segment { payload: 0, ..data(0) }] {
        xdp.receive(&local(segment), 1);
    }
    let entries = fs::read_to_string("/proc/thread-self/net/nf_conntrack").expect("CONFIG_NF_CONNTRACK_PROCFS");
    assert!(entries.contains("ESTABLISHED"), "nf_conntrack does not know the connection: {entries}");
    track(false);
    nft("table ip end {\n chain prerouting {\n type filter hook prerouting priority -150\n drop\n }\n }");
    println!();
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
        let [nothing, empty, from_vm, conntrack] = times;
        println!("{:<58} {nothing}", format!("{what}, received and dropped"));
        println!("{:<58} {empty}", "  and a program that does nothing");
        println!("{:<58} {from_vm}", "  and from_vm");
        println!("{:<58} {conntrack}", "  and nf_conntrack");
    }
}

fn main() {
    let mut place = Place::new(intf::EK_MODE_ENFORCE);
    let mut port = settings(intf::EK_MODE_ENFORCE);
    port.proboscis.budget_probes_per_s = 1_000_000_000;
    port.proboscis.budget_burst_probes = 1_000_000_000;
    place.pa = LO;
    place.datapath.attach(LO, &port).expect("lo is there");
    connect(&mut place);
    programs(&mut place);
    early_acks(&mut place);
    with_cera(&mut place, &port);
    received(&mut place, &port);
}
