//! The agent's configuration: every key with its unit, its bounds and its default, in this one place.

mod cera;
mod load;
mod values;
mod vflood;
mod vsnoop;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use evenkeel_algo::proboscis::DEFAULTS;
use serde::{Deserialize, Serialize};

pub use cera::{Cera, CeraOverride, CeraPort, Shares};
pub use values::{ChannelAddress, Pattern};
pub use vflood::{Alpha, BufferPolicy, HostCongestion, Vflood, VfloodOverride};
pub use vsnoop::{Proof, Vsnoop, VsnoopOverride};

use crate::channel::wire;
pub use crate::common::value::{Bounded, Mode};
use crate::datapath::{intf, is_own_device};

/// Where the configuration is unless something else is said.
pub const DEFAULT_FILE: &str = "/etc/evenkeel/host.toml";
/// Where the agent keeps its lock, its state and its socket.
pub const DEFAULT_RUN_DIR: &str = "/run/evenkeel";
/// Where programs and maps are pinned.
pub const DEFAULT_PIN_DIR: &str = "/sys/fs/bpf/evenkeel";
/// Where the control socket is unless something else is said.
pub const DEFAULT_SOCKET: &str = "/run/evenkeel/host.sock";
/// A commented configuration with all keys at their defaults.
pub const EXAMPLE: &str = include_str!("../../../../../packaging/host.toml");

/// Queue lengths; 0 leaves ports as they are.
pub type QueueSegments = Bounded<0, 1_000_000>;
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
/// Time between two heartbeats on a channel.
pub type HeartbeatMs = Bounded<{ *wire::HEARTBEAT_MS.start() as u32 }, { *wire::HEARTBEAT_MS.end() as u32 }>;
/// A rate.
pub type ProbesPerS = Bounded<0, 10_000_000>;
/// A burst.
pub type Burst = Bounded<0, 1_000_000>;
/// A size.
pub type Bytes = Bounded<0, { u32::MAX }>;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Names of the ports that lead to VMs.
    pub ports: Vec<Pattern>,
    /// Queues of ports are raised to this many packets while the agent is there; 0 leaves them.
    pub port_queue_segments: QueueSegments,
    /// The key that signs probes; all hosts that are to understand each other have the same.
    pub probe_key_file: PathBuf,
    /// ProBoSCIS on every port that has nothing else said.
    pub proboscis: Proboscis,
    /// vSnoop on every port that has nothing else said.
    pub vsnoop: Vsnoop,
    /// CERA.
    pub cera: Cera,
    /// vFlood on every port that has nothing else said.
    pub vflood: Vflood,
    /// The control socket.
    pub control: Control,
    /// Metrics.
    pub metrics: Metrics,
    /// The channels to guests' agents.
    pub channel: Channel,
    /// What is otherwise on some ports; of several that match, the last one decides, key by key.
    #[serde(rename = "port")]
    pub overrides: Vec<PortOverride>,
}

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

/// The control socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    /// Where it is.
    pub socket: PathBuf,
    /// Who may ask beside root: a group's name or number.
    pub group: String,
}

/// Metrics in OpenMetrics form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Whether they are served.
    pub enabled: bool,
    /// Address and port.
    pub listen: SocketAddr,
    /// Whether an address other than the loopback's is meant.
    pub allow_remote: bool,
}

/// What holds for all channels to guests' agents; where each of them is, its port says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Channel {
    /// Time between two heartbeats; a guest that misses three is plain TCP again.
    pub heartbeat_ms: HeartbeatMs,
}

/// What is otherwise on some ports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortOverride {
    /// Which ports.
    #[serde(rename = "match")]
    pub pattern: Pattern,
    /// As the key of the same name for all ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_queue_segments: Option<QueueSegments>,
    /// Where the guest's agent is found; `{port}` stands for the name of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelAddress>,
    /// As the table of the same name for all ports; what is not named stays.
    #[serde(default)]
    pub proboscis: ProboscisOverride,
    /// As the table of the same name for all ports; what is not named stays.
    #[serde(default)]
    pub vsnoop: VsnoopOverride,
    /// As the table of the same name for all ports; what is not named stays.
    #[serde(default)]
    pub cera: CeraOverride,
    /// The same for vFlood.
    #[serde(default)]
    pub vflood: VfloodOverride,
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

/// What holds on one port, defaults and overrides resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortSettings {
    /// Its queue is raised to this.
    pub port_queue_segments: QueueSegments,
    /// Where its guest's agent is found.
    pub channel: Option<ChannelAddress>,
    /// ProBoSCIS on it.
    pub proboscis: Proboscis,
    /// vSnoop on it.
    pub vsnoop: Vsnoop,
    /// CERA on it.
    pub cera: CeraPort,
    /// vFlood on it.
    pub vflood: Vflood,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ports: ["vnet*", "tap*"].map(Pattern::literal).into(),
            port_queue_segments: Bounded::new(4000),
            probe_key_file: "/etc/evenkeel/probe.key".into(),
            proboscis: Proboscis::default(),
            vsnoop: Vsnoop::default(),
            cera: Cera::default(),
            vflood: Vflood::default(),
            control: Control::default(),
            metrics: Metrics::default(),
            channel: Channel::default(),
            overrides: Vec::new(),
        }
    }
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

impl Default for Control {
    fn default() -> Self {
        Self { socket: DEFAULT_SOCKET.into(), group: "root".to_owned() }
    }
}

impl Default for Channel {
    fn default() -> Self {
        Self { heartbeat_ms: Bounded::new(200) }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self { enabled: true, listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464), allow_remote: false }
    }
}

impl Config {
    /// Whether a device of this name is a port.
    pub fn is_port(&self, name: &str) -> bool {
        !is_own_device(name) && self.ports.iter().any(|pattern| pattern.matches(name))
    }

    /// What holds on the port of this name.
    pub fn settings(&self, name: &str) -> PortSettings {
        let own = PortSettings {
            port_queue_segments: self.port_queue_segments,
            channel: None,
            proboscis: self.proboscis.clone(),
            vsnoop: self.vsnoop.clone(),
            cera: self.cera.port(),
            vflood: self.vflood.clone(),
        };
        self.overrides.iter().filter(|over| over.pattern.matches(name)).fold(own, |settings, over| PortSettings {
            port_queue_segments: over.port_queue_segments.unwrap_or(settings.port_queue_segments),
            channel: over.channel.as_ref().map(|channel| channel.of(name)).or(settings.channel),
            proboscis: over.proboscis.over(settings.proboscis),
            vsnoop: over.vsnoop.over(settings.vsnoop),
            cera: over.cera.over(settings.cera),
            vflood: over.vflood.over(settings.vflood),
        })
    }
}

impl ProboscisOverride {
    fn over(&self, base: Proboscis) -> Proboscis {
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

#[cfg(test)]
mod tests;
