//! What the mechanisms did, from their own counters. Metrics that are a single counter stand in the list.

use super::Run;

impl Run<'_> {
    /// A number, from the hosts' controllers.
    pub(super) fn cera_cuts(&self) -> Option<f64> {
        self.measured.cera_cuts.map(|cuts| cuts as f64)
    }

    /// Microseconds, from PvtcpWakeupMaxUs, of which the largest counts.
    pub(super) fn pvtcp_longest_us(&self) -> Option<f64> {
        let longest = self.measured.vms.iter().filter_map(|vm| vm.counters.get("PvtcpWakeupMaxUs")).max();
        longest.map(|us| *us as f64)
    }

    /// A number, from the counters of the three kinds of timers.
    pub(super) fn pvtcp_held(&self) -> Option<f64> {
        let kinds = ["PvtcpHeldRto", "PvtcpHeldTlp", "PvtcpHeldReo"].map(|kind| self.count(kind));
        kinds.into_iter().flatten().reduce(|sum, held| sum + held)
    }

    /// Microseconds, from VfloodHeldUs and VfloodHeld.
    pub(super) fn vflood_held_mean_us(&self) -> Option<f64> {
        Some(self.count("VfloodHeldUs")? / self.count("VfloodHeld")?)
    }

    /// Segments, from a counter of segment-microseconds.
    pub(super) fn mean_over_time(&self, counter: &str) -> Option<f64> {
        Some(self.count(counter)? / (self.seconds() * 1e6))
    }
}
