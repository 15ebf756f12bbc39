//! Which VMs the ports lead to, and the channels to them.

use std::time::Instant;

use evenkeel_settings::address::{ChannelAddress, ChannelSource};

use super::Core;
use crate::channel::Target;
use crate::host::control::proto;
use crate::host::links::{Kind, Link};
use crate::host::vms::{Tap, Vm};

/// Why nobody knows whose port it is.
const NO_TAP: &str = "the port is no tap, and only of taps it is known who has them open";

impl Core {
    /// When [`look_for_vms`](Self::look_for_vms) is to be called.
    pub fn looks_at(&self) -> Instant {
        self.vms.looks_at()
    }

    /// What is known of VMs may have changed.
    pub fn ask_for_vms(&mut self) {
        self.vms.look_soon(Instant::now());
    }

    /// Looks up which VMs the ports belong to; channels follow.
    pub fn look_for_vms(&mut self) {
        let taps = self.ports.values().filter(|port| port.link.kind == Kind::Tap);
        let taps: Vec<_> = taps.map(|port| Tap { ifindex: port.link.ifindex, name: port.link.name.clone() }).collect();
        for ifindex in self.vms.look(&taps, Instant::now()) {
            let Some(port) = self.ports.get(&ifindex) else { continue };
            let (link, before) = (port.link.clone(), port.domain.clone());
            match (self.vms.of(ifindex), self.vms.obstacle(ifindex)) {
                (Some(vm), _) if vm.name != before => {
                    tracing::info!(port = link.name, domain = vm.name, "the port's VM: {vm}");
                }
                (None, Some(why)) if !why.is_passing() => {
                    tracing::warn!(port = link.name, "the port's VM is not known: {why}");
                }
                (vm, why) => tracing::debug!(port = link.name, ?vm, ?why, "the port's VM is looked at"),
            }
            // Its queue needs no change, so the returned action is ignored.
            self.seen(&link);
        }
    }

    /// What the VM behind a port is called.
    pub(super) fn domain(&self, ifindex: u32) -> Option<String> {
        self.vms.of(ifindex)?.name.clone()
    }

    /// Gives a port the channel that it is configured with, or none if that is to be found automatically and was not.
    pub(super) fn open_channel(&self, link: &Link, address: Option<&ChannelAddress>) {
        let heartbeat_ms = self.loaded.config.channel.heartbeat_ms.get() as u16;
        let opened = address.map(ChannelAddress::parse).transpose().and_then(|source| {
            let target = source.and_then(|source| self.target(link.ifindex, source));
            let set = self.channels.set(link.ifindex, &link.name, target.as_ref(), heartbeat_ms);
            set.map_err(|error| error.to_string())
        });
        self.channels.name(link.ifindex, self.domain(link.ifindex).as_deref());
        if let Err(why) = opened {
            tracing::error!(port = link.name, "the channel to the guest cannot be opened: {why}");
        }
    }

    fn target(&self, ifindex: u32, source: ChannelSource) -> Option<Target> {
        match source {
            ChannelSource::At(address) => Some(address.into()),
            ChannelSource::Libvirt => self.vms.of(ifindex)?.target_in_libvirt().ok(),
            ChannelSource::Auto => self.vms.of(ifindex)?.target().ok(),
        }
    }

    /// A channel that is to be found automatically and was not, with the reason.
    pub(super) fn missing_channel(&self, ifindex: u32) -> Option<proto::Channel> {
        let port = self.ports.get(&ifindex)?;
        let source = port.settings.channel.as_ref()?.parse().ok()?;
        let look: fn(&Vm) -> Result<Target, String> = match source {
            ChannelSource::At(_) => return None,
            ChannelSource::Libvirt => Vm::target_in_libvirt,
            ChannelSource::Auto => Vm::target,
        };
        let trouble = match self.vms.of(ifindex) {
            Some(vm) => look(vm).err(),
            None if port.link.kind != Kind::Tap => Some(NO_TAP.to_owned()),
            None => self.vms.obstacle(ifindex).map(ToString::to_string),
        };
        Some(proto::Channel { address: source.to_string(), trouble, ..proto::Channel::default() })
    }
}
