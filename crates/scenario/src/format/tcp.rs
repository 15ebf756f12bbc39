//! TCP in a group's guests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A set of defaults for [`GuestTcp`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Era {
    /// As the kernel ships: CUBIC, tail-loss probe, RACK, timestamps, F-RTO, SACK, DSACK.
    #[default]
    Current,
    /// As in the paper's day (2.6.32): NewReno with SACK and F-RTO; no tail-loss probe, RACK or timestamps.
    Paper,
}

/// The lower bound of the retransmission timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RtoMin {
    /// A word: `"smallest"` (what the guest kernel's HZ allows: one jiffy as the variance's floor) or
    /// `"default"` (the kernel's own, 200 ms).
    Word(RtoMinWord),
    /// A time in microseconds.
    Us(#[schemars(range(min = 1000, max = 60_000_000))] u32),
}

/// The words that `rto_min_us` takes instead of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RtoMinWord {
    /// As small as the guest kernel goes.
    Smallest,
    /// As the kernel ships: 200 ms.
    Default,
}

/// How the guest acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DelayedAck {
    /// As the kernel does: every second segment, or after a delay.
    On,
    /// Every segment at once (route attribute `quickack`).
    Off,
}

/// What a sender does once it knows that a timeout was spurious.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpuriousResponse {
    /// Linux 2.6.32's default: the window is halved, one segment for every two ACKs.
    RateHalving,
    /// The cut is taken back, as in all of today's kernels.
    Undo,
}

/// Whether ECN is negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EcnUse {
    /// Not asked for.
    Off,
    /// Asked for and granted (`tcp_ecn` = 1).
    On,
}

/// TCP settings in the guest. What is left out follows `era`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GuestTcp {
    /// Which defaults hold for all keys that are left out.
    pub era: Era,
    /// Lower bound of the retransmission timeout: microseconds, `"smallest"` or `"default"`.
    pub rto_min_us: RtoMin,
    /// `tcp_congestion_control`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9_-]{1,15}$"))]
    pub congestion_control: Option<String>,
    /// CUBIC's HyStart (the parameter `hystart` of `tcp_cubic`). Left out: on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hystart: Option<bool>,
    /// `tcp_early_retrans`: tail-loss probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_loss_probe: Option<bool>,
    /// `tcp_recovery`: RACK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<bool>,
    /// `tcp_timestamps`; with them, Eifel detection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<bool>,
    /// `tcp_sack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sack: Option<bool>,
    /// `tcp_dsack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dsack: Option<bool>,
    /// `tcp_slow_start_after_idle`: a window that was not used for an RTO begins anew. With a small RTO, an absence of
    /// the VM is such a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_start_after_idle: Option<bool>,
    /// `tcp_frto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f_rto: Option<bool>,
    /// Eifel detection (RFC 3522). Linux has it whenever timestamps are on, which is what leaving it out means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eifel: Option<bool>,
    /// What follows a timeout found spurious by F-RTO. Left out: what the era's kernel does, `"undo"` in the lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spurious_response: Option<SpuriousResponse>,
    /// ECN. Left out: on with `dctcp` and `lldct`, otherwise off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<EcnUse>,
    /// Delayed ACKs of what this guest receives.
    pub delayed_ack: DelayedAck,
    /// Longest time that an ACK is delayed. Left out: the kernel's 200 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 1_000_000))]
    pub delayed_ack_max_us: Option<u32>,
    /// Initial window (route attribute `initcwnd`). Left out: the kernel's 10; the simulator has 3 with
    /// `era = "paper"`, as 2.6.32.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub initial_window_segments: Option<u32>,
    /// Segments in a packet at most that this guest leaves to others to cut (GSO, `gso_max_segs`). Left out: 1, so that
    /// every segment is a packet; with `network.segmentation_offload`, which more than 1 needs in the lab, the kernel's
    /// own choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub gso_segments: Option<u32>,
    /// Receive buffer of this guest's sockets; about half of it is advertised. Left out: autotuned.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4608, max = 268_435_456))]
    pub receive_buffer_bytes: Option<u32>,
    /// Send buffer of this guest's sockets. Left out: autotuned.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4608, max = 268_435_456))]
    pub send_buffer_bytes: Option<u32>,
}

impl Default for GuestTcp {
    fn default() -> Self {
        Self {
            era: Era::Current,
            rto_min_us: RtoMin::Word(RtoMinWord::Default),
            congestion_control: None,
            hystart: None,
            tail_loss_probe: None,
            rack: None,
            timestamps: None,
            sack: None,
            dsack: None,
            slow_start_after_idle: None,
            f_rto: None,
            eifel: None,
            spurious_response: None,
            ecn: None,
            delayed_ack: DelayedAck::On,
            delayed_ack_max_us: None,
            initial_window_segments: None,
            gso_segments: None,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
        }
    }
}

impl GuestTcp {
    /// Congestion control with the era's default filled in.
    pub fn congestion_control(&self) -> &str {
        match (&self.congestion_control, self.era) {
            (Some(name), _) => name,
            (None, Era::Current) => "cubic",
            (None, Era::Paper) => "reno",
        }
    }

    /// Whether tail-loss probes are on, with the era's default filled in.
    pub fn tail_loss_probe(&self) -> bool {
        self.tail_loss_probe.unwrap_or(self.era == Era::Current)
    }

    /// Whether RACK is on, with the era's default filled in.
    pub fn rack(&self) -> bool {
        self.rack.unwrap_or(self.era == Era::Current)
    }

    /// Whether timestamps are on, with the era's default filled in.
    pub fn timestamps(&self) -> bool {
        self.timestamps.unwrap_or(self.era == Era::Current)
    }

    /// Whether SACK is on.
    pub fn sack(&self) -> bool {
        self.sack.unwrap_or(true)
    }

    /// Whether Eifel detection is on, which needs timestamps.
    pub fn eifel(&self) -> bool {
        self.timestamps() && self.eifel.unwrap_or(true)
    }

    /// Whether ECN is on, with the congestion control's default filled in.
    pub fn ecn(&self) -> bool {
        self.ecn.map_or(self.needs_ecn(), |ecn| ecn == EcnUse::On)
    }

    /// Whether the congestion control cannot work without ECN.
    pub fn needs_ecn(&self) -> bool {
        matches!(self.congestion_control(), "dctcp" | "lldct")
    }

    /// What follows a spurious timeout, with the era's default filled in.
    pub fn spurious_response(&self) -> SpuriousResponse {
        self.spurious_response.unwrap_or(match self.era {
            Era::Current => SpuriousResponse::Undo,
            Era::Paper => SpuriousResponse::RateHalving,
        })
    }
}
