//! Turns a scenario's keys into the settings of the simulator's parts.

use std::collections::BTreeSet;

use evenkeel_algo::vsnoop::{self as vsnoop_algo, Settings as VsnoopSettings};
use evenkeel_scenario::format::{
    DelayedAck, Discipline, Era, Network, Queue, RtoMin, RtoMinWord, Scenario, SpuriousResponse as Response, Topology,
    VmGroup, Workload,
};
use evenkeel_scenario::placement::{Placement, host_count, hosts_of, placements};
use evenkeel_scenario::sweep::workload_seed;
use evenkeel_settings::{Bounded, Mode};

use crate::host::{cera, proboscis, vflood, vsnoop};
use crate::net::{
    Alpha, BufferSpec, CoDelSpec, FqCoDelSpec, Limit, PortSpec, PrioritySpec, QueueSpec, RedSpec, Shape, TopologySpec,
};
use crate::packet::{FRAME_OVERHEAD_BYTES, GuestId, HEADER_BYTES, HostId};
use crate::tcp::{CongestionControl, EcnMode, SpuriousResponse, TcpConfig};
use crate::time::Duration;
use crate::units::Rate;
use crate::workload::{Member, Members, Side};

/// Bytes of the timestamp option, padded.
const TIMESTAMP_BYTES: u32 = 12;
/// `rto_min_us = "smallest"`: the lab asks for this value, and kernels round it up to a tick.
const SMALLEST_RTO_MIN_US: u64 = 1000;
/// How long CERA's message to a client takes: virtio-serial, and waking a process.
const CLIENT_DELAY_US: u32 = 100;
/// The largest window field.
const MAX_WINDOW: u32 = 65_535;

/// A VM, or a machine of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedVm {
    /// As in `sender-0`.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its number.
    pub guest: GuestId,
    /// Its host.
    pub host: HostId,
}

/// Where all VMs are: the sending group first, each group's hosts one after the other.
pub fn placed_vms(scenario: &Scenario) -> Vec<PlacedVm> {
    let placed = |(guest, placement): (u32, &Placement)| PlacedVm {
        name: placement.name(),
        group: placement.group.to_owned(),
        guest: GuestId(guest),
        host: HostId(placement.host),
    };
    (0..).zip(&placements(scenario)).map(placed).collect()
}

/// How many hosts there are on each side: the senders', and the others. Hosts without VMs count as well.
fn sides(scenario: &Scenario) -> [u32; 2] {
    let sending: BTreeSet<&str> = scenario.workloads.values().map(|workload| workload.roles().0).collect();
    let groups = || sending.iter().filter_map(|name| scenario.vms.get(*name));
    let kinds: BTreeSet<&String> = groups().filter_map(|group| group.on.as_ref()).collect();
    let of_kinds: u32 = kinds.iter().filter_map(|name| scenario.hosts.get(*name)).map(|kind| kind.count).sum();
    let own: u32 = groups().filter(|group| group.on.is_none()).map(VmGroup::hosts).sum();
    let left = of_kinds + own;
    [left, host_count(scenario) - left]
}

/// The VMs that take part in the workload with this index.
pub fn members(scenario: &Scenario, workload: &Workload, placed: &[PlacedVm], index: usize, seed: u64) -> Members {
    let (from, to) = workload.roles();
    let of = |group: &str| {
        let own = placed.iter().filter(|p| p.group == group);
        own.map(|p| Member { guest: p.guest, host: p.host }).collect::<Vec<_>>()
    };
    let hosts = |group: &str| u64::from(hosts_of(scenario, group));
    let mbit = match scenario.network.topology {
        Topology::Dumbbell => u64::from(scenario.network.switch_rate_mbit()),
        Topology::Star | Topology::LeafSpine | Topology::FatTree => {
            hosts(from).min(hosts(to)) * u64::from(scenario.network.host_rate_mbit())
        }
    };
    Members { from: of(from), to: of(to), capacity_bps: mbit * 1_000_000, seed: workload_seed(seed, index) }
}

/// The network of a scenario.
pub fn topology(scenario: &Scenario) -> TopologySpec {
    let network = &scenario.network;
    let [left, right] = sides(scenario);
    let shape = match network.topology {
        Topology::Star => Shape::Star { hosts: left + right },
        Topology::Dumbbell => Shape::Dumbbell { left, right },
        Topology::LeafSpine => {
            Shape::LeafSpine { leaves: network.leaves, spines: network.spines, hosts_per_leaf: network.hosts_per_leaf }
        }
        Topology::FatTree => Shape::FatTree {
            pods: network.pods(),
            leaves: network.leaves,
            spines: network.spines,
            cores_per_spine: network.cores_per_spine(),
            hosts_per_leaf: network.hosts_per_leaf,
        },
    };
    let port = |mbit: u32, queue| PortSpec {
        rate: Rate::from_mbit(u64::from(mbit)),
        delay: Duration::from_us(u64::from(network.delay_us)),
        queue,
    };
    let buffer = match network.shared_buffer_kib {
        None => BufferSpec::PerPort,
        Some(kib) => BufferSpec::Shared {
            bytes: u64::from(kib) * 1024,
            alpha: Alpha { num: (network.buffer_alpha * 1000.0).round() as u32, den: 1000 },
        },
    };
    TopologySpec {
        shape,
        nic: port(network.host_rate_mbit(), QueueSpec::drop_tail(VmGroup::default().nic_queue_segments)),
        edge: port(network.host_rate_mbit(), queue(network)),
        core: port(network.switch_rate_mbit(), queue(network)),
        top: port(network.top_rate_mbit(), queue(network)),
        buffer,
    }
}

/// A network card's port, if its queue differs from that of all cards in [`topology`].
pub fn nic(scenario: &Scenario, group: &VmGroup) -> Option<PortSpec> {
    let default = VmGroup::default();
    let other = group.nic_queue_segments != default.nic_queue_segments || group.nic_queue != default.nic_queue;
    other.then(|| {
        let limit = Limit::segments(group.nic_queue_segments);
        PortSpec { queue: discipline(&group.nic_queue, &scenario.network, limit), ..topology(scenario).nic }
    })
}

fn queue(network: &Network) -> QueueSpec {
    let limit = match network.shared_buffer_kib {
        None => Limit::segments(network.buffer_segments),
        Some(_) => Limit::NONE,
    };
    discipline(&network.queue, network, limit)
}

fn discipline(queue: &Queue, network: &Network, limit: Limit) -> QueueSpec {
    let wire_bytes = network.mtu_bytes + FRAME_OVERHEAD_BYTES;
    let us = |value: Option<u32>, default: Duration| value.map_or(default, |us| Duration::from_us(u64::from(us)));
    let codel = || CoDelSpec {
        limit,
        target: us(queue.codel_target_us, CoDelSpec::default().target),
        interval: us(queue.codel_interval_us, CoDelSpec::default().interval),
        mtu_bytes: wire_bytes,
        ecn: true,
    };
    match queue.discipline {
        Discipline::DropTail => QueueSpec::Fifo { limit, red: None },
        Discipline::Red => QueueSpec::Fifo { limit, red: red(queue) },
        Discipline::Codel => QueueSpec::CoDel(codel()),
        Discipline::FqCodel => {
            QueueSpec::FqCoDel(FqCoDelSpec { codel: codel(), quantum_bytes: wire_bytes, ..FqCoDelSpec::default() })
        }
        Discipline::Priority => QueueSpec::Priority(PrioritySpec {
            classes: queue.thresholds_bytes.len() as u8 + 1,
            limit,
            red: queue.ecn_threshold_segments.map(RedSpec::threshold),
        }),
        Discipline::Pfabric => QueueSpec::PFabric(limit),
    }
}

fn red(queue: &Queue) -> Option<RedSpec> {
    let sloped = || {
        Some(RedSpec {
            min_segments: queue.red_min_segments?,
            max_segments: queue.red_max_segments?,
            max_probability_ppm: (queue.red_max_probability.unwrap_or(0.1) * 1e6).round() as u32,
        })
    };
    queue.ecn_threshold_segments.map(RedSpec::threshold).or_else(sloped)
}

/// TCP in a group's guests.
pub fn tcp(group: &VmGroup, mtu_bytes: u32) -> TcpConfig {
    let (tcp, hz) = (&group.tcp, group.hz());
    let base = match tcp.era {
        Era::Current => TcpConfig::current(hz),
        Era::Paper => TcpConfig::paper(hz),
    };
    let options = if tcp.timestamps() { TIMESTAMP_BYTES } else { 0 };
    let delayed_ack_max = tcp.delayed_ack_max_us.map_or(base.delayed_ack_max, |us| Duration::from_us(u64::from(us)));
    let mut config = TcpConfig {
        mss_bytes: mtu_bytes - HEADER_BYTES - options,
        initial_window_segments: tcp.initial_window_segments.unwrap_or(base.initial_window_segments),
        rto_min: rto_min(tcp.rto_min_us, base.jiffy, base.rto_min),
        sack: tcp.sack(),
        dsack: tcp.sack() && tcp.dsack.unwrap_or(base.dsack),
        timestamps: tcp.timestamps(),
        flood: group.vflood.mode() == Mode::Enforce,
        // A packet is no longer than IP's length field allows.
        gso_segments: tcp.gso_segments.unwrap_or(base.gso_segments).min(u32::from(u16::MAX) / mtu_bytes).max(1),
        // ACKs of what the host lets out after a timeout would look like ACKs of the originals.
        f_rto: tcp.f_rto.unwrap_or(base.f_rto) && group.vflood.mode() != Mode::Enforce,
        slow_start_after_idle: tcp.slow_start_after_idle.unwrap_or(base.slow_start_after_idle),
        spurious_response: match tcp.spurious_response() {
            Response::RateHalving => SpuriousResponse::RateHalving,
            Response::Undo => SpuriousResponse::Undo,
        },
        eifel: tcp.eifel(),
        tail_loss_probe: tcp.tail_loss_probe(),
        rack: tcp.rack(),
        ecn: match (tcp.needs_ecn(), tcp.ecn()) {
            (true, _) => EcnMode::Dctcp,
            (false, true) => EcnMode::Classic,
            (false, false) => EcnMode::Off,
        },
        congestion_control: match tcp.congestion_control() {
            "reno" => CongestionControl::Reno,
            "dctcp" => CongestionControl::Dctcp,
            "lldct" => CongestionControl::Lldct,
            _ => CongestionControl::Cubic,
        },
        hystart: tcp.hystart.unwrap_or(base.hystart),
        delayed_ack: tcp.delayed_ack == DelayedAck::On,
        delayed_ack_min: if delayed_ack_max < base.delayed_ack_min { delayed_ack_max } else { base.delayed_ack_min },
        delayed_ack_max,
        receive_buffer_bytes: tcp.receive_buffer_bytes.unwrap_or(base.receive_buffer_bytes),
        send_buffer_bytes: tcp.send_buffer_bytes.map(u64::from),
        ..base
    };
    while config.receive_window_bytes() >> config.window_scale > MAX_WINDOW {
        config.window_scale += 1;
    }
    config
}

/// TCP in a group's guests, with packets as large as the network allows.
pub fn guest_tcp(scenario: &Scenario, group: &VmGroup) -> TcpConfig {
    let config = tcp(group, scenario.network.mtu_bytes);
    if !scenario.network.segmentation_offload {
        return config;
    }
    TcpConfig { sizes_packets: true, gso_segments: group.tcp.gso_segments.unwrap_or(u32::MAX), ..config }
}

fn rto_min(asked: RtoMin, jiffy: Duration, default: Duration) -> Duration {
    let us = match asked {
        RtoMin::Word(RtoMinWord::Default) => return default,
        RtoMin::Word(RtoMinWord::Smallest) => SMALLEST_RTO_MIN_US,
        RtoMin::Us(us) => u64::from(us),
    };
    let (asked, tick) = (Duration::from_us(us), jiffy.ps().max(1));
    Duration::from_ps(asked.ps().div_ceil(tick) * tick)
}

/// ProBoSCIS on the hosts of a group; none if it is off.
pub fn proboscis(group: &VmGroup, mtu_bytes: u32) -> Option<proboscis::Spec> {
    let set = group.proboscis.in_scenario();
    (set.mode != Mode::Off).then(|| proboscis::Spec {
        mode: set.mode,
        timers: set.timers(),
        window: set.window(),
        sender: set.sender(),
        elephant_bytes: u64::from(set.elephant_bytes.get()),
        ecn_for_guests: set.ecn_for_guests,
        answers: set.answers,
        mss_bytes: tcp(group, mtu_bytes).mss_bytes,
    })
}

/// CERA on the hosts of a group; none if it is off.
pub fn cera(scenario: &Scenario, group: &VmGroup) -> Option<cera::Spec> {
    let set = group.cera.set.in_scenario();
    let bytes_per_s = u64::from(scenario.network.host_rate_mbit()) * 125_000;
    (set.mode != Mode::Off).then(|| cera::Spec {
        mode: set.mode,
        settings: set.settings(scenario.network.mtu_bytes + FRAME_OVERHEAD_BYTES, bytes_per_s),
        bytes_per_s,
        rtt_us: set.rtt_us.map(Bounded::get),
        mss_bytes: tcp(group, scenario.network.mtu_bytes).mss_bytes,
        client_delay: Duration::from_us(u64::from(group.cera.client_delay_us.unwrap_or(CLIENT_DELAY_US))),
    })
}

/// vFlood on the hosts of a group; none if it is off.
pub fn vflood(group: &VmGroup, mtu_bytes: u32) -> Option<vflood::Spec> {
    let set = group.vflood();
    let tcp = tcp(group, mtu_bytes);
    (set.mode != Mode::Off).then(|| vflood::Spec {
        mode: set.mode,
        settings: set.settings(tcp.initial_window_segments),
        mss_bytes: tcp.mss_bytes,
        port_queue_segments: group.port_queue_segments,
        off_core_permille: 10 * set.off_core_percent.get() as u16,
    })
}

/// vSnoop on the hosts of a group; none if it is off.
pub fn vsnoop(scenario: &Scenario, group: &VmGroup) -> Option<vsnoop::Spec> {
    let set = group.vsnoop.in_scenario();
    let queue_slots = group.port_queue_segments;
    let kind = group.on.as_ref().and_then(|on| scenario.hosts.get(on));
    (set.mode != Mode::Off).then(|| vsnoop::Spec {
        mode: set.mode,
        settings: VsnoopSettings { budget_segments: set.budget_segments(queue_slots) },
        // Without shared hosts each VM has a core of its own; the driver domain has one more.
        reserve_segments: vsnoop_algo::reserve(queue_slots, kind.map_or(group.per_host, |kind| kind.cores) + 1),
        mss_bytes: tcp(group, scenario.network.mtu_bytes).mss_bytes,
    })
}

/// Whether a group's ports have mechanisms.
pub fn has_mechanisms(scenario: &Scenario, group: &VmGroup) -> bool {
    let mtu_bytes = scenario.network.mtu_bytes;
    vflood(group, mtu_bytes).is_some()
        || proboscis(group, mtu_bytes).is_some()
        || vsnoop(scenario, group).is_some()
        || cera(scenario, group).is_some()
}

/// The network card's port of a VM that is far away.
pub fn far(scenario: &Scenario, vm: &PlacedVm) -> Option<PortSpec> {
    let group = scenario.vms.get(&vm.group)?;
    group.is_far(&vm.name).then(|| {
        let near = nic(scenario, group).unwrap_or(topology(scenario).nic);
        PortSpec { delay: near.delay + Duration::from_us(u64::from(group.far_delay_us)), ..near }
    })
}

/// The side of a connection that sends the workload's data.
pub fn data_side(workload: &Workload) -> Side {
    match workload {
        Workload::Strobe { .. } | Workload::RequestResponse { .. } | Workload::ThreeTier { .. } => Side::Acceptor,
        Workload::Ping { .. }
        | Workload::Bulk { .. }
        | Workload::Iperf3 { .. }
        | Workload::Poisson { .. }
        | Workload::Memcached { .. }
        | Workload::Transfers { .. } => Side::Opener,
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_scenario::format::GuestTcp;

    use super::*;

    fn scenario(network: &str, sender: &str, workload: &str) -> Scenario {
        let text = format!(
            "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 1000\n[network]\nrate_mbit = 1000\n{network}\n\
             [vms.receiver]\n[vms.sender]\n{sender}\n[workloads.w]\nfrom = \"sender\"\n{workload}"
        );
        Scenario::from_str(&text, "t.toml").unwrap_or_else(|e| panic!("{e}")).scenario
    }

    const BULK: &str = "to = \"receiver\"\nkind = \"bulk\"";

    #[test]
    fn senders_come_first_and_share_hosts() {
        let scenario = scenario("", "count = 5\nper_host = 2", BULK);
        let placed = placed_vms(&scenario);
        let found: Vec<_> = placed.iter().map(|p| (p.name.as_str(), p.guest.0, p.host.0)).collect();
        assert_eq!(
            found,
            [
                ("sender-0", 0, 0),
                ("sender-1", 1, 0),
                ("sender-2", 2, 1),
                ("sender-3", 3, 1),
                ("sender-4", 4, 2),
                ("receiver-0", 5, 3)
            ]
        );
        assert_eq!(topology(&scenario).shape, Shape::Star { hosts: 4 });
        let members = members(&scenario, scenario.workload(), &placed, 0, 7);
        assert_eq!((members.from.len(), members.to.len(), members.capacity_bps), (5, 1, 1_000_000_000));
    }

    #[test]
    fn links_and_queues_follow_their_keys() {
        let wide = scenario(
            "topology = \"leaf-spine\"\nleaves = 9\nspines = 4\nuplink_rate_mbit = 800\ndelay_us = 50\n\
             shared_buffer_kib = 100\nbuffer_alpha = 0.5\n\
             queue = { discipline = \"priority\", thresholds_bytes = [1000, 2000], ecn_threshold_segments = 20 }",
            "count = 9",
            BULK,
        );
        let spec = topology(&wide);
        assert_eq!(spec.shape, Shape::LeafSpine { leaves: 9, spines: 4, hosts_per_leaf: 16 });
        assert_eq!((spec.edge.rate, spec.core.rate), (Rate::from_mbit(1000), Rate::from_mbit(800)));
        assert_eq!(spec.core.delay, Duration::from_us(50));
        assert_eq!(spec.buffer, BufferSpec::Shared { bytes: 102_400, alpha: Alpha { num: 500, den: 1000 } });
        let red = Some(RedSpec::threshold(20));
        assert_eq!(spec.edge.queue, QueueSpec::Priority(PrioritySpec { classes: 3, limit: Limit::NONE, red }));
        let narrow = scenario(
            "topology = \"dumbbell\"\nedge_rate_mbit = 4000\nbuffer_segments = 64\n\
             queue = { discipline = \"red\", red_min_segments = 5, red_max_segments = 15, red_max_probability = 0.02 }",
            "count = 3\nnic_queue_segments = 7",
            BULK,
        );
        let spec = topology(&narrow);
        assert_eq!(spec.shape, Shape::Dumbbell { left: 3, right: 1 });
        assert_eq!((spec.edge.rate, spec.core.rate), (Rate::from_mbit(4000), Rate::from_mbit(1000)));
        let red = Some(RedSpec { min_segments: 5, max_segments: 15, max_probability_ppm: 20_000 });
        assert_eq!(spec.core.queue, QueueSpec::Fifo { limit: Limit::segments(64), red });
        assert_eq!(nic(&narrow, &narrow.vms["sender"]).map(|p| p.queue), Some(QueueSpec::drop_tail(7)));
        assert_eq!(nic(&narrow, &narrow.vms["receiver"]), None);
        let tree = |keys: &str| topology(&scenario(&format!("topology = \"fat-tree\"\n{keys}"), "count = 9", BULK));
        let default = Shape::FatTree { pods: 2, leaves: 2, spines: 2, cores_per_spine: 2, hosts_per_leaf: 16 };
        assert_eq!((tree("").shape, tree("").top.rate), (default, Rate::from_mbit(1000)));
        let spec = tree("pods = 4\nleaves = 3\nspines = 5\ncores_per_spine = 6\nuplink_rate_mbit = 800");
        let own = Shape::FatTree { pods: 4, leaves: 3, spines: 5, cores_per_spine: 6, hosts_per_leaf: 16 };
        assert_eq!((spec.shape, spec.core.rate, spec.top.rate), (own, Rate::from_mbit(800), Rate::from_mbit(800)));
        let spec = tree("core_rate_mbit = 400");
        assert_eq!((spec.core.rate, spec.top.rate), (Rate::from_mbit(1000), Rate::from_mbit(400)));
    }

    #[test]
    fn eras_and_keys_make_tcp() {
        let current = tcp(&VmGroup::default(), 1500);
        assert_eq!((current.mss_bytes, current.initial_window_segments), (1448, 10));
        assert!(current.rack && current.tail_loss_probe && current.eifel && current.ecn == EcnMode::Off);
        let paper = |tcp: GuestTcp| VmGroup { tcp: GuestTcp { era: Era::Paper, ..tcp }, ..VmGroup::default() };
        let old = tcp(&paper(GuestTcp { rto_min_us: RtoMin::Word(RtoMinWord::Smallest), ..GuestTcp::default() }), 1500);
        assert_eq!((old.mss_bytes, old.initial_window_segments), (1460, 3));
        assert_eq!((old.rto_min, old.jiffy), (Duration::from_ms(1), Duration::from_ms(1)));
        assert_eq!(
            (old.congestion_control, old.spurious_response),
            (CongestionControl::Reno, SpuriousResponse::RateHalving)
        );
        assert!(!old.rack && !old.tail_loss_probe && !old.eifel && !old.timestamps && old.f_rto && old.sack);
        let now = GuestTcp {
            rto_min_us: RtoMin::Us(5000),
            congestion_control: Some("dctcp".to_owned()),
            receive_buffer_bytes: Some(64 << 20),
            delayed_ack_max_us: Some(500),
            ..GuestTcp::default()
        };
        let group = VmGroup { tcp: now, ..VmGroup::default() };
        let config = tcp(&group, 9000);
        // Five milliseconds are two ticks of four.
        assert_eq!((config.rto_min, config.mss_bytes), (Duration::from_ms(8), 8948));
        assert_eq!((config.ecn, config.congestion_control), (EcnMode::Dctcp, CongestionControl::Dctcp));
        assert!(config.receive_window_bytes() >> config.window_scale <= MAX_WINDOW && config.window_scale == 10);
        assert_eq!((config.delayed_ack_min, config.delayed_ack_max), (Duration::from_us(500), Duration::from_us(500)));
        assert_eq!(tcp(&VmGroup { hz: Some(0), ..group }, 9000).rto_min, Duration::from_ms(5));
    }
}
