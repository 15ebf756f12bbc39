//! ProBoSCIS's settings.

use evenkeel_algo::proboscis::{DEFAULTS, MAX_PROBES, SenderSettings, Settings, WindowSettings};

use crate::table::{Scope, settings};
use crate::value::{Bounded, Mode};

/// Probes of one train.
pub type Probes = Bounded<0, MAX_PROBES>;
/// A share.
pub type Permille = Bounded<0, 1000>;
/// A share that is never nothing.
pub type Percent = Bounded<1, 100>;
/// Until something is sent again.
pub type RetryUs = Bounded<1_000, 10_000_000>;
/// How long a SYN-ACK may be held.
pub type HoldUs = Bounded<0, 100_000>;
/// How long a SYN is cared for; 0 sends nothing again.
pub type MaxTimeUs = Bounded<0, 10_000_000>;
/// A window.
pub type Segments = Bounded<1, 1_000>;
/// A rate.
pub type ProbesPerS = Bounded<0, 10_000_000>;
/// A burst.
pub type Burst = Bounded<0, 1_000_000>;
/// A size.
pub type Bytes = Bounded<0, { u32::MAX }>;

settings! {
    /// ProBoSCIS: probes before a SYN, the first window by what came of them, DCTCP by receive window afterwards.
    pub struct Proboscis, override ProboscisOverride;
    /// Whether it acts:
    mode: Mode = Mode::Observe;
    /// Give guests without ECN the host's: mark their data as ECN-capable, echo and hide the marks.
    ecn_for_guests: bool = true;
    /// g: probes before a SYN.
    g_probes: Probes = Bounded::new(DEFAULTS.probes), note "0 sends none";
    /// Probes go ahead of SYN-ACKs, too, and the first window of answers follows them, where both hosts have it so.
    answers: bool = false;
    /// k1: share of marked bytes (smoothed, DCTCP's alpha) from which windows are limited.
    k1_permille: Permille = Bounded::new(DEFAULTS.k1_permille);
    /// k2: share of marked probes above which a connection begins with one segment.
    k2_permille: Permille = Bounded::new(DEFAULTS.k2_permille);
    /// K: share of probes that must have come, or a connection begins with one segment.
    k_percent: Percent = Bounded::new(DEFAULTS.k_percent);
    /// b1: probes of an unanswered SYN are sent again after this.
    b1_us: RetryUs = Bounded::new(DEFAULTS.b1_us);
    /// b2: an unanswered SYN is sent again after this.
    b2_us: RetryUs = Bounded::new(DEFAULTS.b2_us), note "at least b1_us";
    /// b3: a SYN-ACK waits no longer than this for late probes.
    b3_us: HoldUs = Bounded::new(DEFAULTS.b3_us), note "0 never waits";
    /// MAX_TIME: nothing is sent again later than this after the SYN.
    max_time_us: MaxTimeUs = Bounded::new(DEFAULTS.max_time_us), note "0 sends nothing again, else at least b1_us";
    /// ICWND: the first window where no probe is marked.
    icwnd_segments: Segments = Bounded::new(DEFAULTS.icwnd_segments);
    /// Probes that one VM may cause in the long run: beyond them SYNs leave without.
    budget_probes_per_s: ProbesPerS = Bounded::new(20_000), scope Scope::Agent;
    /// Probes that one VM may cause at once.
    budget_burst_probes: Burst = Bounded::new(2_000), scope Scope::Agent;
    /// Flows that sent more than this are left alone (the testbed of ProBoSCIS §VI: 100000).
    elephant_bytes: Bytes = Bounded::new(0), note "0 leaves none";
}

impl Proboscis {
    /// What the timers of a SYN need.
    pub fn timers(&self) -> Settings {
        Settings {
            probes: self.g_probes.get(),
            b1_us: self.b1_us.get(),
            b2_us: self.b2_us.get(),
            b3_us: self.b3_us.get(),
            max_time_us: self.max_time_us.get(),
        }
    }

    /// What the first window needs.
    pub fn window(&self) -> WindowSettings {
        WindowSettings {
            k_percent: self.k_percent.get(),
            k2_permille: self.k2_permille.get(),
            icwnd_segments: self.icwnd_segments.get(),
            b3_us: self.b3_us.get(),
        }
    }

    /// What the sending side needs.
    pub fn sender(&self) -> SenderSettings {
        SenderSettings { k1_permille: self.k1_permille.get() }
    }

    /// Timeouts that only make sense in their order.
    ///
    /// # Errors
    /// The key at fault, and what is wrong.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let (b1, b2, max_time) = (self.b1_us, self.b2_us, self.max_time_us);
        if b2 < b1 {
            return Err((
                "b2_us",
                format!(
                    "{b2} is less than b1_us = {b1}; probes are sent again before the SYN is, so at least {b1} is \
                     allowed"
                ),
            ));
        }
        // 0 switches sending again off.
        if max_time.get() != 0 && max_time.get() < b1.get() {
            return Err((
                "max_time_us",
                format!("{max_time} is less than b1_us = {b1}; 0 (nothing is sent again) or at least {b1} is allowed"),
            ));
        }
        Ok(())
    }
}
