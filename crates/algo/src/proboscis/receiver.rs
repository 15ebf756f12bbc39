//! The receiver's host: which probes arrived, the first window, and the echo of marks.

use crate::sys;

/// The settings that ProBoSCIS Algorithm 2 needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSettings {
    /// K: share of the probes that must have come.
    pub k_percent: u32,
    /// k2: marked share above which the window is one MSS.
    pub k2_permille: u32,
    /// The window where nothing is marked.
    pub icwnd_segments: u32,
    /// b3: a SYN-ACK waits no longer for late probes.
    pub b3_us: u32,
}

impl WindowSettings {
    fn sys(&self) -> sys::proboscis_settings {
        sys::proboscis_settings {
            k_percent: self.k_percent,
            k2_permille: self.k2_permille,
            icwnd_segments: self.icwnd_segments,
            b3_us: self.b3_us,
            ..Default::default()
        }
    }
}

/// What the probes say about the first window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// None came: the window is the VM's own.
    NoProbes,
    /// By the share of probes without a mark.
    Scaled,
    /// Too many were lost or marked.
    OneMss,
}

/// The probes of one SYN.
#[derive(Debug, Clone, Default)]
pub struct Train(sys::proboscis_train);

impl Train {
    /// A probe came. Returns whether it counts: only the latest train's probes do, each once.
    pub fn count(&mut self, number: u8, index: u8, total: u8, marked: bool) -> bool {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
        unsafe { sys::proboscis_count(&mut self.0, number, index, total, marked) }
    }

    /// One of its probes says that the SYN-ACK is to have probes, too.
    pub fn ask_back(&mut self) {
        self.0.asks_back = 1;
    }

    /// How many probes go ahead of the SYN-ACK, where `probes` are a full train: none unless they were asked for.
    pub fn answer_probes(&self, probes: u32) -> u32 {
        let settings = sys::proboscis_settings { probes, answers: 1, ..Default::default() };
        // SAFETY: as in `count`.
        unsafe { sys::proboscis_answer_probes(&self.0, &settings) }
    }

    /// How many came.
    pub fn seen(&self) -> u8 {
        self.0.seen
    }

    /// How many of them with a mark.
    pub fn marked(&self) -> u8 {
        self.0.marked
    }

    /// How many were sent.
    pub fn total(&self) -> u8 {
        self.0.total
    }

    /// Whether the SYN-ACK has to wait for late probes.
    pub fn synack_waits(&self, settings: &WindowSettings, since_syn_us: u64) -> bool {
        // SAFETY: as in `count`.
        unsafe { sys::proboscis_synack_waits(&self.0, &settings.sys(), since_syn_us) }
    }

    /// The limit to the SYN-ACK's window in bytes; `mss` is what the opener puts into a segment.
    pub fn first_window(&self, settings: &WindowSettings, mss: u32) -> (Verdict, u32) {
        let mut bytes = 0;
        // SAFETY: as in `count`.
        let verdict = unsafe { sys::proboscis_first_window(&self.0, &settings.sys(), mss, &mut bytes) };
        (Verdict::of(verdict), bytes)
    }
}

impl Verdict {
    fn of(verdict: sys::proboscis_verdict) -> Self {
        match verdict {
            sys::proboscis_verdict_PROBOSCIS_SCALED => Self::Scaled,
            sys::proboscis_verdict_PROBOSCIS_ONE_MSS => Self::OneMss,
            _ => Self::NoProbes,
        }
    }
}

/// The first flight of an answer, at the opener's host.
#[derive(Debug, Clone, Default)]
pub struct Answer(sys::proboscis_answer);

impl Answer {
    /// Judges the probes ahead of the SYN-ACK when that comes for the first time. `mss` is the payload of the answer's
    /// segments, `first_ack` what the opener acknowledges before the answer's first byte.
    pub fn new(train: &Train, settings: &WindowSettings, mss: u32, first_ack: u32) -> (Verdict, Self) {
        let mut state = sys::proboscis_answer::default();
        // SAFETY: as in `Train::count`.
        let verdict = unsafe { sys::proboscis_answer_init(&mut state, &train.0, &settings.sys(), mss, first_ack) };
        (Verdict::of(verdict), Self(state))
    }

    /// The limit, in bytes, to the window of an ACK that the opener sends; `scale` is the opener's window scale.
    pub fn limit(&mut self, ack: u32, scale: u8) -> Option<u32> {
        // SAFETY: as in `Train::count`.
        let limit = unsafe { sys::proboscis_answer_limit(&mut self.0, ack, scale) };
        (limit != 0).then_some(limit)
    }
}

/// Marks that came for a guest without ECN, to be echoed in its ACKs.
#[derive(Debug, Clone)]
pub struct Echo(sys::proboscis_echo);

impl Echo {
    /// `ack` is what the guest acknowledges with its first ACK.
    pub fn new(ack: u32) -> Self {
        let mut state = sys::proboscis_echo::default();
        // SAFETY: as in `Train::count`.
        unsafe { sys::proboscis_echo_init(&mut state, ack) }
        Self(state)
    }

    /// A marked segment with `bytes` of data came.
    pub fn marked(&mut self, bytes: u32) {
        // SAFETY: as in `Train::count`.
        unsafe { sys::proboscis_marked(&mut self.0, bytes) }
    }

    /// The guest sends an ACK. Returns whether it is to carry an echo.
    pub fn ack(&mut self, ack: u32) -> bool {
        // SAFETY: as in `Train::count`.
        unsafe { sys::proboscis_echo(&mut self.0, ack) }
    }
}
