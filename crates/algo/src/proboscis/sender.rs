//! The sender's host: how many probes, whom to probe, and DCTCP by receive window.

use super::Settings;
use crate::sys;

/// How many probes a VM's host may send for it.
#[derive(Debug, Clone)]
pub struct Budget {
    settings: sys::proboscis_settings,
    state_ns: u64,
}

impl Budget {
    /// `probes_per_s` in the long run, `burst_probes` at once. Without a rate no probes are sent.
    pub fn new(probes_per_s: u32, burst_probes: u32) -> Self {
        let settings = sys::proboscis_settings {
            budget_probes_per_s: probes_per_s,
            budget_burst_probes: burst_probes,
            ..Default::default()
        };
        Self { settings, state_ns: 0 }
    }

    /// Takes `probes` probes out of the budget, or none.
    pub fn take(&mut self, now_ns: u64, probes: u32) -> bool {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        match unsafe { sys::proboscis_budget(&self.settings, self.state_ns, now_ns, probes) } {
            0 => false,
            state_ns => {
                self.state_ns = state_ns;
                true
            }
        }
    }
}

/// A VM's trains of probes under way.
#[derive(Debug, Clone, Default)]
pub struct Trains {
    state_ns: u64,
}

impl Trains {
    /// How many probes of a train that should have `probes` are sent now.
    pub fn length(&mut self, settings: &Settings, now_ns: u64, probes: u32) -> u32 {
        // SAFETY: as in `Budget::take`.
        unsafe { sys::proboscis_train_length(&settings.sys(), &mut self.state_ns, now_ns, probes) }
    }
}

/// How a remote host has reacted to probes so far.
#[derive(Debug, Clone, Default)]
pub struct Peer(sys::proboscis_peer);

impl Peer {
    /// The host answered: it runs evenkeel.
    pub fn answered(&mut self) {
        // SAFETY: as in `Budget::take`.
        unsafe { sys::proboscis_peer_answered(&mut self.0) }
    }

    /// A handshake went by without an answer to its probes.
    pub fn silent(&mut self) {
        // SAFETY: as in `Budget::take`.
        unsafe { sys::proboscis_peer_silent(&mut self.0) }
    }

    /// Whether the SYN at hand is worth probes.
    pub fn probe(&mut self) -> bool {
        // SAFETY: as in `Budget::take`.
        unsafe { sys::proboscis_peer_probe(&mut self.0) }
    }
}

/// The settings that DCTCP needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderSettings {
    /// k1: alpha from which the window is limited.
    pub k1_permille: u32,
}

/// DCTCP for one direction of a flow, from what passes the sender's host.
#[derive(Debug, Clone)]
pub struct Sender(sys::proboscis_sender);

impl Sender {
    /// `seq` is the first byte's.
    pub fn new(seq: u32) -> Self {
        let mut state = sys::proboscis_sender::default();
        // SAFETY: as in `Budget::take`.
        unsafe { sys::proboscis_sender_init(&mut state, seq) }
        Self(state)
    }

    /// The share of marked bytes, averaged, of [`dctcp::ONE`](crate::dctcp::ONE).
    pub fn alpha(&self) -> u32 {
        self.0.dctcp.alpha
    }

    /// A segment that ends before `end` leaves. Returns how many of its bytes are new.
    pub fn sent(&mut self, end: u32) -> u32 {
        // SAFETY: as in `Budget::take`.
        unsafe { sys::proboscis_sent(&mut self.0, end) }
    }

    /// An ACK came, with or without an echo; `scale` is the scale of its window. Returns the limit to the VM's window,
    /// in bytes.
    pub fn acked(&mut self, settings: &SenderSettings, ack: u32, echo: bool, mss: u32, scale: u8) -> Option<u32> {
        let settings = sys::proboscis_settings { k1_permille: settings.k1_permille, ..Default::default() };
        // SAFETY: as in `Budget::take`.
        let limit = unsafe { sys::proboscis_acked(&mut self.0, &settings, ack, echo, mss) };
        // SAFETY: it takes values only.
        let limit = unsafe { sys::proboscis_limit(limit, mss, scale) };
        (limit != 0).then_some(limit)
    }
}
