//! What a host keeps of a flow: the first window from its probes, and the window that marks ask for afterwards.

use super::Settings;
use crate::sys;

/// All of ProBoSCIS's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// g, and when unanswered SYNs and their probes are sent again.
    pub timers: Settings,
    /// k1: share of marks, in thousandths, from which DCTCP limits the window.
    pub k1_permille: u32,
    /// k2: share of marked probes, in thousandths, above which the first window is one segment.
    pub k2_permille: u32,
    /// K: share of the probes, in percent, that must have come, or the first window is one segment.
    pub k_percent: u32,
    /// The first window where no probe was marked, in segments.
    pub icwnd_segments: u32,
    /// Flows that have sent more bytes are left alone; 0: none are.
    pub elephant_bytes: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            timers: Settings {
                probes: sys::PROBOSCIS_PROBES,
                b1_us: sys::PROBOSCIS_B1_US,
                b2_us: sys::PROBOSCIS_B2_US,
                b3_us: sys::PROBOSCIS_B3_US,
                max_time_us: sys::PROBOSCIS_MAX_TIME_US,
            },
            k1_permille: sys::PROBOSCIS_K1_PERMILLE,
            k2_permille: sys::PROBOSCIS_K2_PERMILLE,
            k_percent: sys::PROBOSCIS_K_PERCENT,
            icwnd_segments: sys::PROBOSCIS_ICWND_SEGMENTS,
            elephant_bytes: 0,
        }
    }
}

impl Parameters {
    fn sys(&self) -> sys::proboscis_settings {
        sys::proboscis_settings {
            k1_permille: self.k1_permille,
            k2_permille: self.k2_permille,
            k_percent: self.k_percent,
            icwnd_segments: self.icwnd_segments,
            elephant_bytes: self.elephant_bytes,
            ..self.timers.sys()
        }
    }
}

/// The first window, from a train of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstWindow {
    /// No probe came: the VM's own.
    Own,
    /// At most so many bytes.
    Bytes(u32),
}

/// What came of a train of probes, at the receiver's host.
#[derive(Debug, Clone, Default)]
pub struct Train(sys::proboscis_train);

impl Train {
    /// A probe came; whether it counts.
    pub fn count(&mut self, number: u8, index: u8, total: u8, marked: bool) -> bool {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::proboscis_count(&mut self.0, number, index, total, marked) }
    }

    /// Probes that came, and marked ones.
    pub fn seen(&self) -> (u8, u8) {
        (self.0.seen, self.0.marked)
    }

    /// Whether a SYN-ACK waits for late probes.
    pub fn synack_waits(&self, parameters: &Parameters, since_syn_us: u64) -> bool {
        // SAFETY: as in `count`.
        unsafe { sys::proboscis_synack_waits(&self.0, &parameters.sys(), since_syn_us) }
    }

    /// Algorithm 2, lines 18 to 21.
    pub fn first_window(&self, parameters: &Parameters, mss_bytes: u32) -> FirstWindow {
        let mut bytes = 0;
        // SAFETY: as in `count`.
        let verdict = unsafe { sys::proboscis_first_window(&self.0, &parameters.sys(), mss_bytes, &mut bytes) };
        if verdict == sys::proboscis_verdict_PROBOSCIS_NO_PROBES { FirstWindow::Own } else { FirstWindow::Bytes(bytes) }
    }
}

/// DCTCP for one direction of a flow, by what passes the sender's host.
#[derive(Debug, Clone)]
pub struct Sender(sys::proboscis_sender);

impl Sender {
    /// A flow whose first byte has this sequence number.
    pub fn new(seq: u32) -> Self {
        let mut state = sys::proboscis_sender::default();
        // SAFETY: as in `Train::count`.
        unsafe { sys::proboscis_sender_init(&mut state, seq) }
        Self(state)
    }

    /// A segment that ends before `end` leaves; bytes of it that are new.
    pub fn sent(&mut self, end: u32) -> u32 {
        // SAFETY: as in `Train::count`.
        unsafe { sys::proboscis_sent(&mut self.0, end) }
    }

    /// An ACK for what the VM has sent, with the receiver's host's echo of marks or without; the limit to the VM's window in bytes.
    pub fn acked(&mut self, parameters: &Parameters, ack: u32, echo: bool, mss_bytes: u32) -> Option<u32> {
        // SAFETY: as in `Train::count`.
        let limit = unsafe { sys::proboscis_acked(&mut self.0, &parameters.sys(), ack, echo, mss_bytes) };
        (limit > 0).then_some(limit)
    }
}

/// Marks that came for a guest without ECN, to be echoed in its ACKs.
#[derive(Debug, Clone)]
pub struct Echo(sys::proboscis_echo);

impl Echo {
    /// The guest has acknowledged up to there.
    pub fn new(ack: u32) -> Self {
        let mut state = sys::proboscis_echo::default();
        // SAFETY: as in `Train::count`.
        unsafe { sys::proboscis_echo_init(&mut state, ack) }
        Self(state)
    }

    /// A marked segment came.
    pub fn marked(&mut self, bytes: u32) {
        // SAFETY: as in `Train::count`.
        unsafe { sys::proboscis_marked(&mut self.0, bytes) }
    }

    /// The guest sends an ACK; whether it carries the echo.
    pub fn echo(&mut self, ack: u32) -> bool {
        // SAFETY: as in `Train::count`.
        unsafe { sys::proboscis_echo(&mut self.0, ack) }
    }
}
