//! CERA's client in a guest: shares out the window that the host gives the guest.

use evenkeel_algo::cera::Client as Ring;

use crate::packet::ConnId;

/// The client.
#[derive(Debug, Default)]
pub struct Client {
    flows: Vec<ConnId>,
    ring: Ring,
    /// The host's last message, under way.
    pub(crate) word: Option<u32>,
    /// How often a window was lowered.
    pub(crate) set: u64,
}

impl Client {
    /// A connection begins.
    pub fn opened(&mut self, conn: ConnId) {
        self.flows.push(conn);
    }

    /// A connection ends.
    pub fn closed(&mut self, conn: ConnId) {
        if let Some(place) = self.flows.iter().position(|flow| *flow == conn) {
            self.flows.remove(place);
            self.ring.removed(place as u32);
        }
    }

    /// What each active flow's window is set to.
    pub fn share(&mut self, window: u32, is_active: impl Fn(ConnId) -> bool) -> Vec<(ConnId, u32)> {
        let places = (0..self.flows.len() as u32).filter(|place| is_active(self.flows[*place as usize]));
        let active: Vec<u32> = places.collect();
        let windows = self.ring.share(window, &active);
        active.iter().zip(windows).map(|(place, window)| (self.flows[*place as usize], window)).collect()
    }
}
