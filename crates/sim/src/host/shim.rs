//! The mechanisms' place on the host: shims see the packets of a VM's port, at the steps of the eBPF programs.

use std::any::Any;
use std::fmt;

pub use evenkeel_algo::steps::{FromVm, ToVm};

use crate::packet::{ConnId, Packet};
use crate::time::Instant;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, as the shim has left it.
    Pass,
    /// It ends here, or the shim keeps it.
    Drop,
}

/// What a mechanism does beside letting a packet pass.
#[derive(Debug, Default)]
pub struct Effects {
    /// The host's own packets into the network, ahead of the packet at hand, in this order.
    pub to_network: Vec<Packet>,
    /// Packets from the VM that go the rest of the way, starting behind this step.
    pub from_vm: Vec<(FromVm, Packet)>,
    /// The host's own packets for the VM, behind the packet at hand, in this order.
    pub to_vm: Vec<Packet>,
    /// Input: how many packets the port's queue towards the VM has room for.
    pub port_room: usize,
    /// Input: whether the VM has its core.
    pub vm_runs: bool,
    /// When [`Shim::on_timer`] is to be called.
    pub wake_at: Option<Instant>,
}

impl Effects {
    /// Has [`Shim::on_timer`] called at that instant, or before.
    pub fn wake(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
    }
}

/// Lets a mechanism be found by its type.
pub trait AsAny {
    /// The mechanism, whatever it is.
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<T: Any> AsAny for T {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// A mechanism on the host. `end` is the VM's end of the connection that a packet belongs to; `None` for packets that
/// belong to no open connection.
pub trait Shim: AsAny + fmt::Debug + Send {
    /// Where it stands on the way to the VM.
    fn steps_to_vm(&self) -> &'static [ToVm];

    /// Where it stands on the way from the VM.
    fn steps_from_vm(&self) -> &'static [FromVm];

    /// A packet is on its way to the VM.
    fn on_to_vm(
        &mut self,
        now: Instant,
        place: ToVm,
        end: Option<ConnId>,
        packet: &mut Packet,
        effects: &mut Effects,
    ) -> Verdict;

    /// A packet is on its way from the VM.
    fn on_from_vm(
        &mut self,
        now: Instant,
        place: FromVm,
        end: Option<ConnId>,
        packet: &mut Packet,
        effects: &mut Effects,
    ) -> Verdict;

    /// The time that [`Effects::wake`] asked for has come, or an earlier one that another mechanism asked for.
    fn on_timer(&mut self, _now: Instant, _effects: &mut Effects) {}

    /// A connection of the VM's is over.
    fn on_close(&mut self, _now: Instant, _end: ConnId) {}

    /// What it has counted so far.
    fn counters(&self) -> Counters {
        Counters::new()
    }
}

/// Names and values.
pub type Counters = Vec<(&'static str, u64)>;

/// The mechanisms of a port.
#[derive(Debug, Default)]
pub struct Shims {
    shims: Vec<Box<dyn Shim>>,
    to_vm: Vec<(ToVm, usize)>,
    from_vm: Vec<(FromVm, usize)>,
}

impl Shims {
    /// Adds a mechanism at its steps.
    pub fn add(&mut self, shim: Box<dyn Shim>) {
        let index = self.shims.len();
        self.to_vm.extend(shim.steps_to_vm().iter().map(|&place| (place, index)));
        self.from_vm.extend(shim.steps_from_vm().iter().map(|&place| (place, index)));
        self.to_vm.sort_unstable();
        self.from_vm.sort_unstable();
        self.shims.push(shim);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shims.is_empty()
    }

    /// Shows a packet for the VM to all of them, until one drops it.
    pub fn on_to_vm(
        &mut self,
        now: Instant,
        end: Option<ConnId>,
        packet: &mut Packet,
        effects: &mut Effects,
    ) -> Verdict {
        let mut passes =
            self.to_vm.iter().map(|&(place, index)| self.shims[index].on_to_vm(now, place, end, packet, effects));
        passes.find(|verdict| *verdict == Verdict::Drop).unwrap_or(Verdict::Pass)
    }

    /// Shows a packet from the VM to all of them, until one drops it.
    pub fn on_from_vm(
        &mut self,
        now: Instant,
        end: Option<ConnId>,
        packet: &mut Packet,
        effects: &mut Effects,
    ) -> Verdict {
        let mut passes =
            self.from_vm.iter().map(|&(place, index)| self.shims[index].on_from_vm(now, place, end, packet, effects));
        passes.find(|verdict| *verdict == Verdict::Drop).unwrap_or(Verdict::Pass)
    }

    /// The mechanism of this type, if there is one.
    pub fn find<T: Shim + 'static>(&mut self) -> Option<&mut T> {
        self.shims.iter_mut().find_map(|shim| (**shim).as_any().downcast_mut())
    }

    /// Shows a packet from the VM to the mechanisms behind a step, until one drops it.
    pub fn on_from_vm_behind(
        &mut self,
        now: Instant,
        behind: FromVm,
        end: Option<ConnId>,
        packet: &mut Packet,
        effects: &mut Effects,
    ) -> Verdict {
        let rest = self.from_vm.iter().filter(|(place, _)| *place > behind);
        let mut passes = rest.map(|&(place, index)| self.shims[index].on_from_vm(now, place, end, packet, effects));
        passes.find(|verdict| *verdict == Verdict::Drop).unwrap_or(Verdict::Pass)
    }

    /// Tells all of them that a connection is over.
    pub fn on_close(&mut self, now: Instant, end: ConnId) {
        for shim in &mut self.shims {
            shim.on_close(now, end);
        }
    }

    /// What all of them have counted so far.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.shims.iter().flat_map(|shim| shim.counters())
    }

    /// Lets all of them do what is due.
    pub fn on_timer(&mut self, now: Instant, effects: &mut Effects) {
        for shim in &mut self.shims {
            shim.on_timer(now, effects);
        }
    }
}
