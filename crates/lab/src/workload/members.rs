//! The VMs that take part in a workload.

use evenkeel_scenario::format::Scenario;
use evenkeel_scenario::sweep::workload_seed;

use super::roles::Roles;
use super::task::started;
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{Op, SocketSettings, Task, port_of};

/// Who takes part, each with its position among all VMs.
pub struct Members<'a> {
    /// What the VMs do: one workload.
    pub scenario: &'a Scenario,
    /// Its place among those of the run.
    pub place: u8,
    /// Seed of the workload's random draws.
    pub seed: u64,
    /// The group that sends.
    pub from: Vec<(usize, &'a Vm)>,
    /// The group that receives.
    pub to: Vec<(usize, &'a Vm)>,
}

impl<'a> Members<'a> {
    /// Of all VMs, in the only workload of `scenario`. `seed` is the run's.
    pub fn of(scenario: &'a Scenario, place: u8, seed: u64, vms: &'a [Vm]) -> Self {
        let roles = Roles::of(scenario.workload());
        let of = |group: &str| vms.iter().enumerate().filter(|(_, vm)| vm.spec.group == group).collect();
        Self { scenario, place, seed: workload_seed(seed, place.into()), from: of(roles.from), to: of(roles.to) }
    }

    /// Settings of a VM's sockets.
    pub fn sockets(&self, vm: &Vm) -> SocketSettings {
        let tcp = &self.scenario.vms[&vm.spec.group].tcp;
        SocketSettings { receive_buffer_bytes: tcp.receive_buffer_bytes, send_buffer_bytes: tcp.send_buffer_bytes }
    }

    /// The port of a server, where the first workload's is `first`.
    pub fn port(&self, first: u16) -> u16 {
        port_of(first, self.place)
    }

    /// What starts a task in a VM.
    pub fn start_op(&self, task: Task) -> Op {
        Op::Start { place: self.place, task }
    }

    /// Starts a task in a VM.
    pub fn start(&self, vm: &Vm, task: Task) -> Result<(), LabError> {
        started(vm, self.start_op(task)).map(drop)
    }
}

/// A VM's address, as runners in other VMs are told it.
pub fn address(vm: &Vm) -> String {
    vm.spec.address.to_string()
}

/// These VMs' addresses in the order in which the VM at `position` takes them: each VM begins with another.
pub fn addresses_in_turn(position: usize, vms: &[(usize, &Vm)]) -> Vec<String> {
    (0..vms.len()).map(|step| address(vms[(position + step) % vms.len()].1)).collect()
}
