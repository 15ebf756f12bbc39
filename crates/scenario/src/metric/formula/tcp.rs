//! What the guests' TCP did, from its kernel's counters, from samples of its sockets and from captures. A ping has none
//! of it.

use super::Run;
use super::statistics::Statistic;
use crate::format::Workload;
use crate::metric::measurements::{Bursts, Measurements, SocketSample};
use crate::stats::median;

impl Run<'_> {
    /// The measurements of a workload that uses TCP.
    fn of_tcp(&self) -> Option<&Measurements> {
        (!matches!(self.scenario.workload(), Workload::Ping { .. })).then_some(self.measured)
    }

    /// A number, from this counter of all senders.
    fn sent(&self, counter: &str) -> Option<f64> {
        self.of_tcp().map(|_| Self::sum(&self.senders, counter))
    }

    /// Per second of the measured time.
    pub(super) fn per_s(&self, number: Option<f64>) -> Option<f64> {
        Some(number? / self.seconds())
    }

    /// A number, from TcpExtTCPTimeouts.
    pub(super) fn timeouts(&self) -> Option<f64> {
        self.sent("TcpExtTCPTimeouts")
    }

    /// A number, from TcpExtTCPLossProbes.
    pub(super) fn tail_loss_probes(&self) -> Option<f64> {
        self.sent("TcpExtTCPLossProbes")
    }

    /// A number, from TcpExtTCPLossProbeRecovery.
    pub(super) fn tlp_recoveries(&self) -> Option<f64> {
        self.sent("TcpExtTCPLossProbeRecovery")
    }

    /// A number, from TcpExtTCPLossUndo and TcpExtTCPDSACKUndo.
    fn undone_timeouts(&self) -> Option<f64> {
        Some(self.sent("TcpExtTCPLossUndo")? + self.sent("TcpExtTCPDSACKUndo")?)
    }

    /// A number, from these and, where fast recoveries are undone, TcpExtTCPFullUndo and TcpExtTCPPartialUndo.
    pub(super) fn undone(&self) -> Option<f64> {
        Some(self.undone_timeouts()? + self.sent("TcpExtTCPFullUndo")? + self.sent("TcpExtTCPPartialUndo")?)
    }

    /// A number, from TcpExtTCPSpuriousRTOs.
    pub(super) fn spurious_frto(&self) -> Option<f64> {
        self.sent("TcpExtTCPSpuriousRTOs")
    }

    /// Percent of all timeouts, from the same counters.
    pub(super) fn detected_share(&self) -> Option<f64> {
        let timeouts = self.timeouts()?;
        // Linux undoes what F-RTO finds; rate halving does not.
        let detected = self.undone_timeouts()?.max(self.spurious_frto()?);
        (timeouts > 0.0).then(|| (100.0 * detected / timeouts).min(100.0))
    }

    /// A number, from TcpOutSegs, in which the kernel does not count retransmissions, and TcpRetransSegs.
    pub(super) fn segments_sent(&self) -> Option<f64> {
        Some(self.sent("TcpOutSegs")? + self.retransmitted()?)
    }

    /// A number, from TcpRetransSegs.
    pub(super) fn retransmitted(&self) -> Option<f64> {
        self.sent("TcpRetransSegs")
    }

    /// A number, from TcpRetransSegs and the ports' drops.
    pub(super) fn needless_retransmissions(&self) -> Option<f64> {
        Some((self.retransmitted()? - self.port_drops()?).max(0.0))
    }

    /// A number, from TcpExtTCPDSACKRecv.
    pub(super) fn dsacks(&self) -> Option<f64> {
        self.sent("TcpExtTCPDSACKRecv")
    }

    /// A number, from the ports.
    pub(super) fn port_drops(&self) -> Option<f64> {
        self.of_tcp().map(|measured| measured.dropped as f64)
    }

    /// A number, from the ports.
    pub(super) fn ecn_marks(&self) -> Option<f64> {
        Some(self.of_tcp()?.marked? as f64)
    }

    /// A number, from the receivers' TcpOutSegs.
    pub(super) fn acks_sent(&self) -> Option<f64> {
        self.of_tcp().map(|_| Self::sum(&self.receivers, "TcpOutSegs"))
    }

    /// A number, from a capture in the first sender.
    pub(super) fn duplicate_acks(&self) -> Option<f64> {
        Some(self.of_tcp()?.trace.duplicate_acks? as f64)
    }

    /// A number of runs, from a capture in the first sender: at place 0 those of one timeout, at place 3 those of four
    /// and more.
    pub(super) fn rto_runs(&self, place: usize) -> Option<f64> {
        self.of_tcp()?.trace.rto_runs?.get(place).map(|runs| *runs as f64)
    }

    /// Segments, from a capture beyond the first sender's host.
    pub(super) fn bursts(&self, segments: fn(&Bursts) -> u64) -> Option<f64> {
        self.of_tcp()?.trace.bursts.as_ref().map(|bursts| segments(bursts) as f64)
    }

    fn samples(&self, value: fn(&SocketSample) -> f64) -> Option<Vec<f64>> {
        Some(self.of_tcp()?.sockets.iter().map(value).collect())
    }

    /// Milliseconds, from TCP_INFO of the senders' sockets.
    pub(super) fn rto_ms(&self, statistic: Statistic) -> Option<f64> {
        statistic.of(&self.samples(|sample| super::milliseconds(sample.rto_ps))?)
    }

    /// Milliseconds, from TCP_INFO of the senders' sockets.
    pub(super) fn srtt_ms(&self) -> Option<f64> {
        median(&self.samples(|sample| f64::from(sample.srtt_us) / 1e3)?)
    }

    /// A number, from all VMs' TcpOutRsts and TcpEstabResets.
    pub(super) fn resets(&self) -> Option<f64> {
        Some(self.count("TcpOutRsts")? + self.count("TcpEstabResets")?)
    }
}
