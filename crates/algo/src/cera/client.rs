//! The guest's side, and what a host does in place of a guest without a client.

use crate::sys;

/// The window of one of a VM's active flows, in segments. `next` is the place from which the remainder is dealt out.
pub fn flow_window(window: u32, flows: u32, position: u32, next: u32) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::cera_flow_window(window, flows, position, next) }
}

/// Whether a client sets a flow's window from `cwnd` to `window`. `is_unscathed`: the flow's threshold is what a client
/// has set it to, so nothing was lost since. `is_limited`: the flow uses all of its window.
pub fn client_sets(cwnd: u32, window: u32, is_unscathed: bool, is_limited: bool) -> bool {
    // SAFETY: the C function is pure.
    unsafe { sys::cera_client_sets(cwnd, window, is_unscathed.into(), is_limited.into()) != 0 }
}

/// A client's window for a flow whose least RTT is `rtt_us`, where the least of all its VM's flows is `least_us`.
pub fn client_far(window: u32, rtt_us: u32, least_us: u32) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::cera_client_far(window, rtt_us, least_us) }
}

/// From which place the remainder is dealt out next time, after a window was shared out.
pub fn next(window: u32, flows: u32, next: u32) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::cera_next(window, flows, next) }
}

/// Shares a VM's window out over its active flows.
#[derive(Debug, Clone, Default)]
pub struct Client {
    /// The place in the list of all flows from which the remainder is dealt out.
    next: u32,
}

impl Client {
    /// What the windows of the active flows are set to: [`CLIENT_SLACK`](super::CLIENT_SLACK) more than their shares,
    /// which the host writes into their ACKs. `active` are their places in the list of all flows, in ascending order.
    /// The remainder continues where it stopped last time.
    pub fn share(&mut self, window: u32, active: &[u32]) -> impl Iterator<Item = u32> + use<> {
        let flows = active.len() as u32;
        let from = active.partition_point(|&place| place < self.next) as u32;
        if let Some(&place) = active.get(next(window, flows, from) as usize) {
            self.next = place;
        }
        // SAFETY: the C function is pure.
        (0..flows).map(move |position| unsafe { sys::cera_client_window(window, flows, position, from) })
    }

    /// The flow at `place` has ended: those behind it move up.
    pub fn removed(&mut self, place: u32) {
        // SAFETY: the C function is pure.
        self.next = unsafe { sys::cera_next_without(self.next, place) };
    }

    /// The place from which the remainder is dealt out.
    pub fn next(&self) -> u32 {
        self.next
    }
}
