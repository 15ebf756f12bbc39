//! The sending half's state.

use super::scoreboard::Scoreboard;
use crate::time::Instant;

/// Linux's `icsk_ca_state`, in its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    #[default]
    Open,
    /// Something is out of order, but nothing counts as lost yet.
    Disorder,
    /// The window is reduced for marks or a probe.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// How far 2.6.32's F-RTO has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FRto {
    #[default]
    Off,
    /// The head was sent again; the first ACK decides whether new data goes out.
    First,
    /// New data went out; the next ACK decides.
    Second,
}

/// RACK (RFC 8985).
#[derive(Clone, Debug, Default)]
pub(super) struct Rack {
    /// When the most recently sent segment that arrived was sent.
    pub at: Instant,
    pub end: u64,
    pub rtt_us: u32,
    /// Something new has arrived since losses were last looked for.
    pub advanced: bool,
}

/// The state of the outgoing stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Sender {
    pub board: Scoreboard,
    pub rack: Rack,
    /// First byte not acknowledged.
    pub una: u64,
    /// First byte not sent.
    pub nxt: u64,
    /// End of what the application has written.
    pub end: u64,
    /// First byte of data.
    pub start: u64,
    /// Right edge of the other end's window.
    pub edge: u64,
    /// Sequence number of the segment that last moved the window.
    pub edge_seq: u64,
    /// `high_seq`: a state ends when this is acknowledged.
    pub high: u64,
    /// `undo_marker`: `snd_una` at the reduction, if it may be taken back.
    pub undo_marker: Option<u64>,
    /// Retransmissions that no DSACK has reported as needless; negative if there were none.
    pub undo_retransmitted: i32,
    /// Timestamp of the first retransmission.
    pub retransmit_stamp: Option<u32>,
    pub prior_cwnd: u32,
    pub prior_ssthresh: u32,
    pub prr_delivered: u32,
    pub prr_out: u32,
    /// `tlp_high_seq`: end of what was sent at the time of a probe, until the probe's fate is known.
    pub probe_end: Option<u64>,
    pub probe_repeated: bool,
    /// 2.6.32's F-RTO.
    pub f_rto: FRto,
    /// Current F-RTO, within Loss.
    pub f_rto_in_loss: bool,
    /// Current F-RTO wants new data sent before lost data is sent again.
    pub f_rto_new: bool,
    pub f_rto_mark: u64,
    /// How many duplicate ACKs indicate a loss.
    pub reordering: u32,
    pub reordered: bool,
    /// Timeouts in a row without progress; window probes while the window is closed.
    pub timeouts: u8,
    pub probes: u8,
    /// CWR goes on the next new segment.
    pub send_cwr: bool,
    pub cwnd_limited: bool,
    pub most_out: u32,
    pub usage_end: u64,
    pub cwnd_used: u32,
    pub cwnd_stamp: Instant,
    pub last_send: Instant,
    /// The window does not grow before this is acknowledged: it was lowered from outside.
    pub lowered_end: u64,
    /// The threshold that was last set from outside.
    pub adjusted: Option<u32>,
    /// SACK blocks of the last ACK.
    pub known: [(u64, u64); crate::packet::MAX_SACK_BLOCKS],
    /// The send buffer had no room for all that the application last wrote.
    pub short: bool,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acked {
    pub advanced: bool,
    /// Segments acknowledged by the ACK number.
    pub segments: u32,
    /// Segments that arrived, as far as this ACK tells.
    pub delivered: u32,
    /// New SACKs.
    pub sacked: bool,
    /// Data arrived that was sent before the timeout and never retransmitted.
    pub original: bool,
    /// Retransmitted data was acknowledged.
    pub repeated: bool,
    /// Retransmitted data other than the head was acknowledged.
    pub repeated_beyond_head: bool,
    /// SACKs of data that was not sent before the timeout.
    pub sacked_new: bool,
    pub dsack: bool,
    pub dsack_of_probe: bool,
    pub ece: bool,
    pub window_update: bool,
    pub has_data: bool,
    pub lost_again: bool,
    /// When never retransmitted segments were sent: the first and last acknowledged, and the first SACKed.
    pub first: Option<Instant>,
    pub last: Option<Instant>,
    pub first_sacked: Option<Instant>,
    /// Start of a never retransmitted segment that arrived after segments above it.
    pub late: Option<u64>,
    pub ts_ecr: u32,
    /// Segments ever taken for lost before this ACK.
    pub losses_before: u64,
    pub una_before: u64,
}

impl Acked {
    /// Linux's `FLAG_NOT_DUP`.
    pub fn not_dup(&self) -> bool {
        self.has_data || self.window_update || self.segments > 0
    }

    pub fn duplicate(&self) -> bool {
        !self.advanced && !self.not_dup()
    }

    pub fn forward(&self) -> bool {
        self.segments > 0 || self.sacked
    }
}
