//! vSnoop on ports: its connections, and what it knows of taps' queues.

use std::time::Duration;

use libbpf_rs::MapCore;

use super::error::DatapathError;
use super::intf;
use super::load::{Datapath, set_port};
use super::map::{lookup, read_all};
use super::skb::SkbContext;
use crate::common::bytes::as_bytes;

impl Datapath {
    /// Removes vSnoop's entries of a port.
    pub(super) fn forget_snoops(&self, ifindex: u32) -> Result<(), DatapathError> {
        for (key, _) in self.snoops()?.iter().filter(|(key, _)| key.ifindex == ifindex) {
            // Closed meanwhile is as good as removed.
            let _ = self.snoops.delete(as_bytes(key));
        }
        Ok(())
    }

    /// Changes the `enum ek_vsnoop_endpoint` that the programs have of a port's VM.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn set_endpoint(&mut self, ifindex: u32, endpoint: u32) -> Result<(), DatapathError> {
        self.change(ifindex, |settings| settings.endpoint = endpoint)
    }

    /// Tells the programs which threads are the virtual CPUs of a port's VM.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn set_vcpus(&mut self, ifindex: u32, vcpus: intf::ek_vsnoop_vcpus) -> Result<(), DatapathError> {
        self.change(ifindex, |settings| settings.vcpus = vcpus)
    }

    fn change(
        &mut self,
        ifindex: u32,
        change: impl FnOnce(&mut intf::ek_vsnoop_settings),
    ) -> Result<(), DatapathError> {
        let key = ifindex.to_ne_bytes();
        let Some(mut port) = self.port(&key)? else { return Ok(()) };
        change(&mut port.vsnoop);
        set_port(&self.ports, &key, &port)
    }

    /// The `enum ek_vsnoop_endpoint` that the programs have of a port's VM, if it is a port.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn endpoint(&self, ifindex: u32) -> Result<Option<u32>, DatapathError> {
        Ok(self.port(&ifindex.to_ne_bytes())?.map(|port| port.vsnoop.endpoint))
    }

    /// vSnoop's entries of all connections.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn snoops(&self) -> Result<Vec<(intf::ek_flow_key, intf::ek_vsnoop_flow)>, DatapathError> {
        read_all(&self.snoops, "cannot read vSnoop's connections")
    }

    /// vSnoop's entry of a connection, if it has one.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn snoop(&self, key: &intf::ek_flow_key) -> Result<Option<intf::ek_vsnoop_flow>, DatapathError> {
        lookup(&self.snoops, key)
    }

    /// vSnoop's state of a port.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn snoop_port(&self, ifindex: u32) -> Result<intf::ek_vsnoop_port, DatapathError> {
        let Some(port) = self.port(&ifindex.to_ne_bytes())? else { return Ok(intf::ek_vsnoop_port::default()) };
        Ok(lookup(&self.snoop_ports, &port.slot)?.unwrap_or_default())
    }

    /// Forgets vSnoop's entries of connections that have been idle for this long, and of ports that are gone. Returns
    /// how many are left.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn sweep_snoops(&mut self, idle: Duration) -> Result<u32, DatapathError> {
        let mut context = SkbContext::default();
        context.cb[intf::EK_SWEEP_MS as usize] = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX);
        self.ask("vsnoop_sweep", context)
    }

    /// Whether a tap's queue has this many slots free now, and if not, why.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn queue_state(&mut self, ifindex: u32, segments: u32) -> Result<intf::ek_vsnoop_ring, DatapathError> {
        let mut context = SkbContext { ifindex, ..SkbContext::default() };
        context.cb[intf::EK_RING_WANTED as usize] = segments;
        self.ask("vsnoop_ring", context)
    }

    /// Whether packets wait in front of a tap's queue, or leave fewer than this many of its slots free.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn waits(&mut self, ifindex: u32, segments: u32) -> Result<bool, DatapathError> {
        let mut context = SkbContext { ifindex, ..SkbContext::default() };
        context.cb[intf::EK_RING_WANTED as usize] = segments;
        context.cb[intf::EK_RING_TAKEN as usize] = 1;
        Ok(matches!(self.ask("vsnoop_ring", context)?, intf::EK_VSNOOP_RING_FULL | intf::EK_VSNOOP_RING_WAITING))
    }
}
