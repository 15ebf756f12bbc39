//! A port that is there.

use std::collections::BTreeMap;

use evenkeel_settings::Mode;
use evenkeel_settings::host::{Config, PortSettings};

use super::links::Link;
use crate::channel::ChannelLog;
use crate::datapath::is_own_device;

/// Ports by the index of their device.
pub(super) type Ports = BTreeMap<u32, Port>;

/// A VM's network device, with what is to hold there.
#[derive(Debug)]
pub(super) struct Port {
    /// The device.
    pub link: Link,
    /// What its VM is called.
    pub domain: Option<String>,
    /// What is to hold.
    pub settings: PortSettings,
    /// Why it is not served.
    pub error: Option<String>,
    /// Its VM is about to leave.
    pub is_offline: bool,
    /// Since when a trial times its exchanges, in the datapath's clock; 0: none does.
    pub timed_ns: u64,
    /// Bounds what the log says of the VM, as the VM can change that at will.
    pub words: ChannelLog,
}

impl Port {
    /// What the port's queue takes.
    pub fn queue_segments(&self) -> u32 {
        self.settings.port_queue_segments.get().max(self.link.queue_segments)
    }
}

/// The settings of the port of this name. Mechanisms with a part in the guest are off while its VM is about to leave.
pub(super) fn settings(config: &Config, name: &str, is_offline: bool) -> PortSettings {
    let mut settings = config.settings(name);
    if is_offline {
        settings.vflood.mode = Mode::Off;
        settings.cera.mode = Mode::Off;
    }
    settings
}

/// Whether a device of this name is a port: the agent's own devices never are.
pub(super) fn is_port(config: &Config, name: &str) -> bool {
    !is_own_device(name) && config.is_port(name)
}
