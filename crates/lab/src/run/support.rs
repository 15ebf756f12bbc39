//! What a scenario can ask for that real VMs on one machine cannot give.

use std::ops::RangeInclusive;

use evenkeel_scenario::format::{
    Discipline, HostKind, MachineKind, Network, Operation, Scenario, SpuriousResponse, Topology, VmGroup, Workload,
};
use evenkeel_scenario::placement::hosts_of;
use evenkeel_settings::Mode;

use super::hosts;
use crate::host::vm::RING_SLOTS;

/// Most VMs that the lab starts.
const MAX_VMS: u64 = 64;
/// Sizes of a request for a file: a head needs some bytes, and nginx takes no line that is much longer.
const FETCH_BYTES: RangeInclusive<u32> = 128..=4096;
/// Largest file: a VM has it in its memory.
const MAX_FILE_BYTES: u32 = 64 << 20;
/// Ticks per second of Debian's kernels.
const DEBIAN_HZ: u32 = 250;

/// The first key that the lab cannot honour, and why.
pub fn why_unsupported(scenario: &Scenario) -> Option<(String, String)> {
    let of_groups = scenario.vms.iter().find_map(|(name, group)| {
        let (key, why) = in_group(group)?;
        Some((format!("vms.{name}.{key}"), why.to_owned()))
    });
    let owned = |(key, why): (&str, &str)| (key.to_owned(), why.to_owned());
    in_network(&scenario.network)
        .map(owned)
        .or_else(|| hosts::why_unsupported(scenario))
        .or_else(|| large_packets(scenario))
        .or_else(|| too_many(scenario))
        .or(of_groups)
        .or_else(|| beside_others(scenario))
        .or_else(|| unsampled(scenario).map(owned))
        .or_else(|| scenario.alone().find_map(|(_, one)| in_only_workload(&one)))
        .or_else(|| scenario.alone().find_map(|(_, one)| in_namespaces(&one)))
        .or_else(|| at_network_cards(scenario))
}

/// Refuses what network cards of hosts cannot be, and settings of those that are no bottleneck.
fn at_network_cards(scenario: &Scenario) -> Option<(String, String)> {
    let default = VmGroup::default();
    for (name, group) in &scenario.vms {
        let refuse = |key: &str, why: &str| Some((format!("vms.{name}.{key}"), why.to_owned()));
        let sends = scenario.workloads.values().any(|workload| workload.roles().0 == name);
        let is_bottleneck = scenario.record.sender_nic && sends;
        if !is_bottleneck && group.nic_queue_segments != default.nic_queue_segments {
            return refuse("nic_queue_segments", NO_NETWORK_CARD);
        }
        if !is_bottleneck && group.nic_queue != default.nic_queue {
            return refuse("nic_queue", NO_NETWORK_CARD);
        }
        match group.nic_queue.discipline {
            Discipline::DropTail => {}
            Discipline::Codel | Discipline::FqCodel if group.host == HostKind::Vm => {}
            Discipline::Codel | Discipline::FqCodel => {
                return refuse("nic_queue.discipline", "this machine's kernel need not have it; set `host = \"vm\"`");
            }
            _ => {
                return refuse(
                    "nic_queue.discipline",
                    "the lab's network cards have drop-tail, CoDel or FQ-CoDel queues",
                );
            }
        }
        let on_several = match &group.on {
            None => group.count > group.per_host,
            Some(_) => hosts_of(scenario, name) > 1,
        };
        if group.cera.mode() != Mode::Off && group.host == HostKind::Native && on_several {
            return refuse(
                if group.on.is_some() { "on" } else { "per_host" },
                "one agent with one controller of CERA plays all hosts of this machine; put the VMs on one, or set \
                 `host = \"vm\"`",
            );
        }
        if is_bottleneck && !group.hypervisor {
            return refuse("hypervisor", "the network card that is the bottleneck (record.sender_nic) is a host's");
        }
    }
    if scenario.record.sender_nic {
        let refuse = |key: &str, why: &str| Some((key.to_owned(), why.to_owned()));
        if scenario.network.rate_mbit == 0 {
            return refuse("network.rate_mbit", "a network card without a rate is no bottleneck; set it above 0");
        }
        if scenario.network.queue.discipline != Discipline::DropTail {
            return refuse("network.queue.discipline", "the network card is the bottleneck (record.sender_nic)");
        }
    }
    None
}

/// What machines that are namespaces cannot do in the only workload.
fn in_namespaces(scenario: &Scenario) -> Option<(String, String)> {
    let (from, _) = scenario.workload().roles();
    if scenario.vms.get(from)?.machine != MachineKind::Namespace {
        return None;
    }
    let refuse = |key: String, why: &str| Some((key, why.to_owned()));
    match scenario.workload() {
        Workload::ThreeTier { .. } => refuse(
            format!("vms.{from}.machine"),
            "the servers of a web application are VMs: one has PostgreSQL in its image",
        ),
        Workload::Transfers { .. } => None,
        _ if scenario.record.capture => refuse(
            "record.capture".to_owned(),
            "captures are analysed by the clock of the sender's kernel, which must be a VM's (machine)",
        ),
        _ => None,
    }
}

const NO_NETWORK_CARD: &str =
    "it is no bottleneck: only the network cards of the VMs that send have a rate, with `record.sender_nic`";

fn too_many(scenario: &Scenario) -> Option<(String, String)> {
    let vms: u64 = scenario.vms.values().map(|g| u64::from(g.count)).sum();
    (vms > MAX_VMS).then(|| {
        (
            "vms".to_owned(),
            format!("{vms} VMs in all groups together; the lab starts at most {MAX_VMS} (the simulator more)"),
        )
    })
}

/// Without offload, a guest cuts its packets into segments itself.
fn large_packets(scenario: &Scenario) -> Option<(String, String)> {
    let is_large = |group: &VmGroup| group.tcp.gso_segments.is_some_and(|segments| segments > 1);
    let (name, _) = scenario.vms.iter().find(|(_, group)| is_large(group))?;
    (!scenario.network.segmentation_offload).then(|| {
        let why = "guests hand over segments of the MTU; set `network.segmentation_offload = true`, or leave it out";
        (format!("vms.{name}.tcp.gso_segments"), why.to_owned())
    })
}

fn in_network(network: &Network) -> Option<(&'static str, &'static str)> {
    if network.topology != Topology::Star {
        return Some(("network.topology", "the lab has one switch, a star; the simulator has the others"));
    }
    match network.queue.discipline {
        Discipline::DropTail => {}
        Discipline::Red if network.rate_mbit == 0 => {
            return Some(("network.queue.discipline", "a port without a rate has no queue; set network.rate_mbit"));
        }
        Discipline::Red if network.queue.ecn_threshold_segments.is_none() => {
            return Some((
                "network.queue.red_min_segments",
                "the lab's ports mark from one length on; set `ecn_threshold_segments` (the simulator has both)",
            ));
        }
        Discipline::Red if network.segmentation_offload => {
            return Some((
                "network.segmentation_offload",
                "a port that marks counts segments; leave it at false with the discipline `red`",
            ));
        }
        Discipline::Red => {}
        _ => {
            return Some((
                "network.queue.discipline",
                "the lab's ports are drop-tail or mark (`red`); the simulator has the others",
            ));
        }
    }
    if network.shared_buffer_kib.is_some() {
        return Some((
            "network.shared_buffer_kib",
            "each port of the lab has its own buffer; leave it out (the simulator can share)",
        ));
    }
    (network.delay_us > 0)
        .then_some(("network.delay_us", "the lab cannot delay packets; leave it at 0 (the simulator can)"))
}

fn in_group(group: &VmGroup) -> Option<(&'static str, &'static str)> {
    let default = VmGroup::default();
    let tcp = &group.tcp;
    // In the paper's era the simulator's guests tick at 1000 Hz; the lab's keep Debian's clock, as docs/lab.md says.
    if group.hz.is_some_and(|hz| hz != DEBIAN_HZ) {
        return Some(("hz", "Debian's kernels tick at 250 Hz; leave it out (the simulator can tick otherwise)"));
    }
    if group.host_delay_us.is_some() {
        return Some(("host_delay_us", "the lab's host takes the time that it takes; leave it out"));
    }
    if group.cera.client_delay_us.is_some() {
        return Some(("cera.client_delay_us", "the lab's channels take the time that they take; leave it out"));
    }
    if group.vflood.mode() != Mode::Off && group.host != HostKind::Vm {
        return Some((
            "vflood.mode",
            "vFlood needs a kernel with BPF qdiscs (Linux 6.16) on the host; set `host = \"vm\"`",
        ));
    }
    if group.vflood.mode() != Mode::Off && !matches!(tcp.congestion_control(), "reno" | "cubic") {
        return Some((
            "tcp.congestion_control",
            "with vFlood, `reno` or `cubic` goes on in the background; leave it out, or set one of them",
        ));
    }
    if group.migrate_at_ms.is_some() {
        if group.host != HostKind::Vm {
            return Some(("migrate_at_ms", "on this machine all VMs are on one host; set `host = \"vm\"`"));
        }
        if group.count > 1 {
            return Some(("migrate_at_ms", "a group's only VM can move; leave `count` at 1"));
        }
        if group.core.vms_per_core > 1 {
            return Some(("migrate_at_ms", "a VM that moves has its core to itself; leave `core.vms_per_core` at 1"));
        }
    }
    if group.ring_slots.is_some_and(|slots| slots != RING_SLOTS) {
        return Some((
            "ring_slots",
            "QEMU's rings on a tap have 256 slots for what a VM sends, whatever they are asked for; set 256",
        ));
    }
    if group.far_count > 0 {
        return Some(("far_count", "the lab cannot delay packets; leave it at 0 (the simulator can)"));
    }
    if group.packet_cost_ns != default.packet_cost_ns {
        return Some(("packet_cost_ns", "the lab's guests take the time that they take; leave it at 0"));
    }
    if group.read_cost_ns != default.read_cost_ns {
        return Some(("read_cost_ns", "the lab's guests take the time that they take; leave it at 0"));
    }
    if tcp.eifel.is_some_and(|eifel| eifel != tcp.timestamps()) {
        return Some((
            "tcp.eifel",
            "Linux detects by timestamps whenever they are on, and only then; set `tcp.timestamps`",
        ));
    }
    if tcp.spurious_response == Some(SpuriousResponse::RateHalving) {
        return Some((
            "tcp.spurious_response",
            "rate halving is gone from Linux, which always undoes (the simulator has it)",
        ));
    }
    if tcp.delayed_ack_max_us.is_some() {
        return Some((
            "tcp.delayed_ack_max_us",
            "a constant of the kernel; leave it out (the simulator can change it)",
        ));
    }
    (tcp.congestion_control() == "lldct")
        .then_some(("tcp.congestion_control", "Linux has no LLDCT (the simulator has)"))
}

/// Whether a store's answer, or what it is given, is too large for a machine's memory.
fn keeps_too_much(operation: &Operation) -> bool {
    let of_calls = operation.calls.iter().flat_map(|call| [call.request_bytes, call.response_bytes]);
    of_calls.chain([operation.object_bytes]).any(|bytes| bytes > MAX_FILE_BYTES)
}

/// A key as the file has it: keys of the only workload come without its name.
fn in_full(scenario: &Scenario, key: &str) -> String {
    key.strip_prefix("workload.").map_or_else(|| key.to_owned(), |key| scenario.workload_key(key))
}

/// What cannot be where several workloads run at once.
fn beside_others(scenario: &Scenario) -> Option<(String, String)> {
    if scenario.workloads.len() == 1 {
        return None;
    }
    if let Some((name, _)) = scenario.vms.iter().find(|(_, group)| group.migrate_at_ms.is_some()) {
        let why = "a VM moves in a run with one workload; leave it out, or leave one of `workloads`";
        return Some((format!("vms.{name}.migrate_at_ms"), why.to_owned()));
    }
    let why = "captures are analysed for the flows of one workload; leave it at false, or leave one of `workloads`";
    scenario.record.capture.then(|| ("record.capture".to_owned(), why.to_owned()))
}

/// Sockets that would be sampled are the first workload's.
fn unsampled(scenario: &Scenario) -> Option<(&'static str, &'static str)> {
    let of_servers = matches!(scenario.workload(), Workload::RequestResponse { .. } | Workload::ThreeTier { .. });
    (of_servers && scenario.record.tcp_info_period_ms > 0).then_some((
        "record.tcp_info_period_ms",
        "the lab cannot sample its servers' sockets; set it to 0 (the simulator can)",
    ))
}

fn in_only_workload(scenario: &Scenario) -> Option<(String, String)> {
    in_workload(scenario).map(|(key, why)| (in_full(scenario, key), why.to_owned()))
}

fn in_workload(scenario: &Scenario) -> Option<(&'static str, &'static str)> {
    let moves = scenario.vms.values().any(|group| group.migrate_at_ms.is_some());
    match scenario.workload() {
        Workload::Transfers { .. } if moves && scenario.record.capture => {
            Some(("record.capture", "a VM that moves (migrate_at_ms) is at no one port; leave it at false"))
        }
        workload if moves && !matches!(workload, Workload::Transfers { .. }) => {
            Some(("workload.kind", "only VMs of `transfers` can move (migrate_at_ms)"))
        }
        Workload::Poisson { flows: 1.., .. } => {
            Some(("workload.flows", "the lab measures for duration_ms; leave it at 0 (the simulator can count)"))
        }
        Workload::Poisson { persistent: true, .. } => {
            Some(("workload.persistent", "the lab's requests have a connection each (the simulator's can share)"))
        }
        Workload::Poisson { request_bytes: bytes @ 1.., .. } if !FETCH_BYTES.contains(bytes) => Some((
            "workload.request_bytes",
            "the lab's requests are HTTP's; set 128 to 4096, or 0 for PUT (the simulator's can have any size)",
        )),
        Workload::Poisson { background_mesh_flows: 1.., .. } => {
            Some(("workload.background_mesh_flows", "only the simulator has them; the lab's are `background_flows`"))
        }
        Workload::Poisson { .. } if scenario.network.rate_mbit == 0 => {
            Some(("network.rate_mbit", "a load is a share of the ports' rate; set it above 0"))
        }
        Workload::Poisson { .. } if scenario.record.capture => {
            Some(("record.capture", "captures are analysed for flows that last; leave it at false with `poisson`"))
        }
        Workload::RequestResponse { request_bytes, .. } if !FETCH_BYTES.contains(request_bytes) => Some((
            "workload.request_bytes",
            "the lab's requests are HTTP's; set 128 to 4096 (the simulator's can have any size)",
        )),
        Workload::RequestResponse { response_bytes, .. } if *response_bytes > MAX_FILE_BYTES => Some((
            "workload.response_bytes",
            "the lab's servers keep the file in their memory; set at most 67108864 (the simulator's can be larger)",
        )),
        Workload::RequestResponse { .. } if scenario.record.capture => {
            Some(("record.capture", "captures are analysed for flows of one direction; leave it at false"))
        }
        Workload::Memcached { late_start_ms: 1.., .. } => {
            Some(("workload.late_start_ms", "all begin at once in the lab; leave it at 0 (the simulator can wait)"))
        }
        Workload::Memcached { .. } if scenario.record.capture => {
            Some(("record.capture", "captures are analysed for flows that last; leave it at false"))
        }
        Workload::ThreeTier { .. } if scenario.record.capture => {
            Some(("record.capture", "captures are analysed for flows that last; leave it at false"))
        }
        Workload::ThreeTier { operations, .. }
            if operations.iter().any(|o| o.work_us > 0 || o.calls.iter().any(|call| call.work_us > 0)) =>
        {
            Some(("workload.operations", "real servers take the time that they take; leave `work_us` out"))
        }
        Workload::ThreeTier { operations, .. } if operations.iter().any(keeps_too_much) => Some((
            "workload.operations",
            "the lab's stores, and who asks them, keep what is asked for in their memory; set at most 67108864 for \
             `object_bytes` and for the sizes of calls (the simulator's can be larger)",
        )),
        Workload::Strobe { from, block_kib, .. } => {
            let servers = scenario.vms.get(from).map_or(1, |g| g.count);
            (u64::from(*block_kib) * 1024 < u64::from(servers))
                .then_some(("workload.block_kib", "every sender must have at least one byte to send"))
        }
        Workload::Ping { .. }
        | Workload::Bulk { .. }
        | Workload::Iperf3 { .. }
        | Workload::Poisson { .. }
        | Workload::RequestResponse { .. }
        | Workload::Memcached { .. }
        | Workload::ThreeTier { .. }
        | Workload::Transfers { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        schema = 2
        name = "t"
        title = "t"
        duration_ms = 1000
        [network]
        rate_mbit = 100
        [vms.a]
        core = { vms_per_core = 2 }
        [vms.b]
        [workloads.w]
        kind = "bulk"
        from = "a"
        to = "b"
    "#;

    fn refused(from: &str, to: &str) -> String {
        assert!(TEXT.contains(from), "{from}");
        refused_text(&TEXT.replace(from, to))
    }

    fn refused_text(text: &str) -> String {
        let loaded = Scenario::from_str(text, "t.toml").unwrap_or_else(|e| panic!("{e}"));
        why_unsupported(&loaded.scenario).map(|(key, _)| key).unwrap_or_default()
    }

    #[test]
    fn the_lab_runs_what_it_always_ran() {
        assert_eq!(refused("t", "t"), "");
        assert_eq!(
            refused(
                "[vms.b]",
                "[vms.b]\nhz = 250\ntcp = { era = \"paper\", spurious_response = \"undo\", eifel = false }"
            ),
            ""
        );
    }

    #[test]
    fn of_several_workloads_each_is_looked_at() {
        let beside = |workload: &str, from: &str, to: &str| {
            let text = format!("{TEXT}\n[workloads.z]\nfrom = \"b\"\nto = \"a\"\n{workload}\n");
            assert!(text.contains(from), "{from}");
            refused_text(&text.replace(from, to))
        };
        const REQUESTS: &str = "kind = \"request-response\"\nrequest_bytes = 200\nresponse_bytes = 9000";
        // Sockets are sampled for the first workload.
        assert_eq!(beside(REQUESTS, "", ""), "");
        assert_eq!(beside(REQUESTS, "workloads.z", "workloads.a"), "record.tcp_info_period_ms");
        assert_eq!(beside(REQUESTS, "200", "20"), "workloads.z.request_bytes");
        assert_eq!(beside(REQUESTS, "[vms.b]", "[record]\ncapture = true\n[vms.b]"), "record.capture");
        assert_eq!(beside("kind = \"bulk\"", "", ""), "");
        let moves = "migrate_at_ms = 500\nhost = \"vm\"";
        assert_eq!(beside("kind = \"bulk\"", "core = { vms_per_core = 2 }", moves), "vms.a.migrate_at_ms");
        // Network cards of all that send are bottlenecks.
        let cards = |line: &str| format!("[record]\nsender_nic = true\n[vms.b]\n{line}");
        assert_eq!(beside("kind = \"bulk\"", "[vms.b]", &cards("nic_queue_segments = 9")), "");
        assert_eq!(beside("kind = \"bulk\"", "[vms.b]", &cards("hypervisor = false")), "vms.b.hypervisor");
    }

    #[test]
    fn what_only_the_simulator_has_is_refused_by_name() {
        let network = |line: &str| refused("rate_mbit = 100", &format!("rate_mbit = 100\n{line}"));
        assert_eq!(network("topology = \"dumbbell\""), "network.topology");
        assert_eq!(network("topology = \"leaf-spine\""), "network.topology");
        assert_eq!(network("topology = \"fat-tree\""), "network.topology");
        assert_eq!(network("queue = { discipline = \"codel\" }"), "network.queue.discipline");
        assert_eq!(network("queue = { discipline = \"red\", ecn_threshold_segments = 20 }"), "");
        assert_eq!(
            network("queue = { discipline = \"red\", red_min_segments = 5, red_max_segments = 20 }"),
            "network.queue.red_min_segments"
        );
        assert_eq!(network("shared_buffer_kib = 512"), "network.shared_buffer_kib");
        assert_eq!(network("delay_us = 5"), "network.delay_us");
        let group = |line: &str| refused("[vms.b]", &format!("[vms.b]\n{line}"));
        for (line, key) in [
            ("count = 64", "vms"),
            ("hz = 1000", "vms.b.hz"),
            ("host_delay_us = 50", "vms.b.host_delay_us"),
            ("packet_cost_ns = 500", "vms.b.packet_cost_ns"),
            ("ring_slots = 240", "vms.b.ring_slots"),
            ("ring_slots = 512", "vms.b.ring_slots"),
            ("ring_slots = 256", ""),
            ("cera = { mode = \"enforce\", client_delay_us = 5 }", "vms.b.cera.client_delay_us"),
            ("nic_queue = { discipline = \"codel\" }", "vms.b.nic_queue"),
            ("count = 2\nfar_count = 1\nfar_delay_us = 9", "vms.b.far_count"),
            ("read_cost_ns = 500", "vms.b.read_cost_ns"),
            ("nic_queue_segments = 100", "vms.b.nic_queue_segments"),
            ("tcp = { timestamps = true, eifel = false }", "vms.b.tcp.eifel"),
            ("tcp = { spurious_response = \"rate-halving\" }", "vms.b.tcp.spurious_response"),
            ("tcp = { delayed_ack_max_us = 1000 }", "vms.b.tcp.delayed_ack_max_us"),
            ("tcp = { congestion_control = \"lldct\" }", "vms.b.tcp.congestion_control"),
        ] {
            assert_eq!(group(line), key, "{line}");
        }
        let large = |segments: u32| refused("[vms.a]", &format!("[vms.a]\ntcp = {{ gso_segments = {segments} }}"));
        assert_eq!((large(1).as_str(), large(2).as_str()), ("", "vms.a.tcp.gso_segments"));
        let offload = TEXT.replace("rate_mbit = 100", "rate_mbit = 100\nsegmentation_offload = true");
        assert_eq!(refused_text(&offload.replace("[vms.a]", "[vms.a]\ntcp = { gso_segments = 2 }")), "");
        let moves = |line: &str, workload: &str| {
            let text = TEXT.replace("core = { vms_per_core = 2 }", &format!("migrate_at_ms = 500\n{line}"));
            refused_text(&text.replace("\"bulk\"", workload))
        };
        const TRANSFERS: &str = "\"transfers\"\nbytes = 100000";
        assert_eq!(moves("host = \"vm\"", TRANSFERS), "");
        assert_eq!(moves("", TRANSFERS), "vms.a.migrate_at_ms");
        assert_eq!(moves("host = \"vm\"\ncount = 2", TRANSFERS), "vms.a.migrate_at_ms");
        assert_eq!(moves("host = \"vm\"\ncore = { vms_per_core = 2 }", TRANSFERS), "vms.a.migrate_at_ms");
        assert_eq!(moves("host = \"vm\"", "\"bulk\""), "workloads.w.kind");
        assert_eq!(refused("[vms.a]", "[vms.a]\nvflood = { mode = \"enforce\" }"), "vms.a.vflood.mode");
        assert_eq!(refused("[vms.a]", "[vms.a]\nhost = \"vm\"\nvflood = { mode = \"enforce\" }"), "");
        assert_eq!(
            refused("[vms.a]", "[vms.a]\nhost = \"vm\"\nvflood.mode = \"enforce\"\ntcp.congestion_control = \"bbr\""),
            "vms.a.tcp.congestion_control"
        );
        let namespace = "[vms.a]\nhypervisor = false\nmachine = \"namespace\"";
        let alone = TEXT.replace("core = { vms_per_core = 2 }", "").replace("[vms.a]", namespace);
        assert_eq!(refused_text(&alone), "");
        assert_eq!(refused_text(&alone.replace("[vms.b]", "[record]\ncapture = true\n[vms.b]")), "record.capture");
        let sender = |line: &str| refused("[vms.a]", &format!("[record]\nsender_nic = true\n[vms.a]\n{line}"));
        assert_eq!(sender("nic_queue_segments = 100\nper_host = 2"), "");
        assert_eq!(sender("host = \"vm\"\nnic_queue = { discipline = \"fq-codel\" }"), "");
        assert_eq!(sender("nic_queue = { discipline = \"fq-codel\" }"), "vms.a.nic_queue.discipline");
        let poisson =
            |line: &str| refused("\"bulk\"", &format!("\"poisson\"\nload = 0.5\nsizes = \"websearch\"\n{line}"));
        assert_eq!(poisson("burst_flows = 8\nbackground_flows = 1\ndeadline_ms = 200"), "");
        assert_eq!(poisson("flows = 100"), "workloads.w.flows");
        assert_eq!(poisson("background_mesh_flows = 1"), "workloads.w.background_mesh_flows");
        assert_eq!(poisson("persistent = true"), "workloads.w.persistent");
        assert_eq!(poisson("request_bytes = 200"), "");
        assert_eq!(poisson("request_bytes = 20"), "workloads.w.request_bytes");
        assert_eq!(refused("\"bulk\"", "\"memcached\""), "");
        assert_eq!(refused("\"bulk\"", "\"memcached\"\nlate_start_ms = 9"), "workloads.w.late_start_ms");
        assert_eq!(refused("\"bulk\"", "\"transfers\"\nbytes = 100000"), "");
        let record = |settings: &str| TEXT.replace("[vms.a]", &format!("[record]\n{settings}\n[vms.a]"));
        let unsampled = record("tcp_info_period_ms = 0");
        let asks = |text: &str, sizes: &str| {
            refused_text(&text.replace("\"bulk\"", &format!("\"request-response\"\n{sizes}")))
        };
        const SIZES: &str = "request_bytes = 128\nresponse_bytes = 67108864";
        assert_eq!(asks(&unsampled, SIZES), "");
        assert_eq!(asks(TEXT, SIZES), "record.tcp_info_period_ms");
        assert_eq!(asks(&record("tcp_info_period_ms = 0\ncapture = true"), SIZES), "record.capture");
        for (from, to, key) in [("128", "127", "request"), ("128", "4097", "request"), ("864", "865", "response")] {
            assert_eq!(asks(&unsampled, &SIZES.replace(from, to)), format!("workloads.w.{key}_bytes"));
        }
        let application = "\"three-tier\"\nusers = 1\nthink_time_ms = 1\n\
            operations = [{ name = \"page\", weight = 1, request_bytes = 1, response_bytes = 1 }]";
        let tiers = unsampled.replace("[vms.a]", "[vms.a]\n        count = 4").replace("\"bulk\"", application);
        assert_eq!(refused_text(&tiers), "");
        let in_namespaces = tiers.replace("core = { vms_per_core = 2 }", "").replace("[vms.a]", namespace);
        assert_eq!(refused_text(&in_namespaces), "vms.a.machine");
        assert_eq!(refused_text(&tiers.replace("weight = 1", "weight = 1, work_us = 5")), "workloads.w.operations");
        assert_eq!(refused_text(&tiers.replace("weight = 1", "weight = 1, objects = 1, object_bytes = 67108864")), "");
        let calls = "weight = 1, calls = [{ store = \"cache\", request_bytes = 1, response_bytes = 67108865 }]";
        for large in ["weight = 1, objects = 1, object_bytes = 67108865", calls] {
            assert_eq!(refused_text(&tiers.replace("weight = 1", large)), "workloads.w.operations");
        }
        assert_eq!(refused_text(&tiers.replace("[record]", "[record]\ncapture = true")), "record.capture");
        assert_eq!(refused_text(&tiers.replace("period_ms = 0", "period_ms = 9")), "record.tcp_info_period_ms");
    }
}
