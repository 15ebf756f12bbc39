//! Which core each virtual CPU of a run is on, and which take turns.

use evenkeel_scenario::format::{Scenario, Workload};

use super::BootedLab;
use crate::error::LabError;
use crate::host::cores::{self, Placement, ToPlace};
use crate::host::schedule::ScheduledVcpu;
use crate::run::Shared;
use crate::workload::Roles;

impl BootedLab {
    pub(super) fn place(&self, scenario: &Scenario, roles: &Roles, shared: &Shared) -> Result<Placement, LabError> {
        // Several that receive are more work than those that send: beside the driver domain they would leave the other
        // cores idle.
        let one_receives = self.vms.iter().filter(|vm| vm.spec.group == roles.to).count() == 1;
        let spreads = matches!(scenario.workload, Workload::Poisson { .. }) && !one_receives;
        let to_place: Vec<ToPlace> = self
            .vms
            .iter()
            .flat_map(|vm| {
                let vcpu = ToPlace {
                    contended: scenario.vms[&vm.spec.group].core.vms_per_core > 1,
                    sends: spreads || vm.spec.group == roles.from,
                };
                std::iter::repeat_n(vcpu, vm.spec.vcpu_threads as usize)
            })
            .collect();
        let placement = cores::place(&to_place, &shared.machine.cores).ok_or_else(|| LabError::Missing {
            what: "the lab needs two cores".into(),
            help: "give this machine a second core".into(),
        })?;
        let mut placed = placement.vcpus.iter().copied();
        for vm in &self.vms {
            let cores: Vec<_> = placed.by_ref().take(vm.spec.vcpu_threads as usize).collect();
            vm.pin(&cores, placement.driver_domain)?;
        }
        self.domains().try_for_each(|domain| domain.pin_domain(placement.driver_domain))?;
        Ok(placement)
    }

    pub(super) fn scheduled(&self, scenario: &Scenario, placement: &Placement) -> Result<Vec<ScheduledVcpu>, LabError> {
        let mut cores = placement.vcpus.iter().copied();
        let mut scheduled = Vec::new();
        for vm in &self.vms {
            for (index, (tid, core)) in vm.vcpu_threads()?.into_iter().zip(cores.by_ref()).enumerate() {
                let sharing = scenario.vms[&vm.spec.group].core.clone();
                scheduled.push(ScheduledVcpu { vm: vm.spec.name.clone(), index: index as u32, tid, core, sharing });
            }
        }
        Ok(scheduled)
    }
}
