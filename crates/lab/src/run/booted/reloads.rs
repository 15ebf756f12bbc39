//! PVTCP is unloaded and loaded again during a run.

use std::time::Duration;

use evenkeel_scenario::format::Scenario;

use super::BootedLab;
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{Answer, Op};
use crate::run::settings;

/// Loading takes a second in a VM without hardware help that is off its core half of the time.
const RELOADS_TIMEOUT: Duration = Duration::from_secs(900);

impl BootedLab {
    /// Starts to unload and load PVTCP in the VMs that are to do so; returns each VM with its task.
    pub(super) fn start_reloads(&self, scenario: &Scenario) -> Result<Vec<(&Vm, u64)>, LabError> {
        let mut tasks = Vec::new();
        for vm in &self.vms {
            if let Some(script) = settings::pvtcp_reload_script(&scenario.vms[&vm.spec.group].pvtcp) {
                let argv = ["/bin/sh", "-e", "-c", &script].map(str::to_owned).to_vec();
                if let Answer::Started { task } = vm.call(Op::Spawn { argv })? {
                    tasks.push((vm, task));
                }
            }
        }
        Ok(tasks)
    }
}

/// Waits for the reloads to be done; returns how many there were.
pub(super) fn finish_reloads(scenario: &Scenario, tasks: Vec<(&Vm, u64)>) -> Result<u32, LabError> {
    let mut reloaded = 0;
    for (vm, task) in tasks {
        match vm.call_within(Op::Wait { task }, RELOADS_TIMEOUT)? {
            Answer::Exec { status: 0, .. } => reloaded += scenario.vms[&vm.spec.group].pvtcp.reloads,
            other => {
                return Err(LabError::Vm {
                    name: vm.spec.name.clone(),
                    why: format!("reloading PVTCP failed: {other:?}"),
                });
            }
        }
    }
    Ok(reloaded)
}
