//! A group of like VMs.

use evenkeel_settings::Mode;
use evenkeel_settings::vflood::{HostCongestion, VfloodOverride};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cera, Era, GuestTcp, OwnLoad, Proboscis, Pvtcp, Queue, Quota, Vflood, Vsnoop};

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
    #[schemars(range(min = 1, max = 16_384))]
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
    #[schemars(range(min = 0, max = 16_384))]
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

/// A mechanism in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mechanism {
    /// Its table.
    pub name: &'static str,
    /// Off by default.
    pub mode: Mode,
    /// Whether it acts on hosts, and not in guests alone.
    pub is_on_hosts: bool,
    /// Why its settings have no effect while it is off.
    pub(crate) why_idle: &'static str,
    /// Why it counts nothing while it is off in all groups.
    pub(crate) why_uncounted: &'static str,
}

macro_rules! mechanisms {
    ($($name:ident: $title:literal, $is_on_hosts:literal;)+) => {
        impl VmGroup {
            /// The mechanisms, each in a table of its own.
            pub fn mechanisms(&self) -> impl Iterator<Item = Mechanism> + use<> {
                [$(Mechanism {
                    name: stringify!($name),
                    mode: self.$name.mode(),
                    is_on_hosts: $is_on_hosts,
                    why_idle: concat!($title, " is off (", stringify!($name), ".mode = \"off\")"),
                    why_uncounted: concat!($title, " is off in all groups"),
                }),+]
                .into_iter()
            }
        }
    };
}

mechanisms! {
    pvtcp: "PVTCP", false;
    proboscis: "ProBoSCIS", true;
    cera: "CERA", true;
    vflood: "vFlood", true;
    vsnoop: "vSnoop", true;
}

impl VmGroup {
    /// Ticks per second, with the era's default filled in.
    pub fn hz(&self) -> u32 {
        self.hz.unwrap_or(match self.tcp.era {
            Era::Current => 250,
            Era::Paper => 1000,
        })
    }

    /// vFlood on the hosts: its congestion control is the guests' own unless another is set.
    pub fn vflood(&self) -> evenkeel_settings::vflood::Vflood {
        let guests = match self.tcp.congestion_control() {
            "reno" => HostCongestion::Reno,
            _ => HostCongestion::Cubic,
        };
        let congestion_control = self.vflood.set.congestion_control.or(Some(guests));
        VfloodOverride { congestion_control, ..self.vflood.set.clone() }.in_scenario()
    }

    /// What the host takes for a packet. A ping between two VMs crosses a host's software four times, one between
    /// physical machines never: in the PVTCP paper that takes 227 us, so about 57 us each.
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
