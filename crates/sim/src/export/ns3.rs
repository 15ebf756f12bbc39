//! A cell as the input of `bench/ns3`. Its README lists the settings, and what is the same in every cell.

use std::fmt::{Display, Write as _};

use evenkeel_scenario::Refused;
use evenkeel_scenario::format::{
    DelayedAck, Discipline, Era, Network, RtoMin, RtoMinWord, Scenario, Topology, VmGroup, Workload,
};

use super::draw::{self, Flow};
use super::{check_machines, check_workload, refused, taking_part};
use crate::run::setup;

const PEER: &str = "bench/ns3";
/// The packet size that its segments are made for.
const MTU_BYTES: u32 = 1500;
/// Linux's.
const RTO_MIN_US: u32 = 200_000;
const INITIAL_WINDOW_SEGMENTS: u32 = 10;
const CONGESTION_CONTROLS: [&str; 3] = ["reno", "cubic", "dctcp"];

/// The input for a cell's first repetition, without a comment. Flows that end are those that its workload draws.
///
/// # Errors
/// The first key that the program cannot express.
pub fn ns3(scenario: &Scenario) -> Result<String, Refused> {
    check_machines(scenario, PEER)?;
    check_workload(scenario, PEER)?;
    check_network(&scenario.network)?;
    let (from, to) = scenario.workload().roles();
    let Some((senders, receivers)) = scenario.vms.get(from).zip(scenario.vms.get(to)).filter(|_| from != to) else {
        return refused(scenario.workload_key("to"), "bench/ns3 has senders and receivers; name a group that receives");
    };
    check_groups(scenario)?;
    if scenario.network.topology == Topology::Star && receivers.count != 1 {
        return refused(format!("vms.{to}.count"), "a star of bench/ns3 has one receiver");
    }
    let mut text = String::new();
    let mut line = |key: &str, value: &dyn Display| {
        let _ = writeln!(text, "{key} {value}");
    };
    let network = &scenario.network;
    line("topology", &if network.topology == Topology::Dumbbell { "dumbbell" } else { "star" });
    line("congestion_control", &senders.tcp.congestion_control());
    line("senders", &senders.count);
    line("receivers", &receivers.count);
    line("rate_mbit", &network.rate_mbit);
    line("edge_rate_mbit", &network.host_rate_mbit());
    line("delay_us", &network.delay_us);
    line("buffer_segments", &network.buffer_segments);
    match network.queue.ecn_threshold_segments.filter(|_| network.queue.discipline == Discipline::Red) {
        None => line("queue", &"drop-tail"),
        Some(threshold) => {
            line("queue", &"red");
            line("ecn_threshold_segments", &threshold);
        }
    }
    match senders.tcp.rto_min_us {
        RtoMin::Us(us) => line("rto_min_us", &us),
        RtoMin::Word(_) => line("rto_min_us", &RTO_MIN_US),
    }
    // Linux's HyStart and ns-3's are not the same, so it is off in both.
    line("hystart", &0);
    line("initial_window_segments", &senders.tcp.initial_window_segments.unwrap_or(INITIAL_WINDOW_SEGMENTS));
    line("delayed_ack_segments", &if receivers.tcp.delayed_ack == DelayedAck::Off { 1 } else { 2 });
    if let Some(us) = receivers.tcp.delayed_ack_max_us {
        line("delayed_ack_max_us", &us);
    }
    line("warmup_ms", &scenario.warmup_ms);
    line("duration_ms", &scenario.duration_ms);
    let flows = flows(scenario, senders.count)?;
    flows.iter().for_each(|flow| line("flow", flow));
    Ok(text)
}

/// Lines of flows: start, sender, receiver, bytes.
fn flows(scenario: &Scenario, senders: u32) -> Result<Vec<String>, Refused> {
    match scenario.workload() {
        Workload::Bulk { flows: 1, .. } => {
            Ok((0..senders).map(|sender| format!("{} {sender} 0 0", sender * 10)).collect())
        }
        Workload::Bulk { .. } => {
            refused(scenario.workload_key("flows"), "bench/ns3 has one flow for each sender; set it to 1")
        }
        _ => {
            // Senders are numbered first, receivers from then on.
            let of = |Flow { start, from, to, bytes }: Flow| (start.us(), from.0, to.0 - senders, bytes.unwrap_or(0));
            let mut flows: Vec<_> = draw::flows(scenario, &setup::placed_vms(scenario)).into_iter().map(of).collect();
            flows.sort_unstable();
            Ok(flows.iter().map(|(start, from, to, bytes)| format!("{start} {from} {to} {bytes}")).collect())
        }
    }
}

fn check_network(network: &Network) -> Result<(), Refused> {
    if matches!(network.topology, Topology::LeafSpine | Topology::FatTree) {
        return refused("network.topology", "bench/ns3 has `star` and `dumbbell`");
    }
    let queue = &network.queue;
    match queue.discipline {
        Discipline::DropTail => {}
        Discipline::Red if queue.ecn_threshold_segments.is_some() => {}
        Discipline::Red => {
            return refused("network.queue.red_min_segments", "bench/ns3 has one threshold: `ecn_threshold_segments`");
        }
        _ => return refused("network.queue.discipline", "bench/ns3 has `drop-tail` and `red`"),
    }
    if network.shared_buffer_kib.is_some() {
        return refused("network.shared_buffer_kib", "bench/ns3 has a buffer for each port; leave it out");
    }
    if network.mtu_bytes != MTU_BYTES {
        return refused("network.mtu_bytes", "bench/ns3 has packets of 1500 bytes");
    }
    if network.segmentation_offload {
        return refused("network.segmentation_offload", "bench/ns3 has segments; set it to false");
    }
    Ok(())
}

fn check_groups(scenario: &Scenario) -> Result<(), Refused> {
    for (name, group) in taking_part(scenario) {
        let sends = name == scenario.workload().roles().0;
        if let Some((key, why)) = inexpressible(group, sends) {
            return refused(format!("vms.{name}.{key}"), why);
        }
    }
    Ok(())
}

/// A key of a group that bench/ns3 cannot express, and why. Some keys count only for senders.
fn inexpressible(group: &VmGroup, sends: bool) -> Option<(&'static str, &'static str)> {
    let tcp = &group.tcp;
    let name = tcp.congestion_control();
    let found = [
        (group.far_count > 0, "far_count", "all machines of bench/ns3 are as far away; set it to 0"),
        (
            group.nic_queue.discipline != Discipline::DropTail,
            "nic_queue.discipline",
            "hosts of bench/ns3 have queues that never overflow; leave it out",
        ),
        (tcp.era == Era::Paper, "tcp.era", "ns-3 has no TCP of Linux 2.6.32"),
        (
            sends && !CONGESTION_CONTROLS.contains(&name),
            "tcp.congestion_control",
            "bench/ns3 has `reno`, `cubic` and `dctcp` in common with this simulator",
        ),
        (
            sends && name == "cubic" && tcp.hystart != Some(false),
            "tcp.hystart",
            "Linux's HyStart and ns-3's are not the same; set it to false",
        ),
        (
            sends && tcp.rto_min_us == RtoMin::Word(RtoMinWord::Smallest),
            "tcp.rto_min_us",
            "ns-3 has no kernel that says what is smallest; give a number",
        ),
        (sends && tcp.tail_loss_probe(), "tcp.tail_loss_probe", "ns-3's TCP has none; set it to false"),
        (sends && tcp.rack(), "tcp.rack", "ns-3's TCP has none; set it to false"),
        (sends && tcp.f_rto != Some(false), "tcp.f_rto", "ns-3's TCP has none; set it to false"),
        (tcp.dsack != Some(false), "tcp.dsack", "ns-3's TCP has none; set it to false"),
        (!tcp.sack(), "tcp.sack", "bench/ns3 has SACK on; leave it out"),
        (!tcp.timestamps(), "tcp.timestamps", "bench/ns3 has timestamps on; leave it out"),
        (tcp.gso_segments.is_some_and(|most| most > 1), "tcp.gso_segments", "bench/ns3 has segments; leave it out"),
        (tcp.send_buffer_bytes.is_some(), "tcp.send_buffer_bytes", "bench/ns3 has buffers of 16 MiB; leave it out"),
    ];
    found.into_iter().find(|(is_so, ..)| *is_so).map(|(_, key, why)| (key, why))
}
