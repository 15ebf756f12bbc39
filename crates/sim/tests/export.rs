//! Cells as other simulators' inputs.

use std::path::{Path, PathBuf};

use evenkeel_scenario::Scenario;
use evenkeel_scenario::cell::Cell;
use evenkeel_scenario::sweep::cells;
use evenkeel_sim::export::{htsim, ns3};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn cells_of(file: &Path) -> Vec<Cell> {
    let loaded = Scenario::load(file).unwrap_or_else(|e| panic!("{e}"));
    cells(&loaded).unwrap_or_else(|e| panic!("{e}"))
}

/// What ns-3 was compared with: no simulation is needed to write it.
#[test]
fn the_inputs_of_the_comparison_with_ns3_are_what_is_exported() {
    let mut compared = 0;
    for file in ["star-bulk", "dumbbell-bulk", "star-flows", "dumbbell-flows", "speed"] {
        for cell in cells_of(&top().join(format!("scenarios/sim/validation/{file}.toml"))) {
            let name = cell.labels.iter().fold(file.to_owned(), |name, (_, label)| format!("{name}-{label}"));
            let there = std::fs::read_to_string(top().join(format!("bench/ns3/inputs/{name}.txt"))).unwrap();
            let (_, input) = there.split_once('\n').unwrap();
            let exported = ns3(&cell.scenario).unwrap();
            let differs = exported.lines().zip(input.lines()).find(|(ours, theirs)| ours != theirs);
            assert!(exported == input, "{name}: {differs:?}");
            compared += 1;
        }
    }
    assert_eq!(compared, 13);
}

const TEXT: &str = r#"
schema = 2
name = "t"
title = "t"
duration_ms = 100
warmup_ms = 0
[network]
rate_mbit = 1000
[vms.a]
count = 3
hypervisor = false
tcp = { tail_loss_probe = false, rack = false, f_rto = false, dsack = false, congestion_control = "reno" }
[vms.b]
hypervisor = false
tcp = { tail_loss_probe = false, rack = false, f_rto = false, dsack = false, congestion_control = "reno" }
[workloads.w]
kind = "bulk"
from = "a"
to = "b"
"#;

fn cell(from: &str, to: &str) -> Cell {
    assert!(TEXT.contains(from), "{from}");
    let loaded = Scenario::from_str(&TEXT.replacen(from, to, 1), "t.toml").unwrap_or_else(|e| panic!("{to}: {e}"));
    cells(&loaded).unwrap().remove(0)
}

#[test]
fn traffic_is_a_connection_matrix() {
    let text = htsim(&cell("t", "t").scenario).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["Nodes 4", "Connections 3"]);
    // Long-lived flows begin at times of their own.
    let mut ends: Vec<&str> = lines[2..].iter().map(|line| line.split(' ').next().unwrap()).collect();
    ends.sort_unstable();
    assert_eq!(ends, ["0->3", "1->3", "2->3"]);
    assert!(lines[2].contains(" id 1 start ") && lines[2..].iter().all(|line| line.ends_with(" size 0")), "{text}");

    let poisson = "kind = \"poisson\"\nload = 0.5\nsizes = 20000\nburst_flows = 3";
    let text = htsim(&cell("kind = \"bulk\"", poisson).scenario).unwrap();
    let mut lines = text.lines().skip(1);
    let count: usize = lines.next().unwrap().strip_prefix("Connections ").unwrap().parse().unwrap();
    let flows: Vec<Vec<&str>> = lines.map(|line| line.split(' ').collect()).collect();
    assert_eq!(flows.len(), count);
    // Half of 1 Gbit/s for a tenth of a second are 312 flows of 20 kB.
    assert!((200..450).contains(&count), "{count}");
    let start = |flow: &Vec<&str>| flow[4].parse::<u64>().unwrap();
    assert!(flows.is_sorted_by_key(start) && start(flows.last().unwrap()) < 100_000_000_000);
    for (flow, number) in flows.iter().zip(1..) {
        let number = format!("{number}");
        assert_eq!(flow[1..], ["id", &number, "start", flow[4], "size", "20000"]);
        assert!(["0->3", "1->3", "2->3"].contains(&flow[0]), "{flow:?}");
    }
    // Three begin at a time, from different senders.
    assert!(flows.chunks(3).all(|burst| start(&burst[0]) == start(burst.last().unwrap())));
}

type Peer = fn(&Scenario) -> Result<String, evenkeel_scenario::Refused>;

#[test]
fn what_a_peer_cannot_express_is_refused_by_name() {
    assert!(ns3(&cell("t", "t").scenario).is_ok());
    let (ns3, htsim) = (ns3 as Peer, htsim as Peer);
    let both: &[Peer] = &[ns3, htsim];
    let cases: [(&[Peer], &str, &str, &str); 14] = [
        (both, "hypervisor = false", "hypervisor = true", "vms.a.hypervisor"),
        (both, "[vms.b]", "[vms.b]\nread_cost_ns = 5", "vms.b.read_cost_ns"),
        (both, "count = 3", "count = 3\npvtcp = { mode = \"enforce\" }", "vms.a.pvtcp.mode"),
        (both, "count = 3", "count = 3\npacket_cost_ns = 5", "vms.a.packet_cost_ns"),
        (both, "kind = \"bulk\"", "kind = \"transfers\"\nbytes = 1000", "workloads.w.kind"),
        (
            both,
            "kind = \"bulk\"",
            "kind = \"poisson\"\nload = 0.1\nsizes = 1000\npersistent = true",
            "workloads.w.persistent",
        ),
        (&[ns3], "kind = \"bulk\"", "kind = \"bulk\"\nflows = 2", "workloads.w.flows"),
        (&[ns3], "rate_mbit = 1000", "rate_mbit = 1000\ntopology = \"leaf-spine\"", "network.topology"),
        (&[ns3], "rate_mbit = 1000", "rate_mbit = 1000\ntopology = \"fat-tree\"", "network.topology"),
        (&[ns3], "rate_mbit = 1000", "rate_mbit = 1000\nmtu_bytes = 9000", "network.mtu_bytes"),
        (
            &[ns3],
            "rate_mbit = 1000",
            "rate_mbit = 1000\nqueue = { discipline = \"codel\" }",
            "network.queue.discipline",
        ),
        (&[ns3], "tail_loss_probe = false", "tail_loss_probe = true", "vms.a.tcp.tail_loss_probe"),
        (&[ns3], "\"reno\"", "\"cubic\"", "vms.a.tcp.hystart"),
        (&[ns3], "[vms.b]", "[vms.b]\ncount = 2", "vms.b.count"),
    ];
    for (peers, from, to, key) in cases {
        for peer in peers {
            let refused = peer(&cell(from, to).scenario).expect_err(to);
            assert!(refused.key.starts_with(key), "{to}: {refused}");
        }
    }
}
