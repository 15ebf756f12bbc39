//! vFlood's settings, on hosts and in guests.

use std::borrow::Cow;
use std::fmt;

use evenkeel_algo::congestion::Kind;
use evenkeel_algo::rest::OFF_CORE_PERCENT;
use evenkeel_algo::vflood::{ALPHA_ONE, DEFAULTS, Policy, Settings};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::table::settings;
use crate::value::{Bounded, Mode, always, words};

/// Number of held segments.
pub type BufferSegments = Bounded<1, 1_000_000>;
/// A share of time without a core.
pub type OffCorePercent = Bounded<0, 100>;
/// Limit between short and long RTTs.
pub type RttUs = Bounded<1, 1_000_000>;

words! {
    /// How a VM's buffer is shared among its flows.
    pub enum BufferPolicy {
        /// First come, first served.
        None = "none",
        /// Each flow up to `alpha` times the unused part.
        Fair = "fair",
        /// The same, with `alpha_low_rtt` for flows of low RTT.
        Priority = "priority",
    }
}

impl BufferPolicy {
    /// The algorithm's form.
    pub fn policy(self) -> Policy {
        match self {
            Self::None => Policy::None,
            Self::Fair => Policy::Fair,
            Self::Priority => Policy::Priority,
        }
    }
}

words! {
    /// Congestion control on the host.
    pub enum HostCongestion {
        /// RFC 5681, as in the paper's prototype.
        Reno = "reno",
        /// RFC 9438.
        Cubic = "cubic",
        /// TCP Vegas, which the paper names.
        Vegas = "vegas",
    }
}

impl HostCongestion {
    /// The algorithm's form.
    pub fn kind(self) -> Kind {
        match self {
            Self::Reno => Kind::Reno,
            Self::Cubic => Kind::Cubic,
            Self::Vegas => Kind::Vegas,
        }
    }
}

/// A factor in steps of 1/16, from 1/16 to 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alpha(u32);

impl Alpha {
    const LEAST: f64 = 1.0 / ALPHA_ONE as f64;
    const MOST: f64 = 64.0;

    /// So many sixteenths known to be within the bounds; anything else does not compile where it is used for a
    /// constant.
    pub const fn new(sixteenths: u32) -> Self {
        assert!(sixteenths >= 1 && sixteenths <= 64 * ALPHA_ONE, "out of bounds");
        Self(sixteenths)
    }

    /// In sixteenths.
    pub const fn sixteenths(self) -> u32 {
        self.0
    }
}

always!(Alpha, format!("{}-{} in steps of {}", Alpha::LEAST, Alpha::MOST, Alpha::LEAST));

impl fmt::Display for Alpha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f64::from(self.0) / f64::from(ALPHA_ONE)).fmt(f)
    }
}

impl Serialize for Alpha {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / f64::from(ALPHA_ONE))
    }
}

impl<'de> Deserialize<'de> for Alpha {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        let sixteenths = value * f64::from(ALPHA_ONE);
        if !(Self::LEAST..=Self::MOST).contains(&value) || sixteenths.fract() != 0.0 {
            return Err(D::Error::custom(format!(
                "{value} is not allowed; a number from {} to {} in steps of {} is",
                Self::LEAST,
                Self::MOST,
                Self::LEAST
            )));
        }
        Ok(Self(sixteenths as u32))
    }
}

impl JsonSchema for Alpha {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Alpha".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": Self::LEAST, "maximum": Self::MOST as u32 })
    }
}

settings! {
    /// vFlood: the host holds what the VM floods and sends it under a congestion window of its own. Needs Linux 6.16 or
    /// newer with CONFIG_NET_SCH_BPF and CONFIG_NETKIT; elsewhere it stays off and the agent says so.
    pub struct Vflood, override VfloodOverride;
    /// Whether it acts:
    mode: Mode = Mode::Off;
    /// It acts while the VM is off its core for at least this share of the time, as its guest agent reports, or while
    /// there is no report. Below two thirds of this share it rests: the VM's own TCP does as well then.
    off_core_percent: OffCorePercent = Bounded::new(OFF_CORE_PERCENT), note "0: it always acts";
    /// How a VM's buffer is shared among its flows:
    policy: BufferPolicy = BufferPolicy::Fair;
    /// B: the most that is held for a VM.
    buffer_segments: BufferSegments = Bounded::new(DEFAULTS.buffer_segments);
    /// The host's congestion control, best the one that the guests use (after a loss a connection goes on under the
    /// guest's):
    congestion_control: HostCongestion = HostCongestion::Cubic;
    /// Flows with a shorter RTT count as flows of low RTT.
    low_rtt_us: RttUs = Bounded::new(DEFAULTS.low_rtt_us);
    /// alpha of vFlood eq. 1.
    alpha: Alpha = Alpha::new(DEFAULTS.alpha);
    /// alpha of flows of low RTT, with the policy priority.
    alpha_low_rtt: Alpha = Alpha::new(DEFAULTS.alpha_low_rtt);
}

impl Vflood {
    /// Settings of the algorithm, for connections that begin with a congestion window of `initial_window` segments.
    pub fn settings(&self, initial_window: u32) -> Settings {
        Settings {
            buffer_segments: self.buffer_segments.get(),
            initial_window,
            low_rtt_us: self.low_rtt_us.get(),
            alpha: self.alpha.sixteenths(),
            alpha_low_rtt: self.alpha_low_rtt.sixteenths(),
            policy: self.policy.policy(),
            congestion: self.congestion_control.kind(),
        }
    }
}

words! {
    /// How a guest's shadow window grows.
    pub enum Shadow {
        /// RFC 5681.
        Reno = "reno",
        /// RFC 9438.
        Cubic = "cubic",
    }
}

settings! {
    /// vFlood: hands data over to the host as soon as this guest runs; the host's congestion control sends it.
    pub struct VfloodGuest;
    /// Whether the congestion control vflood is registered, and whether it floods:
    mode: Mode = Mode::Enforce;
    /// Make vflood the default for connections that choose no congestion control. With either value a program can
    /// choose it by setsockopt(TCP_CONGESTION, "vflood"). It floods only while the host attests that it holds the
    /// packets.
    default: bool = false;
    /// The congestion control to be while nothing is flooded, and while a loss is repaired:
    congestion_control: Shadow = Shadow::Cubic;
    /// With mode = "enforce", switch F-RTO off (net.ipv4.tcp_frto): it would take segments that the host lets out as
    /// proof that nothing was lost.
    disable_f_rto: bool = true;
}
