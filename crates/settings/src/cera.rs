//! CERA's settings, on hosts and in guests.

use evenkeel_algo::cera::{DEFAULTS, MAX_EPOCHS, MAX_WEIGHT, Settings, usual_epoch_us};

use serde::Serialize;

use crate::pattern::Pattern;
use crate::table::{Scope, settings};
use crate::value::{Bounded, Mode, words};

/// T_u.
pub type HighSegments = Bounded<1, 1_000_000>;
/// T_l.
pub type LowSegments = Bounded<0, 1_000_000>;
/// Delta.
pub type EpochUs = Bounded<100, 1_000_000>;
/// M.
pub type Epochs = Bounded<1, MAX_EPOCHS>;
/// d.
pub type RttUs = Bounded<1, 10_000_000>;
/// C.
pub type RateMbit = Bounded<1, 4_000_000>;
/// mu.
pub type Weight = Bounded<1, MAX_WEIGHT>;
/// A share of a core.
pub type Percent = Bounded<1, 100>;

words! {
    /// How the window is divided among VMs.
    pub enum Shares {
        /// By weight; no VM gets more than about twice what it sends.
        Need = "need",
        /// CERA eq. 2 as the paper prints it: by weight times what was sent.
        Printed = "printed",
    }
}

settings! {
    /// CERA: keeps the network card's queue short. Each VM gets a share of one window, set in the ACKs that pass to it
    /// or by its guest agent.
    pub struct Cera, override CeraOverride;
    /// Whether it acts:
    mode: Mode = Mode::Off;
    /// The network cards that lead out of this host, as patterns like those of `ports`; their queues count together.
    /// Required unless mode is off.
    uplinks: Vec<Pattern> = Vec::new(), scope Scope::HostOnly;
    /// C: the rate of all uplinks together.
    rate_mbit: Option<RateMbit> = None,
        left_out "the rate of their root HTB or TBF, or of their links", example 1000, scope Scope::HostOnly;
    /// T_u: windows are cut when the queue is longer than this.
    high_segments: HighSegments = Bounded::new(DEFAULTS.high_segments), scope Scope::Host;
    /// T_l: the queue length that a cut aims at.
    low_segments: Option<LowSegments> = None,
        note "at most high_segments", left_out "half of high_segments", example 30, scope Scope::Host;
    /// Delta: interval between two looks at the queue.
    epoch_us: Option<EpochUs> = None,
        left_out "1000, and longer on links below 1 Gbit/s, in proportion", example 1000, scope Scope::Host;
    /// M: a VM's need is what it has sent in this many epochs.
    epochs: Epochs = Bounded::new(DEFAULTS.epochs), scope Scope::Host;
    /// d: round-trip time without queueing.
    rtt_us: Option<RttUs> = None, left_out "the shortest that handshakes have shown", example 100, scope Scope::Host;
    /// How the window is divided among VMs:
    shares: Shares = Shares::Need, scope Scope::Host;
    /// mu: a VM's weight; `[port.cera]` sets it for one VM.
    weight: Weight = Bounded::new(1), scope Scope::Agent;
}

/// CERA on one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CeraPort {
    /// Whether it acts there.
    pub mode: Mode,
    /// mu: the VM's weight.
    pub weight: Weight,
}

impl From<Cera> for CeraPort {
    fn from(cera: Cera) -> Self {
        Self { mode: cera.mode, weight: cera.weight }
    }
}

impl Cera {
    /// Settings of the algorithm, for segments of `segment_bytes` and uplinks that carry `bytes_per_s` together.
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

    /// Checks that `low_segments` is at most `high_segments`.
    ///
    /// # Errors
    /// The key at fault, and what is wrong.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let high = self.high_segments;
        match self.low_segments {
            Some(low) if low.get() > high.get() => {
                Err(("low_segments", format!("{low} is more than high_segments = {high}; 0 to {high} is allowed")))
            }
            _ => Ok(()),
        }
    }
}

settings! {
    /// CERA's client: shares the window that the host grants this guest among the flows that send.
    pub struct CeraGuest;
    /// Whether the client sets windows; otherwise the host limits this guest in the ACKs:
    mode: Mode = Mode::Enforce;
    /// Share of a core that the passes over all sockets may use; windows that come faster are skipped.
    max_core_percent: Percent = Bounded::new(20);
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
