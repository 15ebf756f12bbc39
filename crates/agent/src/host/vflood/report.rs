//! vFlood as users see it: what is held for a port, and how a connection stands.

use std::fmt;

use evenkeel_settings::Mode;
use serde::{Deserialize, Serialize};

use crate::datapath::intf;

/// Why a connection whose guests have ECN of their own is left alone.
pub(super) const NATIVE_ECN: &str =
    "vFlood leaves it alone: its guests use ECN, and the echoes of marks are for the VM's own window.";

/// vFlood on a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VfloodPort {
    /// What it is to do there.
    pub mode: Mode,
    /// Why it does nothing all the same.
    pub trouble: Option<String>,
    /// Whether it rests, because the VM has its core.
    #[serde(default)]
    pub rests: bool,
    /// Connections that it manages; if it rests and has none, packets pass unread.
    #[serde(default)]
    pub connections: u32,
    /// Q: what is held for the VM.
    pub held_segments: u32,
    /// What the VM was told that it may hand over, and has not.
    pub promised_segments: u32,
    /// B: what may be held.
    pub buffer_segments: u32,
}

/// vFlood on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VfloodFlow {
    /// Where it stands.
    pub state: VfloodState,
    /// Whether packets are held, or only counted.
    pub is_enforced: bool,
    /// Packets that are held.
    pub held_packets: u32,
    /// The same in segments.
    pub held_segments: u32,
    /// What the VM may hand over beyond what was acknowledged.
    pub granted_bytes: u32,
    /// The host's congestion window.
    pub cwnd_segments: u32,
    /// Its threshold; nothing before the first loss.
    pub ssthresh_segments: Option<u32>,
    /// Segments in the network.
    pub out_segments: u32,
    /// Smoothed RTT, 0: none yet.
    pub srtt_us: u32,
}

/// A connection's state (vFlood Fig. 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VfloodState {
    /// The guest may flood.
    Active,
    /// Not now: the connection's share of the buffer is used up.
    NoBuffer,
    /// Not now: a loss is being repaired.
    PacketLoss,
}

impl fmt::Display for VfloodState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Active => "active",
            Self::NoBuffer => "no buffer",
            Self::PacketLoss => "packet loss",
        })
    }
}

impl VfloodFlow {
    pub(super) fn of(entry: &intf::ek_vflood_flow) -> Self {
        let flow = &entry.flow;
        // Sequence numbers wrap; nothing is further ahead than a window.
        let ahead = |end: u32, start: u32| {
            let bytes = end.wrapping_sub(start);
            if bytes < 1 << 31 { bytes } else { 0 }
        };
        let window = &flow.congestion.window;
        Self {
            state: match u32::from(flow.state) {
                intf::VFLOOD_NO_BUFFER => VfloodState::NoBuffer,
                intf::VFLOOD_PACKET_LOSS => VfloodState::PacketLoss,
                _ => VfloodState::Active,
            },
            is_enforced: entry.is_enforced != 0,
            held_packets: entry.packets,
            held_segments: flow.held_segments,
            granted_bytes: ahead(flow.granted, flow.snd_una),
            cwnd_segments: window.cwnd,
            ssthresh_segments: (window.ssthresh != u32::MAX).then_some(window.ssthresh),
            out_segments: ahead(flow.snd_nxt, flow.snd_una).div_ceil(flow.mss.max(1)),
            srtt_us: flow.srtt_us,
        }
    }

    /// In a sentence or two.
    pub(super) fn explain(&self) -> String {
        let held = if self.is_enforced { "holds" } else { "would hold" };
        format!(
            "vFlood {held} {} packets ({} segments; {}) under a window of {} segments, {} of them out; the VM may hand \
             over {} bytes.",
            self.held_packets,
            self.held_segments,
            self.state,
            self.cwnd_segments,
            self.out_segments,
            self.granted_bytes
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap_and_the_words_name_the_state() {
        let mut entry = intf::ek_vflood_flow { packets: 3, is_enforced: 1, ..Default::default() };
        entry.flow.snd_una = u32::MAX - 99;
        entry.flow.snd_nxt = 2796;
        entry.flow.granted = 9900;
        entry.flow.mss = 1448;
        entry.flow.held_segments = 3;
        entry.flow.state = intf::VFLOOD_NO_BUFFER as u8;
        entry.flow.congestion.window.ssthresh = u32::MAX;
        let flow = VfloodFlow::of(&entry);
        assert_eq!((flow.out_segments, flow.granted_bytes, flow.ssthresh_segments), (2, 10_000, None));
        assert!(flow.explain().contains("holds 3 packets (3 segments; no buffer)"), "{}", flow.explain());
    }
}
