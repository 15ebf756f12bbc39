//! Ports in other network namespaces.

use std::collections::BTreeSet;

use super::Core;
use crate::host::error::HostError;
use crate::host::links::Link;
use crate::host::state::QueueAction;
use crate::netns::{self, Namespace};

impl Core {
    /// Whether devices of a namespace with this name may be ports.
    pub fn has_namespace(&self, name: &str) -> bool {
        self.loaded.config.netns.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether ports may be in any other namespace.
    pub fn is_elsewhere(&self) -> bool {
        !self.loaded.config.netns.is_empty()
    }

    /// Ports may be in this namespace from now on. Returns the base of their numbers; `None` if it was taken already.
    ///
    /// # Errors
    /// [`HostError::Datapath`]
    pub fn take_namespace(&mut self, namespace: Namespace) -> Result<Option<u32>, HostError> {
        Ok(self.datapath.take_namespace(namespace)?)
    }

    /// Devices of a namespace that this agent, or the one before, has changed.
    pub fn touched_in(&self, base: u32) -> BTreeSet<u32> {
        let pinned = self.datapath.ports().unwrap_or_default();
        let all = self.ports.keys().chain(self.state.queues.keys()).chain(&pinned);
        all.copied().filter(|number| netns::base(*number) == base).collect()
    }

    /// Undoes what was done to a device of a namespace that is left. Returns what to do with its queue.
    pub fn let_go(&mut self, link: &Link) -> QueueAction {
        let action = self.release(link);
        self.detach(link.ifindex, &link.name);
        action
    }

    /// Whether a device's queue has another length than before it was a port.
    pub fn has_changed_queue(&self, number: u32) -> bool {
        self.state.queues.contains_key(&number)
    }

    /// No port is in the namespace with this base any more.
    pub fn leave_namespace(&mut self, base: u32) {
        for number in self.touched_in(base) {
            self.gone(number);
            self.detach(number, "a device of a namespace that is left");
        }
        self.datapath.leave_namespace(base);
        self.commit();
    }
}
