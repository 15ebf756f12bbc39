//! Flows that end, and requests with their responses: how many, how long, how fast.

use super::statistics::{Sorted, Statistic};
use super::{Run, mbit, milliseconds};
use crate::format::Workload;
use crate::metric::measurements::Ended;
use crate::metric::size::SizeClass;
use crate::stats::median;

const PS_PER_MS: u64 = 1_000_000_000;

impl Run<'_> {
    /// The flows that ended, if the workload has flows that end.
    fn ended(&self) -> Option<&[Ended]> {
        let has_flows = match self.scenario.workload() {
            Workload::Poisson { .. }
            | Workload::RequestResponse { .. }
            | Workload::Memcached { .. }
            | Workload::Transfers { .. }
            | Workload::ThreeTier { .. } => true,
            Workload::Ping { .. } | Workload::Bulk { .. } | Workload::Strobe { .. } | Workload::Iperf3 { .. } => false,
        };
        has_flows.then_some(self.traffic.ended.as_slice())
    }

    /// A number.
    pub(super) fn flows(&self) -> Option<f64> {
        Some(self.ended()?.len() as f64)
    }

    /// A number.
    pub(super) fn flows_unfinished(&self) -> Option<f64> {
        self.ended().map(|_| self.traffic.unfinished.len() as f64)
    }

    /// Per second, from the users' operations.
    pub(super) fn operations_per_s(&self) -> Option<f64> {
        let operations = self.ended().filter(|_| matches!(self.scenario.workload(), Workload::ThreeTier { .. }))?;
        Some(operations.len() as f64 / self.seconds())
    }

    /// A number, from the times of small flows, and from how long the unfinished ones had waited when the run ended.
    pub(super) fn missed_deadlines(&self) -> Option<f64> {
        let &Workload::Poisson { deadline_ms: deadline_ms @ 1.., .. } = self.scenario.workload() else { return None };
        let misses = |bytes: u64, took_ps: u64| {
            SizeClass::of(bytes) == SizeClass::Small && took_ps > u64::from(deadline_ms) * PS_PER_MS
        };
        let ended = self.ended()?.iter().filter(|flow| misses(flow.bytes, flow.took_ps)).count();
        let under_way = self.traffic.unfinished.iter().filter(|flow| misses(flow.bytes, flow.waited_ps)).count();
        Some((ended + under_way) as f64)
    }

    /// Milliseconds from the start of a flow, or from a request, to its last byte; of all, or of one class of sizes.
    pub(super) fn fct_ms(&self, class: Option<SizeClass>, statistic: Statistic) -> Option<f64> {
        let ended = self.ended()?;
        let place = class.map_or(0, |class| 1 + class as usize);
        let times = self.completion[place].get_or_init(|| {
            let own = ended.iter().filter(|flow| class.is_none_or(|class| SizeClass::of(flow.bytes) == class));
            own.map(|flow| milliseconds(flow.took_ps)).collect::<Sorted>()
        });
        times.say(statistic)
    }

    /// Milliseconds, from when the sender had its connection to the last byte.
    pub(super) fn fct_connected_p50_ms(&self) -> Option<f64> {
        let times = self.ended()?.iter().filter_map(|flow| flow.connected_took_ps);
        median(&times.map(milliseconds).collect::<Vec<_>>())
    }

    /// Mbit/s, from each flow's payload and completion time.
    pub(super) fn throughput_p50_mbit(&self) -> Option<f64> {
        median(&self.ended()?.iter().map(|flow| mbit(flow.bytes, flow.took_ps)).collect::<Vec<_>>())
    }

    /// The same of flows to VMs that are far away (`far_count`), or that are not.
    pub(super) fn throughput_by_distance_p50_mbit(&self, far: bool) -> Option<f64> {
        let (_, to) = self.scenario.workload().roles();
        let group = self.scenario.vms.get(to).filter(|group| group.far_count > 0)?;
        let is_far = |vm: u32| self.measured.vms.get(vm as usize).is_some_and(|vm| group.is_far(&vm.name));
        let flows = self.ended()?.iter().filter(|flow| is_far(flow.to) == far);
        median(&flows.map(|flow| mbit(flow.bytes, flow.took_ps)).collect::<Vec<_>>())
    }

    /// Mbit/s, from each flow's payload and the time since its sender had the connection.
    pub(super) fn throughput_connected_p50_mbit(&self) -> Option<f64> {
        let flows = self.ended()?.iter().filter_map(|flow| Some(mbit(flow.bytes, flow.connected_took_ps?)));
        median(&flows.collect::<Vec<_>>())
    }
}
