//! The VMs that take part in a workload.

use evenkeel_scenario::format::{GuestTcp, Scenario};

use super::roles::Roles;
use crate::host::vm::Vm;

/// Who takes part, each with its position among all VMs.
pub struct Members<'a> {
    /// What the VMs do.
    pub scenario: &'a Scenario,
    /// Of the draws.
    pub seed: u64,
    /// The group that sends.
    pub from: Vec<(usize, &'a Vm)>,
    /// The group that receives.
    pub to: Vec<(usize, &'a Vm)>,
}

impl<'a> Members<'a> {
    /// Of all VMs.
    pub fn of(scenario: &'a Scenario, seed: u64, vms: &'a [Vm]) -> Self {
        let roles = Roles::of(scenario.workload());
        let of = |group: &str| vms.iter().enumerate().filter(|(_, vm)| vm.spec.group == group).collect();
        Self { scenario, seed, from: of(roles.from), to: of(roles.to) }
    }

    /// The TCP settings of a VM's group.
    pub fn tcp_of(&self, vm: &Vm) -> &'a GuestTcp {
        &self.scenario.vms[&vm.spec.group].tcp
    }
}

/// A VM's address, as runners in other VMs are told it.
pub fn address(vm: &Vm) -> String {
    vm.spec.address.to_string()
}

/// These VMs' addresses, as the VM at `position` takes them: each begins with another.
pub fn addresses_in_turn(position: usize, vms: &[(usize, &Vm)]) -> Vec<String> {
    (0..vms.len()).map(|step| address(vms[(position + step) % vms.len()].1)).collect()
}
