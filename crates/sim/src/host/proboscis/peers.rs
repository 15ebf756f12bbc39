//! How the hosts of other VMs have reacted to probes: the map `peers` of kernel/host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_algo::proboscis::Peer;

use crate::packet::GuestId;

/// One table for all VMs of a host. Its clones are the same table.
#[derive(Clone, Debug, Default)]
pub struct Peers(Arc<Mutex<HashMap<GuestId, Entry>>>);

#[derive(Debug, Default)]
struct Entry {
    state: Peer,
    /// A report or a probe has come from that host, and no handshake since went without one.
    is_known: bool,
}

impl Peers {
    fn entries(&self) -> MutexGuard<'_, HashMap<GuestId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A report or a probe has come from a VM's host.
    pub(super) fn answered(&self, remote: GuestId) {
        let mut entries = self.entries();
        let entry = entries.entry(remote).or_default();
        entry.state.answered();
        entry.is_known = true;
    }

    /// A VM has answered a SYN, and its host has not answered the probes before it.
    pub(super) fn silent(&self, remote: GuestId) {
        let mut entries = self.entries();
        let entry = entries.entry(remote).or_default();
        entry.state.silent();
        entry.is_known = false;
    }

    /// Whether the SYN at hand is worth probes.
    pub(super) fn probe(&self, remote: GuestId) -> bool {
        self.entries().get_mut(&remote).is_none_or(|entry| entry.state.probe())
    }

    /// Whether nothing is known of the VM's host.
    pub(super) fn is_stranger(&self, remote: GuestId) -> bool {
        !self.entries().contains_key(&remote)
    }

    /// Whether the VM's host is known to have ProBoSCIS.
    pub(super) fn is_known(&self, remote: GuestId) -> bool {
        self.entries().get(&remote).is_some_and(|entry| entry.is_known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_until_it_leaves_a_handshake_unanswered() {
        let (peers, there) = (Peers::default(), GuestId(7));
        assert!(peers.probe(there) && !peers.is_known(there));
        peers.clone().answered(there);
        assert!(peers.is_known(there) && !peers.is_known(GuestId(8)));
        peers.silent(there);
        assert!(!peers.is_known(there) && peers.probe(there));
        for _ in 0..16 {
            peers.silent(there);
        }
        assert!(!peers.probe(there), "left in peace");
        peers.answered(there);
        assert!(peers.probe(there) && peers.is_known(there));
    }
}
