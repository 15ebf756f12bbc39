//! What was measured in a run.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::trace::Traced;
use crate::backlog::Backlog;
use crate::host::agent::Counted;
use crate::host::marking::Marks;
use crate::host::vm::Migrated;
use crate::host::waits::Wait;
use crate::proto::Recorded;

/// Counters of a VM by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters(pub BTreeMap<String, i64>);

impl Counters {
    /// The increase since an earlier reading. What was not there before counts from 0; a maximum (PVTCP's longest)
    /// stays as it is.
    pub fn since(&self, before: &Self) -> Self {
        let increase = |(name, value): (&String, &i64)| {
            let start = if name == "PvtcpWakeupMaxUs" { 0 } else { before.0.get(name).copied().unwrap_or(0) };
            (name.clone(), value - start)
        };
        Self(self.0.iter().map(increase).collect())
    }
}

/// What one VM did in the measured time.
#[derive(Debug)]
pub struct VmMeasured {
    /// As in `sender-0`.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its port on the host.
    pub port: String,
    /// What its runner recorded of each workload, in the order of their names.
    pub recorded: Vec<Recorded>,
    /// Its counters' increase.
    pub counters: Counters,
    /// How long its virtual CPUs waited for a core, if it is on a host's.
    pub waits: Vec<Wait>,
}

/// A VM that was moved.
#[derive(Debug)]
pub struct Moved {
    /// Its position.
    pub vm: usize,
    /// As in `sender-0`.
    pub name: String,
    /// Its port on the new host.
    pub port: String,
    /// How long it took until its old host held nothing of it, if that has an agent.
    pub offline: Option<Duration>,
    /// What the migration took.
    pub migrated: Migrated,
    /// How long it took until its new host's agent had it.
    pub online: Option<Duration>,
}

impl Moved {
    /// How long it stood still.
    pub fn downtime(&self) -> Duration {
        Duration::from_millis(self.migrated.downtime_ms)
    }

    /// When it stopped, CLOCK_MONOTONIC of this machine.
    pub fn stopped_ns(&self) -> u64 {
        self.migrated.done_ns.saturating_sub(self.downtime().as_nanos() as u64)
    }
}

/// All that was measured in a run.
#[derive(Debug)]
pub struct Measured {
    /// Measured time.
    pub duration: Duration,
    /// All VMs.
    pub vms: Vec<VmMeasured>,
    /// The driver domains' counters' increase, by their names.
    pub domains: Vec<(String, Counters)>,
    /// Packets dropped at ports.
    pub dropped: u64,
    /// What ports that mark did, if there are any.
    pub marks: Option<Marks>,
    /// What the host agent counted, if there is one.
    pub agent: Option<Counted>,
    /// The bottleneck's backlog.
    pub backlog: Backlog,
    /// iperf3's own figure of each workload.
    pub iperf3: Vec<Option<f64>>,
    /// When the measured time began, CLOCK_MONOTONIC.
    pub mark_monotonic_ns: u64,
    /// The same, CLOCK_REALTIME.
    pub mark_realtime_ns: u64,
    /// How often PVTCP was unloaded and loaded again.
    pub reloaded: u32,
    /// What the guests' kernels complained of.
    pub complaints: Vec<String>,
    /// What the captures show.
    pub trace: Traced,
    /// VMs that were moved.
    pub moved: Vec<Moved>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_increase_and_maxima_stay() {
        let of = |pairs: &[(&str, i64)]| Counters(pairs.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect());
        let before = of(&[("TcpRetransSegs", 5), ("PvtcpWakeupMaxUs", 70)]);
        let after = of(&[("TcpRetransSegs", 9), ("PvtcpWakeupMaxUs", 80), ("New", 3)]);
        assert_eq!(after.since(&before), of(&[("TcpRetransSegs", 4), ("PvtcpWakeupMaxUs", 80), ("New", 3)]));
    }
}
