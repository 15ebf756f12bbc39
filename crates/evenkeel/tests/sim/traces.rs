//! Runs that are traced: packets as Wireshark's tshark reads them, and all that happens as Perfetto does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::bed::Bed;

/// Senders on shared cores, and a receiver behind a switch port with `BUFFER` places.
const INCAST: &str = r#"
schema = 2
name = "traced"
title = "Incast"
duration_ms = 600
warmup_ms = 0
[network]
rate_mbit = 1000
buffer_segments = 24
[vms.a]
count = 6
core = { vms_per_core = 3, slice_jitter = 0.5 }
tcp = { rto_min_us = "smallest" }
[vms.b]
[workloads.w]
kind = "strobe"
from = "a"
to = "b"
block_kib = 512
[[axes]]
name = "buffer"
key = "network.buffer_segments"
values = [24, 100000]
[[axes]]
name = "pvtcp"
key = "vms.a.pvtcp.mode"
values = ["off", "enforce"]
"#;

/// What tshark prints of a file, with every checksum looked at.
fn tshark(file: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.args(["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-r"]).arg(file).args(arguments);
    let output = command.output().expect("tshark is there (packaging/deps.sh --with-tests)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Packets of a file, each with tshark's text for some fields, empty if it has none. One look at each file: tshark
/// takes a second to begin.
fn fields<const N: usize>(file: &Path, names: [&str; N]) -> Vec<[String; N]> {
    let mut arguments = vec!["-T", "fields"];
    names.iter().for_each(|name| arguments.extend(["-e", *name]));
    let text = tshark(file, &arguments);
    let of = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
    text.lines().map(|line| of(line).try_into().unwrap()).collect()
}

fn count<const N: usize>(packets: &[[String; N]], is_wanted: impl Fn(&[String; N]) -> bool) -> i64 {
    packets.iter().filter(|packet| is_wanted(packet)).count() as i64
}

/// Counters of each VM in the only run of a results directory.
fn counters(place: &Bed, out: &str) -> BTreeMap<String, BTreeMap<String, i64>> {
    let record: Value = serde_json::from_slice(&place.lines(out)).unwrap();
    serde_json::from_value(record["counters"].clone()).unwrap()
}

const SUMS: [&str; 2] = ["ip.checksum.status", "tcp.checksum.status"];

/// The checksums of all packets are good.
fn assert_sound<'a>(packets: impl Iterator<Item = [&'a str; 2]>) {
    let sums: Vec<[&str; 2]> = packets.collect();
    assert!(sums.len() > 100 && sums.iter().all(|sums| *sums == ["1", "1"]));
}

#[test]
fn wireshark_finds_what_the_model_has() {
    let place = Bed::new(INCAST);
    fs::create_dir(place.path("losses")).unwrap();
    let only = ["--only", "pvtcp=off", "--only", "buffer=24", "--quiet"];
    place.good(&[&["sim", "s.toml", "--out", "r", "--repetitions", "1"], &only[..]].concat());
    let said = place.good(&[&["sim", "s.toml", "--pcapng", "losses", "--payload"], &only[..]].concat());
    assert!(said.starts_with("7 files in losses: ") && said.ends_with(" packets\n"), "{said}");
    let counters = counters(&place, "r");
    let mut all = 0;
    for number in 0..6 {
        let name = format!("a-{number}");
        let counted = |counter: &str| counters[&name].get(counter).copied().unwrap_or(0);
        let [ip, tcp] = SUMS;
        let wanted = [ip, tcp, "tcp.analysis.retransmission", "tcp.analysis.out_of_order", "tcp.options.sack.dsack"];
        let packets = fields(&place.path(&format!("losses/{name}.pcapng")), wanted);
        assert_sound(packets.iter().map(|[ip, tcp, ..]| [ip.as_str(), tcp]));
        let again = count(&packets, |[_, _, retransmission, out_of_order, _]| {
            !retransmission.is_empty() || !out_of_order.is_empty()
        });
        assert_eq!(again, counted("TcpRetransSegs"), "{name}");
        assert_eq!(count(&packets, |[.., dsack]| !dsack.is_empty()), counted("TcpExtTCPDSACKRecv"), "{name}");
        all += again;
    }
    assert!(all > 50, "{all}");
}

#[test]
fn wireshark_finds_nothing_where_nothing_is_lost() {
    let place = Bed::new(&INCAST.replace("core = { vms_per_core = 3, slice_jitter = 0.5 }\n", ""));
    fs::create_dir(place.path("none")).unwrap();
    let only = ["--only", "pvtcp=off", "--only", "buffer=100000"];
    place.good(&[&["sim", "s.toml", "--pcapng", "none", "--payload"], &only[..]].concat());
    for name in ["a-0", "a-5", "b-0"] {
        let file = place.path(&format!("none/{name}.pcapng"));
        assert_sound(fields(&file, SUMS).iter().map(|[ip, tcp]| [ip.as_str(), tcp]));
        assert_eq!(tshark(&file, &["-q", "-z", "expert,note"]).trim(), "", "{name}");
    }
}

#[test]
fn one_file_has_an_interface_for_each_port_and_the_same_packets() {
    let place = Bed::new(INCAST);
    let only = ["--only", "pvtcp=off", "--only", "buffer=24"];
    let said = place.good(&[&["sim", "s.toml", "--pcapng", "all.pcapng"], &only[..]].concat());
    let packets: i64 = said.strip_prefix("all.pcapng: ").unwrap().strip_suffix(" packets\n").unwrap().parse().unwrap();
    let all = place.path("all.pcapng");
    let seen = fields(&all, ["frame.interface_name", "frame.time_epoch", "frame.len", "ip.src"]);
    assert_eq!(seen.len() as i64, packets);
    let mut names: Vec<&str> = seen.iter().map(|[name, ..]| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["a-0", "a-1", "a-2", "a-3", "a-4", "a-5", "b-0"]);
    // The receiver's first SYN, in nanoseconds, at its port.
    let [name, at, length, source] = &seen[0];
    assert!(at.starts_with("0.000") && at.len() == "0.000050000".len(), "{at}");
    assert_eq!((name.as_str(), length.as_str(), source.as_str()), ("b-0", "74", "10.0.0.7"));
    fs::create_dir(place.path("each")).unwrap();
    let said = place.good(&[&["sim", "s.toml", "--pcapng", "each"], &only[..]].concat());
    assert_eq!(said, format!("7 files in each: {packets} packets\n"));
}

/// What is held has no marks: vFlood leaves guests with ECN alone.
#[test]
fn marks_holds_and_early_acks_have_comments() {
    let scenario = INCAST
        .replace(
            "buffer_segments = 24",
            "buffer_segments = 200\nqueue = { discipline = \"red\", ecn_threshold_segments = 5 }",
        )
        .replace("[vms.b]", "[vms.b]\ncore = { vms_per_core = 3 }\nvsnoop = { mode = \"enforce\" }")
        .replace("count = 6", "count = 2\nvflood = { mode = \"enforce\", off_core_percent = 0 }");
    let ecn = scenario
        .replace("\"smallest\" }", "\"smallest\", ecn = \"on\" }")
        .replace("[workloads.w]", "tcp = { ecn = \"on\" }\n[workloads.w]");
    let with = |packets: &[[String; 2]], text: &str| count(packets, |[comment, _]| comment.contains(text));
    let traced = |scenario: &str| {
        let place = Bed::new(scenario);
        fs::create_dir(place.path("p")).unwrap();
        place.good(&["sim", "s.toml", "--pcapng", "p", "--only", "pvtcp=off", "--only", "buffer=100000"]);
        place
    };
    let comments =
        |place: &Bed, name: &str| fields(&place.path(&format!("p/{name}.pcapng")), ["frame.comment", "ip.dsfield.ecn"]);
    let place = traced(&ecn);
    let receiver = comments(&place, "b-0");
    assert!(with(&receiver, "early ACK") > 10);
    let (marked, all) = (with(&receiver, "marked"), count(&receiver, |[_, ecn]| ecn == "3"));
    assert!(marked > 10 && marked == all, "{marked} of {all}");
    assert_eq!(with(&comments(&place, "b-0-vm"), "early ACK"), 0, "the VM knows nothing of them");
    assert_eq!(with(&comments(&place, "a-0"), "held by vFlood"), 0);
    assert!(with(&comments(&traced(&scenario), "a-0"), "held by vFlood for ") > 10);
}

/// Slices of a trace by category.
fn slices(place: &Bed, file: &str) -> BTreeMap<String, u64> {
    let trace: Value = serde_json::from_slice(&fs::read(place.path(file)).unwrap()).unwrap();
    let mut found = BTreeMap::new();
    // As Perfetto's reader has it: slices of a thread are nested, and each that begins ends.
    let mut open: BTreeMap<u64, u64> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let thread = event["tid"].as_u64().unwrap_or(0);
        match event["ph"].as_str().unwrap() {
            "B" => {
                *open.entry(thread).or_default() += 1;
                *found.entry(event["cat"].as_str().unwrap().to_owned()).or_default() += 1;
            }
            "E" => *open.get_mut(&thread).unwrap() -= 1,
            "i" => *found.entry(event["cat"].as_str().unwrap().to_owned()).or_default() += 1,
            "C" => *found.entry("counters".to_owned()).or_default() += 1,
            "M" => {}
            other => panic!("{other}"),
        }
        assert!(open.values().all(|depth| *depth <= 1));
    }
    assert!(open.values().all(|depth| *depth == 0));
    found
}

#[test]
fn a_trace_has_the_held_timers_of_pvtcp_and_none_without() {
    let place = Bed::new(INCAST);
    for (mode, is_held) in [("off", false), ("enforce", true)] {
        let only = ["--only", "buffer=24", "--only", &format!("pvtcp={mode}"), "--quiet"];
        place.good(&[&["sim", "s.toml", "--out", mode, "--repetitions", "1"], &only[..]].concat());
        let said = place.good(&[&["sim", "s.toml", "--trace", "t.json"], &only[..]].concat());
        assert!(said.starts_with("t.json: ") && said.ends_with(" events\n"), "{said}");
        let found = slices(&place, "t.json");
        let held = ["PvtcpHeldRto", "PvtcpHeldTlp", "PvtcpHeldReo"];
        let counters = counters(&place, mode);
        let counted: i64 = counters.values().flat_map(|vm| held.iter().filter_map(|name| vm.get(*name))).sum();
        assert_eq!(found.get("held").copied().unwrap_or(0), counted as u64, "{mode}");
        assert_eq!(counted > 0, is_held, "{mode}");
        for category in ["core", "timer", "fired", "packet", "counters"] {
            assert!(found[category] > 10, "{category}: {found:?}");
        }
    }
}

#[test]
fn results_leave_for_perfetto_and_flent() {
    let place = Bed::new(INCAST);
    place.good(&["sim", "s.toml", "--out", "r", "--repetitions", "1", "--quiet", "--only", "buffer=24"]);
    let said = place.good(&["report", "r", "--trace", "t.json", "--flent", "f.flent.gz"]);
    assert!(said.contains("t.json: ") && said.ends_with("f-0.flent.gz\nf-1.flent.gz\n"), "{said}");
    let trace: Value = serde_json::from_slice(&fs::read(place.path("t.json")).unwrap()).unwrap();
    let named = |name: &str| trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["name"] == name).count();
    assert!(named("cwnd_segments") + named("flow 0: cwnd_segments") > 10 && named("block") > 10);
}

#[test]
fn what_is_traced_is_one_run() {
    let place = Bed::new(INCAST);
    let (code, _, err) = place.run(&["sim", "s.toml", "--trace", "t.json", "--only", "pvtcp=off"]);
    assert!(code == 2 && err.contains("2 cells; this takes one") && err.contains("--only 'buffer=LABEL'"), "{err}");
    assert!(!place.path("t.json").exists());
    let (code, _, err) = place.run(&["sim", "s.toml", "--trace", "t.json", "--out", "r"]);
    assert!(code == 2 && err.contains("--out"), "{err}");
}

#[test]
fn a_scenario_leaves_for_other_simulators() {
    let scenario = INCAST
        .replace("kind = \"strobe\"", "kind = \"bulk\"")
        .replace("block_kib = 512\n", "")
        .replace("core = { vms_per_core = 3, slice_jitter = 0.5 }", "hypervisor = false")
        .replace("[vms.b]", "[vms.b]\nhypervisor = false");
    let place = Bed::new(&scenario);
    let only = ["--only", "buffer=24", "--only", "pvtcp=off"];
    place.good(&[&["export", "s.toml", "--htsim", "c.cm"], &only[..]].concat());
    let matrix = fs::read_to_string(place.path("c.cm")).unwrap();
    assert!(matrix.starts_with("# Written by evenkeel from traced, buffer 24, pvtcp off.\nNodes 7\n"), "{matrix}");
    let (code, _, err) = place.run(&[&["export", "s.toml", "--ns3", "n.txt"], &only[..]].concat());
    assert!(code == 2 && err.starts_with("error: s.toml: vms.a.tcp."), "{code}: {err}");
    assert!(!place.path("n.txt").exists());
    let (code, _, err) = place.run(&["export", "s.toml"]);
    assert!(code == 2 && err.contains("--ns3"), "{err}");
}
