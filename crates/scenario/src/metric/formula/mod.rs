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

use super::list::{Formula, Metric, Source};
use super::measurements::{Measurements, Traffic, Vm};
use super::size::SizeClass;
use crate::format::{Scenario, Workload};
use statistics::{Sorted, Statistic};

/// A run's metrics by name; those without a finite value are left out. Where there are several workloads, each has its
/// own, as in `requests.fct_p99_ms`, and the others are of the whole run.
pub fn metrics(scenario: &Scenario, measured: &Measurements) -> BTreeMap<String, f64> {
    let nothing = Traffic::default();
    let traffic = |place: usize| measured.traffic.get(place).unwrap_or(&nothing);
    if scenario.workloads.len() == 1 {
        let run = Run::new(scenario, measured, traffic(0));
        return Metric::ALL.iter().filter_map(|metric| run.named(*metric)).collect();
    }
    let alone: Vec<(&str, Scenario)> = scenario.alone().collect();
    let mut metrics = BTreeMap::new();
    let mut goodput_mbit = None;
    for (place, (name, one)) in alone.iter().enumerate() {
        let run = Run::new(one, measured, traffic(place));
        let own = Metric::ALL.iter().filter(|metric| metric.is_of_workload());
        metrics.extend(
            own.filter_map(|metric| run.named(*metric)).map(|(metric, value)| (format!("{name}.{metric}"), value)),
        );
        if let Some(mbit) = run.value(Metric::GoodputMbit).filter(|mbit| mbit.is_finite()) {
            *goodput_mbit.get_or_insert(0.0) += mbit;
        }
    }
    let uses_tcp = |(_, one): &&(&str, Scenario)| !matches!(one.workload(), Workload::Ping { .. });
    let Some((_, one)) = alone.iter().find(uses_tcp).or(alone.first()) else { return metrics };
    let all = Traffic {
        long_lived: measured.traffic.iter().flat_map(|traffic| &traffic.long_lived).copied().collect(),
        ..Traffic::default()
    };
    let run = Run::of_all(scenario, Run::new(one, measured, &all));
    metrics
        .extend(Metric::ALL.iter().filter(|metric| !metric.is_of_workload()).filter_map(|metric| run.named(*metric)));
    metrics.extend(goodput_mbit.map(|mbit| (Metric::GoodputMbit.name().to_owned(), mbit)));
    metrics
}

/// A run that formulas look at.
struct Run<'a> {
    /// With one workload.
    scenario: &'a Scenario,
    measured: &'a Measurements,
    traffic: &'a Traffic,
    /// Groups that send, and those that receive.
    groups: [Vec<&'a str>; 2],
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
    /// Of the only workload of a scenario.
    fn new(scenario: &'a Scenario, measured: &'a Measurements, traffic: &'a Traffic) -> Self {
        let (from, to) = scenario.workload().roles();
        let both = scenario.workload().is_both_ways();
        let of = |group: &str| measured.vms.iter().filter(|vm| both || vm.group == group).collect();
        let (senders, receivers) = (of(from), of(to));
        let (completion, waits, vcpu_waits) = Default::default();
        let groups = [vec![from], vec![to]];
        Self { scenario, measured, traffic, groups, senders, receivers, completion, waits, vcpu_waits }
    }

    /// Of all workloads of a scenario; `first` is the run of one of them.
    fn of_all(scenario: &'a Scenario, first: Self) -> Self {
        let (from, to): (Vec<&str>, Vec<&str>) = scenario.workloads.values().map(Workload::roles).unzip();
        let groups = [from, to];
        let both: Vec<&str> = scenario
            .workloads
            .values()
            .filter(|one| one.is_both_ways())
            .map(Workload::roles)
            .flat_map(|(from, to)| [from, to])
            .collect();
        let of = |groups: &[&str]| {
            let takes_part = |vm: &&Vm| groups.contains(&vm.group.as_str()) || both.contains(&vm.group.as_str());
            first.measured.vms.iter().filter(takes_part).collect()
        };
        let (senders, receivers) = (of(&groups[0]), of(&groups[1]));
        Self { groups, senders, receivers, ..first }
    }

    /// A metric with its name, if it has a finite value.
    fn named(&self, metric: Metric) -> Option<(String, f64)> {
        let value = self.value(metric).filter(|value| value.is_finite())?;
        Some((metric.name().to_owned(), value))
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
        let formula = match metric.source() {
            Source::Count { counter, .. } => return self.count(counter),
            Source::Formula(formula) => formula,
        };
        match formula {
            Formula::GoodputMbit => self.goodput_mbit(),
            Formula::BackgroundGoodputMbit => self.background_goodput_mbit(),
            Formula::TimeS => Some(self.seconds()),
            Formula::BlockP50Ms => self.block_ms(P50),
            Formula::BlockP99Ms => self.block_ms(P99),
            Formula::Blocks => self.blocks(),
            Formula::Flows => self.flows(),
            Formula::FlowsUnfinished => self.flows_unfinished(),
            Formula::OperationsPerS => self.operations_per_s(),
            Formula::MissedDeadlines => self.missed_deadlines(),
            Formula::FctMeanMs => self.fct_ms(None, Mean),
            Formula::FctP50Ms => self.fct_ms(None, P50),
            Formula::FctP90Ms => self.fct_ms(None, P90),
            Formula::FctP99Ms => self.fct_ms(None, P99),
            Formula::FctP999Ms => self.fct_ms(None, P999),
            Formula::FctMaxMs => self.fct_ms(None, Max),
            Formula::FctSmallMeanMs => self.fct_ms(Some(Small), Mean),
            Formula::FctSmallP50Ms => self.fct_ms(Some(Small), P50),
            Formula::FctSmallP90Ms => self.fct_ms(Some(Small), P90),
            Formula::FctSmallP99Ms => self.fct_ms(Some(Small), P99),
            Formula::FctSmallP999Ms => self.fct_ms(Some(Small), P999),
            Formula::FctSmallMaxMs => self.fct_ms(Some(Small), Max),
            Formula::FctMediumMeanMs => self.fct_ms(Some(Medium), Mean),
            Formula::FctMediumP50Ms => self.fct_ms(Some(Medium), P50),
            Formula::FctMediumP90Ms => self.fct_ms(Some(Medium), P90),
            Formula::FctMediumP99Ms => self.fct_ms(Some(Medium), P99),
            Formula::FctMediumP999Ms => self.fct_ms(Some(Medium), P999),
            Formula::FctMediumMaxMs => self.fct_ms(Some(Medium), Max),
            Formula::FctLargeMeanMs => self.fct_ms(Some(Large), Mean),
            Formula::FctLargeP50Ms => self.fct_ms(Some(Large), P50),
            Formula::FctLargeP90Ms => self.fct_ms(Some(Large), P90),
            Formula::FctLargeP99Ms => self.fct_ms(Some(Large), P99),
            Formula::FctLargeP999Ms => self.fct_ms(Some(Large), P999),
            Formula::FctLargeMaxMs => self.fct_ms(Some(Large), Max),
            Formula::FctConnectedP50Ms => self.fct_connected_p50_ms(),
            Formula::RttP50Ms => self.rtt_ms(P50),
            Formula::RttP90Ms => self.rtt_ms(P90),
            Formula::RttMeanMs => self.rtt_ms(Mean),
            Formula::RttMaxMs => self.rtt_ms(Max),
            Formula::Timeouts => self.timeouts(),
            Formula::TimeoutsPerS => self.per_s(self.timeouts()),
            Formula::TailLossProbes => self.tail_loss_probes(),
            Formula::TailLossProbesPerS => self.per_s(self.tail_loss_probes()),
            Formula::TlpRecoveries => self.tlp_recoveries(),
            Formula::Undone => self.undone(),
            Formula::SpuriousFrto => self.spurious_frto(),
            Formula::DetectedShare => self.detected_share(),
            Formula::SegmentsSent => self.segments_sent(),
            Formula::Retransmitted => self.retransmitted(),
            Formula::NeedlessRetransmissions => self.needless_retransmissions(),
            Formula::NeedlessPerS => self.per_s(self.needless_retransmissions()),
            Formula::Dsacks => self.dsacks(),
            Formula::PortDrops => self.port_drops(),
            Formula::EcnMarks => self.ecn_marks(),
            Formula::AcksSent => self.acks_sent(),
            Formula::DuplicateAcks => self.duplicate_acks(),
            Formula::RtoMs => self.rto_ms(P50),
            Formula::RtoP90Ms => self.rto_ms(P90),
            Formula::SrttMs => self.srtt_ms(),
            Formula::RtoRuns1 => self.rto_runs(0),
            Formula::RtoRuns2 => self.rto_runs(1),
            Formula::RtoRuns3 => self.rto_runs(2),
            Formula::RtoRuns4 => self.rto_runs(3),
            Formula::ReceiverCpu => self.receiver_cpu(),
            Formula::SenderCpu => self.sender_cpu(),
            Formula::VcpuWaitP50Ms => self.vcpu_wait_ms(P50),
            Formula::VcpuWaitP90Ms => self.vcpu_wait_ms(P90),
            Formula::VcpuWaitMaxMs => self.vcpu_wait_ms(Max),
            Formula::ThrottledMs => self.throttled_ms(),
            Formula::QueueMeanSegments => self.queue_segments(Mean),
            Formula::QueueMaxSegments => self.queue_segments(Max),
            Formula::QueueDelayMeanMs => self.queue_delay_mean_ms(),
            Formula::QueueDelayP50Ms => self.queue_delay_ms(P50),
            Formula::QueueDelayP99Ms => self.queue_delay_ms(P99),
            Formula::QueueDelayFirstMeanMs => self.queue_delay_first_ms(Mean),
            Formula::QueueDelayFirstP99Ms => self.queue_delay_first_ms(P99),
            Formula::UplinkUse => self.uplink_use(),
            Formula::CeraCuts => self.cera_cuts(),
            Formula::WeightError => self.weight_error(),
            Formula::PvtcpLongestUs => self.pvtcp_longest_us(),
            Formula::PvtcpHeld => self.pvtcp_held(),
            Formula::ProbesSent => self.count("ProboscisProbesSent"),
            Formula::ProbesMarked => self.count("ProboscisProbesMarked"),
            Formula::SynsRepeated => self.count("ProboscisSynsRepeated"),
            Formula::FirstWindowsScaled => self.count("ProboscisSynAcksScaled"),
            Formula::FirstWindowsOneMss => self.count("ProboscisSynAcksOneMss"),
            Formula::WindowsLimited => self.count("ProboscisWindowsLimited"),
            Formula::ThroughputP50Mbit => self.throughput_p50_mbit(),
            Formula::ThroughputNearP50Mbit => self.throughput_by_distance_p50_mbit(false),
            Formula::ThroughputFarP50Mbit => self.throughput_by_distance_p50_mbit(true),
            Formula::ThroughputConnectedP50Mbit => self.throughput_connected_p50_mbit(),
            Formula::WireFirstSegments => self.bursts(|bursts| bursts.first_segments),
            Formula::WireBurstSegments => self.bursts(|bursts| bursts.longest_segments),
            Formula::WireBeyondSegments => self.bursts(|bursts| bursts.beyond_segments),
            Formula::VfloodHeldMeanUs => self.vflood_held_mean_us(),
            Formula::VfloodLowRttSegments => self.mean_over_time("VfloodLowRttSegmentUs"),
            Formula::VfloodHighRttSegments => self.mean_over_time("VfloodHighRttSegmentUs"),
            Formula::DomainCpu => self.domain_cpu(),
            Formula::VfloodShare => self.vflood_share(),
            Formula::LongestStallMs => self.longest_stall_ms(),
            Formula::Damaged => self.damaged(),
            Formula::Resets => self.resets(),
            Formula::MigrationOfflineMs => self.migration_offline_ms(),
            Formula::MigrationMs => self.migration_ms(),
            Formula::MigrationDowntimeMs => self.migration_downtime_ms(),
            Formula::MigrationOnlineMs => self.migration_online_ms(),
            Formula::PvtcpReloads => self.measured.pvtcp_reloads.map(f64::from),
            Formula::KernelComplaints => self.measured.kernel_complaints.map(|lines| lines as f64),
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
