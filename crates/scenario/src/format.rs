//! The scenario file: what the TOML keys are, their units, defaults and bounds.
//!
//! The bounds in the `schemars` attributes are the only place where they stand: the JSON schema for editors and the
//! check of a file (`check.rs`) both come from them.

use std::collections::BTreeMap;

use evenkeel_settings::vflood::{HostCongestion, VfloodOverride};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

mod cera;
mod host;
mod mechanisms;
mod names;
mod network;
mod proboscis;
mod pvtcp;
mod vflood;
mod vsnoop;
mod workload;

pub use cera::Cera;
pub use host::{DriverDomain, Host, Neighbours, OwnLoad, Quota, Scheduler};
pub use mechanisms::Preset;
pub use network::{Discipline, Network, Queue, Topology};
pub use proboscis::Proboscis;
pub use pvtcp::Pvtcp;
pub use vflood::Vflood;
pub use vsnoop::Vsnoop;
pub use workload::{FlowSizes, FlowSizesWord, OBJECT_REQUEST_BYTES, Operation, Store, StoreCall, Workload};

/// One scenario: a topology, guests, a workload, axes to sweep and the figures a paper reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Version of this format; 1.
    #[schemars(range(min = 1, max = 1))]
    pub schema: u32,
    /// Name, as in `pvtcp/fig4-rtt`; equals the path below `scenarios/` without `.toml`.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9/-]*$"), length(max = 80))]
    pub name: String,
    /// One line for tables and the report's heading.
    #[schemars(length(min = 1))]
    pub title: String,
    /// What is shown and why, in a few sentences (plain text; blank lines separate paragraphs).
    #[serde(default)]
    pub description: String,
    /// Where the experiment comes from, as in `PVTCP Table I`.
    #[serde(default)]
    pub source: String,
    /// Seed of every random draw (slices, start offsets).
    #[serde(default = "default_seed")]
    #[schemars(range(min = 0, max = 9_223_372_036_854_775_807_u64))]
    pub seed: u64,
    /// How often each cell is run.
    #[serde(default = "default_repetitions")]
    #[schemars(range(min = 1, max = 1000))]
    pub repetitions: u32,
    /// Measured time of a run, after the warm-up.
    #[schemars(range(min = 100, max = 3_600_000))]
    pub duration_ms: u64,
    /// Time the workload runs before counters and series are taken.
    #[serde(default = "default_warmup_ms")]
    #[schemars(range(min = 0, max = 600_000))]
    pub warmup_ms: u64,
    /// The network between the VMs.
    #[serde(default)]
    pub network: Network,
    /// Kinds of hosts, by name, for groups that say which they are `on`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = serde_json::json!({ "pattern": "^[a-z][a-z0-9-]{0,31}$" })))]
    pub hosts: BTreeMap<String, Host>,
    /// Groups of like VMs, by name (`sender`, `receiver`).
    #[schemars(extend("propertyNames" = serde_json::json!({ "pattern": "^[a-z][a-z0-9-]{0,31}$" })))]
    pub vms: BTreeMap<String, VmGroup>,
    /// Which mechanisms act (mode `enforce`), by the name of a group or of a kind of hosts. Their other settings are in
    /// the groups' own tables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = serde_json::json!({ "pattern": "^[a-z][a-z0-9-]{0,31}$" })))]
    pub mechanisms: BTreeMap<String, Preset>,
    /// What the VMs do.
    pub workload: Workload,
    /// What is recorded besides counters.
    #[serde(default)]
    pub record: Record,
    /// What is varied; the product of all axes gives the cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub axes: Vec<Axis>,
    /// Figures that a paper reports for cells of this scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paper: Vec<PaperFigures>,
    /// How the results are shown.
    #[serde(default)]
    pub report: ReportSpec,
}

fn default_seed() -> u64 {
    1
}
fn default_repetitions() -> u32 {
    1
}
fn default_warmup_ms() -> u64 {
    500
}

/// Which kernel a guest boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Kernel {
    /// Debian 12's.
    #[serde(rename = "6.1")]
    V6_1,
    /// Debian 13's.
    #[serde(rename = "6.12")]
    V6_12,
    /// The newest that Debian's backports carry.
    #[serde(rename = "newest")]
    Newest,
}

/// A group of like VMs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VmGroup {
    /// How many.
    #[schemars(range(min = 1, max = 4096))]
    pub count: u32,
    /// Which kernel they boot.
    pub kernel: Kernel,
    /// Virtual CPUs of each.
    #[schemars(range(min = 1, max = 8))]
    pub vcpus: u32,
    /// Memory of each.
    #[schemars(range(min = 96, max = 4096))]
    pub memory_mib: u32,
    /// The hosts that they are on, a name below `[hosts]`. Left out: hosts of their own, `per_host` VMs on each, with a
    /// core for each virtual CPU, shared as `core` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// How much of their host's cores is theirs beside others (`cpu.weight`).
    #[schemars(range(min = 1, max = 10_000))]
    pub weight: u32,
    /// What each may use of its host's cores at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// How long their virtual CPUs run before others have their turn (`sched_setattr`, Linux 6.12 and newer). Left out:
    /// the scheduler's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 100_000))]
    pub slice_us: Option<u32>,
    /// What each computes beside its traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_load: Option<OwnLoad>,
    /// Slots of the ring between each VM and its host, each way: Xen's has 240, virtio's 256 to 1024. Left out:
    /// as many as ever are needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 8, max = 65_536))]
    pub ring_slots: Option<u32>,
    /// How their virtual CPUs share a core.
    pub core: CoreSharing,
    /// Queue length of each VM's port on the host, towards the VM (`txqueuelen`; netback's queue in the paper).
    #[schemars(range(min = 1, max = 1_000_000))]
    pub port_queue_segments: u32,
    /// Ticks per second of the guest's clock. 0: timers run at their very time. Left out: 250, or 1000 with
    /// `tcp.era = "paper"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub hz: Option<u32>,
    /// Whether these are VMs behind a driver domain. `false`: machines of their own, without a hypervisor; in the lab,
    /// VMs at the switch that share no core.
    pub hypervisor: bool,
    /// What plays these machines in the lab. Without a hypervisor there is a choice.
    pub machine: MachineKind,
    /// What runs their hosts' bridges, queues and agent, in the lab. The simulator's hosts are its own.
    pub host: HostKind,
    /// What the host takes to hand a packet from the network card to a VM, or back. Left out: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub host_delay_us: Option<u32>,
    /// Time that a virtual CPU takes for each packet that it sends or receives. 0: none, and no CPU shares are
    /// reported.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub packet_cost_ns: u32,
    /// Time that a virtual CPU takes to wake an application up that reads what has come. Packets that come meanwhile
    /// are read together, and acknowledged together.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub read_cost_ns: u32,
    /// Queue length of the host's network card.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub nic_queue_segments: u32,
    /// How the host's network card queues. Left out: drop-tail.
    pub nic_queue: Queue,
    /// VMs of this group that share one host and its network card.
    #[schemars(range(min = 1, max = 64))]
    pub per_host: u32,
    /// So long after the measured time has begun, the VM moves to another host by live migration: its port goes
    /// offline, what is held leaves, and its new host takes over. Left out: it stays. Only the lab can.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 600_000))]
    pub migrate_at_ms: Option<u32>,
    /// TCP settings in the guest.
    pub tcp: GuestTcp,
    /// PVTCP in the guest.
    pub pvtcp: Pvtcp,
    /// ProBoSCIS on the host.
    pub proboscis: Proboscis,
    /// CERA on the host.
    pub cera: Cera,
    /// vFlood on the host and in the guest.
    pub vflood: Vflood,
    /// vSnoop on the host.
    pub vsnoop: Vsnoop,
    /// So many VMs of this group, the last ones, are far away: what they send takes `far_delay_us` longer.
    #[schemars(range(min = 0, max = 4096))]
    pub far_count: u32,
    /// See `far_count`. One way only, so that it is also what the round trip takes longer.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub far_delay_us: u32,
}

impl Default for VmGroup {
    fn default() -> Self {
        Self {
            count: 1,
            kernel: Kernel::Newest,
            vcpus: 1,
            memory_mib: 256,
            on: None,
            weight: 100,
            quota: None,
            slice_us: None,
            own_load: None,
            ring_slots: None,
            core: CoreSharing::default(),
            port_queue_segments: 1000,
            hz: None,
            hypervisor: true,
            machine: MachineKind::default(),
            host: HostKind::default(),
            host_delay_us: None,
            packet_cost_ns: 0,
            read_cost_ns: 0,
            nic_queue_segments: 1000,
            nic_queue: Queue::default(),
            per_host: 1,
            migrate_at_ms: None,
            tcp: GuestTcp::default(),
            pvtcp: Pvtcp::default(),
            proboscis: Proboscis::default(),
            cera: Cera::default(),
            vflood: Vflood::default(),
            vsnoop: Vsnoop::default(),
            far_count: 0,
            far_delay_us: 0,
        }
    }
}

impl VmGroup {
    /// Ticks per second, with the era's default filled in.
    pub fn hz(&self) -> u32 {
        self.hz.unwrap_or(match self.tcp.era {
            Era::Current => 250,
            Era::Paper => 1000,
        })
    }

    /// vFlood on the hosts: its congestion control is the guests' own unless something else is said.
    pub fn vflood(&self) -> evenkeel_settings::vflood::Vflood {
        let guests = match self.tcp.congestion_control() {
            "reno" => HostCongestion::Reno,
            _ => HostCongestion::Cubic,
        };
        let congestion_control = self.vflood.set.congestion_control.or(Some(guests));
        VfloodOverride { congestion_control, ..self.vflood.set.clone() }.in_scenario()
    }

    /// What the host takes for a packet. A ping between two VMs crosses four times what one between physical machines
    /// does not: in the PVTCP paper 227 us, so about 57 us each.
    pub fn host_delay_us(&self) -> u32 {
        self.host_delay_us.unwrap_or(if self.hypervisor { 50 } else { 0 })
    }

    /// Whether a VM of the group, as in `receiver-3`, is one of its last, which are far away.
    pub fn is_far(&self, name: &str) -> bool {
        let number = name.rsplit('-').next().and_then(|number| number.parse::<u32>().ok());
        number.is_some_and(|number| number >= self.count.saturating_sub(self.far_count))
    }

    /// Hosts that the group takes up.
    pub fn hosts(&self) -> u32 {
        self.count.div_ceil(self.per_host.max(1))
    }
}

/// What a machine is in the lab.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MachineKind {
    /// A VM with its own kernel.
    #[default]
    Vm,
    /// A network namespace of the machine that runs the lab, under its kernel: its code is never translated. For
    /// machines that are not under test.
    Namespace,
}

/// What runs a host's bridge, its queues and the host agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostKind {
    /// This machine, under its own kernel.
    #[default]
    Native,
    /// A VM for each host with the newest kernel: the driver domain, which never shares a core with contended VMs.
    Vm,
}

/// How virtual CPUs share a core with co-located VMs.
///
/// A VM runs for one slice, then waits for `vms_per_core - 1` slices of its neighbours. A neighbour that has nothing to
/// do (probability `1 - load` in each of its slices) gives its slice up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CoreSharing {
    /// VMs on the core, this one included. 1: the VM has the core to itself.
    #[schemars(range(min = 1, max = 16))]
    pub vms_per_core: u32,
    /// Length of a slice (Xen's credit scheduler: 30 ms).
    #[schemars(range(min = 1, max = 1000))]
    pub slice_ms: f64,
    /// 0: every slice has exactly `slice_ms`; 0.5: drawn evenly from 0.5 to 1.5 times that. Seeded.
    #[schemars(range(min = 0, max = 1))]
    pub slice_jitter: f64,
    /// How likely a neighbour is to use its slice, from 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub load: f64,
    /// A VM that has had nothing to do for this long gives the rest of its slice up, as one does that halts: while it
    /// waits for ACKs, the neighbours have the core. Left out: it keeps its slice, as one does that computes beside its
    /// traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub idle_us: Option<u32>,
}

impl Default for CoreSharing {
    fn default() -> Self {
        Self { vms_per_core: 1, slice_ms: 30.0, slice_jitter: 0.0, load: 1.0, idle_us: None }
    }
}

/// A set of defaults for [`GuestTcp`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Era {
    /// As the kernel ships: CUBIC, tail-loss probe, RACK, timestamps, F-RTO, SACK, DSACK.
    #[default]
    Current,
    /// As in the paper's day (2.6.32): NewReno with SACK and F-RTO; no tail-loss probe, RACK or timestamps.
    Paper,
}

/// The lower bound of the retransmission timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RtoMin {
    /// A word: `"smallest"` (what the guest kernel's HZ allows: one jiffy as the variance's floor) or
    /// `"default"` (the kernel's own, 200 ms).
    Word(RtoMinWord),
    /// A time in microseconds.
    Us(#[schemars(range(min = 1000, max = 60_000_000))] u32),
}

/// The words that `rto_min_us` takes instead of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RtoMinWord {
    /// As small as the guest kernel goes.
    Smallest,
    /// As the kernel ships: 200 ms.
    Default,
}

/// How the guest acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DelayedAck {
    /// As the kernel does: every second segment, or after a delay.
    On,
    /// Every segment at once (route attribute `quickack`).
    Off,
}

/// What a sender does once it knows that a timeout was spurious.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpuriousResponse {
    /// Linux 2.6.32's default: the window is halved, one segment for every two ACKs.
    RateHalving,
    /// The cut is taken back, as in all of today's kernels.
    Undo,
}

/// Whether ECN is negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EcnUse {
    /// Not asked for.
    Off,
    /// Asked for and granted (`tcp_ecn` = 1).
    On,
}

/// TCP settings in the guest. What is left out follows `era`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GuestTcp {
    /// Which defaults hold for all keys that are left out.
    pub era: Era,
    /// Lower bound of the retransmission timeout: microseconds, `"smallest"` or `"default"`.
    pub rto_min_us: RtoMin,
    /// `tcp_congestion_control`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9_-]{1,15}$"))]
    pub congestion_control: Option<String>,
    /// CUBIC's HyStart (the parameter `hystart` of `tcp_cubic`). Left out: on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hystart: Option<bool>,
    /// `tcp_early_retrans`: tail-loss probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_loss_probe: Option<bool>,
    /// `tcp_recovery`: RACK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<bool>,
    /// `tcp_timestamps`; with them, Eifel detection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<bool>,
    /// `tcp_sack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sack: Option<bool>,
    /// `tcp_dsack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dsack: Option<bool>,
    /// `tcp_slow_start_after_idle`: a window that was not used for an RTO begins anew. With a small RTO, an absence of
    /// the VM is such a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_start_after_idle: Option<bool>,
    /// `tcp_frto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f_rto: Option<bool>,
    /// Eifel detection (RFC 3522). Linux has it whenever timestamps are on, which is what leaving it out means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eifel: Option<bool>,
    /// What follows a timeout found spurious by F-RTO. Left out: what the era's kernel does, `"undo"` in the lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spurious_response: Option<SpuriousResponse>,
    /// ECN. Left out: on with `dctcp` and `lldct`, otherwise off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<EcnUse>,
    /// Delayed ACKs of what this guest receives.
    pub delayed_ack: DelayedAck,
    /// Longest time that an ACK is delayed. Left out: the kernel's 200 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 1_000_000))]
    pub delayed_ack_max_us: Option<u32>,
    /// Initial window (route attribute `initcwnd`). Left out: the kernel's 10; the simulator has 3 with
    /// `era = "paper"`, as 2.6.32.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub initial_window_segments: Option<u32>,
    /// Segments in a packet at most that this guest leaves to others to cut (GSO, `gso_max_segs`). Left out: 1, so that
    /// every segment is a packet; in the lab with `network.segmentation_offload`, which more than 1 needs there, the
    /// kernel's own choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub gso_segments: Option<u32>,
    /// Receive buffer of this guest's sockets; about half of it is advertised. Left out: autotuned.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4608, max = 268_435_456))]
    pub receive_buffer_bytes: Option<u32>,
    /// Send buffer of this guest's sockets. Left out: autotuned.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4608, max = 268_435_456))]
    pub send_buffer_bytes: Option<u32>,
}

impl Default for GuestTcp {
    fn default() -> Self {
        Self {
            era: Era::Current,
            rto_min_us: RtoMin::Word(RtoMinWord::Default),
            congestion_control: None,
            hystart: None,
            tail_loss_probe: None,
            rack: None,
            timestamps: None,
            sack: None,
            dsack: None,
            slow_start_after_idle: None,
            f_rto: None,
            eifel: None,
            spurious_response: None,
            ecn: None,
            delayed_ack: DelayedAck::On,
            delayed_ack_max_us: None,
            initial_window_segments: None,
            gso_segments: None,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
        }
    }
}

impl GuestTcp {
    /// Congestion control with the era's default filled in.
    pub fn congestion_control(&self) -> &str {
        match (&self.congestion_control, self.era) {
            (Some(name), _) => name,
            (None, Era::Current) => "cubic",
            (None, Era::Paper) => "reno",
        }
    }

    /// Whether tail-loss probes are on, with the era's default filled in.
    pub fn tail_loss_probe(&self) -> bool {
        self.tail_loss_probe.unwrap_or(self.era == Era::Current)
    }

    /// Whether RACK is on, with the era's default filled in.
    pub fn rack(&self) -> bool {
        self.rack.unwrap_or(self.era == Era::Current)
    }

    /// Whether timestamps are on, with the era's default filled in.
    pub fn timestamps(&self) -> bool {
        self.timestamps.unwrap_or(self.era == Era::Current)
    }

    /// Whether SACK is on.
    pub fn sack(&self) -> bool {
        self.sack.unwrap_or(true)
    }

    /// Whether Eifel detection is on, which needs timestamps.
    pub fn eifel(&self) -> bool {
        self.timestamps() && self.eifel.unwrap_or(true)
    }

    /// Whether ECN is on, with the congestion control's default filled in.
    pub fn ecn(&self) -> bool {
        self.ecn.map_or(self.needs_ecn(), |ecn| ecn == EcnUse::On)
    }

    /// Whether the congestion control is nothing without ECN.
    pub fn needs_ecn(&self) -> bool {
        matches!(self.congestion_control(), "dctcp" | "lldct")
    }

    /// What follows a spurious timeout, with the era's default filled in.
    pub fn spurious_response(&self) -> SpuriousResponse {
        self.spurious_response.unwrap_or(match self.era {
            Era::Current => SpuriousResponse::Undo,
            Era::Paper => SpuriousResponse::RateHalving,
        })
    }
}

/// What is recorded besides counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Record {
    /// Period of the TCP_INFO series of the senders' sockets. 0: no series.
    #[schemars(range(min = 0, max = 60_000))]
    pub tcp_info_period_ms: u32,
    /// Whether packets are captured: headers, on the host's side of every port and inside the first VM of the sending
    /// group.
    pub capture: bool,
    /// Period of the bottleneck queue's series. 0: no series.
    #[schemars(range(min = 0, max = 60_000))]
    pub queue_period_ms: u32,
    /// Whether the bottleneck is the network card of the first sending VM's host. How long each packet waits there is
    /// recorded too.
    pub sender_nic: bool,
}

impl Default for Record {
    fn default() -> Self {
        Self { tcp_info_period_ms: 50, capture: false, queue_period_ms: 0, sender_nic: false }
    }
}

/// Something to vary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Short name, as a column's heading.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The key that takes each of `values`, as a dotted path: `vms.sender.tcp.rto_min_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Values of `key`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub values: Vec<toml::Value>,
    /// Labels for `values`, if they should not be shown as written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Instead of `key` and `values`: named variants that each set several keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

/// One point of an axis that sets several keys at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// How it is called in tables.
    #[schemars(length(min = 1))]
    pub label: String,
    /// Dotted keys and their values.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub set: BTreeMap<String, toml::Value>,
}

/// Figures that a paper reports for the cells that match `cell`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PaperFigures {
    /// Table or figure, as in `PVTCP Table I`.
    pub source: String,
    /// Axis name to label; axes left out match every label.
    #[serde(default)]
    pub cell: BTreeMap<String, String>,
    /// Metric name to the paper's figure, in the metric's unit. Empty where the paper prints ratios only: `note` says
    /// them.
    #[schemars(extend("propertyNames" = names::metric_name(&mut SchemaGenerator::default())))]
    pub values: BTreeMap<String, f64>,
    /// Conditions that differ from ours, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// How results are shown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReportSpec {
    /// Metrics shown as columns, in this order.
    #[schemars(schema_with = "names::metric_names")]
    pub columns: Vec<String>,
    /// Plots, in this order.
    pub plots: Vec<Plot>,
}

/// One plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Plot {
    /// Bars of one metric: one group of bars per label of `x`, one colour per label of `series`, one panel per
    /// combination of the other axes. The median of the repetitions, with the range as a whisker.
    Bars {
        /// Heading.
        title: String,
        /// Metric.
        #[schemars(schema_with = "names::metric_name")]
        metric: String,
        /// Axis along the abscissa.
        x: String,
        /// Axis shown by colour.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        series: Option<String>,
    },
    /// Lines of one metric over an axis, as PVTCP Fig. 5 and 13.
    Lines {
        /// Heading.
        title: String,
        /// Metric.
        #[schemars(schema_with = "names::metric_name")]
        metric: String,
        /// Axis along the abscissa.
        x: String,
        /// Axis shown by colour.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        series: Option<String>,
    },
    /// One metric over another, as throughput over delay: a mark per cell, a line through those of one label of
    /// `series`, one panel per combination of the axes that are neither `series` nor `along`. Medians, with ranges as
    /// thin lines.
    Plane {
        /// Heading.
        title: String,
        /// Metric of the abscissa.
        #[schemars(schema_with = "names::metric_name")]
        x_metric: String,
        /// Metric of the ordinate.
        #[schemars(schema_with = "names::metric_name")]
        y_metric: String,
        /// Axis shown by colour.
        series: String,
        /// Axis along the lines; marks grow with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        along: Option<String>,
        /// Logarithmic abscissa.
        #[serde(default)]
        log: bool,
    },
    /// Recorded series over time: one panel per cell (first repetition).
    Series {
        /// Heading.
        title: String,
        /// Names of the recorded series, drawn in one panel: see [`crate::result::Series`].
        #[schemars(schema_with = "names::series_names")]
        series: Vec<String>,
        /// Logarithmic ordinate.
        #[serde(default)]
        log: bool,
    },
    /// Cumulative distribution of a recorded series' values, one line per cell.
    Cdf {
        /// Heading.
        title: String,
        /// Name of the recorded series.
        #[schemars(schema_with = "names::series_name")]
        series: String,
    },
    /// Sequence numbers over time around one wake-up, as PVTCP Fig. 8: data and ACKs at the host's port and inside the
    /// VM. One panel per cell.
    Sequence {
        /// Heading.
        title: String,
    },
}
