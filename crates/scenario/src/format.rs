//! The scenario file: what the TOML keys are, their units, defaults and bounds.
//!
//! The bounds in the `schemars` attributes are the only place where they stand: the JSON schema for editors and the
//! check of a file (`check.rs`) both come from them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod cera;
mod group;
mod host;
mod mechanisms;
mod names;
mod network;
mod paper;
mod pvtcp;
mod report;
mod tcp;
mod vflood;
mod workload;

pub use cera::Cera;
pub use evenkeel_settings::proboscis::ProboscisOverride as Proboscis;
pub use evenkeel_settings::vsnoop::VsnoopOverride as Vsnoop;
pub use group::{CoreSharing, HostKind, Kernel, MachineKind, Mechanism, VmGroup};
pub use host::{DriverDomain, Host, Neighbours, OwnLoad, Quota, Scheduler};
pub use mechanisms::Preset;
pub use network::{Discipline, Network, Queue, Topology};
pub use paper::{Labels, PaperFigures, PaperOrder, PaperRatio};
pub use pvtcp::Pvtcp;
pub use report::{Plot, ReportSpec};
pub use tcp::{DelayedAck, EcnUse, Era, GuestTcp, RtoMin, RtoMinWord, SpuriousResponse};
pub use vflood::Vflood;
pub use workload::{FlowSizes, FlowSizesWord, OBJECT_REQUEST_BYTES, Operation, Store, StoreCall, Workload};

/// One scenario: a topology, guests, a workload, axes to sweep and the figures a paper reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Version of this format; 2.
    #[schemars(range(min = 2, max = 2))]
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
    /// What the VMs do, by name: all of it at once. Of several, each has metrics of its own (`NAME.fct_p99_ms`). What a
    /// run has one of (the senders whose sockets are sampled, what is captured, the bottleneck that is watched) is that
    /// of the first, in the order of names.
    #[schemars(extend("propertyNames" = serde_json::json!({ "pattern": "^[a-z][a-z0-9-]{0,31}$" })))]
    #[schemars(extend("minProperties" = 1, "maxProperties" = MAX_WORKLOADS))]
    pub workloads: BTreeMap<String, Workload>,
    /// What is recorded besides counters.
    #[serde(default)]
    pub record: Record,
    /// What is varied; the product of all axes gives the cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub axes: Vec<Axis>,
    /// What papers report for cells of this scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paper: Vec<PaperFigures>,
    /// How the results are shown.
    #[serde(default)]
    pub report: ReportSpec,
}

/// Most workloads of a scenario.
pub const MAX_WORKLOADS: usize = 8;

impl Scenario {
    /// The only workload, or the first of several.
    ///
    /// # Panics
    /// If there is none, but every scenario that was read has one.
    pub fn workload(&self) -> &Workload {
        self.workloads.values().next().expect("the check has seen a workload")
    }

    /// A key of [`Self::workload`], as in `workloads.requests.think_time_us`.
    pub fn workload_key(&self, key: &str) -> String {
        let name = self.workloads.keys().next().map_or("", String::as_str);
        format!("workloads.{name}.{key}")
    }

    /// This scenario with each workload alone, by the workload's name.
    pub fn alone(&self) -> impl Iterator<Item = (&str, Self)> {
        let only = |name: &String, workload: &Workload| Self {
            workloads: BTreeMap::from([(name.clone(), workload.clone())]),
            ..self.clone()
        };
        self.workloads.iter().map(move |(name, workload)| (name.as_str(), only(name, workload)))
    }

    /// Groups that send in some workload, and then those that only receive, each once.
    pub fn groups_in_order(&self) -> Vec<&str> {
        let (from, to): (Vec<&str>, Vec<&str>) = self.workloads.values().map(Workload::roles).unzip();
        let mut groups = Vec::new();
        for group in from.into_iter().chain(to) {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }
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
    /// Period of the series of the bottleneck queue and of CERA's windows. 0: none.
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
