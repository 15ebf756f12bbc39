//! How a guest's TCP is set up.

use crate::time::Duration;

/// Which Linux version details without a switch of their own follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generation {
    /// Linux 6 and 7: proportional rate reduction, F-RTO inside the Loss state, windows that grow by acknowledged
    /// segments.
    #[default]
    Current,
    /// Linux 2.6.32: rate halving, FACK, F-RTO before the Loss state, windows that grow by ACKs, RTT measured in ticks.
    Paper,
}

/// What F-RTO does about a timeout that it finds spurious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpuriousResponse {
    /// Window and threshold become half of what they were (2.6.32's default).
    RateHalving,
    /// Both become what they were.
    #[default]
    Undo,
}

/// Use of ECN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnMode {
    /// Not offered, not accepted.
    #[default]
    Off,
    /// RFC 3168.
    Classic,
    /// RFC 8257: every mark is echoed, once.
    Dctcp,
}

/// Congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// NewReno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// DCTCP (RFC 8257).
    Dctcp,
    /// L2DCT.
    Lldct,
}

/// TCP settings of a guest, shared by its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Which Linux version details without a switch of their own follow.
    pub generation: Generation,
    /// Payload of a full segment.
    pub mss_bytes: u32,
    /// Congestion window at the start.
    pub initial_window_segments: u32,
    /// Sequence number of the SYN.
    pub initial_sequence: u32,
    /// Least value of the RTT's variance in the RTO.
    pub rto_min: Duration,
    /// RTO before the first RTT sample.
    pub rto_initial: Duration,
    /// Longest RTO, backoff included.
    pub rto_max: Duration,
    /// The kernel's unit of time for timers: RTOs are rounded up to it. Zero: exact.
    pub jiffy: Duration,
    /// `tcp_sack`.
    pub sack: bool,
    /// `tcp_dsack`.
    pub dsack: bool,
    /// `tcp_timestamps`.
    pub timestamps: bool,
    /// Resolution of timestamps (a multiple of 1 us; Linux: 1 ms).
    pub timestamp_unit: Duration,
    /// `tcp_frto`.
    pub f_rto: bool,
    /// Response to a timeout found spurious by F-RTO.
    pub spurious_response: SpuriousResponse,
    /// Timestamps tell an original's ACK from a retransmission's (RFC 3522).
    pub eifel: bool,
    /// `tcp_early_retrans`: tail-loss probes.
    pub tail_loss_probe: bool,
    /// `tcp_recovery`: RACK.
    pub rack: bool,
    /// ECN.
    pub ecn: EcnMode,
    /// Congestion control.
    pub congestion_control: CongestionControl,
    /// CUBIC has HyStart (the parameter `hystart` of `tcp_cubic`).
    pub hystart: bool,
    /// Off: every segment is acknowledged at once.
    pub delayed_ack: bool,
    /// Shortest delay of an ACK.
    pub delayed_ack_min: Duration,
    /// Longest delay of an ACK.
    pub delayed_ack_max: Duration,
    /// Receive buffer; half of it is advertised, as `tcp_adv_win_scale` has it.
    pub receive_buffer_bytes: u32,
    /// Window scale offered.
    pub window_scale: u8,
    /// How many bytes may be written and not yet acknowledged. `None`: any number.
    pub send_buffer_bytes: Option<u64>,
    /// vFlood in the guest: the window that counts is what the host grants, except while a loss is repaired. A flooding
    /// connection has no HyStart.
    pub flood: bool,
    /// Most segments in a packet that the guest leaves to others to cut (GSO); 1: every segment is a packet.
    pub gso_segments: u32,
    /// Packets of several segments are as large as Linux makes them, up to `gso_segments`, and wait to grow (TSO).
    pub sizes_packets: bool,
    /// `tcp_slow_start_after_idle`.
    pub slow_start_after_idle: bool,
}

impl TcpConfig {
    /// Current Linux as it ships, with clocks of `hz` ticks a second (0: exact).
    pub fn current(hz: u32) -> Self {
        Self {
            generation: Generation::Current,
            mss_bytes: 1448,
            initial_window_segments: 10,
            initial_sequence: 0,
            rto_min: Duration::from_ms(200),
            rto_initial: Duration::from_s(1),
            rto_max: Duration::from_s(120),
            jiffy: jiffy(hz),
            sack: true,
            dsack: true,
            timestamps: true,
            timestamp_unit: Duration::from_ms(1),
            f_rto: true,
            spurious_response: SpuriousResponse::Undo,
            eifel: true,
            tail_loss_probe: true,
            rack: true,
            ecn: EcnMode::Off,
            congestion_control: CongestionControl::Cubic,
            hystart: true,
            delayed_ack: true,
            delayed_ack_min: Duration::from_ms(40),
            delayed_ack_max: Duration::from_ms(200),
            receive_buffer_bytes: 6 << 20,
            window_scale: 7,
            send_buffer_bytes: None,
            flood: false,
            gso_segments: 1,
            sizes_packets: false,
            slow_start_after_idle: true,
        }
    }

    /// Linux 2.6.32 as in the paper's day.
    pub fn paper(hz: u32) -> Self {
        Self {
            generation: Generation::Paper,
            mss_bytes: 1460,
            initial_window_segments: 3,
            rto_initial: Duration::from_s(3),
            timestamps: false,
            eifel: false,
            spurious_response: SpuriousResponse::RateHalving,
            tail_loss_probe: false,
            rack: false,
            congestion_control: CongestionControl::Reno,
            ..Self::current(hz)
        }
    }

    /// The window that an empty receive buffer has.
    pub fn receive_window_bytes(&self) -> u32 {
        (self.receive_buffer_bytes / 2).max(self.mss_bytes)
    }

    /// A duration of the kernel's timers: rounded up to jiffies.
    pub(super) fn in_jiffies(&self, span: Duration) -> Duration {
        if self.jiffy == Duration::ZERO {
            return span;
        }
        Duration::from_ps(span.ps().div_ceil(self.jiffy.ps()).saturating_mul(self.jiffy.ps()))
    }

    /// Two jiffies: the shortest timeout that Linux sets.
    pub(super) fn timeout_min(&self) -> Duration {
        self.jiffy * 2
    }
}

fn jiffy(hz: u32) -> Duration {
    if hz == 0 { Duration::ZERO } else { Duration::from_ps(Duration::from_s(1).ps() / u64::from(hz)) }
}
