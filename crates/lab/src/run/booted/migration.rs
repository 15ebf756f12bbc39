//! A VM moves to another host during a run.

use std::time::{Duration, Instant};

use evenkeel_scenario::format::Scenario;

use super::{BootedLab, CHANNEL, Control};
use crate::error::LabError;
use crate::host::vm::{Channel, Nic};
use crate::run::measured::Moved;

impl BootedLab {
    /// Moves those VMs that are to move, each at its time, as an operator would: their ports go offline, they move, and
    /// their new hosts take over.
    pub(super) fn migrate(
        &self,
        scenario: &Scenario,
        began: Instant,
        control: &mut Control<'_, '_>,
    ) -> Result<Vec<Moved>, LabError> {
        let shared = control.shared;
        let mut moved = Vec::new();
        for (index, port) in &self.destinations {
            let vm = &self.vms[*index];
            let Some(at_ms) = self.group(scenario, *index).migrate_at_ms else { continue };
            let left = (began + Duration::from_millis(at_ms.into())).saturating_duration_since(Instant::now());
            shared.interrupt.sleep(left, || self.check_alive())?;
            let start = Instant::now();
            let mut offline = None;
            for agent in control.agents.iter_mut().filter(|agent| agent.has(vm.spec.port())) {
                agent.take_offline(vm.spec.port())?;
                offline = Some(start.elapsed());
            }
            let nic = Nic { tap: port.tap.clone(), ..vm.spec.nics[0].clone() };
            let socket = self.channel_at(*index, port);
            let channel = Channel { name: CHANNEL.to_owned(), socket, listens: true };
            let before: usize = self.vms[..*index].iter().map(|vm| vm.spec.vcpu_threads as usize).sum();
            let cores = &control.placement.vcpus[before..before + vm.spec.vcpu_threads as usize];
            let driver_domain = control.placement.driver_domain;
            let migrated = vm.migrate(vec![nic], vec![channel], |vm, pid| vm.pin_process(pid, cores, driver_domain))?;
            let start = Instant::now();
            let guest = control.guests.iter().find(|guest| guest.vm().spec.name == vm.spec.name);
            let online =
                guest.map(|guest| guest.wait_ready(&shared.interrupt).map(|()| start.elapsed())).transpose()?;
            let (name, port) = (vm.spec.name.clone(), port.tap.clone());
            moved.push(Moved { vm: *index, name, port, offline, migrated, online });
        }
        Ok(moved)
    }
}
