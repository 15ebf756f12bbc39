//! Devices that there is news of: which are to be looked at, one after the other, and when all are to be listed.

use std::time::Instant;

use super::{Core, Waiting};
use crate::features::Hook;
use crate::host::error::HostError;
use crate::host::links::Listing;
use crate::host::port::is_port;

impl Core {
    /// A device has changed: it is to be looked at if it is a port, or if the agent has changed it.
    pub fn heard(&mut self, ifindex: u32, name: String) {
        let was_changed = self.ports.contains_key(&ifindex) || self.state.queues.contains_key(&ifindex);
        if was_changed || is_port(&self.loaded.config, &name) {
            self.waiting.insert(ifindex, Waiting { name, error: None });
            // A process that opens an existing tap makes news as well: the tap has a carrier then.
            self.ask_for_vms();
        } else {
            self.waiting.remove(&ifindex);
        }
    }

    /// A device is there, by news or by a list, and may be new: who has made it may not be done with it yet. One that
    /// has the programs of an agent before this one is not.
    pub fn appeared(&mut self, ifindex: u32, name: String) {
        // By tcx, programs leave all room to qdiscs.
        if self.datapath.hook() == Hook::Clsact
            && !self.ports.contains_key(&ifindex)
            && is_port(&self.loaded.config, &name)
            && !self.datapath.is_on(ifindex)
        {
            self.fresh.heard(ifindex, Instant::now());
        }
        self.heard(ifindex, name);
    }

    /// When a tap that is left alone is to be looked at.
    pub fn fresh_at(&self) -> Option<Instant> {
        self.fresh.due(Instant::now())
    }

    /// News was lost, or another configuration holds: devices are to be listed.
    pub fn ask_for_list(&mut self) {
        self.list_is_due = true;
    }

    /// Whether devices are to be listed now.
    pub fn list_is_due(&self) -> bool {
        self.list_is_due
    }

    /// A device that is to be looked at now.
    pub fn next(&self) -> Option<u32> {
        let now = Instant::now();
        let is_due =
            |(ifindex, waiting): &(&u32, &Waiting)| waiting.error.is_none() && !self.fresh.waits(**ifindex, now);
        self.waiting.iter().find(is_due).map(|(ifindex, _)| *ifindex)
    }

    /// Whether there is something to list or to look at.
    pub fn is_behind(&self) -> bool {
        self.list_is_due || self.next().is_some()
    }

    /// A device could not be looked at: it is tried again.
    pub fn missed(&mut self, ifindex: u32, error: &HostError) {
        tracing::error!(ifindex, %error, "a device cannot be looked at");
        self.count("looks_failed");
        if let Some(waiting) = self.waiting.get_mut(&ifindex) {
            waiting.error = Some(error.to_string());
        }
    }

    /// Devices could not be listed: it is tried again.
    pub fn unlisted(&mut self, error: &HostError) {
        tracing::error!(%error, "news of devices was lost");
        self.count("looks_failed");
        (self.list_is_due, self.list_is_partial) = (false, true);
    }

    /// Takes a list of all devices: lets go of ports that are gone, and has the others looked at.
    pub fn listed(&mut self, listing: &Listing) {
        self.count("lists_taken");
        // A list that may lack devices is taken again, but not at once.
        (self.list_is_due, self.list_is_partial) = (false, !listing.is_whole);
        self.listed = Instant::now();
        let links = &listing.links;
        let is_there = |ifindex: u32| links.iter().any(|l| l.ifindex == ifindex);
        let gone: Vec<u32> = self.ports.keys().copied().filter(|ifindex| !is_there(*ifindex)).collect();
        for ifindex in gone {
            match self.ports.get(&ifindex).map(|port| port.link.name.clone()).filter(|_| !listing.is_whole) {
                Some(name) => self.heard(ifindex, name),
                None => self.gone(ifindex),
            }
        }
        // Devices that an earlier agent put programs on, and that are no ports of this one.
        match self.datapath.ports() {
            Ok(pinned) => pinned.into_iter().for_each(|ifindex| self.leave(ifindex, listing)),
            Err(error) => tracing::error!(%error, "ports of the agent before this one are not looked at"),
        }
        let ports = &self.ports;
        if listing.is_whole
            && self.state.retain(links, |ifindex| ports.get(&ifindex).map(|port| port.link.name.as_str()))
        {
            self.note();
        }
        self.commit();
        for link in links {
            self.appeared(link.ifindex, link.name.clone());
        }
    }

    /// Takes the programs off a device that is no port.
    fn leave(&mut self, ifindex: u32, listing: &Listing) {
        let name = listing.links.iter().find(|l| l.ifindex == ifindex).map(|l| l.name.as_str());
        let is_port = name.is_some_and(|name| is_port(&self.loaded.config, name));
        if is_port || self.ports.contains_key(&ifindex) || (name.is_none() && !listing.is_whole) {
            return;
        }
        self.detach(ifindex, name.unwrap_or("a device that is gone"));
    }
}
