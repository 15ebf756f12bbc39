//! The network between the VMs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Switches and links. In the lab one switch with one port per VM, of which those towards receivers are the
/// bottlenecks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// How hosts and switches hang together.
    pub topology: Topology,
    /// Lab: rate of the port towards the workload's receiver, or of all that receive in a Poisson process; 0: not
    /// shaped. Simulator: rate of all hosts' links, or of a dumbbell's middle link.
    #[schemars(range(min = 0, max = 400_000))]
    pub rate_mbit: u32,
    /// Rate of the hosts' links in a dumbbell. Left out: `rate_mbit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 400_000))]
    pub edge_rate_mbit: Option<u32>,
    /// Rate of each link between a leaf and a spine. Left out: `rate_mbit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 400_000))]
    pub uplink_rate_mbit: Option<u32>,
    /// Rate of each link between a spine and a core switch of a fat tree. Left out: `uplink_rate_mbit`, or `rate_mbit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 400_000))]
    pub core_rate_mbit: Option<u32>,
    /// Pods of a fat tree. Left out: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub pods: Option<u32>,
    /// Core switches above each spine of a pod, in a fat tree: each has a link to the spine of that place in every pod,
    /// so there are `spines` times as many. Left out: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub cores_per_spine: Option<u32>,
    /// Leaf switches; in a fat tree those of each pod.
    #[schemars(range(min = 1, max = 256))]
    pub leaves: u32,
    /// Spine switches; each has a link to every leaf. In a fat tree those of each pod, with links to its leaves.
    #[schemars(range(min = 1, max = 256))]
    pub spines: u32,
    /// Places for hosts at each leaf.
    #[schemars(range(min = 1, max = 256))]
    pub hosts_per_leaf: u32,
    /// Buffer of a switch's port: of the bottleneck in the lab, of each port in the simulator.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub buffer_segments: u32,
    /// One memory for all ports of a switch, instead of `buffer_segments` for each. Left out: each port has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16, max = 1_048_576))]
    pub shared_buffer_kib: Option<u32>,
    /// Dynamic threshold: a port may take this many times what is unused of the shared memory.
    #[schemars(range(min = 0.01, max = 64))]
    pub buffer_alpha: f64,
    /// How a switch's ports queue.
    pub queue: Queue,
    /// One-way delay of each link. The lab refuses any value but 0.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub delay_us: u32,
    /// Largest frame payload.
    #[schemars(range(min = 576, max = 9000))]
    pub mtu_bytes: u32,
    /// Whether guests hand segments larger than the MTU to the device (TSO, GRO by the host). Off for shallow
    /// buffers, whose length is counted in segments. In the simulator TSO alone: packets as large as Linux 6 makes
    /// them, which the network card cuts.
    pub segmentation_offload: bool,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            topology: Topology::Star,
            rate_mbit: 0,
            edge_rate_mbit: None,
            uplink_rate_mbit: None,
            core_rate_mbit: None,
            pods: None,
            cores_per_spine: None,
            leaves: 2,
            spines: 2,
            hosts_per_leaf: 16,
            buffer_segments: 1000,
            shared_buffer_kib: None,
            buffer_alpha: 1.0,
            queue: Queue::default(),
            delay_us: 0,
            mtu_bytes: 1500,
            segmentation_offload: false,
        }
    }
}

impl Network {
    /// Rate of a host's link.
    pub fn host_rate_mbit(&self) -> u32 {
        match self.topology {
            Topology::Dumbbell => self.edge_rate_mbit.unwrap_or(self.rate_mbit),
            Topology::Star | Topology::LeafSpine | Topology::FatTree => self.rate_mbit,
        }
    }

    /// Rate of a link between switches; in a fat tree, of those within a pod.
    pub fn switch_rate_mbit(&self) -> u32 {
        match self.topology {
            Topology::LeafSpine | Topology::FatTree => self.uplink_rate_mbit.unwrap_or(self.rate_mbit),
            Topology::Star | Topology::Dumbbell => self.rate_mbit,
        }
    }

    /// Rate of a link between a spine and a core switch.
    pub fn top_rate_mbit(&self) -> u32 {
        self.core_rate_mbit.unwrap_or_else(|| self.switch_rate_mbit())
    }

    /// Pods of a fat tree.
    pub fn pods(&self) -> u32 {
        self.pods.unwrap_or(2)
    }

    /// Core switches above each spine of a pod.
    pub fn cores_per_spine(&self) -> u32 {
        self.cores_per_spine.unwrap_or(2)
    }

    /// Leaf switches in all.
    pub fn all_leaves(&self) -> u32 {
        if self.topology == Topology::FatTree { self.pods() * self.leaves } else { self.leaves }
    }
}

/// How hosts and switches hang together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// All hosts at one switch.
    #[default]
    Star,
    /// Two switches: the sending group's hosts at one, the receiving group's at the other.
    Dumbbell,
    /// Leaves and spines. Hosts take the places leaf by leaf, the sending group first; flows take a spine by hash.
    LeafSpine,
    /// Three tiers: pods of leaves and spines, and core switches above the spines. Hosts take the places leaf by leaf
    /// and pod by pod, the sending group first; flows take a spine, and towards another pod a core switch, by hash.
    FatTree,
}

/// A queueing discipline and its parameters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// What is sent, marked and dropped.
    pub discipline: Discipline,
    /// `red`, `priority`: ECN-capable segments that meet so many in the queue are marked, others dropped (DCTCP's K).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub ecn_threshold_segments: Option<u32>,
    /// `red`, instead of `ecn_threshold_segments`: from so many segments on, some are marked or dropped, with a
    /// probability that grows from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub red_min_segments: Option<u32>,
    /// `red`: from so many segments on, all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub red_max_segments: Option<u32>,
    /// `red`: the probability just below `red_max_segments`. Left out: 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.000001, max = 1))]
    pub red_max_probability: Option<f64>,
    /// `codel`, `fq-codel`: how long segments may wait. Left out: 5000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub codel_target_us: Option<u32>,
    /// `codel`, `fq-codel`: for how long they must have waited longer before one is marked or dropped. Left out:
    /// 100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub codel_interval_us: Option<u32>,
    /// `priority`: a flow that has sent so many bytes goes down to the next class (PIAS). One class more than there are
    /// thresholds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(range(min = 1, max = 1_000_000_000_000_u64)))]
    pub thresholds_bytes: Vec<u64>,
}

/// What is sent, marked and dropped at a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// First in, first out; what finds the buffer full is dropped.
    #[default]
    DropTail,
    /// RED on the instantaneous queue.
    Red,
    /// CoDel (RFC 8289), with ECN.
    Codel,
    /// FQ-CoDel (RFC 8290), with ECN.
    FqCodel,
    /// Strict priority by the bytes that a flow has sent (PIAS).
    Priority,
    /// pFabric: the flow with the least left to send goes first; where it is full, a segment of the flow with the most
    /// is dropped.
    Pfabric,
}
