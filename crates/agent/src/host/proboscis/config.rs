//! ProBoSCIS's keys.

use evenkeel_algo::proboscis::DEFAULTS;
use serde::{Deserialize, Serialize};

use crate::common::value::{Bounded, Mode};
use crate::datapath::intf;

/// Probes of one train.
pub type Probes = Bounded<0, { intf::PROBOSCIS_MAX_PROBES }>;
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

/// ProBoSCIS; the paper's letters are in the names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Proboscis {
    /// Whether it acts.
    pub mode: Mode,
    /// Whether guests without ECN get it from the host.
    pub ecn_for_guests: bool,
    /// g: probes before a SYN; 0 sends none.
    pub g_probes: Probes,
    /// k1: share of marked bytes, smoothed, from which DCTCP limits a window.
    pub k1_permille: Permille,
    /// k2: share of marked probes above which the first window is one segment.
    pub k2_permille: Permille,
    /// K: share of probes that must have come, or the first window is one segment.
    pub k_percent: Percent,
    /// b1: an unanswered SYN's probes are sent again after this.
    pub b1_us: RetryUs,
    /// b2: an unanswered SYN is sent again after this.
    pub b2_us: RetryUs,
    /// b3: a SYN-ACK waits no longer than this for late probes; 0 never waits.
    pub b3_us: HoldUs,
    /// MAX_TIME: nothing is sent again later than this after the SYN.
    pub max_time_us: MaxTimeUs,
    /// ICWND: the first window where no probe is marked.
    pub icwnd_segments: Segments,
    /// Probes that one VM may cause, in the long run; 0 sends none.
    pub budget_probes_per_s: ProbesPerS,
    /// Probes that one VM may cause at once.
    pub budget_burst_probes: Burst,
    /// Flows that sent more than this are left alone; 0 leaves none.
    pub elephant_bytes: Bytes,
}

/// Keys of [`Proboscis`] that are otherwise on some ports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "they are those of Proboscis")]
pub struct ProboscisOverride {
    pub mode: Option<Mode>,
    pub ecn_for_guests: Option<bool>,
    pub g_probes: Option<Probes>,
    pub k1_permille: Option<Permille>,
    pub k2_permille: Option<Permille>,
    pub k_percent: Option<Percent>,
    pub b1_us: Option<RetryUs>,
    pub b2_us: Option<RetryUs>,
    pub b3_us: Option<HoldUs>,
    pub max_time_us: Option<MaxTimeUs>,
    pub icwnd_segments: Option<Segments>,
    pub budget_probes_per_s: Option<ProbesPerS>,
    pub budget_burst_probes: Option<Burst>,
    pub elephant_bytes: Option<Bytes>,
}

impl Default for Proboscis {
    fn default() -> Self {
        Self {
            mode: Mode::Observe,
            ecn_for_guests: true,
            // g, b1 and ICWND are the paper's (ProBoSCIS §IV, and §V for the timeout). It leaves the others open; one
            // window of data that is marked throughout makes alpha 1/16, which is k1.
            g_probes: Bounded::new(DEFAULTS.probes),
            b1_us: Bounded::new(DEFAULTS.b1_us),
            icwnd_segments: Bounded::new(DEFAULTS.icwnd_segments),
            k1_permille: Bounded::new(DEFAULTS.k1_permille),
            k2_permille: Bounded::new(DEFAULTS.k2_permille),
            k_percent: Bounded::new(DEFAULTS.k_percent),
            b2_us: Bounded::new(DEFAULTS.b2_us),
            b3_us: Bounded::new(DEFAULTS.b3_us),
            max_time_us: Bounded::new(DEFAULTS.max_time_us),
            budget_probes_per_s: Bounded::new(20_000),
            budget_burst_probes: Bounded::new(2_000),
            elephant_bytes: Bounded::new(0),
        }
    }
}

impl ProboscisOverride {
    pub(in crate::host) fn over(&self, base: Proboscis) -> Proboscis {
        Proboscis {
            mode: self.mode.unwrap_or(base.mode),
            ecn_for_guests: self.ecn_for_guests.unwrap_or(base.ecn_for_guests),
            g_probes: self.g_probes.unwrap_or(base.g_probes),
            k1_permille: self.k1_permille.unwrap_or(base.k1_permille),
            k2_permille: self.k2_permille.unwrap_or(base.k2_permille),
            k_percent: self.k_percent.unwrap_or(base.k_percent),
            b1_us: self.b1_us.unwrap_or(base.b1_us),
            b2_us: self.b2_us.unwrap_or(base.b2_us),
            b3_us: self.b3_us.unwrap_or(base.b3_us),
            max_time_us: self.max_time_us.unwrap_or(base.max_time_us),
            icwnd_segments: self.icwnd_segments.unwrap_or(base.icwnd_segments),
            budget_probes_per_s: self.budget_probes_per_s.unwrap_or(base.budget_probes_per_s),
            budget_burst_probes: self.budget_burst_probes.unwrap_or(base.budget_burst_probes),
            elephant_bytes: self.elephant_bytes.unwrap_or(base.elephant_bytes),
        }
    }
}

/// Timeouts that only make sense in their order.
pub(in crate::host) fn ordered(proboscis: &Proboscis) -> Result<(), (&'static str, String)> {
    let (b1, b2, max_time) = (proboscis.b1_us, proboscis.b2_us, proboscis.max_time_us);
    if b2 < b1 {
        return Err((
            "b2_us",
            format!(
                "{b2} is less than b1_us = {b1}; probes are sent again before the SYN is, so at least {b1} is allowed"
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
