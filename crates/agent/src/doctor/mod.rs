//! The examination: what a machine supports, what hurts TCP there, and which mechanism would help.
//!
//! [`Readings::take`] reads the machine, [`judge`] says what that means. Judging reads nothing, so it is tested with
//! fixtures.

mod datapath;
mod evidence;
mod finding;
mod guest;
mod host;
mod kernel;
mod place;
mod pvtcp;
mod readings;
mod tcp;
mod timer;

pub use finding::{Finding, Level, Mechanism, Report};
pub use host::Kvm;
pub use readings::{OffloadReading, PortReading, Readings};

use place::Place;

/// Judges what was read, with what came of trying KVM.
pub fn judge(readings: &Readings, kvm: &Kvm) -> Report {
    let place = Place::of(readings);
    let mut findings = vec![place::machine(&place)];
    findings.extend(place::steal(readings, &place));
    findings.push(kernel::release(readings));
    findings.push(pvtcp::module(readings, &place));
    findings.extend(guest::findings(readings, &place));
    findings.extend(timer::findings(readings, &place));
    findings.extend(tcp::findings(readings, &place));
    findings.extend(evidence::findings(readings, &place));
    findings.extend(datapath::findings(readings));
    findings.push(host::ports(&readings.ports));
    findings.push(host::privileges(readings));
    findings.extend(host::tools(readings.qemu.as_deref(), kvm));
    Report::new(findings)
}

#[cfg(test)]
mod tests;
