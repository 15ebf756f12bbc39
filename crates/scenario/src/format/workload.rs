//! What the VMs do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the VMs do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Workload {
    /// ICMP echo from every VM of `from` to the first VM of `to`.
    Ping {
        /// Group that sends echo requests.
        from: String,
        /// Group that is pinged.
        to: String,
        /// Time between requests.
        #[schemars(range(min = 1, max = 60_000))]
        interval_ms: u32,
    },
    /// Long-lived flows.
    Bulk {
        /// Group that sends.
        from: String,
        /// Group that receives.
        to: String,
        /// Flows per sender.
        #[serde(default = "default_flows")]
        #[schemars(range(min = 1, max = 1000))]
        flows: u32,
    },
    /// Barrier-synchronised block transfers (PVTCP §III): the receiver asks every sender for a block and
    /// asks for the next when all blocks are in.
    Strobe {
        /// Group that sends blocks.
        from: String,
        /// Group whose first VM asks for them.
        to: String,
        /// Bytes per request, shared out over all senders, in KiB.
        #[schemars(range(min = 1, max = 1_048_576))]
        block_kib: u32,
        /// Stop after so many requests rather than at `duration_ms`, which then is the limit. 0: run for `duration_ms`.
        #[serde(default)]
        #[schemars(range(min = 0, max = 10_000_000))]
        requests: u32,
    },
    /// The real iperf3, client in `from`, server in `to`.
    Iperf3 {
        /// Group that sends.
        from: String,
        /// Group that receives.
        to: String,
        /// Parallel streams (`-P`).
        #[serde(default = "default_flows")]
        #[schemars(range(min = 1, max = 1000))]
        flows: u32,
    },
    /// Flows that begin at random times (a Poisson process) between random VMs. In the lab each is an HTTP request on a
    /// connection of its own to nginx: a PUT, whose answer ends the flow, or a GET, which the flow answers.
    Poisson {
        /// Group that sends.
        from: String,
        /// Group that receives. Left out: every VM of `from` sends to every other, those of its own host excepted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// Payload that flows bring, as a share of the bottleneck: the links of the side with fewer hosts, or a
        /// dumbbell's middle link.
        #[schemars(range(min = 0.001, max = 2))]
        load: f64,
        /// How large flows are: a measured distribution, or a number of bytes.
        sizes: FlowSizes,
        /// Flows to measure, in the simulator: with the last of them begun, no more begin, and the run ends when they
        /// are done, at the latest after `duration_ms`. 0: those that begin in `duration_ms`.
        #[serde(default)]
        #[schemars(range(min = 0, max = 10_000_000))]
        flows: u32,
        /// A flow of at most 100 KB that takes longer misses its deadline. 0: no deadline.
        #[serde(default)]
        #[schemars(range(min = 0, max = 600_000))]
        deadline_ms: u32,
        /// Whether flows of one pair of VMs use an idle connection again rather than open another. Only the simulator
        /// can.
        #[serde(default)]
        persistent: bool,
        /// Size of a request for each flow: the VM of `to` opens the connection and asks, and the VM of `from` answers
        /// with the flow, as to an HTTP GET. 0: the VM of `from` opens it and sends. In the
        /// lab it is one of HTTP, of 128 to 4096 bytes.
        #[serde(default, skip_serializing_if = "is_zero")]
        #[schemars(range(min = 0, max = 1_073_741_824))]
        request_bytes: u32,
        /// Flows that begin at the same time, towards one receiver, from all senders in turn.
        #[serde(default = "default_flows")]
        #[schemars(range(min = 1, max = 1000))]
        burst_flows: u32,
        /// Long-lived flows (in the lab iperf3's) from every sender to every receiver meanwhile, not among the flows
        /// that are measured.
        #[serde(default)]
        #[schemars(range(min = 0, max = 16))]
        background_flows: u32,
        /// Long-lived flows from every VM of both groups meanwhile, each to a VM of another host, not among the flows
        /// that are measured. Only the simulator has them.
        #[serde(default, skip_serializing_if = "is_zero")]
        #[schemars(range(min = 0, max = 100))]
        background_mesh_flows: u32,
    },
    /// Requests and responses in a closed loop, on connections that are kept: each VM of `to` asks one of `from` and
    /// asks again when it has the response. In the lab they are HTTP requests for a file of nginx.
    RequestResponse {
        /// Group that answers.
        from: String,
        /// Group that asks.
        to: String,
        /// Size of a request.
        #[schemars(range(min = 1, max = 1_073_741_824))]
        request_bytes: u32,
        /// Size of a response.
        #[schemars(range(min = 1, max = 1_073_741_824))]
        response_bytes: u32,
        /// Requests that each VM of `to` has under way at a time, each on a connection of its own.
        #[serde(default = "default_flows")]
        #[schemars(range(min = 1, max = 1000))]
        outstanding: u32,
        /// Time between a response and the next request.
        #[serde(default)]
        #[schemars(range(min = 0, max = 60_000_000))]
        think_time_us: u32,
    },
    /// A key-value store beside long-lived flows (CERA Fig. 2): the first VM of `from` asks those of `to` for values in
    /// a closed loop, as memaslap asks memcached, and the other VMs of `from`, if there are any, send to them. In the
    /// lab it is the real memcached.
    Memcached {
        /// Group whose first VM asks and whose others send.
        from: String,
        /// Group that answers and receives.
        to: String,
        /// Requests under way at a time, each on a connection of its own.
        #[serde(default = "default_outstanding")]
        #[schemars(range(min = 1, max = 1000))]
        outstanding: u32,
        /// Requests that read a value (GET), of a thousand. The others write one (SET).
        #[serde(default = "default_gets")]
        #[schemars(range(min = 0, max = 1000))]
        gets_permille: u32,
        /// Size of a value.
        #[serde(default = "default_value_bytes")]
        #[schemars(range(min = 1, max = 1_048_576))]
        value_bytes: u32,
        /// Long-lived flows of each VM that sends.
        #[serde(default = "default_flows")]
        #[schemars(range(min = 1, max = 1000))]
        flows: u32,
        /// The last VM begins so much later than the others. Only the simulator can.
        #[serde(default)]
        #[schemars(range(min = 0, max = 600_000))]
        late_start_ms: u32,
    },
    /// Transfers one after the other: each VM of `from` opens connections to the VMs of `to`, in turn, sends so many
    /// bytes on each, and begins anew when all have arrived.
    Transfers {
        /// Group that sends.
        from: String,
        /// Group that receives.
        to: String,
        /// Bytes on each connection.
        #[schemars(range(min = 1, max = 1_073_741_824))]
        bytes: u32,
        /// Connections of a VM at a time.
        #[serde(default = "default_flows")]
        #[schemars(range(min = 1, max = 1000))]
        concurrent: u32,
        /// Time from the end of the last transfer to the next.
        #[serde(default)]
        #[schemars(range(min = 0, max = 60_000))]
        pause_ms: u32,
        /// Stop after so many transfers rather than at `duration_ms`, which then is the limit. 0: run for
        /// `duration_ms`.
        #[serde(default)]
        #[schemars(range(min = 0, max = 10_000_000))]
        transfers: u32,
    },
    /// A web application of three tiers (vFlood Table 1). Users ask a web front for pages and, one after the other, for
    /// the objects on them; the web front calls a database, a cache and a file store for each, one call after the
    /// other. In the lab they are nginx with an application, PostgreSQL, memcached, and nginx with files.
    ThreeTier {
        /// Group of the four servers, in this order: web front, database, cache, file store.
        from: String,
        /// Group in which the users are, in turn.
        to: String,
        /// Users, each with one operation at a time and a connection of its own.
        #[schemars(range(min = 1, max = 100_000))]
        users: u32,
        /// Mean time between a response and the user's next request; the times are distributed exponentially.
        #[schemars(range(min = 1, max = 600_000))]
        think_time_ms: u32,
        /// Whether users, and the web front, use their connections again. `false`: a connection for each request, with
        /// a handshake and slow start.
        #[serde(default = "default_keep_alive")]
        keep_alive: bool,
        /// What users do.
        #[schemars(length(min = 1, max = 100))]
        operations: Vec<Operation>,
    },
}

/// Something that users of a web application do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// Its name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// How often users do it, beside the weights of the others.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub weight: u32,
    /// Size of the request for its page, with what is uploaded.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub request_bytes: u32,
    /// What the web front asks of the stores for the page.
    #[serde(default)]
    #[schemars(length(max = 100))]
    pub calls: Vec<StoreCall>,
    /// Size of the page.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub response_bytes: u32,
    /// How long the web front's virtual CPU works on the page, after the calls.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub work_us: u32,
    /// Objects on the page, which the user asks for one after the other with 400 bytes, and the web front the file
    /// store.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub objects: u32,
    /// Size of each.
    #[serde(default = "default_object_bytes")]
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub object_bytes: u32,
}

/// Size of the request for an object.
pub const OBJECT_REQUEST_BYTES: u32 = 400;

/// Requests to a store, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreCall {
    /// Which store.
    pub store: Store,
    /// How many requests.
    #[serde(default = "default_flows")]
    #[schemars(range(min = 1, max = 1000))]
    pub times: u32,
    /// Size of a request.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub request_bytes: u32,
    /// Size of a response.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub response_bytes: u32,
    /// How long the store's virtual CPU works on each.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub work_us: u32,
}

/// What stands behind a web front: its place among the VMs of the workload's group `from`, the first of which is that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Store {
    /// The database.
    Database = 1,
    /// The cache.
    Cache = 2,
    /// The file store.
    Files = 3,
}

impl Store {
    /// The web front's place.
    pub const WEB: usize = 0;
    /// How many servers there are, the web front among them.
    pub const SERVERS: u32 = 4;
}

impl Workload {
    /// The group that sends and the group that receives; the same where all VMs of one group send to each other.
    pub fn roles(&self) -> (&str, &str) {
        match self {
            Self::Ping { from, to, .. }
            | Self::Bulk { from, to, .. }
            | Self::Strobe { from, to, .. }
            | Self::Iperf3 { from, to, .. }
            | Self::RequestResponse { from, to, .. }
            | Self::Memcached { from, to, .. }
            | Self::Transfers { from, to, .. }
            | Self::ThreeTier { from, to, .. } => (from, to),
            Self::Poisson { from, to, .. } => (from, to.as_ref().unwrap_or(from)),
        }
    }

    /// Whether requests count as responses do: what both groups send and read is the workload's.
    pub fn is_both_ways(&self) -> bool {
        matches!(self, Self::RequestResponse { .. } | Self::ThreeTier { .. })
    }
}

/// The sizes of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FlowSizes {
    /// A measured distribution.
    Word(FlowSizesWord),
    /// All flows have so many bytes.
    Bytes(#[schemars(range(min = 1, max = 1_000_000_000))] u32),
}

/// Measured distributions of flow sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FlowSizesWord {
    /// Web search (DCTCP), in packets of 1,460 bytes; 1.7 MB on average.
    Websearch,
    /// The same as HPCC gives it, in bytes.
    WebsearchBytes,
    /// Data mining (VL2), in packets; 7.5 MB on average.
    Datamining,
    /// The same as T-RACKs gives it, in bytes; 12.7 MB on average.
    DataminingBytes,
    /// Short flows of a university's data centre (IMC10), in packets; 0.2 MB on average.
    Imc10Short,
    /// Hadoop at Facebook as HPCC gives it, in bytes; 0.1 MB on average.
    FbHadoopBytes,
    /// Hadoop at Facebook, in packets; 4.1 MB on average.
    FbHadoop,
    /// Cache at Facebook, in packets; 0.9 MB on average.
    FbCache,
    /// Storage at Alibaba in 2019 as HPCC gives it, in bytes; 41 KB on average.
    AliStorage,
}

fn default_flows() -> u32 {
    1
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn default_keep_alive() -> bool {
    true
}

fn default_object_bytes() -> u32 {
    10_000
}

/// memaslap's value size, and the paper's load.
fn default_value_bytes() -> u32 {
    1024
}
fn default_outstanding() -> u32 {
    32
}
fn default_gets() -> u32 {
    900
}
