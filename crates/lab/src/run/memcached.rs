//! memcached in a VM.

use super::task::started;
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{MEMCACHED_PORT, Op};

/// Starts memcached in a VM; its task.
pub fn start(vm: &Vm) -> Result<u64, LabError> {
    let argv = ["memcached", "-u", "root", "-m", "32", "-t", "1", "-U", "0", "-p", &MEMCACHED_PORT.to_string()];
    let task = started(vm, Op::Spawn { argv: argv.map(str::to_owned).to_vec() })?;
    vm.shell(&format!(
        "i=0; until ss -Hltn sport = :{MEMCACHED_PORT} | grep -q .; do i=$((i+1)); [ $i -lt 200 ]; sleep 0.05; done"
    ))?;
    Ok(task)
}
