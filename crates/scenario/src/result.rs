//! What a run leaves behind: one [`RunRecord`] per line of `runs.jsonl`, one [`RunSet`] in `meta.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metric::{Ended, PS_PER_US};
use crate::provenance::Provenance;

/// Name of the file with one [`RunRecord`] per line.
pub const RUNS_FILE: &str = "runs.jsonl";
/// Names of the Parquet tables that can stand for [`RUNS_FILE`]; the first has a row per run.
pub const PARQUET_FILES: [&str; 6] =
    ["runs.parquet", "counters.parquet", "flows.parquet", "series.parquet", "packets.parquet", "remarks.parquet"];
/// Name of the file that says which tables were written; without it they are not results.
pub const PARQUET_MANIFEST: &str = "tables.json";
/// Name of the file with the [`RunSet`].
pub const META_FILE: &str = "meta.json";

/// What made the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Real VMs.
    Lab,
    /// The simulator.
    Sim,
}

/// What holds for all runs of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSet {
    /// Version of the result schema; 1.
    pub schema: u32,
    /// What made the records.
    pub engine: Engine,
    /// The scenario file's text.
    pub scenario_toml: String,
    /// Component to version: `evenkeel`, `qemu`, `host kernel`, `guest kernel newest`, `cpu`.
    pub versions: BTreeMap<String, String>,
    /// The command that runs it again.
    pub command: String,
    /// When the first run began, RFC 3339, UTC.
    pub started: String,
    /// What the reader must know to judge the figures, one sentence each (`TCG: no KVM on this machine`).
    pub remarks: Vec<String>,
    /// Which code made them of which settings, and where; results of older programs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}

/// One repetition of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Axis name to label, in the scenario's order of axes.
    pub cell: Vec<(String, String)>,
    /// Counted from 0.
    pub repetition: u32,
    /// Seed of this run's random draws.
    pub seed: u64,
    /// Measured time.
    pub duration_us: u64,
    /// Metric name to figure, in the metric's unit (see [`crate::metric`]).
    pub metrics: BTreeMap<String, f64>,
    /// VM name (`sender-0`) to counter (`TcpExtTCPTimeouts`) to its increase over the measured time.
    pub counters: BTreeMap<String, BTreeMap<String, i64>>,
    /// Per flow.
    pub flows: Vec<FlowRecord>,
    /// Recorded series.
    pub series: Vec<Series>,
    /// Packets around one wake-up, for the sequence plot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packets: Vec<PacketRecord>,
    /// What went wrong or differs in this run, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// One flow, or one block of a strobe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Sending VM.
    pub from: String,
    /// Receiving VM.
    pub to: String,
    /// Payload bytes the receiver read.
    pub bytes: u64,
    /// From the start of the measured time.
    pub start_us: u64,
    /// Completion time; for a long-lived flow, the measured time.
    pub duration_us: u64,
}

impl FlowRecord {
    /// The record of a flow that has ended; `name` gives the name of the VM at a place.
    pub fn of(ended: &Ended, name: impl Fn(u32) -> String) -> Self {
        Self {
            from: name(ended.from),
            to: name(ended.to),
            bytes: ended.bytes,
            start_us: ended.start_ps / PS_PER_US,
            duration_us: ended.took_ps / PS_PER_US,
        }
    }
}

/// Names that [`Series::name`] can have, each with what a point is. An engine that does not record one leaves it out.
pub const SERIES: &[(&str, &str)] = &[
    ("rtt_ms", "A ping's reply, and the time from its request."),
    ("block_ms", "A strobe's request, and the time until the whole block was there."),
    ("meas_rtt_ms", "An RTT sample of the first sender's TCP."),
    ("srtt_ms", "The smoothed RTT of a sender's socket (TCP_INFO), every `tcp_info_period_ms`."),
    ("rto_ms", "Its retransmission timeout."),
    ("cwnd_segments", "Its congestion window."),
    ("queue_segments", "The bottleneck's backlog, every `queue_period_ms`."),
    ("share_segments", "The window that CERA has for a VM, every `queue_period_ms`; recorded by the simulator."),
    ("vcpu_wait_ms", "The end of a virtual CPU's wait for its core, and how long it was; recorded by the lab."),
];

/// A series over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What is recorded, with its unit.
    pub name: String,
    /// VM and flow it belongs to, as in `sender-0`.
    pub subject: String,
    /// Time from the start of the measured time in microseconds, and value. A time can be negative in the warm-up.
    pub points: Vec<(i64, f64)>,
}

/// Where a packet was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeenAt {
    /// Inside the sending VM.
    Sender,
    /// On the host, at the sending VM's port.
    SenderPort,
    /// On the host, at the receiver's port.
    ReceiverPort,
}

/// One captured packet of the plotted flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PacketRecord {
    /// From the start of the plotted window. All captures are on one clock (see docs/lab.md).
    pub t_us: i64,
    /// Where it was seen.
    pub at: SeenAt,
    /// True for the sender's segments, false for ACKs.
    pub data: bool,
    /// First byte, relative to the flow's first; for an ACK, the number acknowledged.
    pub seq: u64,
    /// Payload bytes.
    pub len: u32,
    /// Whether these bytes had been sent before.
    pub retransmission: bool,
    /// Whether the VM was off its core at that time.
    pub descheduled: bool,
}
