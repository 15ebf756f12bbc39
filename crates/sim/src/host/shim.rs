//! The place of the mechanisms on the host: what sees the packets of a VM's port.

use std::fmt;

use crate::packet::Packet;
use crate::time::Instant;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, as the shim has left it.
    Pass,
    /// It ends here.
    Drop,
}

/// Places on the way to the VM, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToVm {
    /// Marks are counted, and hidden from the VM.
    Marks,
    /// ACKs clock out what the host holds.
    AckClock,
    /// The window is written.
    Window,
    /// Data is acknowledged early.
    EarlyAck,
}

/// Places on the way from the VM, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FromVm {
    /// ACKs that say nothing new are dropped.
    AckFilter,
    /// Marks are echoed.
    Echo,
    /// Probes go ahead of a SYN.
    Probes,
    /// Packets are counted.
    Accounting,
    /// Data is held back.
    Hold,
    /// Packets become ECN-capable.
    Ecn,
}

/// A mechanism on the host.
pub trait Shim: fmt::Debug + Send {
    /// Where it stands on the way to the VM, if it looks at packets there.
    fn place_to_vm(&self) -> Option<ToVm>;

    /// Where it stands on the way from the VM, if it looks at packets there.
    fn place_from_vm(&self) -> Option<FromVm>;

    /// A packet is on its way to the VM.
    fn on_to_vm(&mut self, now: Instant, packet: &mut Packet) -> Verdict;

    /// A packet is on its way from the VM.
    fn on_from_vm(&mut self, now: Instant, packet: &mut Packet) -> Verdict;
}

/// The mechanisms of a port.
#[derive(Debug, Default)]
pub struct Shims {
    shims: Vec<Box<dyn Shim>>,
    to_vm: Vec<(ToVm, usize)>,
    from_vm: Vec<(FromVm, usize)>,
}

impl Shims {
    /// Takes in a mechanism, at its places.
    pub fn add(&mut self, shim: Box<dyn Shim>) {
        let index = self.shims.len();
        self.to_vm.extend(shim.place_to_vm().map(|place| (place, index)));
        self.from_vm.extend(shim.place_from_vm().map(|place| (place, index)));
        self.to_vm.sort_unstable();
        self.from_vm.sort_unstable();
        self.shims.push(shim);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shims.is_empty()
    }

    /// Shows a packet for the VM to all of them, until one drops it.
    pub fn on_to_vm(&mut self, now: Instant, packet: &mut Packet) -> Verdict {
        let mut passes = self.to_vm.iter().map(|&(_, index)| self.shims[index].on_to_vm(now, packet));
        passes.find(|verdict| *verdict == Verdict::Drop).unwrap_or(Verdict::Pass)
    }

    /// Shows a packet from the VM to all of them, until one drops it.
    pub fn on_from_vm(&mut self, now: Instant, packet: &mut Packet) -> Verdict {
        let mut passes = self.from_vm.iter().map(|&(_, index)| self.shims[index].on_from_vm(now, packet));
        passes.find(|verdict| *verdict == Verdict::Drop).unwrap_or(Verdict::Pass)
    }
}
