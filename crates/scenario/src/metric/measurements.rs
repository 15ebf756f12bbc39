//! What an engine has measured in a run: all that formulas know. What an engine cannot know is left out.

use std::collections::BTreeMap;

/// Picoseconds, which the simulator counts, in a microsecond.
pub const PS_PER_US: u64 = 1_000_000;

/// All that was measured in a run, in the measured time unless a field says otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measurements {
    /// The measured time.
    pub duration_ps: u64,
    /// All VMs. Other fields name them by their place here.
    pub vms: Vec<Vm>,
    /// What no VM counts: of agents, and of ports whose VM is elsewhere. Its counters have the names of a VM's.
    pub hosts: BTreeMap<String, i64>,
    /// Of the driver domains' virtual CPUs.
    pub domains: Vec<CpuTime>,
    /// How long virtual CPUs of the first workload's senders waited for their cores, each time that they did, where
    /// that is known.
    pub vcpu_waits_ps: Vec<u64>,
    /// What each workload brought, in the order of their names.
    pub traffic: Vec<Traffic>,
    /// TCP_INFO of the senders' sockets, all sockets together.
    pub sockets: Vec<SocketSample>,
    /// What the captures show.
    pub trace: Trace,
    /// Packets dropped at the bottleneck port and at the VMs' port queues.
    pub dropped: u64,
    /// Packets marked at ports, where ports can mark.
    pub marked: Option<u64>,
    /// Samples of the bottleneck's backlog.
    pub backlog_segments: Vec<u32>,
    /// The network card of the senders' host, if it is recorded.
    pub uplink: Option<Uplink>,
    /// Epochs at whose end CERA cut windows, all hosts, where it is on.
    pub cera_cuts: Option<u64>,
    /// VMs that were moved.
    pub migrations: Vec<Migration>,
    /// How often PVTCP was unloaded and loaded again, if it was.
    pub pvtcp_reloads: Option<u32>,
    /// What the guests' kernels complained of, where they are real.
    pub kernel_complaints: Option<u64>,
}

/// What a workload brought.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Traffic {
    /// What iperf3's servers received, by its own figure, all of them together.
    pub iperf3_bits_per_s: Option<f64>,
    /// Payload that applications read of flows in the background, where it is counted.
    pub background_bytes: Option<u64>,
    /// Flows that lasted all the time.
    pub long_lived: Vec<LongLived>,
    /// Flows, or requests, that began in the measured time and ended.
    pub ended: Vec<Ended>,
    /// Those that began in it and had not ended when the run did.
    pub unfinished: Vec<Unfinished>,
    /// From each strobe request to its last byte.
    pub blocks_ps: Vec<u64>,
    /// Round-trip times of a ping.
    pub rtts_ps: Vec<u64>,
    /// Transfers that arrived, where the receiver looks at every byte.
    pub arrived: Vec<Arrival>,
    /// What applications read for this workload alone, where that is counted; by machine, or of all together.
    pub read: Vec<Read>,
}

/// A VM.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vm {
    /// As in `sender-0`.
    pub name: String,
    /// Its group.
    pub group: String,
    /// How much its counters rose: the kernel's own names as nstat has them, and those of mechanisms on its port, which
    /// begin with the mechanism's. `PvtcpWakeupMaxUs` is a maximum.
    pub counters: BTreeMap<String, i64>,
    /// Its virtual CPUs' time, where packets cost them any.
    pub cpu: Option<CpuTime>,
    /// What its applications read, where that is counted.
    pub read: Option<Read>,
}

/// What a VM's virtual CPUs did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Worked.
    pub busy_us: i64,
    /// Had their core and nothing to do.
    pub idle_us: i64,
}

/// Payload that a VM's applications read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// How much.
    pub bytes: u64,
    /// The measured time, by the clock of the machine that counted.
    pub during_ps: u64,
}

/// A flow that lasted all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongLived {
    /// Who sent, if it is one of the VMs.
    pub from: Option<u32>,
    /// Who received.
    pub to: u32,
    /// What the receiver read.
    pub bytes: u64,
}

/// A flow, or a request with its response, that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Who sent the payload.
    pub from: u32,
    /// Who received it.
    pub to: u32,
    /// Payload.
    pub bytes: u64,
    /// When it began, since the start of the measured time.
    pub start_ps: u64,
    /// From then to its last byte.
    pub took_ps: u64,
    /// The part of that since the sender had its connection, where it is noted.
    pub connected_took_ps: Option<u64>,
}

/// A flow, or a request, that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// Payload that it was to bring.
    pub bytes: u64,
    /// From its start to the end of the run.
    pub waited_ps: u64,
}

/// TCP_INFO of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketSample {
    /// `tcpi_rto`.
    pub rto_ps: u64,
    /// `tcpi_rtt`.
    pub srtt_us: u32,
}

/// What the captures show of the first sender's flows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trace {
    /// Pure duplicate ACKs that it received.
    pub duplicate_acks: Option<u64>,
    /// Runs of one, two, three, and of four and more timeouts of a flow with no progress in between.
    pub rto_runs: Option<[u64; 4]>,
    /// How flows that come and go filled the wire beyond its host.
    pub bursts: Option<Bursts>,
}

/// How flows filled the wire: the most of any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bursts {
    /// Segments before the first data was acknowledged.
    pub first_segments: u64,
    /// Segments between two ACKs.
    pub longest_segments: u64,
    /// Segments beyond the standard initial window and two for each that was acknowledged.
    pub beyond_segments: u64,
}

/// What a host's network card did.
#[derive(Debug, Clone, PartialEq)]
pub struct Uplink {
    /// Bytes on the wire.
    pub sent_bytes: u64,
    /// How long it was watched.
    pub watched_ps: u64,
    /// What waited before it.
    pub waits: Waits,
}

/// What is known of how packets waited.
#[derive(Debug, Clone, PartialEq)]
pub enum Waits {
    /// Each packet's time.
    Packets {
        /// All VMs' packets.
        all_ps: Vec<u64>,
        /// The first sending VM's.
        first_ps: Vec<u64>,
    },
    /// Samples of the backlog: their mean.
    Backlog {
        /// Bytes that waited.
        mean_bytes: f64,
    },
}

/// A transfer that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The longest time between two of its bytes.
    pub longest_stall_ps: u64,
    /// Whether a byte was not the one that was sent.
    pub is_damaged: bool,
}

/// A live migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Migration {
    /// From the word that the VM is to leave until its host held nothing of it, if the host has an agent.
    pub offline_ps: Option<u64>,
    /// QEMU's total-time.
    pub total_ms: u64,
    /// QEMU's downtime.
    pub downtime_ms: u64,
    /// From the VM's start on its new host until that attested that it holds its packets, if the host has an agent.
    pub online_ps: Option<u64>,
}
