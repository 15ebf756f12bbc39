//! ACK filtering: which ACKs a VM does not need while vFlood acts for it, so that they do not fill its port.

use crate::{sys, vflood};

/// How long after the last ACK that passed one passes in any case, in us.
pub const GAP_US: u64 = sys::ACK_FILTER_GAP_US as u64;

/// How many ACKs may wait at a port with `slots` slots before later ones are kept from the VM.
pub fn limit(slots: u32) -> u32 {
    // SAFETY: the C code takes and gives numbers.
    unsafe { sys::ack_filter_limit(slots) }
}

/// A VM's port.
#[derive(Debug, Clone, Default)]
pub struct Vm(sys::ack_filter_vm);

impl Vm {
    /// Whether so many ACKs may wait that the caller should look at the port's queue, and call [`Vm::reads`] if it is
    /// short.
    pub fn is_crowded(&self, limit: u32) -> bool {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it. The same
        // holds for all calls below.
        unsafe { sys::ack_filter_is_crowded(&self.0, limit) }
    }

    /// The VM reads what has come.
    pub fn reads(&mut self) {
        // SAFETY: as in `is_crowded`.
        unsafe { sys::ack_filter_reads(&mut self.0) }
    }
}

/// A flow.
#[derive(Debug, Clone, Default)]
pub struct Flow(sys::ack_filter_flow);

impl Flow {
    /// Whether a needless ACK (see [`is_needless`]) is to be kept from the VM; called after [`vflood::Flow::acked`].
    /// `limit`: how many may wait at the port.
    pub fn keeps(&self, vm: &Vm, flow: &vflood::Flow, limit: u32, now_us: u64) -> bool {
        // SAFETY: as in `is_crowded`.
        unsafe { sys::ack_filter_keeps(&self.0, &vm.0, &flow.0, limit, now_us) }
    }

    /// The VM has sent its FIN.
    pub fn ends(&mut self) {
        // SAFETY: as in `is_crowded`.
        unsafe { sys::ack_filter_ends(&mut self.0) }
    }

    /// An ACK goes to the VM.
    pub fn passes(&mut self, vm: &mut Vm, flow: &vflood::Flow, limit: u32, now_us: u64) {
        // SAFETY: as in `is_crowded`.
        unsafe { sys::ack_filter_passes(&mut self.0, &mut vm.0, &flow.0, limit, now_us) }
    }
}

/// Whether later ACKs will say all that this one does; called after [`vflood::Flow::acked`]. `una` is what
/// [`vflood::Flow::snd_una`] was before that call. `is_plain`: the ACK has a number and timestamps, and nothing else.
pub fn is_needless(flow: &vflood::Flow, una: u32, is_plain: bool) -> bool {
    // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
    unsafe { sys::ack_filter_is_needless(&flow.0, una, is_plain) }
}
