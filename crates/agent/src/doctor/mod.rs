//! The examination: what a machine supports, what hurts TCP there, and which mechanism would help.
//!
//! [`Readings::take`] reads the machine, [`judge`] says what that means. Judging reads nothing, so it is tested with
//! fixtures. [`window`] does the same for a stretch of time: what happened in it, not since boot.

mod datapath;
mod evidence;
mod finding;
mod guest;
mod host;
mod kernel;
mod machine;
mod pvtcp;
mod readings;
mod tcp;
mod timer;
pub mod window;

pub use finding::{Finding, Level, Mechanism, Report};
pub use host::Kvm;
pub use readings::{OffloadReading, PortReading, Readings};

use machine::Machine;

/// Judges what was read, with what came of trying KVM.
pub fn judge(readings: &Readings, kvm: &Kvm) -> Report {
    let machine = Machine::of(readings);
    let mut findings = vec![machine::machine(&machine)];
    findings.extend(machine::steal(readings, &machine));
    findings.push(kernel::release(readings));
    findings.push(pvtcp::module(readings, &machine));
    findings.extend(guest::findings(readings, &machine));
    findings.extend(timer::findings(readings, &machine));
    findings.extend(tcp::findings(readings, &machine));
    findings.extend(evidence::findings(readings, &machine));
    findings.extend(datapath::findings(readings));
    findings.push(host::ports(&readings.ports));
    findings.push(host::privileges(readings));
    findings.extend(host::tools(readings.qemu.as_deref(), kvm));
    Report::new(findings)
}

#[cfg(test)]
mod tests;
