//! What the lab says to the runner inside a VM: JSON lines over a virtio-serial port.
//!
//! The host sends one [`Call`] per line and gets one [`Reply`] per line with the same `id`; the guest never speaks
//! unasked. Long work runs in threads of the guest's runner; what it has recorded is fetched with
//! [`Op::Collect`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::backlog::Backlog;

/// Name of the virtio-serial port.
pub const CONTROL_PORT: &str = "evenkeel.control";
/// TCP port of the runner's own servers. These ports are the first workload's: [`port_of`] has the others'.
pub const WORKLOAD_PORT: u16 = 5001;
/// TCP port of memcached.
pub const MEMCACHED_PORT: u16 = 11211;
/// TCP port of nginx.
pub const HTTP_PORT: u16 = 80;
/// TCP port of PostgreSQL.
pub const POSTGRES_PORT: u16 = 5432;
/// TCP port of the web application behind nginx, in its VM only.
pub const APPLICATION_PORT: u16 = 8080;
/// Path of a file that web servers have; its size follows.
pub const OBJECT_PATH: &str = "/object/";
/// The file, below [`OBJECT_PATH`], of which each flow asks for as many bytes as it has.
pub const ANY_OBJECT: &str = "any";
/// The counter of what shaped devices have dropped.
pub const QDISC_DROPS: &str = "QdiscDropped";
/// Most bytes one [`Op::ReadFile`] returns.
pub const READ_CHUNK_BYTES: usize = 256 * 1024;

/// The port of a server of the workload at this place, where the first workload's is `first`.
pub fn port_of(first: u16, place: u8) -> u16 {
    first + u16::from(place)
}

/// A numbered request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Call {
    /// Echoed in the reply.
    pub id: u64,
    /// What to do.
    pub op: Op,
}

/// A numbered answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    /// The call's number.
    pub id: u64,
    /// What came of it, or why nothing did.
    pub result: Result<Answer, String>,
}

/// What the host can ask for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Op {
    /// Who is there. Answered by [`Answer::Hello`].
    Hello,
    /// Run a program and wait for it. Answered by [`Answer::Exec`], whatever its exit code.
    Exec {
        /// Program and arguments; no shell.
        argv: Vec<String>,
    },
    /// Start a program that goes on. Answered by [`Answer::Started`].
    Spawn {
        /// Program and arguments; no shell.
        argv: Vec<String>,
    },
    /// End a spawned program (SIGINT, after 2 s SIGKILL). Answered by [`Answer::Exec`] with what it had printed.
    Kill {
        /// As given by [`Answer::Started`].
        task: u64,
    },
    /// Wait for a spawned program. Answered by [`Answer::Exec`].
    Wait {
        /// As given by [`Answer::Started`].
        task: u64,
    },
    /// Write a file, `/proc/sys` and `/sys` included. Answered by [`Answer::Done`].
    WriteFile {
        /// The file's path.
        path: String,
        /// What is to be in it.
        text: String,
    },
    /// Read a piece of a file. Answered by [`Answer::Bytes`].
    ReadFile {
        /// The file's path.
        path: String,
        /// From which byte on.
        offset: u64,
    },
    /// Counters of the kernel: all of /proc/net/netstat and /proc/net/snmp as nstat names them (`TcpExtTCPTimeouts`,
    /// `TcpRetransSegs`), `CpuBusyUs` and `CpuIdleUs` from /proc/stat, `EthTxDropped` and `EthRxDropped` of eth0,
    /// `QdiscDropped` of shaped devices.
    /// Answered by [`Answer::Counters`].
    Counters,
    /// Start a task of a workload, until [`Op::Stop`]. Answered by [`Answer::Started`].
    Start {
        /// The workload's place among those of the run.
        place: u8,
        /// What to do.
        task: Task,
    },
    /// This VM's CLOCK_MONOTONIC. Answered by [`Answer::Now`].
    Now,
    /// Whether anything comes back from this address. Answered by [`Answer::Echo`].
    Echo {
        /// IPv4 address.
        to: String,
        /// How long to wait for the first reply.
        patience_ms: u32,
    },
    /// Say a line to a program at a Unix socket, and read the line that it answers. Answered by [`Answer::Line`].
    Ask {
        /// The socket.
        socket: String,
        /// Without its end.
        line: String,
    },
    /// Compute beside the traffic until [`Op::Stop`]. Answered by [`Answer::Started`].
    Load {
        /// Share of each cycle, from 0 to 1.
        share: f64,
        /// Length of a cycle.
        duty_us: u64,
        /// How far into its first cycle it starts.
        phase_us: u64,
    },
    /// Begin the measured time in this VM: forget what tasks have recorded so far, start the TCP_INFO sampler over all
    /// the first workload's sockets in this VM. Answered by [`Answer::Counters`], as they are then.
    Mark {
        /// How many workloads the run has.
        workloads: u8,
        /// 0: no sampler.
        tcp_info_period_ms: u32,
    },
    /// End the measured time: nothing is recorded from now on, and the sampler stops. Tasks go on. Answered by
    /// [`Answer::Counters`], as they are then.
    End,
    /// Fetch what was recorded between [`Op::Mark`] and [`Op::End`]. Answered by [`Answer::Recorded`].
    Collect,
    /// Watch the queue of this kind at one of this VM's devices until [`Op::Queue`]. Answered by [`Answer::Done`].
    WatchQueue {
        /// The device.
        device: String,
        /// As `tc` calls it.
        kind: String,
        /// Time between two looks.
        period_ms: u32,
    },
    /// What was seen since [`Op::WatchQueue`]. Answered by [`Answer::Queue`].
    Queue,
    /// Whether a [`Task::Strobe`] of the first workload with `requests` is done, and how many of its strobes or
    /// transfers are, counted since [`Op::Mark`]. Answered by [`Answer::Progress`].
    Progress,
    /// End all workload tasks and close their sockets. Answered by [`Answer::Done`].
    Stop,
    /// Switch the VM off. Not answered.
    PowerOff,
}

/// What a workload's VM does.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "kebab-case")]
pub enum Task {
    /// Accept connections on [`WORKLOAD_PORT`].
    Serve {
        /// What to do with them.
        role: ServeRole,
        /// Socket settings.
        sockets: SocketSettings,
    },
    /// Send bulk data to a [`ServeRole::Sink`].
    Bulk {
        /// IPv4 address of the sink.
        to: String,
        /// Number of connections.
        flows: u32,
        /// Socket settings.
        sockets: SocketSettings,
    },
    /// Ask all [`ServeRole::BlockServer`]s for blocks, one request after the other, until `requests` are done. It has
    /// started when all connections stand.
    Strobe {
        /// IPv4 addresses of the block servers.
        from: Vec<String>,
        /// Bytes that each server sends per request.
        bytes_per_server: u64,
        /// 0: no limit.
        requests: u32,
        /// Socket settings.
        sockets: SocketSettings,
    },
    /// Send HTTP requests, each at its time and on a connection of its own.
    Requests {
        /// This VM's CLOCK_MONOTONIC that times count from.
        start_ns: u64,
        /// IPv4 addresses of the servers.
        servers: Vec<String>,
        /// Microseconds after the start, position of the server, bytes; in the order of times.
        plan: Vec<(u64, u16, u64)>,
        /// Size of a GET, which the server answers with the bytes. 0: they are sent, by PUT.
        request_bytes: u32,
        /// Socket settings.
        sockets: SocketSettings,
    },
    /// Send transfers one after the other to [`ServeRole::Transfers`].
    Transfers {
        /// IPv4 addresses of the receivers.
        to: Vec<String>,
        /// Bytes on each connection.
        bytes: u64,
        /// Connections at a time.
        concurrent: u32,
        /// Time from the end of the last one to the next.
        pause_ms: u32,
        /// Socket settings.
        sockets: SocketSettings,
    },
    /// Ask memcached in a closed loop. It has started when all values are set.
    KeyValue {
        /// IPv4 addresses of the servers.
        servers: Vec<String>,
        /// Connections, each with one request at a time.
        outstanding: u32,
        /// Requests of a thousand that read a value; the others set one.
        gets_permille: u32,
        /// Size of a value.
        value_bytes: u32,
        /// Socket settings.
        sockets: SocketSettings,
    },
    /// Ask web servers for files in a closed loop. It has started when all connections stand.
    Fetch {
        /// IPv4 addresses of the servers.
        servers: Vec<String>,
        /// Connections, each with one request at a time.
        outstanding: u32,
        /// Size of a request.
        request_bytes: u32,
        /// Size of a file.
        response_bytes: u32,
        /// Time between a response and the next request.
        think_time_us: u32,
        /// Socket settings.
        sockets: SocketSettings,
    },
    /// Fill a web application's stores, and answer the requests for pages that nginx passes on to [`APPLICATION_PORT`].
    Web {
        /// IPv4 address of the database.
        database: String,
        /// Of the cache.
        cache: String,
        /// Of the file store.
        files: String,
        /// Whether connections to them are used again.
        keep_alive: bool,
        /// What users can ask for.
        operations: Vec<WebOperation>,
    },
    /// Use a web application in a closed loop.
    Users {
        /// IPv4 address of the web front.
        to: String,
        /// How many, each with one request at a time.
        users: u32,
        /// Mean time between a response and the next request.
        think_time_ms: u32,
        /// Whether they use their connections again.
        keep_alive: bool,
        /// What they do.
        operations: Vec<WebOperation>,
        /// Seed of the random draws.
        seed: u64,
    },
    /// Send ICMP echo requests.
    Ping {
        /// IPv4 address.
        to: String,
        /// Time between requests.
        interval_ms: u32,
    },
}

/// Something that users of a web application do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebOperation {
    /// How often, beside the weights of the others.
    pub weight: u32,
    /// Body of the request for the page.
    pub request_bytes: u64,
    /// What the page is made with.
    pub calls: Vec<WebCall>,
    /// Size of the page.
    pub response_bytes: u64,
    /// Objects on it.
    pub objects: u32,
    /// Size of each.
    pub object_bytes: u64,
}

/// Calls of a store, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebCall {
    /// The store that is called.
    pub store: WebStore,
    /// How many calls.
    pub times: u32,
    /// Size of the query, or of the upload.
    pub request_bytes: u64,
    /// Size of what comes back.
    pub response_bytes: u64,
}

/// What stands behind a web front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WebStore {
    /// PostgreSQL.
    Database,
    /// memcached.
    Cache,
    /// nginx with files.
    Files,
}

/// What a server does with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServeRole {
    /// Read and count.
    Sink,
    /// Read requests (8 bytes, big endian: a length) and answer each with that many bytes.
    BlockServer,
    /// Read to the end, note when the last byte came, close.
    Transfers,
}

/// Settings of workload sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketSettings {
    /// SO_RCVBUF as the kernel will report it (it doubles what is set). None: autotuned.
    pub receive_buffer_bytes: Option<u32>,
    /// SO_SNDBUF, likewise.
    pub send_buffer_bytes: Option<u32>,
}

/// What the guest answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Op::Hello`].
    Hello {
        /// `uname -r`.
        release: String,
        /// Ticks per second, measured or read.
        hz: u32,
    },
    /// To [`Op::Now`].
    Now {
        /// Nanoseconds.
        monotonic_ns: u64,
    },
    /// Done.
    Done,
    /// Whether an echo request was answered.
    Echo {
        /// In time.
        answered: bool,
    },
    /// What a program has answered.
    Line {
        /// Without its end.
        text: String,
    },
    /// A task goes on under this number.
    Started {
        /// Its number.
        task: u64,
    },
    /// A program has ended.
    Exec {
        /// Exit code; -1 after a signal.
        status: i32,
        /// Standard output.
        stdout: String,
        /// Standard error.
        stderr: String,
    },
    /// A piece of a file, base64.
    Bytes {
        /// The piece.
        base64: String,
        /// Whether the file ends here.
        eof: bool,
    },
    /// Counters.
    Counters {
        /// Name to value.
        values: BTreeMap<String, i64>,
    },
    /// How far a strobe or transfers have come.
    Progress {
        /// Requests completed since the mark.
        requests: u32,
        /// Whether it has ended by itself.
        ended: bool,
        /// Set when a task failed: what happened.
        error: Option<String>,
    },
    /// What was recorded of each workload, by its place.
    Recorded {
        /// As many as [`Op::Mark`] was told of.
        workloads: Vec<Recorded>,
    },
    /// What a queue did.
    Queue(Backlog),
}

/// What a VM recorded of a workload between [`Op::Mark`] and [`Op::End`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// Length of the measured time by this VM's clock.
    pub measured_us: u64,
    /// Bytes read per connection of a sink or a strobe client, with the peer's address.
    pub received: Vec<(String, u64)>,
    /// Strobe: start since the mark and duration of each completed request, in microseconds.
    pub blocks: Vec<(u64, u64)>,
    /// Ping: time of the reply since the mark and round-trip time, in microseconds.
    pub pings: Vec<(u64, u64)>,
    /// Echo requests without a reply.
    pub pings_lost: u64,
    /// Requests that began.
    pub requests: Vec<RequestTime>,
    /// Transfers that began.
    pub sent: Vec<Sent>,
    /// Transfers that arrived.
    pub arrived: Vec<Arrived>,
    /// Samples of each socket, of the first workload.
    pub sockets: Vec<SocketSamples>,
    /// What went wrong in a task, one sentence each.
    pub errors: Vec<String>,
}

/// The start of a transfer, at the sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The receiver's address.
    pub to: String,
    /// The sender's port.
    pub port: u16,
    /// Bytes.
    pub bytes: u64,
    /// When the connection was opened, by the sender's CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// When the sender had the connection and began to write, by the same clock. None: not yet.
    pub connected_ns: Option<u64>,
}

/// The end of a transfer, at the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// The sender's address.
    pub from: String,
    /// The sender's port.
    pub port: u16,
    /// Bytes that came.
    pub bytes: u64,
    /// When the last of them was read, by the receiver's CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// The longest time between two of them.
    pub longest_stall_ns: u64,
    /// Whether a byte differed from what was sent.
    pub is_damaged: bool,
}

/// One request of the load generator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTime {
    /// The server's address.
    pub to: String,
    /// Bytes that were to be sent.
    pub bytes: u64,
    /// When it was to begin, since the mark.
    pub start_us: u64,
    /// From then to the server's answer, which comes when it has all bytes. None: not yet.
    pub took_us: Option<u64>,
    /// From when the sender had its connection to the last byte. None: not yet, or a request of the load generator.
    pub connected_took_us: Option<u64>,
}

/// TCP_INFO over time of one socket.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SocketSamples {
    /// The peer's address.
    pub peer: String,
    /// Samples.
    pub samples: Vec<TcpInfoSample>,
}

/// One TCP_INFO sample.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct TcpInfoSample {
    /// Since the mark.
    pub t_us: u64,
    /// `tcpi_rtt`.
    pub srtt_us: u32,
    /// `tcpi_rttvar`.
    pub rttvar_us: u32,
    /// `tcpi_rto`.
    pub rto_us: u32,
    /// `tcpi_snd_cwnd`.
    pub snd_cwnd: u32,
    /// `tcpi_backoff`.
    pub backoff: u8,
    /// `tcpi_total_retrans`.
    pub total_retrans: u32,
}
