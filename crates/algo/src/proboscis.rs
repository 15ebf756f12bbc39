//! ProBoSCIS: probes before a SYN, a first window that depends on their fate, then DCTCP by receive window.

mod receiver;
mod sender;
mod wire;

use crate::sys;

pub use receiver::{Answer, Echo, Train, Verdict, WindowSettings};
pub use sender::{Budget, Peer, Sender, SenderSettings, Trains};
pub use wire::{OPTION_BYTES, ProbeKind, ProbeOption, TCP_BYTES};

/// How often a held SYN-ACK is checked for whether its probes are in.
pub const HELD_POLL_US: u64 = sys::PROBOSCIS_HELD_POLL_US as u64;

/// Most probes of one train.
pub const MAX_PROBES: u32 = sys::PROBOSCIS_MAX_PROBES;

/// Defaults of the settings that decide how packets are handled.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// g.
    pub probes: u32,
    /// k1.
    pub k1_permille: u32,
    /// k2.
    pub k2_permille: u32,
    /// K.
    pub k_percent: u32,
    /// b1.
    pub b1_us: u32,
    /// b2.
    pub b2_us: u32,
    /// b3.
    pub b3_us: u32,
    /// MAX_TIME.
    pub max_time_us: u32,
    /// ICWND.
    pub icwnd_segments: u32,
    /// 0: no flow is left alone as an elephant.
    pub elephant_bytes: u64,
}

/// Defaults for what the agent's configuration, or a scenario, leaves out.
pub const DEFAULTS: Defaults = Defaults {
    probes: sys::PROBOSCIS_PROBES,
    k1_permille: sys::PROBOSCIS_K1_PERMILLE,
    k2_permille: sys::PROBOSCIS_K2_PERMILLE,
    k_percent: sys::PROBOSCIS_K_PERCENT,
    b1_us: sys::PROBOSCIS_B1_US,
    b2_us: sys::PROBOSCIS_B2_US,
    b3_us: sys::PROBOSCIS_B3_US,
    max_time_us: sys::PROBOSCIS_MAX_TIME_US,
    icwnd_segments: sys::PROBOSCIS_ICWND_SEGMENTS,
    elephant_bytes: 0,
};

/// The settings that the timers of a SYN need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// g: probes before a SYN.
    pub probes: u32,
    /// b1: after this time probes are sent again.
    pub b1_us: u32,
    /// b2: after this time the SYN is sent again.
    pub b2_us: u32,
    /// b3: a SYN-ACK waits no longer for late probes.
    pub b3_us: u32,
    /// MAX_TIME: after this time nothing is sent again.
    pub max_time_us: u32,
}

impl Settings {
    fn sys(&self) -> sys::proboscis_settings {
        sys::proboscis_settings {
            probes: self.probes,
            b1_us: self.b1_us,
            b2_us: self.b2_us,
            b3_us: self.b3_us,
            max_time_us: self.max_time_us,
            ..Default::default()
        }
    }
}

/// A SYN that waits for its SYN-ACK.
#[derive(Debug, Clone)]
pub struct Pending(sys::proboscis_pending);

/// What to do about a SYN that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resend {
    /// Nothing yet.
    Wait,
    /// Send this many probes.
    Probes(u32),
    /// Send this many probes, then the SYN.
    Both(u32),
    /// Nothing any more.
    GiveUp,
}

impl Pending {
    /// The SYN was just sent, with its probes.
    pub fn new(now_us: u64, is_stranger: bool) -> Self {
        let mut state = sys::proboscis_pending::default();
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::proboscis_pending_init(&mut state, now_us, is_stranger) }
        Self(state)
    }

    /// The timer of ProBoSCIS Algorithm 1, lines 22 to 37.
    pub fn expire(&mut self, settings: &Settings, now_us: u64) -> Resend {
        let mut probes = 0;
        // SAFETY: as in `new`.
        match unsafe { sys::proboscis_expire(&mut self.0, &settings.sys(), now_us, &mut probes) } {
            sys::proboscis_resend_PROBOSCIS_RESEND_PROBES => Resend::Probes(probes),
            sys::proboscis_resend_PROBOSCIS_RESEND_BOTH => Resend::Both(probes),
            sys::proboscis_resend_PROBOSCIS_GIVE_UP => Resend::GiveUp,
            _ => Resend::Wait,
        }
    }

    /// When [`expire`](Self::expire) is to be called next.
    pub fn due_us(&self, settings: &Settings) -> u64 {
        // SAFETY: as in `new`.
        unsafe { sys::proboscis_due_us(&self.0, &settings.sys()) }
    }
}
