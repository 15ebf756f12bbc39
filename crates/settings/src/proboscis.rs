//! ProBoSCIS's settings.

use evenkeel_algo::proboscis::{DEFAULTS, MAX_PROBES, SenderSettings, Settings, WindowSettings};

use crate::table::{Scope, settings};
use crate::value::{Bounded, Mode};

/// Probes of one train.
pub type Probes = Bounded<0, MAX_PROBES>;
/// A share.
pub type Permille = Bounded<0, 1000>;
/// A share above zero.
pub type Percent = Bounded<1, 100>;
/// Time until something is sent again.
pub type RetryUs = Bounded<1_000, 10_000_000>;
/// Time for which a SYN-ACK may be held.
pub type HoldUs = Bounded<0, 100_000>;
/// Time for which a SYN and its probes are sent again; 0 sends nothing again.
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
    /// ProBoSCIS: sends probes ahead of a SYN, sets the first window by what became of them, and afterwards runs DCTCP
    /// through the receive window.
    pub struct Proboscis, override ProboscisOverride;
    /// Whether it acts:
    mode: Mode = Mode::Observe;
    /// Use ECN for guests that have none: mark their data as ECN-capable, echo the marks and hide them from the guest.
    ecn_for_guests: bool = true;
    /// g: probes before a SYN.
    g_probes: Probes = Bounded::new(DEFAULTS.probes), note "0 sends none, and leaves what the VM opens alone";
    /// Send probes ahead of SYN-ACKs too, and set the first window of answers by them; both hosts must have this on.
    answers: bool = false;
    /// k1: share of marked bytes (smoothed, DCTCP's alpha) from which windows are limited.
    k1_permille: Permille = Bounded::new(DEFAULTS.k1_permille);
    /// k2: share of marked probes above which a connection begins with one segment.
    k2_permille: Permille = Bounded::new(DEFAULTS.k2_permille);
    /// K: share of probes that must arrive; with fewer a connection begins with one segment.
    k_percent: Percent = Bounded::new(DEFAULTS.k_percent);
    /// b1: time after which the probes of an unanswered SYN are sent again.
    b1_us: RetryUs = Bounded::new(DEFAULTS.b1_us);
    /// b2: time after which an unanswered SYN is sent again.
    b2_us: RetryUs = Bounded::new(DEFAULTS.b2_us), note "at least b1_us";
    /// b3: the longest that a SYN-ACK waits for late probes.
    b3_us: HoldUs = Bounded::new(DEFAULTS.b3_us), note "0: it never waits";
    /// MAX_TIME: time after the SYN from which nothing is sent again.
    max_time_us: MaxTimeUs = Bounded::new(DEFAULTS.max_time_us), note "0 sends nothing again, else at least b1_us";
    /// ICWND: the first window if no probe is marked.
    icwnd_segments: Segments = Bounded::new(DEFAULTS.icwnd_segments);
    /// Sustained rate of probes that one VM may cause; SYNs beyond it leave without probes.
    budget_probes_per_s: ProbesPerS = Bounded::new(20_000), scope Scope::Agent;
    /// Probes that one VM may cause in a burst.
    budget_burst_probes: Burst = Bounded::new(2_000), scope Scope::Agent;
    /// Flows that have sent more than this are left alone (100000 in the testbed of ProBoSCIS §VI).
    elephant_bytes: Bytes = Bounded::new(0), note "0: no flow is left alone";
}

impl Proboscis {
    /// Settings of a SYN's timers.
    pub fn timers(&self) -> Settings {
        Settings {
            probes: self.g_probes.get(),
            b1_us: self.b1_us.get(),
            b2_us: self.b2_us.get(),
            b3_us: self.b3_us.get(),
            max_time_us: self.max_time_us.get(),
        }
    }

    /// Settings of the first window.
    pub fn window(&self) -> WindowSettings {
        WindowSettings {
            k_percent: self.k_percent.get(),
            k2_permille: self.k2_permille.get(),
            icwnd_segments: self.icwnd_segments.get(),
            b3_us: self.b3_us.get(),
        }
    }

    /// Settings of the sending side.
    pub fn sender(&self) -> SenderSettings {
        SenderSettings { k1_permille: self.k1_permille.get() }
    }

    /// Checks the order of the timeouts: `b1_us`, `b2_us`, `max_time_us`.
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
