//! Tasks in VMs.

use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{Answer, Op};

/// A task of a VM that is known by its position among all VMs, and the task's number there.
pub type TaskOf = (usize, u64);

/// Starts a task; returns its number.
pub fn started(vm: &Vm, op: Op) -> Result<u64, LabError> {
    let what = format!("{op:?}");
    match vm.call(op)? {
        Answer::Started { task } => Ok(task),
        other => {
            Err(LabError::Vm { name: vm.spec.name.clone(), why: format!("unexpected answer to {what}: {other:?}") })
        }
    }
}
