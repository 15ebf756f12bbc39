//! The agent's configuration: every key with its unit, its bounds and its default, in this one place.

mod load;
pub(super) mod values;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use values::{ChannelAddress, Pattern};

pub use super::cera::config::{Cera, CeraOverride, CeraPort, Shares};
pub use super::proboscis::config::{Proboscis, ProboscisOverride};
pub use super::vflood::config::{Alpha, BufferPolicy, HostCongestion, Vflood, VfloodOverride};
pub use super::vsnoop::config::{Vsnoop, VsnoopOverride};

use crate::channel::wire;
pub use crate::common::value::{Bounded, Mode};
use crate::datapath::is_own_device;

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
/// Time between two heartbeats on a channel.
pub type HeartbeatMs = Bounded<{ *wire::HEARTBEAT_MS.start() as u32 }, { *wire::HEARTBEAT_MS.end() as u32 }>;
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

#[cfg(test)]
mod tests;
