//! CERA's keys.

use evenkeel_algo::cera::{DEFAULTS, Settings, usual_epoch_us};
use serde::{Deserialize, Serialize};

use crate::common::value::{Bounded, Mode};
use crate::host::config::values::Pattern;

/// T_u.
pub type HighSegments = Bounded<1, 1_000_000>;
/// T_l.
pub type LowSegments = Bounded<0, 1_000_000>;
/// Delta.
pub type EpochUs = Bounded<100, 1_000_000>;
/// M.
pub type Epochs = Bounded<1, 16>;
/// d.
pub type RttUs = Bounded<1, 10_000_000>;
/// C.
pub type RateMbit = Bounded<1, 4_000_000>;
/// mu.
pub type Weight = Bounded<1, 10_000>;

/// CERA: one window for the host, divided among its VMs, that keeps the uplink's queue short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cera {
    /// Whether it acts.
    pub mode: Mode,
    /// The network cards that lead out of this host; what waits at all of them counts together.
    pub uplinks: Vec<Pattern>,
    /// C: what the uplinks carry together; without it that of their shapers or links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_mbit: Option<RateMbit>,
    /// T_u: windows are cut when more than this waits.
    pub high_segments: HighSegments,
    /// T_l: what is to wait then; without it half of T_u.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_segments: Option<LowSegments>,
    /// Delta: how often the queue is looked at; without it 1 ms, and on links below 1 Gbit/s as much longer as they are
    /// slower.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_us: Option<EpochUs>,
    /// M: a VM's traffic is what it has sent in so many epochs.
    pub epochs: Epochs,
    /// d: round-trip time without the time in the queue; without it the least that handshakes have shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<RttUs>,
    /// How the window is divided among VMs.
    pub shares: Shares,
    /// mu: a VM's weight.
    pub weight: Weight,
}

/// How the window is divided among VMs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shares {
    /// By weight, but none more than about twice what it sends.
    #[default]
    Need,
    /// By weight times what was sent: CERA eq. 2 as it is printed.
    Printed,
}

/// Keys of [`Cera`] that may be otherwise on some ports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "they are those of Cera")]
pub struct CeraOverride {
    pub mode: Option<Mode>,
    pub weight: Option<Weight>,
}

/// CERA on one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CeraPort {
    /// Whether it acts there.
    pub mode: Mode,
    /// mu: the VM's weight.
    pub weight: Weight,
}

impl Default for Cera {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            uplinks: Vec::new(),
            rate_mbit: None,
            high_segments: Bounded::new(DEFAULTS.high_segments),
            low_segments: None,
            epoch_us: None,
            epochs: Bounded::new(DEFAULTS.epochs),
            rtt_us: None,
            shares: Shares::Need,
            weight: Bounded::new(1),
        }
    }
}

impl Cera {
    /// On a port that has nothing else said.
    pub(in crate::host) fn port(&self) -> CeraPort {
        CeraPort { mode: self.mode, weight: self.weight }
    }

    /// As the logic has them. A segment has so many bytes, and the uplinks carry so many in a second.
    pub fn settings(&self, segment_bytes: u32, bytes_per_s: u64) -> Settings {
        let high_segments = self.high_segments.get();
        Settings {
            high_segments,
            low_segments: self.low_segments.map_or(high_segments / 2, Bounded::get),
            epoch_us: self.epoch_us.map_or_else(|| usual_epoch_us(bytes_per_s), Bounded::get),
            epochs: self.epochs.get(),
            segment_bytes,
            printed: self.shares == Shares::Printed,
        }
    }

    /// Limits that only make sense in their order.
    pub(in crate::host) fn check(&self) -> Result<(), (&'static str, String)> {
        let high = self.high_segments;
        match self.low_segments {
            Some(low) if low.get() > high.get() => {
                Err(("low_segments", format!("{low} is more than high_segments = {high}; 0 to {high} is allowed")))
            }
            _ => Ok(()),
        }
    }
}

impl CeraOverride {
    pub(in crate::host) fn over(&self, base: CeraPort) -> CeraPort {
        CeraPort { mode: self.mode.unwrap_or(base.mode), weight: self.weight.unwrap_or(base.weight) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_longer_on_slow_links_unless_they_are_given() {
        let epoch_us = |bytes_per_s| Cera::default().settings(1514, bytes_per_s).epoch_us;
        assert_eq!([1_250_000_000, 125_000_000, 12_500_000, 1_250_000].map(epoch_us), [1000, 1000, 10_000, 100_000]);
        assert_eq!([1, 0].map(epoch_us), [1_000_000, 1000], "bounded; and not known");
        let given = Cera { epoch_us: Some(Bounded::new(2000)), ..Cera::default() };
        assert_eq!(given.settings(1514, 1_250_000).epoch_us, 2000);
    }
}
