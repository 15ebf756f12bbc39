//! A network's specification: its shape, links and queues.

use crate::packet::HostId;
use crate::time::Duration;
use crate::units::Rate;

/// A network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologySpec {
    /// How hosts and switches are connected.
    pub shape: Shape,
    /// From a host's network card to its switch.
    pub nic: PortSpec,
    /// From a switch to a host.
    pub edge: PortSpec,
    /// Between switches, in each direction; in a fat tree, between those of a pod. A star has none.
    pub core: PortSpec,
    /// Between spines and core switches of a fat tree, in each direction.
    pub top: PortSpec,
    /// The memory of each switch.
    pub buffer: BufferSpec,
}

/// How hosts and switches are connected. Hosts are numbered switch by switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All hosts on one switch.
    Star {
        /// Number of hosts.
        hosts: u32,
    },
    /// Two switches with one link between them.
    Dumbbell {
        /// Hosts on the first switch.
        left: u32,
        /// Hosts on the second.
        right: u32,
    },
    /// Hosts on leaves; every leaf has one link to every spine.
    LeafSpine {
        /// How many leaves.
        leaves: u32,
        /// How many spines.
        spines: u32,
        /// Hosts on each leaf.
        hosts_per_leaf: u32,
    },
    /// Leaves and spines in pods, and core switches above them (AlFares08).
    FatTree {
        /// How many pods.
        pods: u32,
        /// Leaves of each pod.
        leaves: u32,
        /// Spines of each pod; each has one link to every leaf of its pod.
        spines: u32,
        /// Core switches for each of a pod's spines; each has one link to the spine in the same place of every pod.
        cores_per_spine: u32,
        /// Hosts on each leaf.
        hosts_per_leaf: u32,
    },
}

impl Shape {
    /// How many hosts there are.
    pub const fn hosts(self) -> u32 {
        match self {
            Self::Star { hosts } => hosts,
            Self::Dumbbell { left, right } => left + right,
            Self::LeafSpine { leaves, hosts_per_leaf, .. } => leaves * hosts_per_leaf,
            Self::FatTree { pods, leaves, hosts_per_leaf, .. } => pods * leaves * hosts_per_leaf,
        }
    }

    /// How many ports the switches have together.
    pub const fn switch_ports(self) -> u64 {
        let between = match self {
            Self::Star { .. } => 0,
            Self::Dumbbell { .. } => 2,
            Self::LeafSpine { leaves, spines, .. } => 2 * leaves as u64 * spines as u64,
            Self::FatTree { pods, leaves, spines, cores_per_spine, .. } => {
                2 * pods as u64 * spines as u64 * (leaves as u64 + cores_per_spine as u64)
            }
        };
        self.hosts() as u64 + between
    }

    /// Hosts on each switch that has any.
    pub(super) fn hosts_by_leaf(self) -> Vec<u32> {
        match self {
            Self::Star { hosts } => vec![hosts],
            Self::Dumbbell { left, right } => vec![left, right],
            Self::LeafSpine { leaves, hosts_per_leaf, .. } => vec![hosts_per_leaf; leaves as usize],
            Self::FatTree { pods, leaves, hosts_per_leaf, .. } => vec![hosts_per_leaf; (pods * leaves) as usize],
        }
    }

    /// The tiers above the leaves: how many spines and core switches there are, and how they are connected.
    pub(super) fn tiers(self) -> Tiers {
        match self {
            Self::Star { .. } | Self::Dumbbell { .. } => Tiers::default(),
            Self::LeafSpine { leaves, spines, .. } => Tiers { pods: 1, leaves, spines, cores_per_spine: 0 },
            Self::FatTree { pods, leaves, spines, cores_per_spine, .. } => {
                Tiers { pods, leaves, spines, cores_per_spine }
            }
        }
    }
}

/// Leaves, spines and core switches; a leaf-spine network is one pod without core switches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tiers {
    pub pods: u32,
    /// Leaves and spines of each pod.
    pub leaves: u32,
    pub spines: u32,
    pub cores_per_spine: u32,
}

/// An output port and its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Rate of the link.
    pub rate: Rate,
    /// Propagation delay of the link.
    pub delay: Duration,
    /// The queue in front of it.
    pub queue: QueueSpec,
}

/// Where a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRole {
    /// A host's network card.
    Nic(HostId),
    /// A switch's port towards a host.
    Edge(HostId),
    /// A leaf's port towards a spine.
    Up {
        /// Which leaf.
        leaf: u32,
        /// Which spine.
        spine: u32,
    },
    /// A spine's port towards a leaf.
    Down {
        /// Which spine.
        spine: u32,
        /// Which leaf.
        leaf: u32,
    },
    /// A spine's port towards a core switch.
    CoreUp {
        /// Which spine, of those of all pods.
        spine: u32,
        /// Which core switch.
        core: u32,
    },
    /// A core switch's port towards a spine.
    CoreDown {
        /// Which core switch.
        core: u32,
        /// Which spine, of those of all pods.
        spine: u32,
    },
    /// The port to the other switch of a dumbbell; switch 0 is the left one.
    Middle(u32),
}

/// The memory of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferSpec {
    /// Each port has memory of its own, as much as its queue's [`Limit`] says.
    PerPort,
    /// All ports share one memory; each may use up to `alpha` times the unused part (dynamic threshold: Choudhury98),
    /// and at most its queue's [`Limit`].
    Shared {
        /// Size of the memory.
        bytes: u64,
        /// `alpha`.
        alpha: Alpha,
    },
}

/// The factor of a dynamic threshold, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alpha {
    /// Numerator.
    pub num: u32,
    /// Denominator, at least 1.
    pub den: u32,
}

/// How much may wait in a queue. The packet on the link has left the queue, as in ns-2, ns-3 and Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets.
    pub segments: u32,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Limit {
    /// No limit.
    pub const NONE: Self = Self { segments: u32::MAX, bytes: u64::MAX };

    /// A limit of this many packets of any size.
    pub const fn segments(segments: u32) -> Self {
        Self { segments, bytes: u64::MAX }
    }

    /// A limit of this many bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self { segments: u32::MAX, bytes }
    }
}

/// A queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueSpec {
    /// First in, first out; drops what arrives when it is full, and earlier with RED.
    Fifo {
        /// How much may wait.
        limit: Limit,
        /// Marks or drops before the limit.
        red: Option<RedSpec>,
    },
    /// CoDel (RFC 8289).
    CoDel(CoDelSpec),
    /// FQ-CoDel (RFC 8290).
    FqCoDel(FqCoDelSpec),
    /// Strict priority by [`crate::packet::Packet::class`], as PIAS uses it.
    Priority(PrioritySpec),
    /// pFabric: serves the flow with the least remaining, drops the packet with the most.
    PFabric(Limit),
}

impl QueueSpec {
    /// A FIFO of `segments` packets that drops what arrives when it is full.
    pub const fn drop_tail(segments: u32) -> Self {
        Self::Fifo { limit: Limit::segments(segments), red: None }
    }

    /// A FIFO of `segments` packets that marks what arrives when `threshold` or more wait.
    pub const fn ecn(segments: u32, threshold: u32) -> Self {
        Self::Fifo { limit: Limit::segments(segments), red: Some(RedSpec::threshold(threshold)) }
    }
}

/// RED on the instantaneous queue: marks packets that are ECN-capable and drops others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedSpec {
    /// From this many waiting packets on, it marks with a probability that grows from 0.
    pub min_segments: u32,
    /// From this many waiting packets on, it always marks.
    pub max_segments: u32,
    /// The probability just below `max_segments`, in parts per million.
    pub max_probability_ppm: u32,
}

impl RedSpec {
    /// Marks always from this many waiting packets on, and never below (DCTCP's K).
    pub const fn threshold(segments: u32) -> Self {
        Self { min_segments: segments, max_segments: segments, max_probability_ppm: 1_000_000 }
    }
}

/// CoDel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelSpec {
    /// How much may wait.
    pub limit: Limit,
    /// Sojourn time that is acceptable.
    pub target: Duration,
    /// How long the sojourn time must be above the target.
    pub interval: Duration,
    /// A queue with no more bytes than this is never bad.
    pub mtu_bytes: u32,
    /// Whether ECN-capable packets are marked instead of dropped.
    pub ecn: bool,
}

impl Default for CoDelSpec {
    /// RFC 8289's 5 ms in 100 ms, with 1,000 packets as Linux has it.
    fn default() -> Self {
        Self {
            limit: Limit::segments(1000),
            target: Duration::from_ms(5),
            interval: Duration::from_ms(100),
            mtu_bytes: 1538,
            ecn: true,
        }
    }
}

/// FQ-CoDel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDelSpec {
    /// CoDel's parameters for each queue; the limit is for all together.
    pub codel: CoDelSpec,
    /// Queues that flows are hashed to.
    pub flows: u32,
    /// Bytes that a queue may send per turn.
    pub quantum_bytes: u32,
}

impl Default for FqCoDelSpec {
    /// RFC 8290's 1,024 queues and 10,240 packets.
    fn default() -> Self {
        Self {
            codel: CoDelSpec { limit: Limit::segments(10_240), ..CoDelSpec::default() },
            flows: 1024,
            quantum_bytes: 1538,
        }
    }
}

/// Strict priority's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrioritySpec {
    /// How many classes, at least 1; packets of higher classes count as of the last.
    pub classes: u8,
    /// How much may wait in all classes together.
    pub limit: Limit,
    /// Marks by how much waits in all classes together.
    pub red: Option<RedSpec>,
}
