//! The guest's side.

use crate::sys;

/// The window of one of a VM's active flows, in segments. `next` is the place at which the remainder goes on.
pub fn flow_window(window: u32, flows: u32, position: u32, next: u32) -> u32 {
    // SAFETY: the C function is pure.
    unsafe { sys::cera_flow_window(window, flows, position, next) }
}

/// Shares a VM's window out over its active flows.
#[derive(Debug, Clone, Default)]
pub struct Client {
    next: u32,
}

impl Client {
    /// The window of each of so many active flows, by place in the list. The remainder goes on where it stopped last time.
    pub fn share(&mut self, window: u32, flows: u32) -> impl Iterator<Item = u32> + use<> {
        let next = self.next;
        // SAFETY: the C function is pure.
        self.next = unsafe { sys::cera_next(window, flows, next) };
        (0..flows).map(move |position| flow_window(window, flows, position, next))
    }

    /// The flow at that place has ended.
    pub fn removed(&mut self, position: u32) {
        // SAFETY: the C function is pure.
        self.next = unsafe { sys::cera_next_without(self.next, position) };
    }

    /// The place at which the remainder goes on.
    pub fn next(&self) -> u32 {
        self.next
    }
}
