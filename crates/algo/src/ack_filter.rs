//! ACK filtering: which ACKs a VM that vFlood holds data of need not have, and need not fill its port.

use crate::{sys, vflood};

/// How long an ACK is kept from a VM at most after the last that was not, in us.
pub const GAP_US: u64 = sys::ACK_FILTER_GAP_US as u64;

/// ACKs that may wait at a port of so many slots, before later ones are kept from the VM.
pub fn limit(slots: u32) -> u32 {
    // SAFETY: the C code takes and gives numbers.
    unsafe { sys::ack_filter_limit(slots) }
}

/// A VM's port.
#[derive(Debug, Clone, Default)]
pub struct Vm(sys::ack_filter_vm);

impl Vm {
    /// Whether so many may wait that it is time to look at the port's queue, and to say [`Vm::reads`] if it is short.
    pub fn is_crowded(&self, limit: u32) -> bool {
        // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it. So everywhere
        // here.
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
    /// Whether an ACK that is needless (see [`is_needless`]) is to be kept from the VM, after [`vflood::Flow::acked`].
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

/// Whether later ACKs will say all that one does, after [`vflood::Flow::acked`], before which `una` was the flow's
/// [`vflood::Flow::snd_una`]. `is_plain`: it has a number and timestamps, and nothing else.
pub fn is_needless(flow: &vflood::Flow, una: u32, is_plain: bool) -> bool {
    // SAFETY: the pointer is to a live value for the length of the call; the C code does not keep it.
    unsafe { sys::ack_filter_is_needless(&flow.0, una, is_plain) }
}
