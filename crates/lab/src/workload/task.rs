//! Tasks of a workload in VMs.

use evenkeel_scenario::format::Scenario;

use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{Answer, Op, SocketSettings};

/// A started workload. Tasks stand with their VM's position.
#[derive(Debug, Default)]
pub struct Running {
    /// iperf3's clients, which end by themselves.
    pub iperf3: Vec<(usize, u64)>,
    /// Servers that are ended with the workload.
    pub servers: Vec<(usize, u64)>,
}

/// Starts a task; its number.
pub fn started(vm: &Vm, op: Op) -> Result<u64, LabError> {
    let what = format!("{op:?}");
    match vm.call(op)? {
        Answer::Started { task } => Ok(task),
        other => {
            Err(LabError::Vm { name: vm.spec.name.clone(), why: format!("unexpected answer to {what}: {other:?}") })
        }
    }
}

/// Settings of a VM's workload sockets.
pub fn sockets(scenario: &Scenario, vm: &Vm) -> SocketSettings {
    let tcp = &scenario.vms[&vm.spec.group].tcp;
    SocketSettings { receive_buffer_bytes: tcp.receive_buffer_bytes, send_buffer_bytes: tcp.send_buffer_bytes }
}
