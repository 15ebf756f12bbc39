//! vFlood on ports: which ports have the devices that hold packets, and which of their connections are managed.

mod devices;
pub mod qdisc;

use std::time::Duration;

use libbpf_rs::MapCore;

use self::qdisc::Qdisc;
use super::error::DatapathError;
use super::intf;
use super::load::{Datapath, set_port};
use super::map::{lookup, lookup_bytes};
use super::skb::SkbContext;
use crate::common::bytes::from_bytes;
use crate::netns;

/// Connections that are ended in one go: each takes the host some microseconds.
const MOST_ENDED: u32 = 1024;

impl Datapath {
    /// Makes the devices that hold a port's packets, if its settings ask for vFlood. Where that fails, vFlood is off.
    pub(super) fn hold_packets(&mut self, ifindex: u32, settings: &mut intf::ek_port) -> Result<(), DatapathError> {
        let before = self.port(&ifindex.to_ne_bytes())?.map(|port| port.vflood).unwrap_or_default();
        if settings.vflood.mode == intf::EK_MODE_OFF {
            // What is held leaves first; see `let_go`.
            settings.vflood = intf::ek_vflood_settings { mode: intf::EK_MODE_OFF, ..before };
            return Ok(());
        }
        let outcome = match &mut self.qdisc {
            _ if netns::base(ifindex) != netns::HERE => Err(DatapathError::Elsewhere),
            Some(hold) => Ok(hold),
            none => Qdisc::open(&self.pin_dir, &self.features).map(|hold| none.insert(hold)),
        };
        match outcome.and_then(|hold| hold.attach(ifindex, settings.slot, &mut settings.vflood)) {
            Ok(()) => {
                self.cannot_hold.remove(&ifindex);
            }
            Err(error) => {
                settings.vflood = intf::ek_vflood_settings::default();
                self.cannot_hold.insert(ifindex, error);
            }
        }
        Ok(())
    }

    /// Why a port that was to have vFlood does not have it.
    pub fn cannot_hold(&self, ifindex: u32) -> Option<&DatapathError> {
        self.cannot_hold.get(&ifindex)
    }

    /// Whether vFlood acts on a port: its packets are held.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn holds(&self, ifindex: u32) -> Result<bool, DatapathError> {
        let port = self.port(&ifindex.to_ne_bytes())?;
        Ok(port.is_some_and(|port| port.vflood.mode == intf::EK_MODE_ENFORCE && port.vflood.hold_ifindex != 0))
    }

    /// Whether connections that begin on this port now are managed by vFlood.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn manages(&self, ifindex: u32) -> Result<bool, DatapathError> {
        let port = self.port(&ifindex.to_ne_bytes())?;
        Ok(self.holds(ifindex)? && port.is_some_and(|port| port.vflood.passes_over == 0))
    }

    /// Has vFlood pass over connections that begin on this port from now on, or manage them again.
    ///
    /// # Errors
    /// [`DatapathError`]
    pub fn pass_over(&mut self, ifindex: u32, passes_over: bool) -> Result<(), DatapathError> {
        let key = ifindex.to_ne_bytes();
        let Some(mut port) = self.port(&key)? else { return Ok(()) };
        port.vflood.passes_over = u32::from(passes_over);
        set_port(&self.ports, &key, &port)
    }

    /// Sets what tells a port's VM that a connection is held; 0: nothing does.
    ///
    /// # Errors
    /// [`DatapathError`]
    pub fn set_token(&mut self, ifindex: u32, token: u16) -> Result<(), DatapathError> {
        let key = ifindex.to_ne_bytes();
        let Some(mut port) = self.port(&key)?.filter(|port| port.vflood.token != u32::from(token)) else {
            return Ok(());
        };
        port.vflood.token = u32::from(token);
        set_port(&self.ports, &key, &port)
    }

    /// What is held for a port, if it has the devices for it.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn held(&self, ifindex: u32) -> Result<Option<intf::ek_vflood_queue>, DatapathError> {
        let port = self.port(&ifindex.to_ne_bytes())?.filter(|port| port.vflood.hold_ifindex != 0);
        match (port, &self.qdisc) {
            (Some(port), Some(hold)) => hold.vm(port.slot).map(Some),
            _ => Ok(None),
        }
    }

    /// How many connections of a port are managed, if it has the devices for it.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn managed_of(&self, ifindex: u32) -> Result<Option<u32>, DatapathError> {
        let port = self.port(&ifindex.to_ne_bytes())?.filter(|port| port.vflood.hold_ifindex != 0);
        match (port, &self.qdisc) {
            (Some(port), Some(hold)) => hold.managed_of(port.slot).map(Some),
            _ => Ok(None),
        }
    }

    /// Ends vFlood's connections that hold nothing and have been idle for this long; of very many, only a part per
    /// call. Returns how many it ended.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn end_silent(&mut self, silence: Duration) -> Result<u32, DatapathError> {
        let mut context = SkbContext::default();
        context.cb[intf::EK_IDLE_MS as usize] = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
        context.cb[intf::EK_IDLE_FLOWS as usize] = MOST_ENDED;
        self.ask("vflood_idle", context)
    }

    /// Removes the devices of ports that no longer hold packets and have let out what they held. Returns whether any
    /// still has something to let out.
    ///
    /// # Errors
    /// [`DatapathError`]
    pub fn let_go(&mut self) -> Result<bool, DatapathError> {
        let (mut waits, mut left) = (false, Vec::new());
        let Some(qdisc) = &mut self.qdisc else { return Ok(false) };
        for key in self.ports.keys() {
            let Some(mut port) = lookup_bytes(&self.ports, &key)?.as_deref().and_then(from_bytes::<intf::ek_port>)
            else {
                continue;
            };
            if port.vflood.mode != intf::EK_MODE_OFF || port.vflood.hold_ifindex == 0 {
                continue;
            }
            if qdisc::holds(&qdisc.vm(port.slot)?) {
                waits = true;
                continue;
            }
            port.vflood = intf::ek_vflood_settings::default();
            set_port(&self.ports, &key, &port)?;
            let Some(ifindex) = from_bytes(&key) else { continue };
            qdisc.detach(ifindex)?;
            left.push(ifindex);
        }
        for ifindex in left {
            if self.leaving.contains(&ifindex) {
                self.take_off(ifindex)?;
            }
        }
        Ok(waits)
    }

    /// What vFlood knows of a flow, if it manages it.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`]
    pub fn vflood(&self, flow: &intf::ek_flow) -> Result<Option<intf::ek_vflood_flow>, DatapathError> {
        let found: Option<intf::ek_vflood_flow> = lookup(&self.vflood_flows, &flow.vflood_index)?;
        Ok(found.filter(|found| flow.vflood_owner != 0 && found.owner == u64::from(flow.vflood_owner)))
    }
}
