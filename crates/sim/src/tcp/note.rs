//! What a connection reports about itself.

use std::ops::{Index, IndexMut};

use crate::time::Duration;

/// Why a reduction of the window was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoKind {
    /// F-RTO: segments sent before the timeout were acknowledged (RFC 5682).
    FRto,
    /// Timestamps: the ACK was for the original (RFC 3522).
    Eifel,
    /// DSACKs: every retransmission was needless.
    Dsack,
}

/// Which reduction of the window was taken back, as Linux counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoOf {
    /// TCPLossUndo: a timeout's, in the Loss state.
    Loss,
    /// TCPFullUndo: a fast recovery's, once all that was out is acknowledged.
    Full,
    /// TCPPartialUndo: a fast recovery's, before that.
    Partial,
    /// TCPDSACKUndo: by DSACKs outside the Loss state. Mostly a fast recovery's; of a timeout that is over, too.
    Dsack,
}

impl UndoOf {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Loss, Self::Full, Self::Partial, Self::Dsack];
}

/// Something that a recorder or the application may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The handshake is done.
    Established,
    /// The send buffer has room for this many bytes again.
    Room(u64),
    /// The connection's idle time included an absence of the virtual CPU, which PVTCP takes out.
    IdleFiltered,
    /// An RTT sample went into the estimate.
    RttSample {
        /// The sample as measured.
        measured_us: u32,
        /// The sample as used.
        used_us: u32,
        /// Whether it includes an absence of the virtual CPU, so that PVTCP replaces it.
        spoilt: bool,
        /// SRTT after it.
        srtt_us: u32,
        /// RTO after it.
        rto: Duration,
    },
    /// The retransmission timer ran out.
    Timeout {
        /// How often in a row.
        times: u8,
    },
    /// A tail-loss probe was sent.
    LossProbe,
    /// A window probe was sent.
    WindowProbe,
    /// Fast recovery began.
    FastRecovery,
    /// A timeout was found spurious by F-RTO.
    SpuriousTimeout,
    /// A reduction was taken back.
    Undone(UndoKind),
    /// The window was reduced for marks.
    Marked,
}

/// Counters, with Linux's names or similar ones. They count segments unless noted otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnStats {
    /// Segments sent, of any kind.
    pub segments_sent: u64,
    /// Segments sent with payload, retransmissions included.
    pub data_segments_sent: u64,
    /// Segments sent with nothing but an acknowledgement.
    pub acks_sent: u64,
    /// RetransSegs.
    pub retransmitted: u64,
    /// TCPTimeouts: timeouts, of SYNs too.
    pub timeouts: u32,
    /// TCPSpuriousRTOs: found by F-RTO.
    pub spurious_rtos: u32,
    /// TCPLossProbes.
    pub loss_probes: u32,
    /// TCPLossProbeRecovery: probes that repaired a loss.
    pub loss_probe_recoveries: u32,
    /// Window probes.
    pub window_probes: u32,
    /// TCPSackRecovery and TCPRenoRecovery.
    pub fast_recoveries: u32,
    /// Reductions taken back, by [`UndoOf`].
    pub undone: Undone,
    /// ACKs without data that acknowledged nothing new while data was outstanding.
    pub dup_acks_received: u64,
    /// TCPDSACKRecv.
    pub dsacks_received: u64,
    /// TCPDSACKOldSent and TCPDSACKOfoSent.
    pub dsacks_sent: u64,
    /// DelayedACKs: sent by the timer.
    pub delayed_acks: u64,
    /// Segments received, of any kind.
    pub segments_received: u64,
    /// Data segments that brought nothing new.
    pub duplicates_received: u64,
    /// Data segments ahead of what was expected.
    pub out_of_order_received: u64,
    /// Data segments with a mark.
    pub marks_received: u64,
    /// Reductions for marks.
    pub ecn_reductions: u32,
}

/// A counter for each [`UndoOf`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undone([u32; UndoOf::ALL.len()]);

impl Undone {
    /// The sum of all.
    pub fn total(&self) -> u32 {
        self.0.iter().sum()
    }
}

impl Index<UndoOf> for Undone {
    type Output = u32;
    fn index(&self, of: UndoOf) -> &u32 {
        &self.0[of as usize]
    }
}

impl IndexMut<UndoOf> for Undone {
    fn index_mut(&mut self, of: UndoOf) -> &mut u32 {
        &mut self.0[of as usize]
    }
}

/// The state of the sender, as `ss -i` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Smoothed RTT, 0 before the first sample.
    pub srtt_us: u32,
    /// RTTVAR, four times the mean deviation and at least the RTO's minimum.
    pub rttvar_us: u32,
    /// RTO, backoff included.
    pub rto: Duration,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow-start threshold in segments.
    pub ssthresh: u32,
    /// Segments in flight.
    pub in_flight: u32,
}
