//! When vFlood rests: by its [`Looks`] a guest finds out for how much of the time its core is missing, and by [`Rest`]
//! the host acts on that. Times may come from any monotonic clock.

use crate::sys;

/// Time between two looks, in microseconds.
pub const LOOK_US: u64 = sys::VFLOOD_LOOK_US as u64;
/// A timer that fires later than this waited for a core.
pub const LATE_US: u64 = sys::VFLOOD_LATE_US as u64;
/// How many of the last looks count.
pub const LOOKS: u32 = sys::VFLOOD_LOOKS;
/// How long a VM must have had its core before vFlood stops acting for it, in microseconds.
pub const QUIET_US: u64 = sys::VFLOOD_QUIET_US as u64;
/// How long new connections are held before the guest may flood again, in microseconds.
pub const HANDSHAKE_US: u64 = sys::VFLOOD_HANDSHAKE_US as u64;
/// The default share of time without a core from which on vFlood acts, in percent.
pub const OFF_CORE_PERCENT: u32 = sys::VFLOOD_OFF_CORE_PERCENT;

/// A guest's last looks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Looks(sys::vflood_looks);

impl Looks {
    /// The guest was to wake up at `due_us` and does so at `now_us`; looks that it slept through are taken now. Returns
    /// when it is to wake up next.
    pub fn woke(&mut self, due_us: u64, now_us: u64) -> u64 {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it. The same
        // holds for all calls below.
        unsafe { sys::vflood_look(&mut self.0, due_us, now_us) }
    }

    /// For how many permille of the last looks the core was missing; `None` before there are enough looks.
    pub fn permille(&self) -> Option<u16> {
        // SAFETY: as in `woke`.
        unsafe { sys::vflood_looks_tell(&self.0).then(|| sys::vflood_off_core(&self.0) as u16) }
    }
}

/// What a guest's agent says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// For how many permille of the last seconds its core was missing; `None` where it does not know.
    pub off_core_permille: Option<u16>,
    /// Whether it does what it was told last.
    pub is_obedient: bool,
}

/// What vFlood does on a port just now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rest(sys::vflood_rest);

impl Rest {
    /// The state of a port whose connections were passed over until now.
    pub fn waking(now_us: u64) -> Self {
        Self(sys::vflood_rest { since_us: now_us, state: sys::vflood_rest_state_VFLOOD_REST_WAKING })
    }

    /// The state after what the guest says now; `guest` is `None` if there is no agent. vFlood acts from
    /// `acts_permille` of the time without a core on, and need not below two thirds of that.
    #[must_use]
    pub fn heard(mut self, guest: Option<Word>, acts_permille: u16, now_us: u64) -> Self {
        let permille = guest.and_then(|guest| guest.off_core_permille);
        let word = sys::vflood_word {
            off_core_permille: permille.unwrap_or_default().into(),
            is_there: guest.is_some(),
            is_known: permille.is_some(),
            is_obedient: guest.is_some_and(|guest| guest.is_obedient),
        };
        // SAFETY: as in `Looks::woke`.
        unsafe { sys::vflood_rest_heard(&mut self.0, &word, acts_permille.into(), now_us) };
        self
    }

    /// May the guest flood?
    pub fn attests(&self) -> bool {
        // SAFETY: as in `Looks::woke`.
        unsafe { sys::vflood_rest_attests(&self.0) }
    }

    /// Are new connections passed over?
    pub fn passes_over(&self) -> bool {
        // SAFETY: as in `Looks::woke`.
        unsafe { sys::vflood_rest_passes_over(&self.0) }
    }

    /// Does no agent say how much of the time the guest has its core?
    pub fn is_unheard(&self) -> bool {
        self.0.state == sys::vflood_rest_state_VFLOOD_REST_UNHEARD
    }
}
