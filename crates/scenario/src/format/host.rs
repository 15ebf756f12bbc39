//! Hosts: which VMs share their cores, and what decides which of them runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hosts of one kind. The VMs of the groups that are on them (`on`) are spread over them in turn, and share their
/// cores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// How many.
    #[schemars(range(min = 1, max = 16_384))]
    pub count: u32,
    /// Cores of each that VMs and neighbours share.
    #[schemars(range(min = 1, max = 64))]
    pub cores: u32,
    /// Who decides which virtual CPU runs.
    pub scheduler: Scheduler,
    /// Where the host's own work on packets is done: its bridge, its queues, vhost.
    pub driver_domain: DriverDomain,
    /// VMs that only compute, and send nothing.
    pub neighbours: Neighbours,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            count: 1,
            cores: 1,
            scheduler: Scheduler::Linux { hz: default_hz(), slice_us: None },
            driver_domain: DriverDomain::OwnCore,
            neighbours: Neighbours::default(),
        }
    }
}

/// Who decides which virtual CPU runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Scheduler {
    /// A timeline that is drawn for each virtual CPU, whatever the others do: it runs for a slice, then waits for a
    /// slice of each neighbour of its core that has something to do. For pictures, and for the papers' figures.
    Slices {
        /// Length of a slice.
        #[serde(default = "default_slice_ms")]
        #[schemars(range(min = 1, max = 1000))]
        slice_ms: f64,
        /// 0: every slice has exactly `slice_ms`; 0.5: drawn evenly from 0.5 to 1.5 times that. Seeded.
        #[serde(default)]
        #[schemars(range(min = 0, max = 1))]
        slice_jitter: f64,
        /// A VM that has had nothing to do for this long gives the rest of its slice up. Left out: it keeps its slice,
        /// as one does that computes beside its traffic.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 1_000_000))]
        idle_us: Option<u32>,
    },
    /// Xen's credit scheduler (4.1): credits by weight, and a VM that wakes up with credits left runs at once (BOOST).
    /// Only the simulator has it.
    Credit {
        /// Longest time that a virtual CPU runs while others wait.
        #[serde(default = "default_slice_ms")]
        #[schemars(range(min = 1, max = 1000))]
        slice_ms: f64,
        /// Time between two ticks, at each of which the running virtual CPU is charged.
        #[serde(default = "default_tick_ms")]
        #[schemars(range(min = 1, max = 100))]
        tick_ms: f64,
        /// Whether a virtual CPU that wakes up with credits left goes before all others.
        #[serde(default = "default_boost")]
        boost: bool,
    },
    /// Linux's own (EEVDF). In the lab it is this machine's, as it is.
    Linux {
        /// Ticks per second of the host's clock. In the lab it must be this machine's own.
        #[serde(default = "default_hz")]
        #[schemars(range(min = 100, max = 1000))]
        hz: u32,
        /// The slice of all threads that ask for none of their own (`base_slice_ns`). Left out: the kernel's, 0.7 ms
        /// and more with more cores.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 100, max = 100_000))]
        slice_us: Option<u32>,
    },
}

/// Where the host's own work on packets is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriverDomain {
    /// On a core that no VM uses.
    OwnCore,
    /// On the VMs' cores, by a thread that competes with theirs (vFlood Fig. 8; vhost).
    Shared,
}

/// VMs that only compute.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Neighbours {
    /// How many there are for each core.
    #[schemars(range(min = 0, max = 64))]
    pub per_core: u32,
    /// How much of a core each of them wants, from 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub load: f64,
    /// It computes for `load` of each such time, and then has nothing to do (vFlood: 30 ms). With `slices`, a slice.
    #[schemars(range(min = 1, max = 10_000))]
    pub duty_ms: f64,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self { per_core: 0, load: 1.0, duty_ms: 30.0 }
    }
}

/// What a VM may use of its host's processors (`cpu.max`, `cpu.max.burst`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Time on cores in each period.
    #[schemars(range(min = 1_000, max = 10_000_000))]
    pub us: u32,
    /// The period.
    #[serde(default = "default_period_us")]
    #[schemars(range(min = 1_000, max = 1_000_000))]
    pub period_us: u32,
    /// What is left over of earlier periods may be used up to this.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub burst_us: u32,
}

/// What a VM computes beside its traffic.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnLoad {
    /// How much of a core it wants, from 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub load: f64,
    /// It computes for `load` of each such time (vFlood: 30 ms).
    #[serde(default = "default_slice_ms")]
    #[schemars(range(min = 1, max = 10_000))]
    pub duty_ms: f64,
}

/// Xen's slice; the ticks of CFS and EEVDF are another matter.
fn default_slice_ms() -> f64 {
    30.0
}
fn default_tick_ms() -> f64 {
    10.0
}
fn default_boost() -> bool {
    true
}
fn default_hz() -> u32 {
    250
}
/// The default of Linux (`tg_set_cfs_quota`), libvirt and Kubernetes.
fn default_period_us() -> u32 {
    100_000
}
