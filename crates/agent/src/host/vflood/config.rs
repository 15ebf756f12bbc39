//! vFlood's keys.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::common::value::{Bounded, Mode};
use crate::datapath::intf;

/// RFC 6928; the host begins with it as Linux does.
const INITIAL_WINDOW_SEGMENTS: u32 = 10;

/// Segments that are held.
pub type BufferSegments = Bounded<1, 1_000_000>;
/// A share of time without a core.
pub type OffCorePercent = Bounded<0, 100>;
/// A limit between short and long round trips.
pub type RttUs = Bounded<1, 1_000_000>;

/// vFlood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vflood {
    /// Whether it acts.
    pub mode: Mode,
    /// It acts while the VM's core is missing for so much of the time, and rests otherwise; 0: always.
    pub off_core_percent: OffCorePercent,
    /// Who may hold how much of a VM's buffer.
    pub policy: BufferPolicy,
    /// B: what is held for a VM at most.
    pub buffer_segments: BufferSegments,
    /// The host's congestion control.
    pub congestion_control: HostCongestion,
    /// Flows with a shorter RTT are of low RTT.
    pub low_rtt_us: RttUs,
    /// Alpha of vFlood eq. 1.
    pub alpha: Alpha,
    /// Policy `priority`: alpha of flows of low RTT.
    pub alpha_low_rtt: Alpha,
}

/// Keys of [`Vflood`] that are otherwise on some ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "they are those of Vflood")]
pub struct VfloodOverride {
    pub mode: Option<Mode>,
    pub off_core_percent: Option<OffCorePercent>,
    pub policy: Option<BufferPolicy>,
    pub buffer_segments: Option<BufferSegments>,
    pub congestion_control: Option<HostCongestion>,
    pub low_rtt_us: Option<RttUs>,
    pub alpha: Option<Alpha>,
    pub alpha_low_rtt: Option<Alpha>,
}

/// How a VM's buffer is shared by its flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BufferPolicy {
    /// First come, first served.
    None,
    /// A flow may hold alpha times what is unused.
    Fair,
    /// With a larger alpha for flows of low RTT.
    Priority,
}

/// Congestion control on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostCongestion {
    /// Reno (RFC 5681), as the paper's prototype.
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// Vegas.
    Vegas,
}

/// A factor in steps of 1/16, from 1/16 to 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alpha(u32);

impl Alpha {
    const ONE: u32 = intf::VFLOOD_ALPHA_ONE;
    const MAX: u32 = 64 * Self::ONE;

    /// A whole number known to be within the bounds; anything else does not compile where it is used for a constant.
    pub const fn new(whole: u32) -> Self {
        assert!(whole >= 1 && whole <= 64, "out of bounds");
        Self(whole * Self::ONE)
    }

    /// In sixteenths.
    pub const fn sixteenths(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Alpha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f64::from(self.0) / f64::from(Self::ONE)).fmt(f)
    }
}

impl Serialize for Alpha {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / f64::from(Self::ONE))
    }
}

impl<'de> Deserialize<'de> for Alpha {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        let sixteenths = value * f64::from(Self::ONE);
        if sixteenths < 1.0 || sixteenths > f64::from(Self::MAX) || sixteenths.fract() != 0.0 {
            return Err(D::Error::custom(format!(
                "{value} is not allowed; a number from 0.0625 to 64 in steps of 0.0625 is"
            )));
        }
        Ok(Self(sixteenths as u32))
    }
}

impl Default for Vflood {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            off_core_percent: Bounded::new(25),
            policy: BufferPolicy::Fair,
            buffer_segments: Bounded::new(2048),
            congestion_control: HostCongestion::Cubic,
            low_rtt_us: Bounded::new(1000),
            alpha: Alpha::new(1),
            alpha_low_rtt: Alpha::new(4),
        }
    }
}

impl VfloodOverride {
    pub(in crate::host) fn over(&self, base: Vflood) -> Vflood {
        Vflood {
            mode: self.mode.unwrap_or(base.mode),
            off_core_percent: self.off_core_percent.unwrap_or(base.off_core_percent),
            policy: self.policy.unwrap_or(base.policy),
            buffer_segments: self.buffer_segments.unwrap_or(base.buffer_segments),
            congestion_control: self.congestion_control.unwrap_or(base.congestion_control),
            low_rtt_us: self.low_rtt_us.unwrap_or(base.low_rtt_us),
            alpha: self.alpha.unwrap_or(base.alpha),
            alpha_low_rtt: self.alpha_low_rtt.unwrap_or(base.alpha_low_rtt),
        }
    }
}

impl Vflood {
    /// As the datapath has it; the devices are its own affair.
    pub(in crate::host) fn to_intf(&self) -> intf::ek_vflood_settings {
        intf::ek_vflood_settings {
            mode: self.mode.to_intf(),
            settings: intf::vflood_settings {
                buffer_segments: self.buffer_segments.get(),
                initial_window: INITIAL_WINDOW_SEGMENTS,
                low_rtt_us: self.low_rtt_us.get(),
                alpha: self.alpha.sixteenths(),
                alpha_low_rtt: self.alpha_low_rtt.sixteenths(),
                policy: match self.policy {
                    BufferPolicy::None => intf::VFLOOD_POLICY_NONE,
                    BufferPolicy::Fair => intf::VFLOOD_POLICY_FAIR,
                    BufferPolicy::Priority => intf::VFLOOD_POLICY_PRIORITY,
                },
                congestion: match self.congestion_control {
                    HostCongestion::Reno => intf::CONGESTION_RENO,
                    HostCongestion::Cubic => intf::CONGESTION_CUBIC,
                    HostCongestion::Vegas => intf::CONGESTION_VEGAS,
                },
            },
            ..Default::default()
        }
    }
}
