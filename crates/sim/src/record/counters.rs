//! What a guest counts, under the names that the lab reads in a real guest.

use std::collections::BTreeMap;

use crate::tcp::{ConnStats, UndoOf};
use crate::time::Duration;

/// What a guest has counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestCounters {
    /// TCP, all connections that it ever had.
    pub tcp: ConnStats,
    /// Payload bytes received in order, all connections.
    pub delivered_bytes: u64,
    /// Packets that came in.
    pub packets_received: u64,
    /// Packets that went out.
    pub packets_sent: u64,
    /// Packets dropped at its port on the host, because it was off its core for too long.
    pub port_drops: u64,
    /// Time in which its virtual CPU worked.
    pub busy: Duration,
    /// Time in which it had its core and nothing to do.
    pub idle: Duration,
    /// Time for which it wanted its core while others had it.
    pub stolen: Duration,
    /// Time for which its quota kept it from running; `None` without a quota.
    pub throttled: Option<Duration>,
    /// PVTCP, where it is loaded.
    pub pvtcp: Option<PvtcpCounters>,
    /// Windows that CERA's client has set.
    pub windows_set: Option<u64>,
    /// The mechanisms on its host, by their own names.
    pub host: BTreeMap<&'static str, u64>,
}

/// What PVTCP has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PvtcpCounters {
    /// Wake-ups.
    pub wakeups: u64,
    /// The longest absence that a wake-up ended.
    pub longest_us: u64,
    /// Retransmission timeouts held.
    pub held_rto: u64,
    /// Tail-loss probes held.
    pub held_tlp: u64,
    /// RACK's reordering timers held.
    pub held_reo: u64,
    /// Held timers that an ACK overtook.
    pub held_overtaken: u64,
    /// Held timers that ran after all.
    pub held_ran: u64,
    /// RTT samples replaced by neutral ones.
    pub rtt_filtered: u64,
    /// Idle times shortened.
    pub idle_filtered: u64,
    /// Times that a connection was told to acknowledge at once.
    pub jit_acks: u64,
}

/// The counter that is a maximum, not a sum.
const LONGEST: &str = "PvtcpWakeupMaxUs";

impl GuestCounters {
    /// Name to value.
    fn named(&self) -> BTreeMap<&'static str, u64> {
        let tcp = &self.tcp;
        let undone = |of| u64::from(tcp.undone[of]);
        let mut values = BTreeMap::from([
            // The kernel's counter does not include retransmissions.
            ("TcpOutSegs", tcp.segments_sent.saturating_sub(tcp.retransmitted)),
            ("TcpInSegs", tcp.segments_received),
            ("TcpRetransSegs", tcp.retransmitted),
            ("TcpExtTCPTimeouts", u64::from(tcp.timeouts)),
            ("TcpExtTCPSpuriousRTOs", u64::from(tcp.spurious_rtos)),
            ("TcpExtTCPLossProbes", u64::from(tcp.loss_probes)),
            ("TcpExtTCPLossProbeRecovery", u64::from(tcp.loss_probe_recoveries)),
            ("TcpExtTCPSackRecovery", u64::from(tcp.fast_recoveries)),
            ("TcpExtTCPLossUndo", undone(UndoOf::Loss)),
            ("TcpExtTCPFullUndo", undone(UndoOf::Full)),
            ("TcpExtTCPPartialUndo", undone(UndoOf::Partial)),
            ("TcpExtTCPDSACKUndo", undone(UndoOf::Dsack)),
            ("TcpExtTCPDSACKRecv", tcp.dsacks_received),
            ("TcpExtTCPDSACKOldSent", tcp.dsacks_sent),
            ("TcpExtDelayedACKs", tcp.delayed_acks),
            ("TcpExtTCPOFOQueue", tcp.out_of_order_received),
            ("SimDupAcksReceived", tcp.dup_acks_received),
            ("SimEcnMarksReceived", tcp.marks_received),
            ("SimEcnReductions", u64::from(tcp.ecn_reductions)),
            ("SimDeliveredBytes", self.delivered_bytes),
            ("SimPortDrops", self.port_drops),
            ("EthRxPackets", self.packets_received),
            ("EthTxPackets", self.packets_sent),
            ("CpuBusyUs", self.busy.us()),
            ("CpuIdleUs", self.idle.us()),
            ("CpuStealUs", self.stolen.us()),
        ]);
        values.extend(self.throttled.map(|throttled| ("CpuThrottledUs", throttled.us())));
        if let Some(pvtcp) = &self.pvtcp {
            values.extend([
                ("PvtcpWakeups", pvtcp.wakeups),
                (LONGEST, pvtcp.longest_us),
                ("PvtcpHeldRto", pvtcp.held_rto),
                ("PvtcpHeldTlp", pvtcp.held_tlp),
                ("PvtcpHeldReo", pvtcp.held_reo),
                ("PvtcpHeldOvertaken", pvtcp.held_overtaken),
                ("PvtcpHeldRan", pvtcp.held_ran),
                ("PvtcpRttFiltered", pvtcp.rtt_filtered),
                ("PvtcpIdleFiltered", pvtcp.idle_filtered),
                ("PvtcpJitAcks", pvtcp.jit_acks),
            ]);
        }
        values.extend(self.windows_set.map(|set| ("CeraWindowsSet", set)));
        values.extend(&self.host);
        values
    }

    /// The increase since an earlier reading; a maximum stays as it is.
    pub fn since(&self, before: &Self) -> BTreeMap<String, i64> {
        let before = before.named();
        let increase = |(name, value): (&str, u64)| {
            let start = if name == LONGEST { 0 } else { before.get(name).copied().unwrap_or(0) };
            (name.to_owned(), value as i64 - start as i64)
        };
        self.named().into_iter().map(increase).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_undone_reduction_has_the_name_that_the_kernel_gives_it() {
        let mut tcp = ConnStats::default();
        for (times, of) in UndoOf::ALL.into_iter().enumerate() {
            tcp.undone[of] = 1 + times as u32;
        }
        let counters = GuestCounters { tcp, ..GuestCounters::default() }.since(&GuestCounters::default());
        let undone = ["TCPLossUndo", "TCPFullUndo", "TCPPartialUndo", "TCPDSACKUndo"];
        assert_eq!(undone.map(|name| counters[&format!("TcpExt{name}")]), [1, 2, 3, 4]);
    }

    #[test]
    fn counters_increase_and_maxima_stay() {
        let at = |timeouts, sent, longest_us| GuestCounters {
            tcp: ConnStats { timeouts, segments_sent: sent, retransmitted: 3, ..ConnStats::default() },
            pvtcp: Some(PvtcpCounters { longest_us, ..PvtcpCounters::default() }),
            ..GuestCounters::default()
        };
        let increase = at(9, 103, 70).since(&at(4, 53, 60));
        assert_eq!((increase["TcpExtTCPTimeouts"], increase["TcpOutSegs"], increase[LONGEST]), (5, 50, 70));
        assert_eq!(increase["TcpRetransSegs"], 0);
        assert!(!GuestCounters::default().since(&GuestCounters::default()).contains_key("PvtcpWakeups"));
    }
}
