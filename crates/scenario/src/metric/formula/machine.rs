//! What virtual CPUs, queues, network cards and migrations took.

use super::statistics::Statistic;
use super::{Run, milliseconds, seconds};
use crate::metric::measurements::{CpuTime, Migration, Waits};

impl Run<'_> {
    /// Percent of the virtual CPUs' own time, all of them together.
    fn busy(times: impl Iterator<Item = CpuTime>) -> Option<f64> {
        let sums = times.fold((0, 0), |(busy, idle), time| (busy + time.busy_us, idle + time.idle_us));
        let (busy, idle) = (sums.0 as f64, sums.1 as f64);
        (busy + idle > 0.0).then(|| 100.0 * busy / (busy + idle))
    }

    /// The same of the VMs of some groups.
    fn busy_of(&self, groups: &[&str]) -> Option<f64> {
        let own = self.measured.vms.iter().filter(|vm| groups.contains(&vm.group.as_str()));
        Self::busy(own.filter_map(|vm| vm.cpu))
    }

    /// Percent, from the clocks of the virtual CPUs of groups that send.
    pub(super) fn sender_cpu(&self) -> Option<f64> {
        self.busy_of(&self.groups[0])
    }

    /// Percent, from those of groups that receive.
    pub(super) fn receiver_cpu(&self) -> Option<f64> {
        self.busy_of(&self.groups[1])
    }

    /// Percent, from those of driver domains.
    pub(super) fn domain_cpu(&self) -> Option<f64> {
        Self::busy(self.measured.domains.iter().copied())
    }

    /// Milliseconds, from each wait of a virtual CPU that sends.
    pub(super) fn vcpu_wait_ms(&self, statistic: Statistic) -> Option<f64> {
        let waits_ps = &self.measured.vcpu_waits_ps;
        self.vcpu_waits.get_or_init(|| waits_ps.iter().copied().map(milliseconds).collect()).say(statistic)
    }

    /// Milliseconds, from CpuThrottledUs.
    pub(super) fn throttled_ms(&self) -> Option<f64> {
        Some(self.count("CpuThrottledUs")? / 1e3)
    }

    /// Segments, from samples of the bottleneck's backlog.
    pub(super) fn queue_segments(&self, statistic: Statistic) -> Option<f64> {
        statistic.of(&self.measured.backlog_segments.iter().map(|segments| f64::from(*segments)).collect::<Vec<_>>())
    }

    /// Milliseconds, from the time of each packet; where only the backlog is known, by Little's law from it and the
    /// rate at which bytes are sent.
    pub(super) fn queue_delay_mean_ms(&self) -> Option<f64> {
        let uplink = self.measured.uplink.as_ref()?;
        match uplink.waits {
            Waits::Packets { .. } => self.queue_delay_ms(Statistic::Mean),
            Waits::Backlog { mean_bytes } => {
                Some(mean_bytes * seconds(uplink.watched_ps) / uplink.sent_bytes as f64 * 1e3)
            }
        }
    }

    /// Milliseconds, from the time of each packet.
    pub(super) fn queue_delay_ms(&self, statistic: Statistic) -> Option<f64> {
        let Waits::Packets { all_ps, .. } = &self.measured.uplink.as_ref()?.waits else { return None };
        self.waits[0].get_or_init(|| all_ps.iter().copied().map(milliseconds).collect()).say(statistic)
    }

    /// Milliseconds, from the time of each of the first sender's packets.
    pub(super) fn queue_delay_first_ms(&self, statistic: Statistic) -> Option<f64> {
        let Waits::Packets { first_ps, .. } = &self.measured.uplink.as_ref()?.waits else { return None };
        self.waits[1].get_or_init(|| first_ps.iter().copied().map(milliseconds).collect()).say(statistic)
    }

    /// Percent of what the network card can send in that time.
    pub(super) fn uplink_use(&self) -> Option<f64> {
        let uplink = self.measured.uplink.as_ref()?;
        let could_bits = f64::from(self.scenario.network.host_rate_mbit()) * 1e6 * seconds(uplink.watched_ps);
        Some(100.0 * uplink.sent_bytes as f64 * 8.0 / could_bits)
    }

    /// Milliseconds, from the receivers of transfers.
    pub(super) fn longest_stall_ms(&self) -> Option<f64> {
        self.traffic.arrived.iter().map(|transfer| transfer.longest_stall_ps).max().map(milliseconds)
    }

    /// A number, from the receivers of transfers.
    pub(super) fn damaged(&self) -> Option<f64> {
        let arrived = &self.traffic.arrived;
        (!arrived.is_empty()).then(|| arrived.iter().filter(|transfer| transfer.is_damaged).count() as f64)
    }

    /// Of the last VM that moved.
    fn migration<T>(&self, of: impl Fn(&Migration) -> Option<T>) -> Option<T> {
        self.measured.migrations.iter().rev().find_map(of)
    }

    /// Milliseconds, from the lab's clock.
    pub(super) fn migration_offline_ms(&self) -> Option<f64> {
        self.migration(|migration| migration.offline_ps).map(milliseconds)
    }

    /// Milliseconds, from QEMU.
    pub(super) fn migration_ms(&self) -> Option<f64> {
        self.migration(|migration| Some(migration.total_ms as f64))
    }

    /// Milliseconds, from QEMU.
    pub(super) fn migration_downtime_ms(&self) -> Option<f64> {
        self.migration(|migration| Some(migration.downtime_ms as f64))
    }

    /// Milliseconds, from the lab's clock.
    pub(super) fn migration_online_ms(&self) -> Option<f64> {
        self.migration(|migration| migration.online_ps).map(milliseconds)
    }
}
