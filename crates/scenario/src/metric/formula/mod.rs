//! A run's metrics: each formula once, for both engines.
//!
//! A formula's result is in the unit that its metric's name ends with. It is `None` where the scenario has nothing of
//! the kind, or the engine has not measured what it is made of.

mod completion;
mod machine;
mod mechanism;
mod statistics;
mod tcp;
mod traffic;

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::list::Metric;
use super::measurements::{Measurements, Vm};
use super::size::SizeClass;
use crate::format::{Scenario, Workload};
use statistics::{Sorted, Statistic};

/// A run's metrics by name; those without a finite value are left out.
pub fn metrics(scenario: &Scenario, measured: &Measurements) -> BTreeMap<String, f64> {
    let run = Run::new(scenario, measured);
    let found = |metric: &Metric| {
        let value = run.value(*metric).filter(|value| value.is_finite())?;
        Some((metric.name().to_owned(), value))
    };
    Metric::ALL.iter().filter_map(found).collect()
}

/// A run that formulas look at.
struct Run<'a> {
    scenario: &'a Scenario,
    measured: &'a Measurements,
    /// VMs that send the workload's data, and those that receive it.
    senders: Vec<&'a Vm>,
    receivers: Vec<&'a Vm>,
    /// Completion times in milliseconds: of all flows, and of those of each size.
    completion: [OnceCell<Sorted>; 1 + SizeClass::ALL.len()],
    /// Milliseconds that packets waited at the network card: all, and the first sender's.
    waits: [OnceCell<Sorted>; 2],
    /// Milliseconds that virtual CPUs waited for their cores.
    vcpu_waits: OnceCell<Sorted>,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, measured: &'a Measurements) -> Self {
        let (from, to) = scenario.workload.roles();
        // Where requests are as good as responses, all do both.
        let both = matches!(scenario.workload, Workload::RequestResponse { .. } | Workload::ThreeTier { .. });
        let of = |group: &str| measured.vms.iter().filter(|vm| both || vm.group == group).collect();
        let (senders, receivers) = (of(from), of(to));
        let (completion, waits, vcpu_waits) = Default::default();
        Self { scenario, measured, senders, receivers, completion, waits, vcpu_waits }
    }

    /// The sum of a counter over VMs; one that is not there is 0.
    fn sum(vms: &[&Vm], counter: &str) -> f64 {
        vms.iter().map(|vm| vm.counters.get(counter).copied().unwrap_or(0)).sum::<i64>() as f64
    }

    /// The sum of a counter over all VMs and hosts; `None` if nobody has it.
    fn count(&self, counter: &str) -> Option<f64> {
        let all = self.measured.vms.iter().map(|vm| &vm.counters).chain([&self.measured.hosts]);
        let values = all.filter_map(|counters| counters.get(counter).copied());
        values.reduce(|sum, value| sum + value).map(|sum| sum as f64)
    }

    /// The measured time, in seconds.
    fn seconds(&self) -> f64 {
        seconds(self.measured.duration_ps)
    }

    fn value(&self, metric: Metric) -> Option<f64> {
        use SizeClass::{Large, Medium, Small};
        use Statistic::{Max, Mean, P50, P90, P99, P999};
        match metric {
            Metric::GoodputMbit => self.goodput_mbit(),
            Metric::BackgroundGoodputMbit => self.background_goodput_mbit(),
            Metric::TimeS => Some(self.seconds()),
            Metric::BlockP50Ms => self.block_ms(P50),
            Metric::BlockP99Ms => self.block_ms(P99),
            Metric::Blocks => self.blocks(),
            Metric::Flows => self.flows(),
            Metric::FlowsUnfinished => self.flows_unfinished(),
            Metric::OperationsPerS => self.operations_per_s(),
            Metric::MissedDeadlines => self.missed_deadlines(),
            Metric::FctMeanMs => self.fct_ms(None, Mean),
            Metric::FctP50Ms => self.fct_ms(None, P50),
            Metric::FctP90Ms => self.fct_ms(None, P90),
            Metric::FctP99Ms => self.fct_ms(None, P99),
            Metric::FctP999Ms => self.fct_ms(None, P999),
            Metric::FctMaxMs => self.fct_ms(None, Max),
            Metric::FctSmallMeanMs => self.fct_ms(Some(Small), Mean),
            Metric::FctSmallP50Ms => self.fct_ms(Some(Small), P50),
            Metric::FctSmallP90Ms => self.fct_ms(Some(Small), P90),
            Metric::FctSmallP99Ms => self.fct_ms(Some(Small), P99),
            Metric::FctSmallP999Ms => self.fct_ms(Some(Small), P999),
            Metric::FctSmallMaxMs => self.fct_ms(Some(Small), Max),
            Metric::FctMediumMeanMs => self.fct_ms(Some(Medium), Mean),
            Metric::FctMediumP50Ms => self.fct_ms(Some(Medium), P50),
            Metric::FctMediumP90Ms => self.fct_ms(Some(Medium), P90),
            Metric::FctMediumP99Ms => self.fct_ms(Some(Medium), P99),
            Metric::FctMediumP999Ms => self.fct_ms(Some(Medium), P999),
            Metric::FctMediumMaxMs => self.fct_ms(Some(Medium), Max),
            Metric::FctLargeMeanMs => self.fct_ms(Some(Large), Mean),
            Metric::FctLargeP50Ms => self.fct_ms(Some(Large), P50),
            Metric::FctLargeP90Ms => self.fct_ms(Some(Large), P90),
            Metric::FctLargeP99Ms => self.fct_ms(Some(Large), P99),
            Metric::FctLargeP999Ms => self.fct_ms(Some(Large), P999),
            Metric::FctLargeMaxMs => self.fct_ms(Some(Large), Max),
            Metric::FctConnectedP50Ms => self.fct_connected_p50_ms(),
            Metric::RttP50Ms => self.rtt_ms(P50),
            Metric::RttP90Ms => self.rtt_ms(P90),
            Metric::RttMeanMs => self.rtt_ms(Mean),
            Metric::RttMaxMs => self.rtt_ms(Max),
            Metric::Timeouts => self.timeouts(),
            Metric::TimeoutsPerS => self.per_s(self.timeouts()),
            Metric::TailLossProbes => self.tail_loss_probes(),
            Metric::TailLossProbesPerS => self.per_s(self.tail_loss_probes()),
            Metric::TlpRecoveries => self.tlp_recoveries(),
            Metric::Undone => self.undone(),
            Metric::SpuriousFrto => self.spurious_frto(),
            Metric::DetectedShare => self.detected_share(),
            Metric::SegmentsSent => self.segments_sent(),
            Metric::Retransmitted => self.retransmitted(),
            Metric::NeedlessRetransmissions => self.needless_retransmissions(),
            Metric::NeedlessPerS => self.per_s(self.needless_retransmissions()),
            Metric::Dsacks => self.dsacks(),
            Metric::PortDrops => self.port_drops(),
            Metric::EcnMarks => self.ecn_marks(),
            Metric::AcksSent => self.acks_sent(),
            Metric::DuplicateAcks => self.duplicate_acks(),
            Metric::RtoMs => self.rto_ms(P50),
            Metric::RtoP90Ms => self.rto_ms(P90),
            Metric::SrttMs => self.srtt_ms(),
            Metric::RtoRuns1 => self.rto_runs(0),
            Metric::RtoRuns2 => self.rto_runs(1),
            Metric::RtoRuns3 => self.rto_runs(2),
            Metric::RtoRuns4 => self.rto_runs(3),
            Metric::ReceiverCpu => self.receiver_cpu(),
            Metric::SenderCpu => self.sender_cpu(),
            Metric::VcpuWaitP50Ms => self.vcpu_wait_ms(P50),
            Metric::VcpuWaitP90Ms => self.vcpu_wait_ms(P90),
            Metric::VcpuWaitMaxMs => self.vcpu_wait_ms(Max),
            Metric::ThrottledMs => self.throttled_ms(),
            Metric::QueueMeanSegments => self.queue_segments(Mean),
            Metric::QueueMaxSegments => self.queue_segments(Max),
            Metric::QueueDelayMeanMs => self.queue_delay_mean_ms(),
            Metric::QueueDelayP50Ms => self.queue_delay_ms(P50),
            Metric::QueueDelayP99Ms => self.queue_delay_ms(P99),
            Metric::QueueDelayFirstMeanMs => self.queue_delay_first_ms(Mean),
            Metric::QueueDelayFirstP99Ms => self.queue_delay_first_ms(P99),
            Metric::UplinkUse => self.uplink_use(),
            Metric::CeraCuts => self.cera_cuts(),
            Metric::CeraWindowsSet => self.count("CeraWindowsSet"),
            Metric::CeraWindowsLimited => self.count("CeraWindowsLimited"),
            Metric::WeightError => self.weight_error(),
            Metric::PvtcpWakeups => self.count("PvtcpWakeups"),
            Metric::PvtcpLongestUs => self.pvtcp_longest_us(),
            Metric::PvtcpHeld => self.pvtcp_held(),
            Metric::PvtcpFiltered => self.count("PvtcpRttFiltered"),
            Metric::PvtcpQuickAcks => self.count("PvtcpJitAcks"),
            Metric::ProbesSent => self.count("ProboscisProbesSent"),
            Metric::ProbesMarked => self.count("ProboscisProbesMarked"),
            Metric::SynsRepeated => self.count("ProboscisSynsRepeated"),
            Metric::FirstWindowsScaled => self.count("ProboscisSynAcksScaled"),
            Metric::FirstWindowsOneMss => self.count("ProboscisSynAcksOneMss"),
            Metric::WindowsLimited => self.count("ProboscisWindowsLimited"),
            Metric::ThroughputP50Mbit => self.throughput_p50_mbit(),
            Metric::ThroughputNearP50Mbit => self.throughput_by_distance_p50_mbit(false),
            Metric::ThroughputFarP50Mbit => self.throughput_by_distance_p50_mbit(true),
            Metric::ThroughputConnectedP50Mbit => self.throughput_connected_p50_mbit(),
            Metric::WireFirstSegments => self.bursts(|bursts| bursts.first_segments),
            Metric::WireBurstSegments => self.bursts(|bursts| bursts.longest_segments),
            Metric::WireBeyondSegments => self.bursts(|bursts| bursts.beyond_segments),
            Metric::VfloodHeld => self.count("VfloodHeld"),
            Metric::VfloodHeldMeanUs => self.vflood_held_mean_us(),
            Metric::VfloodLowRttSegments => self.mean_over_time("VfloodLowRttSegmentUs"),
            Metric::VfloodHighRttSegments => self.mean_over_time("VfloodHighRttSegmentUs"),
            Metric::VfloodGrants => self.count("VfloodGrants"),
            Metric::VfloodLosses => self.count("VfloodLosses"),
            Metric::VfloodNoBuffer => self.count("VfloodNoBuffer"),
            Metric::DomainCpu => self.domain_cpu(),
            Metric::VfloodShare => self.vflood_share(),
            Metric::VfloodRefused => self.count("VfloodRefused"),
            Metric::VsnoopEarlyAcks => self.count("VsnoopEarlyAcks"),
            Metric::VsnoopOnData => self.count("VsnoopOnData"),
            Metric::VsnoopDropped => self.count("VsnoopDropped"),
            Metric::LongestStallMs => self.longest_stall_ms(),
            Metric::Damaged => self.damaged(),
            Metric::Resets => self.resets(),
            Metric::MigrationOfflineMs => self.migration_offline_ms(),
            Metric::MigrationMs => self.migration_ms(),
            Metric::MigrationDowntimeMs => self.migration_downtime_ms(),
            Metric::MigrationOnlineMs => self.migration_online_ms(),
            Metric::PvtcpReloads => self.measured.pvtcp_reloads.map(f64::from),
            Metric::KernelComplaints => self.measured.kernel_complaints.map(|lines| lines as f64),
        }
    }
}

fn seconds(ps: u64) -> f64 {
    ps as f64 / 1e12
}

fn milliseconds(ps: u64) -> f64 {
    ps as f64 / 1e9
}

/// Megabits per second.
fn mbit(bytes: u64, during_ps: u64) -> f64 {
    bytes as f64 * 8.0 / 1e6 / seconds(during_ps)
}

#[cfg(test)]
mod tests;
