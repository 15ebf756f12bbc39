//! Which cores each virtual CPU of a run is on, and which take turns or are left to this machine's scheduler.

use evenkeel_scenario::format::{HostKind, Scenario, VmGroup, Workload};
use evenkeel_scenario::placement::core_sharing;

use super::BootedLab;
use crate::error::LabError;
use crate::host::cores::{self, Placement, ToPlace};
use crate::host::linux::{Linux, OnHost};
use crate::host::load::Load;
use crate::host::schedule::ScheduledVcpu;
use crate::host::vm::Vm;
use crate::proto::Op;
use crate::run::Shared;
use crate::run::hosts::{is_shared, linux_hosts, neighbours, own_load};
use crate::workload::Roles;
use crate::workload::task::started;

impl BootedLab {
    pub(super) fn place(&self, scenario: &Scenario, shared: &Shared) -> Result<Placement, LabError> {
        let hosts = linux_hosts(scenario);
        let to_place: Vec<ToPlace> = self
            .vms
            .iter()
            .flat_map(|vm| {
                let vcpu = ToPlace {
                    host: hosts.iter().position(|host| host.vms.contains(&vm.spec.name)),
                    contended: core_sharing(scenario, &scenario.vms[&vm.spec.group]).is_some(),
                    sends: sends(scenario, &vm.spec.group),
                };
                std::iter::repeat_n(vcpu, vm.spec.vcpu_threads as usize)
            })
            .collect();
        let cores: Vec<usize> = hosts.iter().map(|host| host.kind.cores as usize).collect();
        let placement = cores::place(&to_place, &cores, &shared.machine.cores).ok_or_else(|| LabError::Missing {
            what: "the lab needs two cores in all, and one beside those of its hosts".into(),
            help: "give this machine more cores".into(),
        })?;
        let mut placed = placement.vcpus.iter().cloned();
        for vm in &self.vms {
            let cores: Vec<_> = placed.by_ref().take(vm.spec.vcpu_threads as usize).collect();
            vm.pin(&cores, placement.driver_domain)?;
        }
        self.domains().try_for_each(|domain| domain.pin_domain(placement.driver_domain))?;
        Ok(placement)
    }

    /// Leaves VMs that are on hosts to this machine's scheduler. None: no VM is.
    pub(super) fn put_on_hosts(
        &self,
        scenario: &Scenario,
        placement: &Placement,
        seed: u64,
        shared: &Shared,
    ) -> Result<Option<Linux>, LabError> {
        let hosts = linux_hosts(scenario);
        if hosts.is_empty() {
            return Ok(None);
        }
        let mut on_hosts = Vec::new();
        for (host, cores) in hosts.iter().zip(&placement.hosts) {
            let is_shared = is_shared(host.kind);
            let is_here = |vm: &&Vm| host.vms.contains(&vm.spec.name);
            for vm in self.vms.iter().filter(is_here) {
                let VmGroup { weight, quota, slice_us, host, .. } = scenario.vms[&vm.spec.group];
                // Before a driver domain, QEMU's own threads are no part of the host.
                let has_others = is_shared && host == HostKind::Native;
                if has_others {
                    vm.pin_others_beside_vcpus(cores)?;
                }
                on_hosts.push(OnHost { vm, weight, quota, slice_us, has_others });
            }
            let domain = self.hosts.iter().find(|booted| booted.vms.iter().any(|vm| is_here(&&self.vms[*vm])));
            if let Some(vm) = domain.and_then(|booted| booted.domain()).filter(|_| is_shared) {
                vm.pin(&vec![cores.clone(); vm.spec.vcpu_threads as usize], placement.driver_domain)?;
                let weight = VmGroup::default().weight;
                on_hosts.push(OnHost { vm, weight, quota: None, slice_us: None, has_others: false });
            }
        }
        let neighbours = neighbours(&hosts, &placement.hosts, seed);
        Linux::start(&on_hosts, &neighbours, &shared.lab.evenkeel).map(Some)
    }

    /// Starts what VMs compute beside their traffic, until the run's end.
    pub(super) fn start_own_loads(&self, scenario: &Scenario, seed: u64) -> Result<(), LabError> {
        for (position, vm) in self.vms.iter().enumerate() {
            if let Some(Load { share, duty, phase }) = own_load(self.group(scenario, position), seed, position) {
                let (duty_us, phase_us) = (duty.as_micros() as u64, phase.as_micros() as u64);
                started(vm, Op::Load { share, duty_us, phase_us })?;
            }
        }
        Ok(())
    }

    /// The virtual CPUs that take turns on their cores.
    pub(super) fn scheduled(&self, scenario: &Scenario, placement: &Placement) -> Result<Vec<ScheduledVcpu>, LabError> {
        let mut cores = placement.vcpus.iter().map(|cores| cores[0]);
        let mut scheduled = Vec::new();
        for vm in &self.vms {
            for (index, (tid, core)) in vm.vcpu_threads()?.into_iter().zip(cores.by_ref()).enumerate() {
                let Some(sharing) = core_sharing(scenario, &scenario.vms[&vm.spec.group]) else { continue };
                scheduled.push(ScheduledVcpu { vm: vm.spec.name.clone(), index: index as u32, tid, core, sharing });
            }
        }
        Ok(scheduled)
    }
}

/// Whether a group's VMs send, or are many that work as hard, in the first of the workloads that they are in.
fn sends(scenario: &Scenario, group: &str) -> bool {
    let takes_part = |workload: &&Workload| {
        let Roles { from, to } = Roles::of(workload);
        from == group || to == group
    };
    let Some(workload) = scenario.workloads.values().find(takes_part) else { return false };
    let Roles { from, to } = Roles::of(workload);
    // Several receivers have more work than the senders: beside the driver domain they would leave the other cores
    // idle.
    let one_receives = scenario.vms[to].count == 1;
    from == group || (matches!(workload, Workload::Poisson { .. }) && !one_receives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_placed_by_its_first_workload() {
        let text = "schema = 2\nname = \"t\"\ntitle = \"t\"\nduration_ms = 1000\nnetwork.rate_mbit = 10\n\
            vms = { a = {}, b = {}, c = { count = 2 } }\n\
            [workloads.x]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n\
            [workloads.y]\nkind = \"poisson\"\nfrom = \"b\"\nto = \"c\"\nload = 0.1\nsizes = 1000\n";
        let scenario = Scenario::from_str(text, "t.toml").unwrap().scenario;
        assert_eq!(["a", "b", "c"].map(|group| sends(&scenario, group)), [true, false, true]);
    }
}
