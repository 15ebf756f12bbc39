//! Every figure a run can report: name, unit, what it counts.

use std::fmt;

/// What is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// A larger figure.
    Higher,
    /// A smaller figure.
    Lower,
    /// Neither.
    Neutral,
}

/// What is to be said of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Name in result files and scenario files.
    pub name: &'static str,
    /// Heading in tables.
    pub title: &'static str,
    /// Unit, empty for counts.
    pub unit: &'static str,
    /// What is better.
    pub better: Better,
    /// Digits after the point in tables.
    pub decimals: u8,
    /// What it counts, and where from.
    pub description: &'static str,
}

/// Where a metric comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It has a formula of its own.
    Formula(Formula),
    /// It is the sum of a counter over all VMs and hosts.
    Count {
        /// The counter in records.
        counter: &'static str,
        /// Whose it is: a mechanism's table in scenarios.
        of: &'static str,
    },
}

/// Metrics with formulas, and behind the arrow those that are counters, each with its mechanism.
macro_rules! metrics {
    (
        $($variant:ident, $name:literal, $title:literal, $unit:literal, $better:ident, $decimals:literal,
          $description:literal;)*
        =>
        $($counted:ident, $counted_name:literal, $counted_title:literal, $counted_unit:literal,
          $counted_better:ident, $counted_decimals:literal, $counted_description:literal, $counter:literal,
          $of:literal;)*
    ) => {
        /// A figure that a run can report, in the order of the documentation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Metric {
            $(
                #[doc = $description]
                $variant,
            )*
            $(
                #[doc = $counted_description]
                $counted,
            )*
        }

        /// A metric with a formula of its own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Formula {
            $(
                #[doc = $description]
                $variant,
            )*
        }

        impl Metric {
            /// All of them, in their order.
            pub const ALL: &[Self] = &[$(Self::$variant,)* $(Self::$counted,)*];

            /// What is to be said of it.
            pub const fn about(self) -> &'static About {
                match self {
                    $(Self::$variant => &About {
                        name: $name,
                        title: $title,
                        unit: $unit,
                        better: Better::$better,
                        decimals: $decimals,
                        description: $description,
                    },)*
                    $(Self::$counted => &About {
                        name: $counted_name,
                        title: $counted_title,
                        unit: $counted_unit,
                        better: Better::$counted_better,
                        decimals: $counted_decimals,
                        description: $counted_description,
                    },)*
                }
            }

            /// Where it comes from.
            pub const fn source(self) -> Source {
                match self {
                    $(Self::$variant => Source::Formula(Formula::$variant),)*
                    $(Self::$counted => Source::Count { counter: $counter, of: $of },)*
                }
            }
        }
    };
}

metrics! {
    GoodputMbit, "goodput_mbit", "goodput", "Mbit/s", Higher, 1,
        "Payload bytes that the receiving applications read, over the measured time, all flows together: of requests \
         and responses both. In the lab iperf3's own figure; what memcached reads is not in it, and a Poisson process, \
         transfers and a web application have none.";
    BackgroundGoodputMbit, "background_goodput_mbit", "background goodput", "Mbit/s", Higher, 1,
        "Payload bytes of the flows in the background that arrived (in the lab: iperf3's own figure), over the \
         measured time.";
    TimeS, "time_s", "time", "s", Lower, 1, "Measured time.";
    BlockP50Ms, "block_p50_ms", "block p50", "ms", Lower, 1, "Median time from a strobe request to its last byte.";
    BlockP99Ms, "block_p99_ms", "block p99", "ms", Lower, 1,
        "99th percentile of the time from a strobe request to its last byte.";
    Blocks, "blocks", "requests", "", Higher, 0, "Strobe requests completed.";
    Flows, "flows", "flows", "", Higher, 0, "Flows that began in the measured time and ended.";
    FlowsUnfinished, "flows_unfinished", "unfinished", "", Lower, 0,
        "Flows that began in the measured time and had not ended when the run did.";
    OperationsPerS, "operations_per_s", "operations", "1/s", Higher, 1,
        "Operations of a web application that began in the measured time and ended, over that time.";
    MissedDeadlines, "missed_deadlines", "missed deadlines", "", Lower, 0,
        "Flows of at most 100 KB that took longer than their deadline, ended or not.";
    FctMeanMs, "fct_mean_ms", "FCT mean", "ms", Lower, 3,
        "Mean of the time from the start of a flow, or from a request, to its last byte.";
    FctP50Ms, "fct_p50_ms", "FCT p50", "ms", Lower, 3,
        "Median of the time from the start of a flow, or from a request, to its last byte.";
    FctP90Ms, "fct_p90_ms", "FCT p90", "ms", Lower, 3,
        "90th percentile of the time from the start of a flow, or from a request, to its last byte.";
    FctP99Ms, "fct_p99_ms", "FCT p99", "ms", Lower, 3,
        "99th percentile of the time from the start of a flow, or from a request, to its last byte.";
    FctP999Ms, "fct_p999_ms", "FCT p99.9", "ms", Lower, 3,
        "99.9th percentile of the time from the start of a flow, or from a request, to its last byte.";
    FctMaxMs, "fct_max_ms", "FCT max", "ms", Lower, 3,
        "Longest time from the start of a flow, or from a request, to its last byte.";
    FctSmallMeanMs, "fct_small_mean_ms", "FCT small mean", "ms", Lower, 3,
        "Mean of the completion time of flows of at most 100 KB.";
    FctSmallP50Ms, "fct_small_p50_ms", "FCT small p50", "ms", Lower, 3,
        "Median of the completion time of flows of at most 100 KB.";
    FctSmallP90Ms, "fct_small_p90_ms", "FCT small p90", "ms", Lower, 3,
        "90th percentile of the completion time of flows of at most 100 KB.";
    FctSmallP99Ms, "fct_small_p99_ms", "FCT small p99", "ms", Lower, 3,
        "99th percentile of the completion time of flows of at most 100 KB.";
    FctSmallP999Ms, "fct_small_p999_ms", "FCT small p99.9", "ms", Lower, 3,
        "99.9th percentile of the completion time of flows of at most 100 KB.";
    FctSmallMaxMs, "fct_small_max_ms", "FCT small max", "ms", Lower, 3,
        "Longest completion time of flows of at most 100 KB.";
    FctMediumMeanMs, "fct_medium_mean_ms", "FCT medium mean", "ms", Lower, 3,
        "Mean of the completion time of flows between 100 KB and 10 MB.";
    FctMediumP50Ms, "fct_medium_p50_ms", "FCT medium p50", "ms", Lower, 3,
        "Median of the completion time of flows between 100 KB and 10 MB.";
    FctMediumP90Ms, "fct_medium_p90_ms", "FCT medium p90", "ms", Lower, 3,
        "90th percentile of the completion time of flows between 100 KB and 10 MB.";
    FctMediumP99Ms, "fct_medium_p99_ms", "FCT medium p99", "ms", Lower, 3,
        "99th percentile of the completion time of flows between 100 KB and 10 MB.";
    FctMediumP999Ms, "fct_medium_p999_ms", "FCT medium p99.9", "ms", Lower, 3,
        "99.9th percentile of the completion time of flows between 100 KB and 10 MB.";
    FctMediumMaxMs, "fct_medium_max_ms", "FCT medium max", "ms", Lower, 3,
        "Longest completion time of flows between 100 KB and 10 MB.";
    FctLargeMeanMs, "fct_large_mean_ms", "FCT large mean", "ms", Lower, 3,
        "Mean of the completion time of flows of at least 10 MB.";
    FctLargeP50Ms, "fct_large_p50_ms", "FCT large p50", "ms", Lower, 3,
        "Median of the completion time of flows of at least 10 MB.";
    FctLargeP90Ms, "fct_large_p90_ms", "FCT large p90", "ms", Lower, 3,
        "90th percentile of the completion time of flows of at least 10 MB.";
    FctLargeP99Ms, "fct_large_p99_ms", "FCT large p99", "ms", Lower, 3,
        "99th percentile of the completion time of flows of at least 10 MB.";
    FctLargeP999Ms, "fct_large_p999_ms", "FCT large p99.9", "ms", Lower, 3,
        "99.9th percentile of the completion time of flows of at least 10 MB.";
    FctLargeMaxMs, "fct_large_max_ms", "FCT large max", "ms", Lower, 3,
        "Longest completion time of flows of at least 10 MB.";
    FctConnectedP50Ms, "fct_connected_p50_ms", "FCT p50, connected", "ms", Lower, 3,
        "Median over transfers of the time from when the sending application has its connection, and begins to write, \
         to the last byte: without the handshake, which is in all other completion times.";
    RttP50Ms, "rtt_p50_ms", "RTT p50", "ms", Lower, 2, "Median ping round-trip time.";
    RttP90Ms, "rtt_p90_ms", "RTT p90", "ms", Lower, 2, "90th percentile of the ping round-trip time.";
    RttMeanMs, "rtt_mean_ms", "RTT mean", "ms", Lower, 2, "Mean ping round-trip time.";
    RttMaxMs, "rtt_max_ms", "RTT max", "ms", Lower, 2, "Largest ping round-trip time.";
    Timeouts, "timeouts", "timeouts", "", Lower, 0, "Retransmission timeouts, all senders (TcpExtTCPTimeouts).";
    TimeoutsPerS, "timeouts_per_s", "timeouts", "1/s", Lower, 2, "Retransmission timeouts per second, all senders.";
    TailLossProbes, "tail_loss_probes", "TLPs", "", Lower, 0,
        "Tail-loss probes sent, all senders (TcpExtTCPLossProbes).";
    TailLossProbesPerS, "tail_loss_probes_per_s", "TLPs", "1/s", Lower, 2, "Tail-loss probes per second, all senders.";
    TlpRecoveries, "tlp_recoveries", "TLP recoveries", "", Lower, 0,
        "Losses repaired by a tail-loss probe, each with a cut of the window (TcpExtTCPLossProbeRecovery).";
    Undone, "undone", "undone", "", Neutral, 0,
        "Window reductions undone because they turned out spurious (TCPFullUndo, TCPPartialUndo, TCPDSACKUndo, \
         TCPLossUndo).";
    SpuriousFrto, "spurious_frto", "spurious (F-RTO)", "", Neutral, 0,
        "Timeouts that F-RTO found spurious (TcpExtTCPSpuriousRTOs).";
    DetectedShare, "detected_share", "found spurious", "%", Higher, 0,
        "Undone or F-RTO-detected timeouts as a share of all timeouts.";
    SegmentsSent, "segments_sent", "segments sent", "", Neutral, 0,
        "Segments sent by the senders, retransmissions included (TcpOutSegs and TcpRetransSegs).";
    Retransmitted, "retransmitted", "retransmitted", "", Lower, 0,
        "Segments retransmitted by the senders (TcpRetransSegs).";
    NeedlessRetransmissions, "needless_retransmissions", "needless retrans.", "", Lower, 0,
        "Retransmitted segments that no port had dropped: retransmitted less dropped at the ports, not below 0.";
    NeedlessPerS, "needless_per_s", "needless retrans.", "1/s", Lower, 2, "Needless retransmissions per second.";
    Dsacks, "dsacks", "DSACKs", "", Lower, 0, "Duplicate SACK blocks the senders received (TcpExtTCPDSACKRecv).";
    PortDrops, "port_drops", "port drops", "", Lower, 0,
        "Packets dropped at the bottleneck port and at the VMs' port queues.";
    EcnMarks, "ecn_marks", "ECN marks", "", Neutral, 0, "Packets that ports marked instead of dropping them.";
    AcksSent, "acks_sent", "ACKs sent", "", Lower, 0,
        "Segments that the receivers sent (TcpOutSegs): ACKs, and the requests of a strobe.";
    DuplicateAcks, "duplicate_acks", "duplicate ACKs", "", Lower, 0,
        "Pure duplicate ACKs that the first sender received (capture).";
    RtoMs, "rto_ms", "RTO p50", "ms", Lower, 1,
        "Median of the retransmission timeout over all TCP_INFO samples of the senders.";
    RtoP90Ms, "rto_p90_ms", "RTO p90", "ms", Lower, 1,
        "90th percentile of the retransmission timeout over all TCP_INFO samples of the senders.";
    SrttMs, "srtt_ms", "SRTT p50", "ms", Lower, 2,
        "Median of the smoothed RTT over all TCP_INFO samples of the senders.";
    RtoRuns1, "rto_runs_1", "1x RTO", "", Lower, 0,
        "Runs of exactly one timeout of a flow with no progress in between.";
    RtoRuns2, "rto_runs_2", "2x RTO", "", Lower, 0, "Runs of exactly two successive timeouts.";
    RtoRuns3, "rto_runs_3", "3x RTO", "", Lower, 0, "Runs of exactly three successive timeouts.";
    RtoRuns4, "rto_runs_4", "4x RTO and more", "", Lower, 0, "Runs of four or more successive timeouts.";
    ReceiverCpu, "receiver_cpu", "receiver CPU", "%", Lower, 1, "Time the receiver's virtual CPU was not idle.";
    SenderCpu, "sender_cpu", "sender CPU", "%", Lower, 1, "Time the senders' virtual CPUs were not idle, mean.";
    VcpuWaitP50Ms, "vcpu_wait_p50_ms", "core wait p50", "ms", Lower, 2,
        "Median time for which a virtual CPU of the senders waited for its core, each time that it did not get it at \
         once when it had something to do, or lost it before it was done. For VMs that are `on` hosts.";
    VcpuWaitP90Ms, "vcpu_wait_p90_ms", "core wait p90", "ms", Lower, 2,
        "90th percentile of the time for which a virtual CPU of the senders waited for its core.";
    VcpuWaitMaxMs, "vcpu_wait_max_ms", "core wait max", "ms", Lower, 2,
        "Longest time for which a virtual CPU of the senders waited for its core.";
    ThrottledMs, "throttled_ms", "throttled", "ms", Lower, 0,
        "Time for which quotas kept VMs from running (throttled_usec of their cgroups), all VMs together.";
    QueueMeanSegments, "queue_mean_segments", "queue mean", "segments", Lower, 1,
        "Mean backlog of the bottleneck port.";
    QueueMaxSegments, "queue_max_segments", "queue max", "segments", Lower, 0,
        "Largest backlog of the bottleneck port.";
    QueueDelayMeanMs, "queue_delay_mean_ms", "queueing mean", "ms", Lower, 3,
        "Mean time that packets waited at the network card of the senders' host, all VMs' packets.";
    QueueDelayP50Ms, "queue_delay_p50_ms", "queueing p50", "ms", Lower, 3,
        "Median of the time that packets waited at the network card of the senders' host.";
    QueueDelayP99Ms, "queue_delay_p99_ms", "queueing p99", "ms", Lower, 3,
        "99th percentile of the time that packets waited at the network card of the senders' host.";
    QueueDelayFirstMeanMs, "queue_delay_first_mean_ms", "queueing mean, first VM", "ms", Lower, 3,
        "Mean time that the first sending VM's packets waited at its host's network card.";
    QueueDelayFirstP99Ms, "queue_delay_first_p99_ms", "queueing p99, first VM", "ms", Lower, 3,
        "99th percentile of the time that the first sending VM's packets waited at its host's network card.";
    UplinkUse, "uplink_use", "uplink in use", "%", Higher, 1,
        "Share of the time in which the network card of the senders' host was sending: bytes on the wire, of all VMs' \
         packets.";
    CeraCuts, "cera_cuts", "cuts", "", Neutral, 0, "Epochs at whose end CERA cut windows, all hosts.";
    WeightError, "weight_error", "off its weight", "%", Lower, 1,
        "Largest deviation of a VM's share of the long-lived flows' bytes from its weight's share, of the latter.";
    PvtcpLongestUs, "pvtcp_longest_us", "longest wake-up", "us", Neutral, 0,
        "Longest time off the core that PVTCP saw.";
    PvtcpHeld, "pvtcp_held", "timers held", "", Neutral, 0, "Timers that PVTCP held off.";
    ProbesSent, "probes_sent", "probes", "", Neutral, 0,
        "Probes that ProBoSCIS sent ahead of SYNs, those sent again included.";
    ProbesMarked, "probes_marked", "probes marked", "", Neutral, 0, "Probes that arrived with a congestion mark.";
    SynsRepeated, "syns_repeated", "SYNs repeated", "", Neutral, 0, "SYNs that ProBoSCIS sent again.";
    FirstWindowsScaled, "first_windows_scaled", "first windows cut", "", Neutral, 0,
        "SYN-ACKs whose window was cut by the share of probes without a mark.";
    FirstWindowsOneMss, "first_windows_one_mss", "first windows of 1 MSS", "", Neutral, 0,
        "SYN-ACKs whose window was cut to one segment.";
    WindowsLimited, "windows_limited", "windows limited", "", Neutral, 0,
        "ACKs in which ProBoSCIS's DCTCP lowered the window.";
    ThroughputP50Mbit, "throughput_p50_mbit", "throughput p50", "Mbit/s", Higher, 2,
        "Median over flows of their payload by their completion time.";
    ThroughputNearP50Mbit, "throughput_near_p50_mbit", "near p50", "Mbit/s", Higher, 2,
        "The same of flows to VMs that are near (`far_count`).";
    ThroughputFarP50Mbit, "throughput_far_p50_mbit", "far p50", "Mbit/s", Higher, 2,
        "The same of flows to VMs that are far away.";
    ThroughputConnectedP50Mbit, "throughput_connected_p50_mbit", "throughput p50, connected", "Mbit/s", Higher, 2,
        "Median over transfers of their payload by the time from when the sending application has its connection to \
         the last byte, as iperf counts: without the handshake, which is in throughput_p50_mbit.";
    WireFirstSegments, "wire_first_segments", "first burst", "segments", Lower, 0,
        "Most segments that a flow of the first sender had on the wire before its first data was acknowledged (capture \
         beyond the sender's host).";
    WireBurstSegments, "wire_burst_segments", "longest burst", "segments", Lower, 0,
        "Most segments that a flow of the first sender sent between two ACKs (capture beyond the sender's host).";
    WireBeyondSegments, "wire_beyond_segments", "beyond slow start", "segments", Lower, 0,
        "Most segments that a flow of the first sender had sent beyond the standard initial window and two for each \
         that was acknowledged (capture beyond the sender's host).";
    VfloodHeldMeanUs, "vflood_held_mean_us", "held for", "us", Neutral, 0, "Mean time for which they were held.";
    VfloodLowRttSegments, "vflood_low_rtt_segments", "held, low RTT", "segments", Neutral, 1,
        "Buffer use of all flows with an RTT below vflood.low_rtt_us, mean over time.";
    VfloodHighRttSegments, "vflood_high_rtt_segments", "held, high RTT", "segments", Neutral, 1,
        "Buffer use of all other flows, mean over time.";
    DomainCpu, "domain_cpu", "domain CPU", "%", Lower, 1,
        "Busy share of the driver domains' virtual CPUs (`host = \"vm\"`), by their own clocks.";
    VfloodShare, "vflood_share", "share", "%", Neutral, 1,
        "Goodput of the VMs that have vFlood (`vflood.clients`, whatever its mode), as a share of what they would have \
         if all senders had the same.";
    LongestStallMs, "longest_stall_ms", "longest stall", "ms", Lower, 0,
        "Longest time for which nothing arrived of a transfer that was under way and ended.";
    Damaged, "damaged", "damaged", "", Lower, 0,
        "Transfers of which a byte arrived that was not the one that was sent.";
    Resets, "resets", "resets", "", Lower, 0, "Connections reset, in all VMs (TcpOutRsts and TcpEstabResets).";
    MigrationOfflineMs, "migration_offline_ms", "offline in", "ms", Lower, 0,
        "From the word that the VM is to leave until its host held nothing of it and its guest was plain TCP.";
    MigrationMs, "migration_ms", "migration", "ms", Lower, 0,
        "Live migration, without the time before (QEMU's total-time).";
    MigrationDowntimeMs, "migration_downtime_ms", "downtime", "ms", Lower, 0,
        "For so long the VM stood still while it was moved (QEMU's downtime).";
    MigrationOnlineMs, "migration_online_ms", "online in", "ms", Lower, 0,
        "From the VM's start on its new host until that attested that it holds its packets.";
    PvtcpReloads, "pvtcp_reloads", "reloads", "", Neutral, 0,
        "Times that PVTCP was unloaded and loaded again while the workload ran, all VMs.";
    KernelComplaints, "kernel_complaints", "kernel complaints", "", Lower, 0,
        "Warnings, bugs and stalls in the guests' kernel logs.";
    =>
    AnswerProbesSent, "answer_probes_sent", "probes of answers", "", Neutral, 0,
        "Probes that ProBoSCIS sent ahead of SYN-ACKs.", "ProboscisAnswerProbesSent", "proboscis";
    AnswersScaled, "answers_scaled", "answers' first windows cut", "", Neutral, 0,
        "Connections whose answer's first window was cut by the share of probes without a mark.",
        "ProboscisAnswersScaled", "proboscis";
    AnswersOneMss, "answers_one_mss", "answers' first windows of 1 MSS", "", Neutral, 0,
        "Connections whose answer's first window was cut to one segment.", "ProboscisAnswersOneMss", "proboscis";
    CeraWindowsSet, "cera_windows_set", "windows set", "", Neutral, 0,
        "Times that CERA's clients lowered a flow's congestion window.", "CeraWindowsSet", "cera";
    CeraWindowsLimited, "cera_windows_limited", "windows limited (CERA)", "", Neutral, 0,
        "ACKs in which CERA lowered the window.", "CeraWindowsLimited", "cera";
    PvtcpWakeups, "pvtcp_wakeups", "wake-ups", "", Neutral, 0,
        "Wake-ups that PVTCP saw, all senders and receivers.", "PvtcpWakeups", "pvtcp";
    PvtcpFiltered, "pvtcp_filtered", "RTTs filtered", "", Neutral, 0,
        "RTT samples that PVTCP replaced by SRTT.", "PvtcpRttFiltered", "pvtcp";
    PvtcpIdleFiltered, "pvtcp_idle_filtered", "idle times filtered", "", Neutral, 0,
        "Idle times out of which PVTCP took an absence.", "PvtcpIdleFiltered", "pvtcp";
    PvtcpQuickAcks, "pvtcp_quick_acks", "quick ACKs", "", Neutral, 0,
        "Times that PVTCP told a connection to acknowledge at once.", "PvtcpJitAcks", "pvtcp";
    VfloodHeld, "vflood_held", "held", "", Neutral, 0,
        "Packets that hosts held back for their VMs (vFlood).", "VfloodHeld", "vflood";
    VfloodGrants, "vflood_grants", "grants", "", Neutral, 0,
        "ACKs in which the VM was told a window by vFlood.", "VfloodGrants", "vflood";
    VfloodLosses, "vflood_losses", "losses", "", Lower, 0,
        "Times that a flow of vFlood went to PACKET_LOSS.", "VfloodLosses", "vflood";
    VfloodNoBuffer, "vflood_no_buffer", "no buffer", "", Lower, 0,
        "Times that a flow of vFlood went to NO_BUFFER.", "VfloodNoBuffer", "vflood";
    VfloodRefused, "vflood_refused", "refused", "", Lower, 0,
        "Packets for which the VM's buffer had no room.", "VfloodRefused", "vflood";
    VsnoopEarlyAcks, "vsnoop_early_acks", "early ACKs", "", Neutral, 0,
        "ACKs that hosts sent for their VMs (vSnoop).", "VsnoopEarlyAcks", "vsnoop";
    VsnoopOnData, "vsnoop_on_data", "on data", "", Neutral, 0,
        "Data packets of VMs that an early ACK rode on.", "VsnoopOnData", "vsnoop";
    VsnoopDropped, "vsnoop_dropped", "ACKs dropped", "", Neutral, 0,
        "ACKs of VMs that said nothing new after early ones.", "VsnoopDropped", "vsnoop";
}

impl Formula {
    /// Whether it is made of what one workload brought, and not of what machines and ports count.
    const fn is_of_workload(self) -> bool {
        matches!(
            self,
            Self::GoodputMbit
                | Self::BackgroundGoodputMbit
                | Self::BlockP50Ms
                | Self::BlockP99Ms
                | Self::Blocks
                | Self::Flows
                | Self::FlowsUnfinished
                | Self::OperationsPerS
                | Self::MissedDeadlines
                | Self::FctMeanMs
                | Self::FctP50Ms
                | Self::FctP90Ms
                | Self::FctP99Ms
                | Self::FctP999Ms
                | Self::FctMaxMs
                | Self::FctSmallMeanMs
                | Self::FctSmallP50Ms
                | Self::FctSmallP90Ms
                | Self::FctSmallP99Ms
                | Self::FctSmallP999Ms
                | Self::FctSmallMaxMs
                | Self::FctMediumMeanMs
                | Self::FctMediumP50Ms
                | Self::FctMediumP90Ms
                | Self::FctMediumP99Ms
                | Self::FctMediumP999Ms
                | Self::FctMediumMaxMs
                | Self::FctLargeMeanMs
                | Self::FctLargeP50Ms
                | Self::FctLargeP90Ms
                | Self::FctLargeP99Ms
                | Self::FctLargeP999Ms
                | Self::FctLargeMaxMs
                | Self::FctConnectedP50Ms
                | Self::RttP50Ms
                | Self::RttP90Ms
                | Self::RttMeanMs
                | Self::RttMaxMs
                | Self::ThroughputP50Mbit
                | Self::ThroughputNearP50Mbit
                | Self::ThroughputFarP50Mbit
                | Self::ThroughputConnectedP50Mbit
                | Self::LongestStallMs
                | Self::Damaged
        )
    }
}

impl Metric {
    /// Name in result files and scenario files.
    pub const fn name(self) -> &'static str {
        self.about().name
    }

    /// Splits a name in results into its workload, unless it is the whole run's or the only one's, and the metric.
    pub fn split(name: &str) -> (Option<&str>, &str) {
        name.split_once('.').map_or((None, name), |(workload, metric)| (Some(workload), metric))
    }

    /// Whether each of several workloads has one of its own, `NAME.METRIC`.
    pub fn is_of_workload(self) -> bool {
        let Source::Formula(formula) = self.source() else { return false };
        formula.is_of_workload()
    }

    /// The metric of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|metric| metric.name() == name)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_name_one_metric_each() {
        for metric in Metric::ALL {
            assert_eq!(Metric::named(metric.name()), Some(*metric), "{metric}");
        }
        assert_eq!(Metric::named("goodput"), None);
    }
}
