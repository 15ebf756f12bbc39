//! A port that is there.

use std::collections::BTreeMap;

use super::config::PortSettings;
use super::links::Link;
use crate::channel::Words;
use crate::common::value::Mode;

/// Ports by the index of their device.
pub(super) type Ports = BTreeMap<u32, Port>;

/// A VM's network device, with what is to hold there.
#[derive(Debug)]
pub(super) struct Port {
    /// The device.
    pub link: Link,
    /// What is to hold.
    pub settings: PortSettings,
    /// Why it is not served.
    pub error: Option<String>,
    /// Somebody else has set its queue while we ran: theirs stays.
    pub queue_is_theirs: bool,
    /// Its VM is about to leave.
    pub is_offline: bool,
    /// What the log says of the VM, which is the VM's to change.
    pub words: Words,
}

impl Port {
    /// What the port's queue takes.
    pub fn queue_segments(&self) -> u32 {
        self.settings.port_queue_segments.get().max(self.link.queue_segments)
    }
}

impl PortSettings {
    /// With what has to rest on a port whose VM is about to leave.
    pub(super) fn while_offline(mut self, is_offline: bool) -> Self {
        if is_offline {
            self.vflood.mode = Mode::Off;
            self.cera.mode = Mode::Off;
        }
        self
    }
}
